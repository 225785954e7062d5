-- Who works and who holds which run. Obeyed by the writer, between events; none of it is an event.

-- name: worker.join
INSERT INTO workers (worker, host, role, beats, started_at) VALUES (:worker, :host, :role, 0, :at)
ON CONFLICT (worker) DO NOTHING RETURNING worker;

-- name: worker.beat
UPDATE workers SET beats = beats + 1 WHERE worker = :worker RETURNING beats;

-- name: worker.leave
DELETE FROM workers WHERE worker = :worker AND beats = :beats RETURNING worker;

-- name: worker.end
DELETE FROM workers WHERE worker = :worker RETURNING worker;

-- name: claims.orphaned
DELETE FROM claims WHERE worker NOT IN (SELECT worker FROM workers) RETURNING run_id;

-- name: claim.take
INSERT INTO claims (run_id, worker, claimed_at)
SELECT run_id, :worker, :at FROM runs
WHERE run_id IN (SELECT value FROM json_each(:runs)) AND state IN ('ready', 'running') AND (wish <> 'pause' OR state = 'running')
  AND EXISTS (SELECT 1 FROM workers WHERE worker = :worker)
ON CONFLICT (run_id) DO NOTHING RETURNING run_id;

-- name: claim.release
DELETE FROM claims WHERE run_id IN (SELECT value FROM json_each(:runs)) AND worker = :worker RETURNING run_id;

-- name: meta.put
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING RETURNING value;
