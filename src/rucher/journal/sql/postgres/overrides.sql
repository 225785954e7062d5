-- Statements of the shared files that PostgreSQL is asked in other words: same names, same parameters, same answers.

-- name: runs.claimable
WITH RECURSIVE queues (queue) AS (
    SELECT min(queue) FROM runs WHERE state IN ('ready', 'running')
    UNION ALL
    SELECT (SELECT min(runs.queue) FROM runs WHERE runs.state IN ('ready', 'running') AND runs.queue > queues.queue)
    FROM queues WHERE queues.queue IS NOT NULL
)
SELECT free.* FROM queues CROSS JOIN LATERAL (
    SELECT runs.* FROM runs
    WHERE runs.queue = queues.queue AND runs.state IN ('ready', 'running')
      AND (runs.wish = '' OR (runs.wish = 'pause' AND runs.state = 'running'))
      AND NOT EXISTS (SELECT 1 FROM claims WHERE claims.run_id = runs.run_id)
    ORDER BY runs.priority DESC, runs.seq LIMIT ?) AS free
ORDER BY free.priority DESC, free.seq;

-- name: claim.take
INSERT INTO claims (run_id, worker, claimed_at)
SELECT free.run_id, :worker, :at FROM (
    SELECT runs.run_id FROM runs
    WHERE runs.run_id = ANY(ARRAY(SELECT json_array_elements_text(:runs::json)))
      AND runs.state IN ('ready', 'running') AND (runs.wish <> 'pause' OR runs.state = 'running')
      AND EXISTS (SELECT 1 FROM workers WHERE worker = :worker)
    FOR UPDATE SKIP LOCKED) AS free
ON CONFLICT (run_id) DO NOTHING RETURNING run_id;

-- name: claim.release
DELETE FROM claims WHERE run_id = ANY(ARRAY(SELECT json_array_elements_text(:runs::json))) AND worker = :worker
RETURNING run_id;

-- The OFFSET keeps the planner from reading all events for those of a few runs, which it does where nothing was analyzed yet.
-- name: event.of_trace
SELECT * FROM events WHERE trace_id = ? AND run_id IS NULL
UNION ALL
SELECT own.* FROM runs JOIN run_places AS place ON place.run_no = runs.seq
CROSS JOIN LATERAL (SELECT * FROM events WHERE events.seq = place.seq OFFSET 0) AS own WHERE runs.trace_id = ?
ORDER BY seq;

-- name: event.of_runs
SELECT own.* FROM run_places AS place CROSS JOIN LATERAL (SELECT * FROM events WHERE events.seq = place.seq OFFSET 0) AS own
WHERE place.run_no = ANY(ARRAY(SELECT seq FROM runs WHERE run_id = ANY(ARRAY(SELECT json_array_elements_text(?::json)))))
ORDER BY place.run_no, place.run_seq;

-- name: runs.before
SELECT runs.*, (
    SELECT count(*) FROM run_places AS place
    CROSS JOIN LATERAL (SELECT type FROM events WHERE events.seq = place.seq OFFSET 0) AS own
    WHERE place.run_no = runs.seq AND own.type = 'step.recorded') AS steps
FROM runs WHERE seq < ? AND state LIKE ? AND wish LIKE ? AND session_id LIKE ? ORDER BY seq DESC LIMIT ?;

-- name: run.starting
SELECT runs.*, (
    SELECT count(*) FROM run_places AS place
    CROSS JOIN LATERAL (SELECT type FROM events WHERE events.seq = place.seq OFFSET 0) AS own
    WHERE place.run_no = runs.seq AND own.type = 'step.recorded') AS steps
FROM runs WHERE run_id >= ? AND run_id < ? LIMIT 2;

-- name: session.exchanges
SELECT runs.run_id, body_text(asked.body, 'text') AS request, body_text(answered.body, 'text') AS answer
FROM runs
JOIN events AS asked ON asked.id = runs.event_id AND (asked.run_id IS NULL OR asked.run_seq = 0)
JOIN events AS answered ON answered.trace_id = runs.trace_id AND answered.run_id IS NULL AND answered.source = 'agent'
                       AND answered.type = 'answer' AND body_text(answered.body, 'run') = runs.run_id
WHERE runs.session_id = ? AND runs.state = 'done' AND runs.seq < ?
  AND runs.seq > coalesce((SELECT reset_seq FROM sessions WHERE sessions.session_id = runs.session_id), 0)
ORDER BY runs.seq DESC LIMIT ?;
