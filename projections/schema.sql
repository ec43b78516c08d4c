-- The index: every read model of the log. Delete the file and it is rebuilt.
-- A fact's id is sid << 24 | n: facts of one session lie together, so a session's sums are one range scan, and
-- full-text row ids rise with it. No transcript text is kept here: a turn points to its event and its place in it.

CREATE TABLE checkpoint (
    position  INTEGER NOT NULL,
    hash      BLOB NOT NULL,
    prices    TEXT NOT NULL,   -- version of the price table and hash of the overrides that costs were made with
    overrides TEXT NOT NULL
) STRICT;

INSERT INTO checkpoint VALUES (0, zeroblob(32), '', '');

CREATE TABLE origins (number INTEGER PRIMARY KEY, origin BLOB NOT NULL) STRICT;

CREATE TABLE sessions (
    sid           INTEGER PRIMARY KEY,
    key           TEXT NOT NULL UNIQUE,
    agent         TEXT NOT NULL,
    scope         TEXT,
    id            TEXT NOT NULL,
    profile       TEXT NOT NULL,
    device        TEXT,
    applied       INTEGER NOT NULL,   -- position of the last complete parse that is in here
    next          INTEGER NOT NULL,   -- the next free n
    raw           TEXT,
    leaf          TEXT,
    -- worked out from the session's own facts by sessions.refresh
    visible       INTEGER NOT NULL DEFAULT 0,   -- has a prompt or usage
    started       INTEGER,
    last          INTEGER,
    title         TEXT,
    first_prompt  TEXT,
    models        TEXT NOT NULL DEFAULT '[]',
    tools         TEXT NOT NULL DEFAULT '{}',
    users         INTEGER NOT NULL DEFAULT 0,
    assistants    INTEGER NOT NULL DEFAULT 0,
    thinkings     INTEGER NOT NULL DEFAULT 0,
    tool_calls    INTEGER NOT NULL DEFAULT 0,
    tool_results  INTEGER NOT NULL DEFAULT 0,
    tool_errors   INTEGER NOT NULL DEFAULT 0,
    has_usage     INTEGER NOT NULL DEFAULT 0,
    input         INTEGER NOT NULL DEFAULT 0,
    output        INTEGER NOT NULL DEFAULT 0,
    cache_read    INTEGER NOT NULL DEFAULT 0,
    cache_write   INTEGER NOT NULL DEFAULT 0,
    reasoning     INTEGER,
    cost          INTEGER NOT NULL DEFAULT 0,    -- pico-dollars of the priced part
    unpriced      TEXT NOT NULL DEFAULT '[]',    -- models without a price
    compactions   INTEGER NOT NULL DEFAULT 0,
    compactions_known  INTEGER NOT NULL DEFAULT 1,
    compactions_reason TEXT,
    inherited       INTEGER NOT NULL DEFAULT 0,
    inherited_from  TEXT,
    parent        TEXT,
    forked_from   TEXT,
    cleared_from  TEXT,
    resumed_from  TEXT,
    cwd           TEXT,
    branch        TEXT,
    kinds         TEXT NOT NULL DEFAULT '[]',
    state         TEXT NOT NULL DEFAULT 'plain',
    state_reason  TEXT,
    project       TEXT,               -- name shown
    remote        TEXT,
    marker        TEXT,
    raw_size      INTEGER,
    raw_stored    INTEGER,
    raw_verbatim  INTEGER NOT NULL DEFAULT 1,
    source        TEXT,
    source_state  TEXT NOT NULL DEFAULT 'present',
    header        BLOB NOT NULL       -- of the newest revision, msgpack; last, so that scans need not cross it
) STRICT;
CREATE INDEX sessions_by_id ON sessions (id);
CREATE INDEX sessions_by_leaf ON sessions (leaf) WHERE leaf IS NOT NULL;
CREATE INDEX sessions_by_last ON sessions (last DESC, key);
CREATE INDEX sessions_by_parent ON sessions (agent, parent) WHERE parent IS NOT NULL;

