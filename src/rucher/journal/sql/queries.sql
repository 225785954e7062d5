-- What is asked of a store, by name. Both databases answer these as they stand, with `?` for each parameter in order.

-- name: event.by_id
SELECT * FROM events WHERE id = ? AND (run_id IS NULL OR run_seq = 0);

-- name: event.anywhere
SELECT * FROM events WHERE id = ?;

-- name: event.after
SELECT * FROM events WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: event.wanted_before
SELECT * FROM events
WHERE seq < ? AND 'ev.' || tenant || '.' || source || '.' || type LIKE ? AND type LIKE ? AND recorded_at >= ? AND recorded_at < ?
ORDER BY seq DESC LIMIT ?;

-- name: event.wanted_after
SELECT * FROM events
WHERE seq > ? AND 'ev.' || tenant || '.' || source || '.' || type LIKE ? AND type LIKE ? AND recorded_at >= ? AND recorded_at < ?
ORDER BY seq LIMIT ?;

-- name: event.of_trace
SELECT * FROM events WHERE trace_id = ? AND run_id IS NULL
UNION ALL
SELECT * FROM events WHERE run_no IN (SELECT seq FROM runs WHERE trace_id = ?)
ORDER BY seq;

-- name: event.of_runs
SELECT * FROM events WHERE run_no IN (SELECT seq FROM runs WHERE run_id IN (SELECT value FROM json_each(?)))
ORDER BY run_no, run_seq;

-- name: event.ids_starting
SELECT DISTINCT trace_id FROM events WHERE trace_id >= ? AND trace_id < ? AND run_id IS NULL LIMIT 3;

-- name: event.count
SELECT count(*) AS count, coalesce(min(seq), 0) AS first_seq, coalesce(max(seq), 0) AS last_seq FROM events;

-- name: cursor.get
SELECT seq FROM cursors WHERE name = ?;

-- name: hops.open
SELECT * FROM hops WHERE state IN ('made', 'acknowledged', 'sending') AND seq > ? ORDER BY seq;

-- name: hops.ended_badly
SELECT * FROM hops WHERE state IN ('failed', 'uncertain') AND updated_at > ? ORDER BY seq DESC;

-- name: users.all
SELECT * FROM users ORDER BY principal;

-- name: users.blocked
SELECT principal FROM users WHERE blocked = 1 ORDER BY principal;

-- name: user.get
SELECT * FROM users WHERE principal = ?;

-- name: roles.all
SELECT * FROM roles ORDER BY principal, agent;

-- name: roles.of
SELECT * FROM roles WHERE principal = ? ORDER BY agent;

-- name: rooms.all
SELECT * FROM rooms ORDER BY room;

-- name: rooms.with_policy
SELECT room, policy FROM rooms WHERE policy <> '' ORDER BY room;

-- name: room.get
SELECT * FROM rooms WHERE room = ?;

-- name: held.all
SELECT * FROM held ORDER BY seq;

-- name: held.of
SELECT * FROM held WHERE principal = ? ORDER BY seq;

-- name: engaged.all
SELECT * FROM engaged ORDER BY agent, room, thread;
-- name: hops.before
SELECT * FROM hops WHERE seq < ? ORDER BY seq DESC LIMIT ?;

-- name: hops.of_trace
SELECT * FROM hops WHERE trace_id = ? ORDER BY seq DESC;

-- name: hops.dead
SELECT * FROM hops WHERE state IN ('failed', 'uncertain') AND seq < ? ORDER BY seq DESC LIMIT ?;

-- name: hops.untold
SELECT * FROM hops WHERE state IN ('failed', 'uncertain') AND told = 0 ORDER BY seq LIMIT ?;

-- name: hop.starting
SELECT * FROM hops WHERE hop_id >= ? AND hop_id < ? LIMIT 2;

-- name: hop.get
SELECT * FROM hops WHERE hop_id = ?;

-- name: deliveries.before
SELECT deliveries.*, hops.trace_id, hops.dest FROM deliveries JOIN hops ON hops.hop_id = deliveries.hop_id
WHERE deliveries.seq < ? ORDER BY deliveries.seq DESC, deliveries.part DESC LIMIT ?;

