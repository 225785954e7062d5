-- The journal: one row an event, never changed, numbered without gaps in commit order.
CREATE TABLE events (
    seq          INTEGER PRIMARY KEY CHECK (seq > 0),
    id           TEXT    NOT NULL,
    tenant       TEXT    NOT NULL,
    source       TEXT    NOT NULL,
    type         TEXT    NOT NULL,
    principal    TEXT    NOT NULL,
    trust        INTEGER NOT NULL CHECK (trust BETWEEN 0 AND 5),
    addressed_to TEXT,
    trace_id     TEXT    NOT NULL,
    parent_id    TEXT,
    occurred_at  INTEGER NOT NULL,
    recorded_at  INTEGER NOT NULL,
    body         TEXT    NOT NULL CHECK (json_valid(body)),
    run_id       TEXT,
    run_seq      INTEGER CHECK (run_seq >= 0),
    fence        INTEGER CHECK (fence >= 0),
    CHECK ((run_id IS NULL) = (run_seq IS NULL) AND (run_id IS NULL) = (fence IS NULL))
) STRICT;

-- A run's own log. This key is half of the fence: two owners of a run cannot both write its next row.
CREATE UNIQUE INDEX events_by_run ON events (run_id, run_seq) WHERE run_id IS NOT NULL;

-- All other events: the same delivery has the same id. Runs' events are left out of these two, because each would cost a
-- page of its own in every commit; their place in their run is their identity, and the view `runs` knows their trace.
CREATE UNIQUE INDEX events_by_id ON events (id) WHERE run_id IS NULL;
CREATE INDEX events_by_trace ON events (trace_id, seq) WHERE run_id IS NULL;

CREATE TRIGGER events_never_change BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

CREATE TRIGGER events_never_vanish BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;

-- Hash chain over committed ranges of events, signed by the node.
CREATE TABLE seals (
    last_seq  INTEGER PRIMARY KEY,
    first_seq INTEGER NOT NULL UNIQUE,
    digest    TEXT    NOT NULL,
    signature TEXT    NOT NULL,
    sealed_at INTEGER NOT NULL
) STRICT;

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

-- Views. Everything below is folded from events by views.py and can be dropped and folded again.
CREATE TABLE cursors (
    name TEXT PRIMARY KEY,
    seq  INTEGER NOT NULL
) STRICT;

CREATE TABLE hops (
    hop_id     TEXT    PRIMARY KEY,
    seq        INTEGER NOT NULL UNIQUE,
    event_id   TEXT    NOT NULL,
    trace_id   TEXT    NOT NULL,
    rule_id    TEXT    NOT NULL,
    dest       TEXT    NOT NULL,
    session_id TEXT,
    state      TEXT    NOT NULL
               CHECK (state IN ('made', 'acknowledged', 'done', 'sending', 'delivered', 'failed', 'uncertain')),
    attempts   INTEGER NOT NULL DEFAULT 0,
    detail     TEXT    NOT NULL DEFAULT '',
    updated_at INTEGER NOT NULL
) STRICT;

CREATE INDEX hops_open ON hops (seq) WHERE state IN ('made', 'acknowledged', 'sending');

CREATE TABLE sessions (
    session_id TEXT    PRIMARY KEY,
    tenant     TEXT    NOT NULL,
    agent      TEXT    NOT NULL,
    room       TEXT    NOT NULL,
    thread     TEXT    NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('open', 'stopped')),
    reason     TEXT    NOT NULL DEFAULT '',
    opened_at  INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE runs (
    run_id         TEXT    PRIMARY KEY,
    seq            INTEGER NOT NULL UNIQUE,
    tenant         TEXT    NOT NULL,
    session_id     TEXT    NOT NULL,
    agent          TEXT    NOT NULL,
    hop_id         TEXT    NOT NULL,
    trace_id       TEXT    NOT NULL,
    state          TEXT    NOT NULL
                   CHECK (state IN ('ready', 'running', 'waiting', 'done', 'partial', 'blocked', 'failed', 'cancelled',
                                    'budget_exhausted')),
    model          TEXT    NOT NULL,
    engine_version INTEGER NOT NULL,
    steps          INTEGER NOT NULL DEFAULT 0,
    input_tokens   INTEGER NOT NULL DEFAULT 0,
    output_tokens  INTEGER NOT NULL DEFAULT 0,
    reason         TEXT    NOT NULL DEFAULT '',
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL
) STRICT;

CREATE INDEX runs_by_session ON runs (session_id, seq);
CREATE INDEX runs_by_trace ON runs (trace_id);
CREATE INDEX runs_open ON runs (seq) WHERE state IN ('ready', 'running', 'waiting');
