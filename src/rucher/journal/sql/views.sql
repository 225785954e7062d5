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

-- name: session.reset
UPDATE sessions SET reset_seq = :seq, updated_at = :at WHERE session_id = :session_id;

-- name: user.seen
INSERT INTO users (principal, name, room, first_seen_at, last_seen_at) VALUES (:principal, :name, :room, :at, :at)
ON CONFLICT (principal) DO UPDATE SET
    name = CASE excluded.name WHEN '' THEN users.name ELSE excluded.name END, room = excluded.room,
    first_seen_at = coalesce(users.first_seen_at, excluded.first_seen_at), last_seen_at = excluded.last_seen_at;

-- name: user.told_of
INSERT INTO users (principal) VALUES (:principal) ON CONFLICT (principal) DO NOTHING;

-- name: user.named
UPDATE users SET given_name = :name WHERE principal = :principal;

-- name: user.blocked
UPDATE users SET blocked = 1 WHERE principal = :principal;

-- name: user.unblocked
UPDATE users SET blocked = 0 WHERE principal = :principal;

-- name: role.granted
INSERT INTO roles (principal, agent, role, granted_by, granted_at) VALUES (:principal, :agent, :role, :by, :at)
ON CONFLICT (principal, agent) DO UPDATE SET
    role = excluded.role, granted_by = excluded.granted_by, granted_at = excluded.granted_at;

-- name: role.revoked
DELETE FROM roles WHERE principal = :principal AND agent = :agent;

-- name: role.all_revoked
DELETE FROM roles WHERE principal = :principal;

-- name: room.seen
INSERT INTO rooms (room, first_seen_at, last_seen_at) VALUES (:room, :at, :at)
ON CONFLICT (room) DO UPDATE SET
    first_seen_at = coalesce(rooms.first_seen_at, excluded.first_seen_at), last_seen_at = excluded.last_seen_at;

-- name: room.told_of
INSERT INTO rooms (room) VALUES (:room) ON CONFLICT (room) DO NOTHING;

-- name: room.named
UPDATE rooms SET given_name = :name WHERE room = :room;

-- name: room.policy
UPDATE rooms SET policy = :policy WHERE room = :room;

-- name: held.added
INSERT INTO held (event_id, seq, principal, room, reason, held_at) VALUES (:event_id, :seq, :principal, :room, :reason, :at)
ON CONFLICT (event_id) DO NOTHING;

-- name: held.over
DELETE FROM held WHERE event_id = :event_id;

-- name: engaged.added
INSERT INTO engaged (agent, room, thread) VALUES (:agent, :room, :thread) ON CONFLICT (agent, room, thread) DO NOTHING;

-- name: engaged.over
DELETE FROM engaged WHERE agent = :agent AND room = :room AND thread = :thread;
-- name: note.taken
INSERT INTO notes (session_id, event_id, seq) VALUES (:session_id, :event_id, :seq) ON CONFLICT DO NOTHING;

-- name: note.unless_awaited
INSERT INTO notes (session_id, event_id, seq)
SELECT :session_id, :event_id, :seq WHERE NOT EXISTS (SELECT 1 FROM waits WHERE topic = :topic AND state = 'open')
ON CONFLICT DO NOTHING;

-- name: note.heard
DELETE FROM notes WHERE session_id = :session_id AND seq <= :seq;

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

-- name: schedule.taken
INSERT INTO schedules (schedule, course, version, reached, since) VALUES (:schedule, :course, :version, :at, :at)
ON CONFLICT (schedule) DO UPDATE SET
    reached = CASE WHEN schedules.course = excluded.course THEN schedules.reached ELSE excluded.reached END,
    since = CASE WHEN schedules.course = excluded.course THEN schedules.since ELSE excluded.since END,
    course = excluded.course, version = excluded.version;

-- name: schedule.others_gone
DELETE FROM schedules WHERE version <> :version;

-- name: schedule.reached
UPDATE schedules SET reached = :planned_at WHERE schedule = :schedule;

-- name: schedule.paused
UPDATE schedules SET paused = 1 WHERE schedule = :schedule;

-- name: schedule.resumed
UPDATE schedules SET paused = 0, reached = :at WHERE schedule = :schedule AND paused = 1;

-- name: fire.recorded
-- What fired once stays so, whatever a clock that was set back says later.
INSERT INTO fires (schedule, planned_at, seq, state, first_at, times, late_us, event_id, by_whom, detail, at)
VALUES (:schedule, :planned_at, :seq, :state, :first_at, :times, :late_us, :event_id, :by_whom, :detail, :at)
ON CONFLICT (schedule, planned_at) DO UPDATE SET
    seq = excluded.seq, state = excluded.state, first_at = excluded.first_at, times = excluded.times,
    late_us = excluded.late_us, event_id = excluded.event_id, by_whom = excluded.by_whom, detail = excluded.detail,
    at = excluded.at
WHERE fires.state <> 'fired';

-- name: schedule.proposed
INSERT INTO schedule_proposals (seq, text, why, principal, state, at) VALUES (:seq, :text, :why, :principal, 'open', :at);

-- name: schedule.decided
UPDATE schedule_proposals SET state = :state, by_whom = :by_whom, at = :at WHERE seq = :proposal AND state = 'open';