-- name: deliveries.not_delivered
SELECT deliveries.*, hops.trace_id, hops.dest FROM deliveries JOIN hops ON hops.hop_id = deliveries.hop_id
WHERE deliveries.state <> 'delivered' AND deliveries.seq < ? ORDER BY deliveries.seq DESC, deliveries.part DESC LIMIT ?;

-- name: deliveries.of_hop
SELECT * FROM deliveries WHERE hop_id = ? ORDER BY part;

-- name: sessions.all
SELECT * FROM sessions ORDER BY opened_at, session_id;

-- name: sessions.at_work
SELECT sessions.*,
       (SELECT count(*) FROM runs WHERE runs.session_id = sessions.session_id) AS runs,
       coalesce((SELECT max(runs.seq) FROM runs WHERE runs.session_id = sessions.session_id), 0) AS last_run_seq
FROM sessions WHERE ? IN ('', agent) AND ? IN ('', room) ORDER BY last_run_seq DESC, session_id LIMIT ?;

-- name: run.at_seq
SELECT * FROM runs WHERE seq = ?;

-- name: session.get
SELECT * FROM sessions WHERE session_id = ?;

-- name: session.starting
SELECT * FROM sessions WHERE session_id >= ? AND session_id < ? LIMIT 2;

-- name: runs.before
SELECT runs.*, (SELECT count(*) FROM events WHERE events.run_no = runs.seq AND events.type = 'step.recorded') AS steps
FROM runs WHERE seq < ? AND state LIKE ? AND wish LIKE ? AND session_id LIKE ? ORDER BY seq DESC LIMIT ?;

-- name: runs.waiting
SELECT * FROM runs WHERE state = 'waiting' ORDER BY seq LIMIT ?;

-- name: run.starting
SELECT runs.*, (SELECT count(*) FROM events WHERE events.run_no = runs.seq AND events.type = 'step.recorded') AS steps
FROM runs WHERE run_id >= ? AND run_id < ? LIMIT 2;

-- name: run.get
SELECT * FROM runs WHERE run_id = ?;

-- name: run.children
SELECT * FROM runs WHERE parent_id = ? AND parent_id <> '' ORDER BY seq;

-- name: run.waits
SELECT * FROM waits WHERE run_id = ? ORDER BY item;

-- name: run.steers
SELECT * FROM steers WHERE run_id = ? AND seq > ? ORDER BY seq;

-- name: run.budget
SELECT * FROM budgets WHERE account = ? ORDER BY measure;

-- name: runs.claimable
WITH RECURSIVE queues (queue) AS (
    SELECT min(queue) FROM runs WHERE state IN ('ready', 'running')
    UNION ALL
    SELECT (SELECT min(runs.queue) FROM runs WHERE runs.state IN ('ready', 'running') AND runs.queue > queues.queue)
    FROM queues WHERE queues.queue IS NOT NULL
)
SELECT runs.* FROM queues JOIN runs ON runs.run_id IN (
    SELECT free.run_id FROM runs AS free
    WHERE free.queue = queues.queue AND free.state IN ('ready', 'running')
      AND (free.wish = '' OR (free.wish = 'pause' AND free.state = 'running'))
      AND NOT EXISTS (SELECT 1 FROM claims WHERE claims.run_id = free.run_id)
    ORDER BY free.priority DESC, free.seq LIMIT ?)
ORDER BY runs.priority DESC, runs.seq;

-- name: runs.to_end
SELECT * FROM runs
WHERE wish = 'cancel' AND wish <> '' AND state IN ('ready', 'running')
  AND NOT EXISTS (SELECT 1 FROM claims WHERE claims.run_id = runs.run_id)
  AND NOT EXISTS (
      SELECT 1 FROM runs AS child
      WHERE child.parent_id = runs.run_id AND child.parent_id <> '' AND child.state IN ('queued', 'ready', 'running', 'waiting'))
ORDER BY seq LIMIT ?;

-- name: claims.counts
SELECT runs.tenant, runs.agent, runs.mission, count(*) AS count
FROM claims JOIN runs ON runs.run_id = claims.run_id GROUP BY runs.tenant, runs.agent, runs.mission;

-- name: claims.orphaned
SELECT run_id FROM claims WHERE worker NOT IN (SELECT worker FROM workers) LIMIT 1;

