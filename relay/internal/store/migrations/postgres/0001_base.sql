-- As migrations/sqlite/0001_base.sql, which says what the tables are for.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value BYTEA NOT NULL
);

CREATE TABLE epochs (
  id    INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task  BYTEA NOT NULL,
  epoch BIGINT NOT NULL,
  state INTEGER NOT NULL DEFAULT 0,
  next  BIGINT NOT NULL DEFAULT 0,
  UNIQUE (task, epoch)
);

CREATE TABLE open (
  epoch       INTEGER NOT NULL,
  seq         BIGINT NOT NULL,
  submissions BIGINT NOT NULL,
  PRIMARY KEY (epoch, seq)
);

-- What is encrypted does not compress.
CREATE TABLE slots (
  epoch INTEGER NOT NULL,
  seq   BIGINT NOT NULL,
  id    BYTEA NOT NULL,
  slot  BYTEA NOT NULL,
  PRIMARY KEY (epoch, seq, id)
);
ALTER TABLE slots ALTER slot SET STORAGE EXTERNAL;

CREATE TABLE seen (
  epoch   INTEGER NOT NULL,
  hash    BYTEA NOT NULL,
  receipt BYTEA,
  PRIMARY KEY (epoch, hash)
);

CREATE TABLE clients (
  epoch       INTEGER NOT NULL,
  submissions INTEGER NOT NULL,
  client      BYTEA NOT NULL,
  PRIMARY KEY (epoch, client)
);

CREATE TABLE batches (
  epoch    INTEGER NOT NULL,
  told     INTEGER NOT NULL,
  seq      BIGINT NOT NULL,
  manifest BYTEA NOT NULL,
  bytes    BYTEA,
  PRIMARY KEY (epoch, seq)
);
ALTER TABLE batches ALTER bytes SET STORAGE EXTERNAL;
CREATE INDEX held ON batches (epoch, seq) WHERE bytes IS NOT NULL;
CREATE INDEX untold ON batches (epoch, seq) WHERE told = 0;

CREATE TABLE findings (
  epoch  INTEGER NOT NULL,
  seq    BIGINT NOT NULL,
  reason TEXT NOT NULL,
  PRIMARY KEY (epoch, seq, reason)
);
