-- Views have a definition of their own from here on (tables.sql); opening the store makes and folds them.
DROP TABLE cursors;
DROP TABLE hops;
DROP TABLE sessions;
DROP TABLE runs;

-- A run's own log is keyed by a number, the seq of the run's first event: runs that work at the same time then share a few
-- pages of the index, where ids cost each of them a page in every commit. This key is half of the fence: two owners of a run
-- cannot both write its next row.
DROP TRIGGER events_never_change;
ALTER TABLE events ADD COLUMN run_no INTEGER;
UPDATE events SET run_no = (SELECT first.seq FROM events AS first WHERE first.run_id = events.run_id AND first.run_seq = 0)
WHERE run_id IS NOT NULL;
DROP INDEX events_by_run;
CREATE UNIQUE INDEX events_by_run ON events (run_no, run_seq) WHERE run_no IS NOT NULL;
CREATE TRIGGER events_never_change BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

-- A run is created once: its first event has its id in this index too.
DROP INDEX events_by_id;
CREATE UNIQUE INDEX events_by_id ON events (id) WHERE run_id IS NULL OR run_seq = 0;

-- Who works on this store just now. No view: nothing here outlives its worker.
CREATE TABLE workers (
    worker     TEXT    PRIMARY KEY,
    host       TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    beats      INTEGER NOT NULL,
    started_at INTEGER NOT NULL
) STRICT;

-- Which run each of them has taken. The right to write is the fence's alone; a claim only keeps workers apart.
CREATE TABLE claims (
    run_id     TEXT    PRIMARY KEY,
    worker     TEXT    NOT NULL,
    claimed_at INTEGER NOT NULL
) STRICT;

CREATE INDEX claims_by_worker ON claims (worker);

-- Events that were moved to a segment file, whose digest is kept here.
CREATE TABLE archives (
    last_seq    INTEGER PRIMARY KEY,
    first_seq   INTEGER NOT NULL UNIQUE,
    file        TEXT    NOT NULL,
    digest      TEXT    NOT NULL,
    archived_at INTEGER NOT NULL
) STRICT;

-- Ids of archived events, so that a late second delivery is still known; of a run's events, that of the first.
CREATE TABLE archived_ids (
    id  TEXT    PRIMARY KEY,
    seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

DROP TRIGGER events_never_vanish;
CREATE TRIGGER events_never_vanish BEFORE DELETE ON events
WHEN OLD.seq > (SELECT coalesce(max(last_seq), 0) FROM archives)
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
