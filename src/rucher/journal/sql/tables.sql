-- The views: all of this is folded from events by views.py, dropped and folded again whenever its definition changes.
-- Written for SQLite; for PostgreSQL the types' names are replaced (see statements.py).
CREATE TABLE cursors (
    name TEXT    PRIMARY KEY,
    seq  INTEGER NOT NULL
) STRICT;

CREATE TABLE hops (
    hop_id     TEXT    PRIMARY KEY,
    seq        INTEGER NOT NULL UNIQUE,
    event_id   TEXT    NOT NULL,
    trace_id   TEXT    NOT NULL,
    rule_id    TEXT    NOT NULL,
    dest       TEXT    NOT NULL,
    mode       TEXT    NOT NULL,
    session_mode TEXT  NOT NULL,
    session_id TEXT,
    state      TEXT    NOT NULL
               CHECK (state IN ('made', 'acknowledged', 'done', 'sending', 'delivered', 'failed', 'uncertain', 'dropped')),
    attempts   INTEGER NOT NULL DEFAULT 0,
    retries    INTEGER NOT NULL DEFAULT 0,
    told       INTEGER NOT NULL DEFAULT 0,
    detail     TEXT    NOT NULL DEFAULT '',
    made_at    INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE INDEX hops_by_trace ON hops (trace_id);
CREATE INDEX hops_open ON hops (seq) WHERE state IN ('made', 'acknowledged', 'sending');

CREATE INDEX hops_ended_badly ON hops (seq) WHERE state IN ('failed', 'uncertain');
CREATE INDEX hops_untold ON hops (seq) WHERE state IN ('failed', 'uncertain') AND told = 0;

-- One row a part of what goes to a surface, from its first attempt on; `part` 0 is about none. `seq` is that attempt's.
CREATE TABLE deliveries (
    hop_id     TEXT    NOT NULL,
    part       INTEGER NOT NULL,
    parts      INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    surface    TEXT    NOT NULL DEFAULT '',
    state      TEXT    NOT NULL CHECK (state IN ('pending', 'sending', 'delivered', 'failed', 'uncertain')),
    attempts   INTEGER NOT NULL DEFAULT 0,
    detail     TEXT    NOT NULL DEFAULT '',
    receipt    TEXT    NOT NULL DEFAULT '',
    not_before INTEGER NOT NULL DEFAULT 0,
    began_at   INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (hop_id, part)
) STRICT;

CREATE INDEX deliveries_by_seq ON deliveries (seq);
CREATE INDEX deliveries_not_delivered ON deliveries (seq) WHERE state <> 'delivered';

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

-- `lane`: runs of one lane go one after the other (a session's; a spawned run has one of its own). `queue`: the tenant and
-- agent among which workers share themselves out. `wish`: what the owner wants of it, which its worker obeys at its next step.
CREATE TABLE runs (
    run_id         TEXT    PRIMARY KEY,
    seq            INTEGER NOT NULL UNIQUE,
    tenant         TEXT    NOT NULL,
    agent          TEXT    NOT NULL,
    queue          TEXT    NOT NULL,
    lane           TEXT    NOT NULL,
    session_id     TEXT    NOT NULL,
    hop_id         TEXT    NOT NULL,
    event_id       TEXT    NOT NULL,
    trace_id       TEXT    NOT NULL,
    parent_id      TEXT    NOT NULL,
    mission        TEXT    NOT NULL,
    accounts       TEXT    NOT NULL,
    priority       INTEGER NOT NULL,
    state          TEXT    NOT NULL
                   CHECK (state IN ('queued', 'ready', 'running', 'waiting', 'done', 'partial', 'blocked', 'failed',
                                    'cancelled', 'budget_exhausted')),
    wish           TEXT    NOT NULL DEFAULT '' CHECK (wish IN ('', 'pause', 'cancel')),
    worker         TEXT    NOT NULL DEFAULT '',
    model          TEXT    NOT NULL,
    engine_version INTEGER NOT NULL,
    prompt_hash    TEXT    NOT NULL,
    tools_hash     TEXT    NOT NULL,
    input_tokens   INTEGER NOT NULL DEFAULT 0,
    output_tokens  INTEGER NOT NULL DEFAULT 0,
    nanodollars    INTEGER NOT NULL DEFAULT 0,
    unpriced       INTEGER NOT NULL DEFAULT 0,
    reason         TEXT    NOT NULL DEFAULT '',
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL
) STRICT;

CREATE INDEX runs_by_lane ON runs (lane, seq) WHERE state IN ('queued', 'ready', 'running');
CREATE INDEX runs_by_session ON runs (session_id, seq);
CREATE INDEX runs_by_trace ON runs (trace_id);
CREATE INDEX runs_by_parent ON runs (parent_id) WHERE parent_id <> '';
CREATE INDEX runs_to_claim ON runs (queue, priority DESC, seq) WHERE state IN ('ready', 'running');
CREATE INDEX runs_waiting ON runs (seq) WHERE state = 'waiting';
CREATE INDEX runs_wished ON runs (seq) WHERE wish <> '';

-- What a waiting run waits for, until it goes on. `topic` is what a signal must name; `due_at` what time brings; `seq` tells
-- this wait from others at the same step.
CREATE TABLE waits (
    run_id  TEXT    NOT NULL,
    step    TEXT    NOT NULL,
    item    INTEGER NOT NULL,
    kind    TEXT    NOT NULL CHECK (kind IN ('approval', 'question', 'timer', 'child', 'event', 'migration')),
    mode    TEXT    NOT NULL CHECK (mode IN ('any', 'all')),
    topic   TEXT    NOT NULL,
    due_at  INTEGER,
    seq     INTEGER NOT NULL,
    state   TEXT    NOT NULL CHECK (state IN ('open', 'met')),
    outcome TEXT,
    PRIMARY KEY (run_id, step, item)
) STRICT;

CREATE INDEX waits_by_topic ON waits (topic);
CREATE INDEX waits_due ON waits (due_at) WHERE state = 'open' AND due_at IS NOT NULL;

-- What was signalled, once a topic: who waits for it later finds it here.
CREATE TABLE signals (
    topic   TEXT    PRIMARY KEY,
    seq     INTEGER NOT NULL,
    outcome TEXT    NOT NULL
) STRICT;

-- One row for each measure (nanodollars, tokens, turns, tool_calls, wall_us) of a run's or mission's budget; no ceiling is none.
CREATE TABLE budgets (
    account  TEXT    NOT NULL,
    measure  TEXT    NOT NULL,
    ceiling  INTEGER,
    spent    INTEGER NOT NULL DEFAULT 0,
    reserved INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (account, measure)
) STRICT;

-- What the owner told a run while it went on.
CREATE TABLE steers (
    seq       INTEGER PRIMARY KEY,
    run_id    TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    text      TEXT    NOT NULL
) STRICT;

CREATE INDEX steers_by_run ON steers (run_id, seq);

CREATE TABLE artifacts (
    digest TEXT    PRIMARY KEY,
    bytes  INTEGER NOT NULL,
    run_id TEXT    NOT NULL
) STRICT;
