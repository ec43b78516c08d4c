-- The server's log: every event of every device of an owner, and the server's own. docs/server.md explains it.
-- prosa_app, as whom the server works, may add rows and read them; bodies are cleared by erase_body alone.

CREATE TABLE owners (
    owner  integer PRIMARY KEY,
    log_id bytea NOT NULL,          -- random: a device notices by it that the server was set up anew
    made_at timestamptz NOT NULL DEFAULT now()
);

-- the one hot row of an owner: an append counts it up first, so order of commits = order of positions, without gaps
CREATE TABLE log_head (
    owner    integer PRIMARY KEY REFERENCES owners,
    position bigint NOT NULL
);

CREATE TABLE origins (
    owner    integer NOT NULL REFERENCES owners,
    number   integer NOT NULL,       -- short name of the origin in this log: 1, 2, …
    origin   bytea NOT NULL CHECK (length(origin) = 16),
    device   text COLLATE "C",       -- fingerprint of the device that opened it; NULL: the server's own
    position bigint NOT NULL DEFAULT 0,   -- its head
    hash     bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    pushed_at timestamptz,
    PRIMARY KEY (owner, number),
    UNIQUE (owner, origin)
);

CREATE TABLE events (
    owner           integer NOT NULL,
    position        bigint NOT NULL,
    origin          integer NOT NULL,
    origin_position bigint NOT NULL,
    id              bytea NOT NULL,
    stream          text COLLATE "C" NOT NULL,
    stream_version  bigint NOT NULL,
    type            text COLLATE "C" NOT NULL,
    version         integer NOT NULL,
    at_us           bigint NOT NULL,
    body_hash       bytea NOT NULL,
    hash            bytea NOT NULL,
    salt            bytea,
    body            bytea,           -- exactly as the device stored it: msgpack, or a zstd frame of it
    received_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner, position),
    UNIQUE (owner, origin, origin_position),
    FOREIGN KEY (owner, origin) REFERENCES origins
);
ALTER TABLE events ALTER COLUMN body SET STORAGE EXTERNAL;   -- it is compressed already

CREATE INDEX events_by_stream ON events (owner, stream, position);

-- the streams of an origin end at these versions: the fence
CREATE UNIQUE INDEX events_by_version ON events (owner, origin, stream, stream_version);

CREATE INDEX events_that_erase ON events (owner, stream) WHERE type = 'body_erased';

-- Where the streams of an origin end. Without sorting only the index above gives the last version first: for an origin
-- that the statistics do not know yet, any index seemed as good, and 500 streams cost 100 ms instead of 1.
CREATE FUNCTION stream_versions(of_owner integer, of_origin integer, streams text[])
RETURNS TABLE (stream text, version bigint)
LANGUAGE sql STABLE SET enable_sort = off SET enable_seqscan = off AS $$
    SELECT asked.stream, (
        SELECT e.stream_version FROM events e
        WHERE e.owner = of_owner AND e.origin = of_origin AND e.stream = asked.stream
        ORDER BY e.stream_version DESC LIMIT 1
    ) FROM unnest(streams) AS asked (stream)
$$;

-- A body is cleared where its erasure is an event, and in no other way. Returns whether there was one.
CREATE FUNCTION erase_body(of_owner integer, at_position bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE erased events%ROWTYPE;
BEGIN
    SELECT * INTO erased FROM events WHERE owner = of_owner AND position = at_position;
    IF NOT FOUND THEN RETURN false; END IF;
    IF NOT EXISTS (
        SELECT 1 FROM events
        WHERE owner = of_owner AND stream = 'event-' || encode(erased.id, 'hex') AND type = 'body_erased'
    ) THEN
        RAISE EXCEPTION 'event % has no body_erased event: the log is append-only', at_position;
    END IF;
    UPDATE events SET salt = NULL, body = NULL WHERE owner = of_owner AND position = at_position AND body IS NOT NULL;
    RETURN FOUND;
END $$;

-- raw that the server holds; a row is written after the object
CREATE TABLE raws (
    owner     integer NOT NULL REFERENCES owners,
    sha256    text COLLATE "C" NOT NULL,
    size      bigint NOT NULL,       -- of the original
    stored    bigint NOT NULL,       -- of the object
    stored_at timestamptz NOT NULL DEFAULT now(),
    unused_since timestamptz,        -- nothing needs it since then; collected 7 days later; -infinity: erased on request
    PRIMARY KEY (owner, sha256)
);

CREATE TABLE raw_parts (
    owner     integer NOT NULL REFERENCES owners,
    sha256    text COLLATE "C" NOT NULL,   -- of the raw it is a part of
    number    integer NOT NULL,
    part      text COLLATE "C" NOT NULL,   -- sha256 of the part's bytes
    size      bigint NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner, sha256, number)
);

-- the projections of an owner: a schema of tables each, filled by a worker, one of them asked
CREATE TABLE projections (
    owner    integer NOT NULL REFERENCES owners,
    number   integer NOT NULL,
    version  integer NOT NULL,       -- projections.index.SCHEMA_VERSION it was made with
    schema   text COLLATE "C" NOT NULL,   -- p<owner>_<number>
    worker   text COLLATE "C" NOT NULL,   -- id of the working file it is filled from
    position bigint NOT NULL DEFAULT 0,   -- checkpoint
    hash     bytea NOT NULL DEFAULT decode(repeat('00', 32), 'hex'),
    prices   text NOT NULL DEFAULT '',
    state    text COLLATE "C" NOT NULL CHECK (state IN ('filling', 'serving', 'retired')),
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner, number)
);
CREATE UNIQUE INDEX one_projection_serves ON projections (owner) WHERE state = 'serving';

-- sessions whose events cannot be projected; they hold up nothing
CREATE TABLE parked (
    owner    integer NOT NULL REFERENCES owners,
    stream   text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    reason   text NOT NULL,
    since    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (owner, stream)
);

GRANT SELECT, INSERT ON owners, events TO prosa_app;
GRANT SELECT, INSERT, UPDATE ON log_head, origins TO prosa_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON raws, raw_parts, projections, parked TO prosa_app;
REVOKE ALL ON FUNCTION erase_body(integer, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION erase_body(integer, bigint) TO prosa_app;
