-- The append-only log: one row an event, in the order of arrival. docs/log-format.md explains every column.
CREATE TABLE origins (
    number INTEGER PRIMARY KEY,
    origin BLOB NOT NULL UNIQUE CHECK (length(origin) = 16),
    scope  TEXT NOT NULL CHECK (scope IN ('shared', 'local'))
) STRICT;

CREATE TABLE events (
    position        INTEGER PRIMARY KEY,
    origin          INTEGER NOT NULL REFERENCES origins (number),
    origin_position INTEGER NOT NULL,
    id              BLOB NOT NULL,
    stream          TEXT NOT NULL,
    stream_version  INTEGER NOT NULL,
    type            TEXT NOT NULL,
    version         INTEGER NOT NULL,
    at_us           INTEGER NOT NULL,
    body_hash       BLOB NOT NULL,
    hash            BLOB NOT NULL,
    salt            BLOB,
    body            BLOB,
    UNIQUE (origin, origin_position),
    UNIQUE (origin, stream, stream_version)
) STRICT;

CREATE INDEX events_by_stream ON events (stream, position);

CREATE TRIGGER events_are_not_deleted BEFORE DELETE ON events
BEGIN SELECT raise(ABORT, 'the log is append-only'); END;

CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
WHEN NOT (
    NEW.salt IS NULL AND NEW.body IS NULL
    AND NEW.position = OLD.position AND NEW.origin = OLD.origin AND NEW.origin_position = OLD.origin_position
    AND NEW.id = OLD.id AND NEW.stream = OLD.stream AND NEW.stream_version = OLD.stream_version
    AND NEW.type = OLD.type AND NEW.version = OLD.version AND NEW.at_us = OLD.at_us
    AND NEW.body_hash = OLD.body_hash AND NEW.hash = OLD.hash
    AND EXISTS (SELECT 1 FROM events WHERE stream = 'event-' || lower(hex(OLD.id)) AND type = 'body_erased')
)
BEGIN SELECT raise(ABORT, 'the log is append-only'); END;

CREATE TRIGGER origins_are_not_deleted BEFORE DELETE ON origins
BEGIN SELECT raise(ABORT, 'the log is append-only'); END;

CREATE TRIGGER origins_are_not_changed BEFORE UPDATE ON origins
BEGIN SELECT raise(ABORT, 'the log is append-only'); END;
