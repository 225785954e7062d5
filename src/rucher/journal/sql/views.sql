-- name: cursor.advance
INSERT INTO cursors (name, seq) VALUES (:name, :seq)
ON CONFLICT (name) DO UPDATE SET seq = max(seq, excluded.seq);

-- name: hop.made
INSERT INTO hops (hop_id, seq, event_id, trace_id, rule_id, dest, state, updated_at)
VALUES (:hop_id, :seq, :event_id, :trace_id, :rule_id, :dest, 'made', :at);

-- name: hop.state
UPDATE hops SET state = :state, detail = :detail, updated_at = :at WHERE hop_id = :hop_id;

-- name: hop.acknowledged
UPDATE hops SET state = CASE state WHEN 'made' THEN 'acknowledged' ELSE state END, session_id = :session_id, updated_at = :at
WHERE hop_id = :hop_id;

-- name: hop.detail
UPDATE hops SET detail = :detail, updated_at = :at WHERE hop_id = :hop_id;

-- name: hop.sending
UPDATE hops SET state = 'sending', attempts = attempts + 1, updated_at = :at WHERE hop_id = :hop_id;

-- name: session.opened
INSERT INTO sessions (session_id, tenant, agent, room, thread, state, opened_at, updated_at)
VALUES (:session_id, :tenant, :agent, :room, :thread, 'open', :at, :at);

-- name: session.state
UPDATE sessions SET state = :state, reason = :reason, updated_at = :at WHERE session_id = :session_id;

-- name: run.created
INSERT INTO runs (run_id, seq, tenant, session_id, agent, hop_id, trace_id, state, model, engine_version, created_at,
                  updated_at)
VALUES (:run_id, :seq, :tenant, :session_id, :agent, :hop_id, :trace_id, 'ready', :model, :engine_version, :at, :at);

-- name: run.state
UPDATE runs SET state = :state, reason = :reason, updated_at = :at WHERE run_id = :run_id;

-- name: run.step
UPDATE runs SET steps = steps + 1, input_tokens = input_tokens + :input_tokens,
                output_tokens = output_tokens + :output_tokens, updated_at = :at
WHERE run_id = :run_id;
