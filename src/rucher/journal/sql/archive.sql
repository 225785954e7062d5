-- What a store does to let go of events that lie in a segment, in this order and in one transaction.

-- name: archive.follows
SELECT 1 AS follows FROM seals
WHERE last_seq = :last_seq AND :first_seq = 1 + (SELECT coalesce(max(last_seq), 0) FROM archives);

-- name: archive.note
INSERT INTO archives (last_seq, first_seq, file, digest, archived_at)
VALUES (:last_seq, :first_seq, :file, :digest, :archived_at);

-- name: archive.ids
INSERT INTO archived_ids (id, seq)
SELECT id, seq FROM events WHERE seq BETWEEN :first_seq AND :last_seq AND (run_id IS NULL OR run_seq = 0);

-- name: archive.events
DELETE FROM events WHERE seq BETWEEN :first_seq AND :last_seq;

-- name: archive.seals
DELETE FROM seals WHERE last_seq < :last_seq;
