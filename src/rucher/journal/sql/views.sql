-- The statements of views.py, one or more for each event that changes a view. Both databases obey them as they stand.
-- A condition that seems to be said twice is that of a partial index, which SQLite uses only where it stands word for word.

-- name: cursor.advance
INSERT INTO cursors (name, seq) VALUES (:name, :seq)
ON CONFLICT (name) DO UPDATE SET seq = CASE WHEN excluded.seq > cursors.seq THEN excluded.seq ELSE cursors.seq END;

-- name: hop.made
INSERT INTO hops (hop_id, seq, event_id, trace_id, rule_id, dest, mode, session_mode, state, made_at, updated_at)
VALUES (:hop_id, :seq, :event_id, :trace_id, :rule_id, :dest, :mode, :session_mode, 'made', :at, :at);

-- name: hop.state
UPDATE hops SET state = :state, detail = :detail, updated_at = :at WHERE hop_id = :hop_id;

-- name: hop.acknowledged
UPDATE hops SET state = CASE state WHEN 'made' THEN 'acknowledged' ELSE state END, session_id = :session_id, updated_at = :at
WHERE hop_id = :hop_id;

-- name: hop.detail
UPDATE hops SET detail = :detail, updated_at = :at WHERE hop_id = :hop_id;

-- name: hop.sending
UPDATE hops SET state = 'sending', attempts = attempts + 1, updated_at = :at
WHERE hop_id = :hop_id AND state NOT IN ('delivered', 'done');

-- name: hop.again
UPDATE hops SET state = 'made', retries = retries + 1, told = 0, detail = :detail, updated_at = :at WHERE hop_id = :hop_id;

-- name: hop.told
UPDATE hops SET told = 1 WHERE hop_id = :hop_id;

-- name: delivery.pending
INSERT INTO deliveries (hop_id, part, parts, seq, surface, state, began_at, updated_at)
VALUES (:hop_id, :part, :parts, :seq, :surface, 'pending', :at, :at) ON CONFLICT (hop_id, part) DO NOTHING;

-- name: delivery.sending
INSERT INTO deliveries (hop_id, part, parts, seq, surface, state, attempts, began_at, updated_at)
VALUES (:hop_id, :part, :parts, :seq, :surface, 'sending', :attempt, :at, :at)
ON CONFLICT (hop_id, part) DO UPDATE SET state = 'sending', attempts = excluded.attempts, surface = excluded.surface,
                                         not_before = 0, updated_at = excluded.updated_at;

-- name: delivery.deferred
UPDATE deliveries SET state = 'pending', detail = :detail, not_before = :not_before, updated_at = :at
WHERE hop_id = :hop_id AND part = :part;

-- name: delivery.ended
INSERT INTO deliveries (hop_id, part, parts, seq, state, detail, receipt, began_at, updated_at)
VALUES (:hop_id, :part, :parts, :seq, :state, :detail, :receipt, :at, :at)
ON CONFLICT (hop_id, part) DO UPDATE SET state = excluded.state, detail = excluded.detail, receipt = excluded.receipt,
                                         not_before = 0, updated_at = excluded.updated_at;

-- name: delivery.again
UPDATE deliveries SET state = 'pending', detail = :detail, not_before = 0, updated_at = :at
WHERE hop_id = :hop_id AND state = 'failed';

-- name: delivery.forget
DELETE FROM deliveries WHERE hop_id = :hop_id AND part = 0;

-- name: session.opened
INSERT INTO sessions (session_id, tenant, agent, room, thread, state, opened_at, updated_at)
VALUES (:session_id, :tenant, :agent, :room, :thread, 'open', :at, :at);

-- name: session.state
UPDATE sessions SET state = :state, reason = :reason, updated_at = :at WHERE session_id = :session_id;

-- name: run.created
INSERT INTO runs (run_id, seq, tenant, agent, queue, lane, session_id, hop_id, event_id, trace_id, parent_id, mission, accounts,
                  priority, state, wish, model, engine_version, prompt_hash, tools_hash, created_at, updated_at)
VALUES (:run_id, :seq, :tenant, :agent, :queue, :lane, :session_id, :hop_id,
        CASE WHEN :event_id <> '' THEN :event_id -- runs of schema 1 named their hop alone
             ELSE coalesce((SELECT hops.event_id FROM hops WHERE hops.hop_id = :hop_id), '') END,
        :trace_id, :parent_id, :mission, :accounts, :priority,
        CASE WHEN EXISTS (SELECT 1 FROM runs AS parent WHERE parent.run_id = :parent_id AND parent.wish = 'cancel') THEN 'ready'
             WHEN EXISTS (SELECT 1 FROM runs AS ahead
                          WHERE ahead.lane = :lane AND ahead.state IN ('queued', 'ready', 'running')
                            AND (ahead.state <> 'queued' OR ahead.wish <> 'pause'))
             THEN 'queued' ELSE 'ready' END,
        CASE WHEN EXISTS (SELECT 1 FROM runs AS parent WHERE parent.run_id = :parent_id AND parent.wish = 'cancel') THEN 'cancel'
             ELSE '' END,
        :model, :engine_version, :prompt_hash, :tools_hash, :at, :at);

-- name: run.promote_of
UPDATE runs SET state = 'ready'
WHERE run_id = (SELECT run_id FROM runs
                WHERE lane = (SELECT lane FROM runs WHERE run_id = :run_id) AND state = 'queued' AND wish <> 'pause'
                  AND state IN ('queued', 'ready', 'running') ORDER BY seq LIMIT 1)
  AND NOT EXISTS (SELECT 1 FROM runs AS busy
                  WHERE busy.lane = (SELECT lane FROM runs WHERE run_id = :run_id) AND busy.state IN ('ready', 'running')
                    AND busy.state IN ('queued', 'ready', 'running'));

