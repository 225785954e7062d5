-- name: event.insert
INSERT INTO events (seq, id, tenant, source, type, principal, trust, addressed_to, trace_id, parent_id, occurred_at,
                    recorded_at, body, run_id, run_seq, fence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: event.insert_new
INSERT INTO events (seq, id, tenant, source, type, principal, trust, addressed_to, trace_id, parent_id, occurred_at,
                    recorded_at, body, run_id, run_seq, fence)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: event.by_id
SELECT * FROM events WHERE id = ? AND run_id IS NULL;

-- name: event.by_place
SELECT * FROM events WHERE run_id = ? AND run_seq = ?;

-- name: event.anywhere
SELECT * FROM events WHERE id = ?;

-- name: event.after
SELECT * FROM events WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: event.before
SELECT * FROM events WHERE seq < ? ORDER BY seq DESC LIMIT ?;

-- name: event.of_trace
SELECT * FROM events WHERE trace_id = ?1 AND run_id IS NULL
UNION ALL
SELECT * FROM events WHERE run_id IN (SELECT run_id FROM runs WHERE trace_id = ?1)
ORDER BY seq;

-- name: event.of_run
SELECT * FROM events WHERE run_id = ? ORDER BY run_seq;

-- name: event.ids_starting
SELECT DISTINCT trace_id FROM events WHERE trace_id >= ? AND trace_id < ? AND run_id IS NULL LIMIT 3;

-- name: event.head
SELECT coalesce(max(seq), 0) AS seq FROM events;

-- name: run.fence_at
SELECT fence FROM events WHERE run_id = ? AND run_seq = ?;

-- name: cursor.get
SELECT seq FROM cursors WHERE name = ?;

-- name: hops.open
SELECT * FROM hops WHERE state IN ('made', 'acknowledged', 'sending') AND seq > ? ORDER BY seq;

-- name: hops.ended_badly
SELECT * FROM hops WHERE state IN ('failed', 'uncertain') AND updated_at > ? ORDER BY seq DESC;

-- name: hop.get
SELECT * FROM hops WHERE hop_id = ?;

-- name: hops.of_session
SELECT * FROM hops WHERE session_id = ? AND state = 'acknowledged' ORDER BY seq;

-- name: sessions.all
SELECT * FROM sessions ORDER BY opened_at, session_id;

-- name: session.get
SELECT * FROM sessions WHERE session_id = ?;

-- name: runs.recent
SELECT * FROM runs ORDER BY seq DESC LIMIT ?;

-- name: runs.waiting
SELECT * FROM runs WHERE state = 'waiting' ORDER BY seq;

-- name: run.starting
SELECT * FROM runs WHERE run_id >= ? AND run_id < ? LIMIT 2;

-- name: run.get
SELECT * FROM runs WHERE run_id = ?;

-- name: session.exchanges
SELECT runs.run_id, json_extract(asked.body, '$.text') AS request, json_extract(answered.body, '$.text') AS answer
FROM runs
JOIN hops ON hops.hop_id = runs.hop_id
JOIN events AS asked ON asked.id = hops.event_id
JOIN events AS answered ON answered.trace_id = runs.trace_id AND answered.parent_id = runs.hop_id
                       AND answered.source = 'agent' AND answered.type = 'answer'
WHERE runs.session_id = ? AND runs.state = 'done'
ORDER BY runs.seq DESC LIMIT ?;

-- name: seals.last
SELECT last_seq, digest FROM seals ORDER BY last_seq DESC LIMIT 1;

-- name: seals.last_two
SELECT * FROM seals ORDER BY last_seq DESC LIMIT 2;

-- name: seals.all
SELECT * FROM seals ORDER BY last_seq;

-- name: seal.insert
INSERT INTO seals (last_seq, first_seq, digest, signature, sealed_at) VALUES (?, ?, ?, ?, ?);

-- name: data_version
PRAGMA data_version;

-- name: meta.put
INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING;