CREATE TABLE revisions (
    sid      INTEGER NOT NULL,
    origin   INTEGER NOT NULL,
    surface  TEXT NOT NULL,
    revision INTEGER NOT NULL,
    profile  TEXT NOT NULL,
    parser   TEXT NOT NULL,
    raw      TEXT NOT NULL,
    first    INTEGER NOT NULL,        -- position of its first part
    first_at INTEGER NOT NULL,        -- when that was appended, microseconds
    last     INTEGER NOT NULL,        -- position of its last event
    latest   INTEGER,                 -- last activity it knows, microseconds
    header   BLOB NOT NULL,
    PRIMARY KEY (sid, origin, surface, revision)
) STRICT, WITHOUT ROWID;

CREATE TABLE names (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE tariffs (model INTEGER PRIMARY KEY, tariff BLOB) STRICT;

-- own of a fact: 2 the session's own record, 1 held here and searchable but not counted, 0 another session's
CREATE TABLE turns (
    id       INTEGER PRIMARY KEY,
    place    REAL NOT NULL,           -- reading order
    at       INTEGER,
    kind     INTEGER NOT NULL,
    counted  INTEGER NOT NULL,
    error    INTEGER NOT NULL,
    own      INTEGER NOT NULL,
    tool     INTEGER,
    model    INTEGER,
    position INTEGER NOT NULL,        -- of the event that holds it
    number   INTEGER NOT NULL         -- place in its turns
) STRICT;

CREATE TABLE pieces (id INTEGER PRIMARY KEY, turn INTEGER NOT NULL) STRICT;
CREATE INDEX pieces_by_turn ON pieces (turn);

CREATE TABLE usages (
    id             INTEGER PRIMARY KEY,
    at             INTEGER,
    model          INTEGER,
    own            INTEGER NOT NULL,
    input          INTEGER NOT NULL,
    output         INTEGER NOT NULL,
    cache_read     INTEGER NOT NULL,
    cache_write_5m INTEGER NOT NULL,
    cache_write_1h INTEGER NOT NULL,
    reasoning      INTEGER,
    tier           INTEGER,
    cost           INTEGER,           -- pico-dollars; NULL: no price
    apart          INTEGER NOT NULL
) STRICT;

CREATE TABLE marks (
    id INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, own INTEGER NOT NULL
) STRICT;

CREATE TABLE compactions (
    id INTEGER PRIMARY KEY, at INTEGER, own INTEGER NOT NULL, event TEXT NOT NULL, trigger TEXT, size_before INTEGER
) STRICT;

-- who holds a record; contested: the keys that several sessions hold
CREATE TABLE claims (
    key INTEGER NOT NULL, id INTEGER NOT NULL, copied INTEGER NOT NULL, source INTEGER,
    PRIMARY KEY (key, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE contested (
    id INTEGER PRIMARY KEY, key INTEGER NOT NULL
) STRICT;
CREATE INDEX contested_by_key ON contested (key);
CREATE TABLE families (sid INTEGER PRIMARY KEY, first_unshared INTEGER) STRICT;
CREATE TABLE suggestions (source TEXT NOT NULL, sid INTEGER NOT NULL, PRIMARY KEY (source, sid)) STRICT, WITHOUT ROWID;

-- sums by UTC quarter hour (microseconds / 900,000,000), own records only; -1: no time
CREATE TABLE usage_sums (
    sid INTEGER NOT NULL, quarter INTEGER NOT NULL, model INTEGER NOT NULL, answers INTEGER NOT NULL,
    input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
    reasoning INTEGER, cost INTEGER NOT NULL, unpriced INTEGER NOT NULL,
    PRIMARY KEY (sid, quarter, model)
) STRICT, WITHOUT ROWID;
CREATE TABLE turn_sums (
    sid INTEGER NOT NULL, quarter INTEGER NOT NULL, kind INTEGER NOT NULL, tool INTEGER NOT NULL,
    turns INTEGER NOT NULL, errors INTEGER NOT NULL,
    PRIMARY KEY (sid, quarter, kind, tool)
) STRICT, WITHOUT ROWID;
CREATE TABLE active_sums (
    sid INTEGER NOT NULL, quarter INTEGER NOT NULL, seconds INTEGER NOT NULL, PRIMARY KEY (sid, quarter)
) STRICT, WITHOUT ROWID;

CREATE TABLE described (
    session TEXT NOT NULL, field TEXT NOT NULL, value TEXT, rank INTEGER NOT NULL, at_us INTEGER NOT NULL,
    origin BLOB NOT NULL, origin_position INTEGER NOT NULL, evidence TEXT NOT NULL,
    PRIMARY KEY (session, field, evidence)
) STRICT, WITHOUT ROWID;

-- titles that a raw states for the session whose last record is the leaf
CREATE TABLE foreign_titles (
    leaf TEXT NOT NULL, sid INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (leaf, sid)
) STRICT, WITHOUT ROWID;

CREATE TABLE raws (
    sha256 TEXT NOT NULL, session TEXT NOT NULL, size INTEGER NOT NULL, stored INTEGER NOT NULL,
    verbatim INTEGER NOT NULL, extends TEXT, PRIMARY KEY (sha256, session)
) STRICT, WITHOUT ROWID;

CREATE TABLE sources (
    origin INTEGER NOT NULL, path TEXT NOT NULL, agent TEXT NOT NULL, profile TEXT NOT NULL, sha256 TEXT NOT NULL,
    size INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT, sessions TEXT NOT NULL, position INTEGER NOT NULL,
    PRIMARY KEY (origin, path)
) STRICT, WITHOUT ROWID;
CREATE TABLE source_sessions (
    session TEXT NOT NULL, origin INTEGER NOT NULL, path TEXT NOT NULL, PRIMARY KEY (session, origin, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE projects (
    origin INTEGER NOT NULL, path TEXT NOT NULL, remote TEXT, marker TEXT, PRIMARY KEY (origin, path)
) STRICT, WITHOUT ROWID;

CREATE TABLE devices (
    origin INTEGER NOT NULL, position INTEGER NOT NULL, device TEXT NOT NULL, hostname TEXT NOT NULL,
    machine TEXT NOT NULL, platform TEXT NOT NULL, PRIMARY KEY (origin, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE erased (session TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

-- what the server was last known to hold of this device's raws; made from local events, so only on the device
CREATE TABLE pushed (
    session TEXT NOT NULL, raw TEXT NOT NULL, server TEXT NOT NULL, uri TEXT NOT NULL,
    at_us INTEGER NOT NULL,           -- when it said so first
    PRIMARY KEY (session, raw, server)
) STRICT, WITHOUT ROWID;

-- the last prune of a session's raw; gone: at_us is behind restored_us, so nothing brought these bytes back
CREATE TABLE prunes (
    session TEXT NOT NULL, raw TEXT NOT NULL, at_us INTEGER NOT NULL, server TEXT NOT NULL, uri TEXT NOT NULL,
    size INTEGER NOT NULL, stored INTEGER NOT NULL, plan TEXT NOT NULL, restored_us INTEGER NOT NULL,
    gone INTEGER NOT NULL,
    PRIMARY KEY (session, raw)
) STRICT, WITHOUT ROWID;

-- every merge of devices, also the reverted ones; without devices where only its revert was heard of
CREATE TABLE merges (
    id TEXT PRIMARY KEY, device TEXT NOT NULL, into_device TEXT NOT NULL, evidence TEXT NOT NULL, by TEXT NOT NULL,
    at_us INTEGER NOT NULL, reverted INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- the name each device was given last
CREATE TABLE device_names (
    device TEXT PRIMARY KEY, name TEXT NOT NULL, at_us INTEGER NOT NULL, origin BLOB NOT NULL,
    origin_position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