-- name: run.promote_woken
UPDATE runs SET state = 'ready'
WHERE state = 'queued' AND wish <> 'pause' AND state IN ('queued', 'ready', 'running')
  AND lane IN (SELECT woken.lane FROM runs AS woken JOIN waits ON waits.run_id = woken.run_id WHERE waits.topic = :topic)
  AND NOT EXISTS (SELECT 1 FROM runs AS busy WHERE busy.lane = runs.lane AND busy.state IN ('ready', 'running')
                    AND busy.state IN ('queued', 'ready', 'running'))
  AND NOT EXISTS (SELECT 1 FROM runs AS earlier
                  WHERE earlier.lane = runs.lane AND earlier.state = 'queued' AND earlier.wish <> 'pause'
                    AND earlier.state IN ('queued', 'ready', 'running') AND earlier.seq < runs.seq);

-- name: run.acquired
UPDATE runs SET state = 'running', worker = :worker, reason = '', updated_at = :at WHERE run_id = :run_id;

-- name: run.ended
UPDATE runs SET state = :state, wish = '', reason = :reason, updated_at = :at WHERE run_id = :run_id;

-- name: run.let_go
UPDATE runs SET state = CASE wish WHEN 'cancel' THEN 'ready' ELSE :state END, reason = :reason, updated_at = :at
WHERE run_id = :run_id;

-- name: run.migrated
UPDATE runs SET engine_version = :engine_version, prompt_hash = :prompt_hash, tools_hash = :tools_hash, updated_at = :at
WHERE run_id = :run_id;

-- name: run.spent
UPDATE runs SET input_tokens = input_tokens + :input_tokens, output_tokens = output_tokens + :output_tokens,
                nanodollars = nanodollars + :nanodollars, unpriced = unpriced + :unpriced, updated_at = :at
WHERE run_id = :run_id;

-- name: run.paused
UPDATE runs SET wish = 'pause', state = CASE state WHEN 'ready' THEN 'queued' ELSE state END, updated_at = :at
WHERE run_id = :run_id AND wish = '' AND state IN ('queued', 'ready', 'running', 'waiting');

-- name: run.resumed
UPDATE runs SET wish = '', updated_at = :at WHERE run_id = :run_id AND wish = 'pause';

-- name: run.cancelling
UPDATE runs SET wish = 'cancel', state = CASE state WHEN 'running' THEN 'running' ELSE 'ready' END, updated_at = :at
WHERE state IN ('queued', 'ready', 'running', 'waiting') AND run_id IN (
    WITH RECURSIVE tree (run_id) AS (
        SELECT run_id FROM runs WHERE run_id = :run_id
        UNION SELECT child.run_id FROM runs AS child JOIN tree ON child.parent_id = tree.run_id AND child.parent_id <> ''
    ) SELECT run_id FROM tree);

-- name: wait.opened
INSERT INTO waits (run_id, step, item, kind, mode, topic, due_at, seq, state)
VALUES (:run_id, :step, :item, :kind, :mode, :topic, :due_at, :seq, 'open');

-- name: wait.catch_up
UPDATE waits SET state = 'met', outcome = (SELECT signals.outcome FROM signals WHERE signals.topic = waits.topic)
WHERE run_id = :run_id AND state = 'open' AND topic IN (SELECT topic FROM signals);

-- name: wait.signalled
UPDATE waits SET state = 'met', outcome = :outcome WHERE topic = :topic AND state = 'open';

-- name: wait.fired
UPDATE waits SET state = 'met', outcome = :outcome WHERE run_id = :run_id AND step = :step AND item = :item AND state = 'open';

-- name: wait.over
DELETE FROM waits WHERE run_id = :run_id;

-- name: run.wake
UPDATE runs SET state = 'queued', updated_at = :at
WHERE run_id = :run_id AND state = 'waiting'
  AND (EXISTS (SELECT 1 FROM waits WHERE waits.run_id = runs.run_id AND waits.state = 'met' AND waits.mode = 'any')
       OR NOT EXISTS (SELECT 1 FROM waits WHERE waits.run_id = runs.run_id AND waits.state = 'open'));

-- name: run.wake_all
UPDATE runs SET state = 'queued', updated_at = :at
WHERE state = 'waiting' AND run_id IN (SELECT run_id FROM waits WHERE topic = :topic)
  AND (EXISTS (SELECT 1 FROM waits WHERE waits.run_id = runs.run_id AND waits.state = 'met' AND waits.mode = 'any')
       OR NOT EXISTS (SELECT 1 FROM waits WHERE waits.run_id = runs.run_id AND waits.state = 'open'));

-- name: signal.sent
INSERT INTO signals (topic, seq, outcome) VALUES (:topic, :seq, :outcome) ON CONFLICT (topic) DO NOTHING;

-- name: budget.opened
INSERT INTO budgets (account, measure, ceiling) VALUES (:account, :measure, :ceiling) ON CONFLICT DO NOTHING;

-- name: budget.reserve
-- An amount of 0 asks only that the measure is not used up.
UPDATE budgets SET reserved = reserved + :amount
WHERE account = :account AND measure = :measure
  AND (ceiling IS NULL OR (spent + reserved + :amount <= ceiling AND spent < ceiling));

-- name: budget.settle
UPDATE budgets SET reserved = reserved - :released, spent = spent + :amount
WHERE account = :account AND measure = :measure;

-- name: steer.told
INSERT INTO steers (seq, run_id, principal, text) VALUES (:seq, :run_id, :principal, :text);

-- name: artifact.stored
INSERT INTO artifacts (digest, bytes, run_id) VALUES (:digest, :bytes, :run_id) ON CONFLICT (digest) DO NOTHING;