-- name: claims.wished
SELECT runs.run_id, runs.wish FROM runs JOIN claims ON claims.run_id = runs.run_id
WHERE runs.wish <> '' AND claims.worker = ?;

-- name: workers.all
SELECT * FROM workers ORDER BY worker;

-- name: timers.next
SELECT min(due_at) AS due_at FROM waits WHERE state = 'open' AND due_at IS NOT NULL;

-- name: timers.due
SELECT waits.*, runs.tenant, runs.trace_id, runs.hop_id FROM waits JOIN runs ON runs.run_id = waits.run_id
WHERE waits.state = 'open' AND waits.due_at <= ? ORDER BY waits.due_at LIMIT ?;

-- name: signal.get
SELECT * FROM signals WHERE topic = ?;

-- name: session.notes
SELECT event_id, seq FROM notes WHERE session_id = ? ORDER BY seq DESC LIMIT ?;

-- name: session.exchanges
SELECT runs.run_id, asked.body ->> 'text' AS request, answered.body ->> 'text' AS answer
FROM runs
JOIN events AS asked ON asked.id = runs.event_id AND (asked.run_id IS NULL OR asked.run_seq = 0)
JOIN events AS answered ON answered.trace_id = runs.trace_id AND answered.run_id IS NULL AND answered.source = 'agent'
                       AND answered.type = 'answer' AND answered.body ->> 'run' = runs.run_id
WHERE runs.session_id = ? AND runs.state = 'done' AND runs.seq < ?
  AND runs.seq > coalesce((SELECT reset_seq FROM sessions WHERE sessions.session_id = runs.session_id), 0)
ORDER BY runs.seq DESC LIMIT ?;

-- name: artifacts.all
SELECT digest FROM artifacts;

-- name: schedules.all
SELECT * FROM schedules ORDER BY schedule;

-- name: fire.get
SELECT * FROM fires WHERE schedule = ? AND planned_at = ?;

-- name: fires.before
SELECT * FROM fires WHERE seq < ? ORDER BY seq DESC LIMIT ?;

-- name: fires.of_schedule_before
SELECT * FROM fires WHERE schedule = ? AND seq < ? ORDER BY seq DESC LIMIT ?;

-- name: fires.last_of_each
SELECT * FROM fires WHERE seq IN (
    SELECT (SELECT last.seq FROM fires AS last WHERE last.schedule = schedules.schedule ORDER BY last.seq DESC LIMIT 1)
    FROM schedules);

-- name: schedule.proposals
SELECT * FROM schedule_proposals WHERE state = 'open' ORDER BY seq;

-- name: schedule.proposal
SELECT * FROM schedule_proposals WHERE seq = ?;

-- name: seals.last
SELECT last_seq, digest FROM seals ORDER BY last_seq DESC LIMIT 1;

-- name: seals.last_two
SELECT * FROM seals ORDER BY last_seq DESC LIMIT 2;

-- name: seals.all
SELECT * FROM seals ORDER BY last_seq;

-- name: seals.after
SELECT * FROM seals WHERE last_seq > ? ORDER BY last_seq LIMIT ?;

-- name: archives.all
SELECT * FROM archives ORDER BY last_seq;

-- name: archive.needed
WITH unfinished AS (
    SELECT seq, event_id FROM runs WHERE state IN ('queued', 'ready', 'running')
    UNION ALL SELECT seq, event_id FROM runs WHERE state = 'waiting'
), undelivered AS (
    SELECT seq, event_id FROM hops WHERE state IN ('made', 'acknowledged', 'sending')
)
SELECT 'run' AS reason, min(seq) AS seq FROM unfinished
UNION ALL
SELECT 'run', min(events.seq) FROM unfinished JOIN events ON events.id = unfinished.event_id
                                             AND (events.run_id IS NULL OR events.run_seq = 0)
UNION ALL
SELECT 'hop', min(seq) FROM undelivered
UNION ALL
SELECT 'hop', min(events.seq) FROM undelivered JOIN events ON events.id = undelivered.event_id
                                              AND (events.run_id IS NULL OR events.run_seq = 0)
