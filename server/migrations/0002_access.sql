-- Who may talk to the server. docs/server.md explains it. Times are microseconds since 1970, UTC, as in events.
-- What is here follows the log's events, but cannot wait for a projection: both are written in one transaction.

CREATE TABLE tokens (
    owner         integer NOT NULL REFERENCES owners,
    id            text COLLATE "C" NOT NULL,   -- public; a part of the token
    sha256        bytea NOT NULL,              -- of the whole token; the token itself is nowhere
    scope         text COLLATE "C" NOT NULL CHECK (scope IN ('device', 'reports', 'metadata', 'everything')),
    device        text COLLATE "C",            -- fingerprint it was given to
    name          text,
    given_by      text NOT NULL,               -- e-mail of the owner who allowed it, or admin
    issued_at_us  bigint NOT NULL,
    expires_at_us bigint NOT NULL,
    revoked_at_us bigint,
    used_at_us    bigint,                      -- to a minute
    PRIMARY KEY (owner, id),
    CHECK ((scope = 'device') = (device IS NOT NULL))
);
CREATE INDEX tokens_by_device ON tokens (owner, device) WHERE device IS NOT NULL;

-- logins that have begun; gone a while after they expire
CREATE TABLE logins (
    owner         integer NOT NULL REFERENCES owners,
    id            text COLLATE "C" NOT NULL,
    device        text COLLATE "C" NOT NULL,
    hostname      text NOT NULL,
    machine       text COLLATE "C" NOT NULL,
    platform      text NOT NULL,
    challenge     text COLLATE "C" NOT NULL,   -- PKCE, S256
    state         text COLLATE "C" NOT NULL,   -- the device's; it goes back with the code
    redirect_uri  text COLLATE "C",            -- NULL: the code is shown to be pasted
    begun_at_us   bigint NOT NULL,
    expires_at_us bigint NOT NULL,
    decided_by    text,                        -- e-mail of the owner who approved or refused
    code_sha256   bytea,                       -- NULL: not approved
    used_at_us    bigint,                      -- a code is taken once, whatever comes of it
    PRIMARY KEY (owner, id)
);
CREATE INDEX logins_by_expiry ON logins (owner, expires_at_us);

CREATE TABLE device_entries (
    owner          integer NOT NULL REFERENCES owners,
    device         text COLLATE "C" NOT NULL,  -- fingerprint
    hostname       text,
    machine        text COLLATE "C" NOT NULL DEFAULT '',   -- hash of the machine id; empty: it has none
    platform       text,
    name           text,                       -- given last, by time, then origin and position
    named_at_us    bigint,
    named_origin   bytea,
    named_position bigint,
    revoked_at_us  bigint,                     -- NULL again after the next approved login
    PRIMARY KEY (owner, device)
);

CREATE TABLE device_merges (
    owner       integer NOT NULL REFERENCES owners,
    id          text COLLATE "C" NOT NULL,     -- of its event, as hex
    device      text COLLATE "C" NOT NULL,     -- '': so far only its revert has arrived
    into_device text COLLATE "C" NOT NULL,
    evidence    text NOT NULL,
    at_us       bigint NOT NULL,
    own         boolean NOT NULL,              -- said by the server itself
    reverted_at_us bigint,
    PRIMARY KEY (owner, id)
);

GRANT SELECT, INSERT, UPDATE, DELETE ON tokens, logins, device_entries, device_merges TO prosa_app;
