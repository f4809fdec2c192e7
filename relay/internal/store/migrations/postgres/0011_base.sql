-- The tables are the same as in migrations/sqlite/0011_base.sql, which says what they are for. STORAGE EXTERNAL:
-- encrypted values do not compress.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value BYTEA NOT NULL
);

CREATE TABLE epochs (
  id        INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task      BYTEA NOT NULL,
  epoch     BIGINT NOT NULL,
  state     INTEGER NOT NULL DEFAULT 0,
  next      BIGINT NOT NULL DEFAULT 0,
  destroyed BIGINT NOT NULL DEFAULT 0,
  UNIQUE (task, epoch)
);

CREATE TABLE open (
  epoch       INTEGER NOT NULL,
  seq         BIGINT NOT NULL,
  submissions BIGINT NOT NULL,
  fresh       BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (epoch, seq)
);

-- Runs hold slots only. Tags and clients are in the tables seen and clients, because several processes may write them.
CREATE TABLE runs (
  id    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  epoch INTEGER NOT NULL,
  seq   BIGINT NOT NULL,
  level INTEGER NOT NULL,
  bytes BYTEA NOT NULL
);
ALTER TABLE runs ALTER bytes SET STORAGE EXTERNAL;
CREATE INDEX placed ON runs (epoch, seq, level);

-- The replay set: keyed hashes of tags. At a first relay, receipt is the receipt of the report; at a later relay, the
-- number of the batch that brought the tag, plus one.
CREATE TABLE seen (
  epoch   INTEGER NOT NULL,
  hash    BYTEA NOT NULL,
  receipt BYTEA,
  PRIMARY KEY (epoch, hash)
);

-- How many reports each client has sent in an epoch.
CREATE TABLE clients (
  epoch       INTEGER NOT NULL,
  submissions INTEGER NOT NULL,
  client      BYTEA NOT NULL,
  PRIMARY KEY (epoch, client)
);

CREATE TABLE batches (
  epoch    INTEGER NOT NULL,
  confirmed INTEGER NOT NULL,
  seq      BIGINT NOT NULL,
  manifest BYTEA NOT NULL,
  bytes    BYTEA,
  PRIMARY KEY (epoch, seq)
);
ALTER TABLE batches ALTER bytes SET STORAGE EXTERNAL;
CREATE INDEX held ON batches (epoch, seq) WHERE bytes IS NOT NULL;
CREATE INDEX unconfirmed ON batches (epoch, seq) WHERE confirmed = 0;

CREATE TABLE pieces (
  epoch  INTEGER NOT NULL,
  seq    BIGINT NOT NULL,
  made   BYTEA NOT NULL,
  number BIGINT NOT NULL,
  bytes  BYTEA NOT NULL,
  PRIMARY KEY (epoch, seq, made, number)
);
ALTER TABLE pieces ALTER bytes SET STORAGE EXTERNAL;

CREATE TABLE sweeps (
  epoch INTEGER NOT NULL,
  seq   BIGINT NOT NULL,
  made  BYTEA NOT NULL,
  PRIMARY KEY (epoch, seq, made)
);

CREATE TABLE findings (
  epoch   INTEGER NOT NULL,
  reason  TEXT NOT NULL,
  seq     BIGINT NOT NULL,
  latest  BIGINT NOT NULL,
  further BIGINT NOT NULL,
  PRIMARY KEY (epoch, reason)
);

CREATE TABLE tallies (
  epoch   INTEGER NOT NULL,
  reason  TEXT NOT NULL,
  refused BIGINT NOT NULL,
  PRIMARY KEY (epoch, reason)
);

CREATE TABLE ends (
  epoch INTEGER PRIMARY KEY,
  bytes BYTEA NOT NULL
);

CREATE TABLE recorded_manifests (
  epoch  INTEGER NOT NULL,
  seq    BIGINT NOT NULL,
  signed BYTEA NOT NULL,
  other  BYTEA,
  PRIMARY KEY (epoch, seq)
);

CREATE TABLE rollback_marks (
  epoch  INTEGER NOT NULL,
  file   TEXT NOT NULL,
  kind   INTEGER NOT NULL,
  steps  BIGINT NOT NULL,
  marked BIGINT NOT NULL,
  PRIMARY KEY (epoch, file)
);

CREATE TABLE processes (
  file       TEXT PRIMARY KEY,
  scan       BIGINT NOT NULL,
  scan_began BIGINT NOT NULL,
  standing   INTEGER NOT NULL
);

CREATE TABLE cuts (
  epoch INTEGER NOT NULL,
  seq   BIGINT NOT NULL,
  file  TEXT NOT NULL,
  PRIMARY KEY (epoch, seq, file)
);

-- The latest nonces of requests that each next hop or owner has signed, so that no process accepts a request that
-- another process has accepted. at is their order, not a time. UNLOGGED: a request need not wait for the disk. A server
-- that crashed, or a standby that has taken over, has lost the nonces. The sequence is logged: of an unlogged one, a
-- standby of PostgreSQL 15 has no valid page.
CREATE SEQUENCE nonces_order;
CREATE UNLOGGED TABLE nonces (
  key   BYTEA NOT NULL,
  nonce BYTEA NOT NULL,
  at    BIGINT NOT NULL DEFAULT nextval('nonces_order'),
  PRIMARY KEY (key, nonce)
);
CREATE INDEX nonces_at ON nonces (key, at);