UNION ALL
SELECT 'held', min(seq) FROM held
UNION ALL
SELECT 'note', min(seq) FROM notes
UNION ALL
SELECT 'note', min(events.seq) FROM notes JOIN events ON events.id = notes.event_id
                                          AND (events.run_id IS NULL OR events.run_seq = 0)
UNION ALL
SELECT 'cursor', coalesce(min(seq), 0) + 1 FROM cursors
UNION ALL
SELECT 'seal', max(first_seq) FROM seals;

-- name: archived.seq
SELECT seq FROM archived_ids WHERE id = ?;

-- name: trace.starting_anywhere
SELECT trace_id FROM hops WHERE trace_id >= ? AND trace_id < ?
UNION SELECT trace_id FROM runs WHERE trace_id >= ? AND trace_id < ? LIMIT 3;

-- name: trace.begin
SELECT min(seq) AS seq FROM (
    SELECT seq FROM runs WHERE trace_id = ?
    UNION ALL SELECT seq FROM hops WHERE trace_id = ?
    UNION ALL SELECT archived_ids.seq FROM hops JOIN archived_ids ON archived_ids.id = hops.event_id WHERE hops.trace_id = ?
) AS known;

-- name: meta.all
SELECT key, value FROM meta ORDER BY key;

-- name: meta.get
SELECT value FROM meta WHERE key = ?;

-- name: event.head
SELECT seq FROM (SELECT coalesce(max(seq), 0) AS seq FROM events UNION ALL SELECT coalesce(max(last_seq), 0) FROM archives) AS ends
ORDER BY seq DESC LIMIT 1;

-- For a copy of the store and its proof: tables read in pages, each by its key.
-- name: page.archived_ids
SELECT id, seq FROM archived_ids WHERE id > ? ORDER BY id LIMIT ?;

-- name: page.cursors
SELECT * FROM cursors WHERE name > ? ORDER BY name LIMIT ?;

-- name: page.hops
SELECT * FROM hops WHERE hop_id > ? ORDER BY hop_id LIMIT ?;

-- name: page.deliveries
SELECT * FROM deliveries WHERE (hop_id, part) > (?, ?) ORDER BY hop_id, part LIMIT ?;

-- name: page.sessions
SELECT * FROM sessions WHERE session_id > ? ORDER BY session_id LIMIT ?;

-- name: page.users
SELECT * FROM users WHERE principal > ? ORDER BY principal LIMIT ?;

-- name: page.rooms
SELECT * FROM rooms WHERE room > ? ORDER BY room LIMIT ?;

-- name: page.roles
SELECT * FROM roles WHERE (principal, agent) > (?, ?) ORDER BY principal, agent LIMIT ?;

-- name: page.held
SELECT * FROM held WHERE event_id > ? ORDER BY event_id LIMIT ?;

-- name: page.engaged
SELECT * FROM engaged WHERE (agent, room, thread) > (?, ?, ?) ORDER BY agent, room, thread LIMIT ?;
-- name: page.notes
SELECT * FROM notes WHERE (session_id, event_id) > (?, ?) ORDER BY session_id, event_id LIMIT ?;

-- name: page.runs
SELECT * FROM runs WHERE run_id > ? ORDER BY run_id LIMIT ?;

-- name: page.waits
SELECT * FROM waits WHERE (run_id, step, item) > (?, ?, ?) ORDER BY run_id, step, item LIMIT ?;

-- name: page.signals
SELECT * FROM signals WHERE topic > ? ORDER BY topic LIMIT ?;

-- name: page.budgets
SELECT * FROM budgets WHERE (account, measure) > (?, ?) ORDER BY account, measure LIMIT ?;

-- name: page.steers
SELECT * FROM steers WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: page.artifacts
SELECT * FROM artifacts WHERE digest > ? ORDER BY digest LIMIT ?;

-- name: page.schedules
SELECT * FROM schedules WHERE schedule > ? ORDER BY schedule LIMIT ?;

-- name: page.fires
SELECT * FROM fires WHERE (schedule, planned_at) > (?, ?) ORDER BY schedule, planned_at LIMIT ?;

-- name: page.schedule_proposals
SELECT * FROM schedule_proposals WHERE seq > ? ORDER BY seq LIMIT ?;
