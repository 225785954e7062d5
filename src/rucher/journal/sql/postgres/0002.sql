-- The journal: one row an event, never changed, numbered without gaps in commit order. A partition a month of `recorded_at`.
-- What SQLite's table checks of each row is not checked here: the server reads a check's expression anew in every statement,
-- which takes a tenth of all that a commit costs.
CREATE TABLE events (
    seq          BIGINT           NOT NULL,
    id           TEXT COLLATE "C" NOT NULL,
    tenant       TEXT COLLATE "C" NOT NULL,
    source       TEXT COLLATE "C" NOT NULL,
    type         TEXT COLLATE "C" NOT NULL,
    principal    TEXT COLLATE "C" NOT NULL,
    trust        BIGINT           NOT NULL,
    addressed_to TEXT COLLATE "C",
    trace_id     TEXT COLLATE "C" NOT NULL,
    parent_id    TEXT COLLATE "C",
    occurred_at  BIGINT           NOT NULL,
    recorded_at  BIGINT           NOT NULL,
    body         JSON             NOT NULL, -- not JSONB: kept to the letter, as it was sealed
    run_id       TEXT COLLATE "C",
    run_seq      BIGINT,
    fence        BIGINT,
    run_no       BIGINT
) PARTITION BY RANGE (recorded_at);

CREATE INDEX events_by_seq ON events (seq);
CREATE INDEX events_by_id ON events (id) WHERE run_id IS NULL OR run_seq = 0;
CREATE INDEX events_by_trace ON events (trace_id, seq) WHERE run_id IS NULL;

-- What must be unique over all partitions, which an index of a partitioned table cannot say.
-- The same delivery has the same id, and a run is created once.
CREATE TABLE event_ids (
    id  TEXT COLLATE "C" PRIMARY KEY,
    seq BIGINT           NOT NULL
);

CREATE TABLE run_numbers (
    run_id TEXT COLLATE "C" PRIMARY KEY,
    run_no BIGINT           NOT NULL
);

-- This key is half of the fence: two owners of a run cannot both write its next event. It is also how a run's events are found:
-- an index of theirs would cost as much again in each commit.
CREATE TABLE run_places (
    run_no  BIGINT NOT NULL,
    run_seq BIGINT NOT NULL,
    fence   BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    PRIMARY KEY (run_no, run_seq)
);

-- Every transaction that commits something takes this one row first: so the order of `seq` is the order of commits, and a
-- number that was given and rolled back is given again.
CREATE TABLE journal_head (
    one      BOOLEAN PRIMARY KEY CHECK (one),
    seq      BIGINT  NOT NULL,
    revision BIGINT  NOT NULL
) WITH (fillfactor = 10);

INSERT INTO journal_head (one, seq, revision) VALUES (TRUE, 0, 0);

-- Each process that writes. `nonce` names the last batch of it that landed, so that it can learn what became of a batch whose
-- answer was lost; raising `epoch` makes sure that such a batch, if it is still on its way, changes nothing when it arrives.
CREATE TABLE journal_writers (
    writer BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    epoch  BIGINT NOT NULL,
    nonce  BIGINT NOT NULL
) WITH (fillfactor = 10);

-- Hash chain over committed ranges of events, signed by the node.
CREATE TABLE seals (
    last_seq  BIGINT           PRIMARY KEY,
    first_seq BIGINT           NOT NULL UNIQUE,
    digest    TEXT COLLATE "C" NOT NULL,
    signature TEXT COLLATE "C" NOT NULL,
    sealed_at BIGINT           NOT NULL
);

CREATE TABLE meta (
    key   TEXT COLLATE "C" PRIMARY KEY,
    value TEXT COLLATE "C" NOT NULL
);

-- Who works on this store just now. No view: nothing here outlives its worker.
CREATE TABLE workers (
    worker     TEXT COLLATE "C" PRIMARY KEY,
    host       TEXT COLLATE "C" NOT NULL,
    role       TEXT COLLATE "C" NOT NULL,
    beats      BIGINT           NOT NULL,
    started_at BIGINT           NOT NULL
);

-- Which run each of them has taken. The right to write is the fence's alone; a claim only keeps workers apart.
CREATE TABLE claims (
    run_id     TEXT COLLATE "C" PRIMARY KEY,
    worker     TEXT COLLATE "C" NOT NULL,
    claimed_at BIGINT           NOT NULL
);

CREATE INDEX claims_by_worker ON claims (worker);

-- Events that were moved to a segment file, whose digest is kept here.
CREATE TABLE archives (
    last_seq    BIGINT           PRIMARY KEY,
    first_seq   BIGINT           NOT NULL UNIQUE,
    file        TEXT COLLATE "C" NOT NULL,
    digest      TEXT COLLATE "C" NOT NULL,
    archived_at BIGINT           NOT NULL
);

-- Ids of archived events that came from outside, so that a late second delivery is still known: they simply stay.
CREATE VIEW archived_ids AS
SELECT id, seq FROM event_ids WHERE seq <= (SELECT coalesce(max(last_seq), 0) FROM archives);

CREATE FUNCTION events_are_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.seq <= (SELECT coalesce(max(last_seq), 0) FROM archives) THEN
            DELETE FROM run_places WHERE run_no = OLD.run_no AND run_seq = OLD.run_seq;
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'the journal is append-only';
END $$;

CREATE TRIGGER events_never_change BEFORE UPDATE OR DELETE ON events FOR EACH ROW EXECUTE FUNCTION events_are_kept();
CREATE TRIGGER events_never_vanish BEFORE TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION events_are_kept();

-- A field of a body as text. The NULs that JSON can write as an escape are none for PostgreSQL: a replacement stands for them.
CREATE FUNCTION body_text(body JSON, field TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE strpos(body::TEXT, '\u0000')
        WHEN 0 THEN body ->> field
        ELSE regexp_replace(body::TEXT, '(?<!\\)((?:\\\\)*)\\u0000', '\1\ufffd', 'g')::JSON ->> field
    END
$$;
