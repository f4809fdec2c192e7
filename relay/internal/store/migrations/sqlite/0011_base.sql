-- What the relay must know about the store: its name, and a fingerprint of the secret that encrypts it.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;

-- One row per epoch that has any data. In the other tables, the column epoch is this id. next is the number of the next
-- batch to begin. destroyed is how many batches with lower numbers a later relay has destroyed.
CREATE TABLE epochs (
  id        INTEGER PRIMARY KEY,
  task      BLOB NOT NULL,
  epoch     INTEGER NOT NULL,
  state     INTEGER NOT NULL DEFAULT 0,
  next      INTEGER NOT NULL DEFAULT 0,
  destroyed INTEGER NOT NULL DEFAULT 0,
  UNIQUE (task, epoch)
);

-- Batches that have submissions and are not sealed. fresh is how many bytes the batch's level 0 runs take.
CREATE TABLE open (
  epoch       INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  submissions INTEGER NOT NULL,
  fresh       INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (epoch, seq)
) WITHOUT ROWID;

-- Clients' slots, tags, receipts and hashed clients, in runs. A run is one encrypted value with many rows, not in their
-- order of arrival; it begins with the nonce. A level 0 run is from one transaction. The store merges runs of one level
-- into one run of the next level and deletes them. For tags, receipts and clients, seq is 2^32. Not WITHOUT ROWID,
-- because SQLite would then read whole runs to compare keys.
CREATE TABLE runs (
  id    INTEGER PRIMARY KEY,
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  level INTEGER NOT NULL,
  bytes BLOB NOT NULL
);
CREATE INDEX placed ON runs (epoch, seq, level);

-- The replay set of a later relay: keyed hashes of tags. receipt is the number of the batch that brought the tag, plus
-- one.
CREATE TABLE seen (
  epoch   INTEGER NOT NULL,
  hash    BLOB NOT NULL,
  receipt BLOB,
  PRIMARY KEY (epoch, hash)
) WITHOUT ROWID;

-- Sealed batches. bytes is NULL once the next hop has confirmed the batch. Before, it is the name (8 bytes) of the
-- attempt that made the batch, and that attempt's key, encrypted under the batch's key. confirmed is 0 until the
-- upstream relay knows that it may delete the batch that this one was made from.
CREATE TABLE batches (
  epoch    INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  manifest BLOB NOT NULL,
  bytes    BLOB,
  confirmed INTEGER NOT NULL,
  PRIMARY KEY (epoch, seq)
);
CREATE INDEX held ON batches (epoch, seq) WHERE bytes IS NOT NULL;
CREATE INDEX unconfirmed ON batches (epoch, seq) WHERE confirmed = 0;

-- The bytes of sealed batches, in pieces so that a batch need not fit into memory. made is the name of the attempt at
-- making the batch, and each piece is encrypted under the key of that attempt.
CREATE TABLE pieces (
  epoch  INTEGER NOT NULL,
  seq    INTEGER NOT NULL,
  made   BLOB NOT NULL,
  number INTEGER NOT NULL,
  bytes  BLOB NOT NULL,
  PRIMARY KEY (epoch, seq, made, number)
);

-- What the relay must delete in small steps after a batch was made: the pieces of an attempt or, if made is empty, the
-- slots of the open batch.
CREATE TABLE sweeps (
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  made  BLOB NOT NULL,
  PRIMARY KEY (epoch, seq, made)
) WITHOUT ROWID;

-- Findings about the upstream relay's batches. Each reason has one row per epoch, however many batches the upstream
-- relay signs. seq is the lowest affected batch number, latest the highest, and further how many others are affected
-- besides the first.
CREATE TABLE findings (
  epoch   INTEGER NOT NULL,
  reason  TEXT NOT NULL,
  seq     INTEGER NOT NULL,
  latest  INTEGER NOT NULL,
  further INTEGER NOT NULL,
  PRIMARY KEY (epoch, reason)
);

-- How many reports and slots of an epoch the relay refused, by reason.
CREATE TABLE tallies (
  epoch   INTEGER NOT NULL,
  reason  TEXT NOT NULL,
  refused BIGINT NOT NULL,
  PRIMARY KEY (epoch, reason)
);

-- The ends of epochs that this relay has signed. They stay after an epoch has expired, because a next hop may ask late.
CREATE TABLE ends (
  epoch INTEGER PRIMARY KEY,
  bytes BLOB NOT NULL
);

-- Manifests that the upstream relay has signed. A row exists from before the first slot is read until this relay has
-- made its own batch, whose manifest then contains the upstream one. other is a second, different manifest with the
-- same number, if one has come.
CREATE TABLE recorded_manifests (
  epoch  INTEGER NOT NULL,
  seq    INTEGER NOT NULL,
  signed BLOB NOT NULL,
  other  BLOB,
  PRIMARY KEY (epoch, seq)
) WITHOUT ROWID;

-- How far each epoch has come, by rollback mark (a counter outside the store). steps is the number of transactions made
-- with a key file. marked is how many of them the mark on disk had when the last one began. kind is 0 for the secret
-- file and 1 for HPKE keys. file is the mark's name.
CREATE TABLE rollback_marks (
  epoch  INTEGER NOT NULL,
  file   TEXT NOT NULL,
  kind   INTEGER NOT NULL,
  steps  INTEGER NOT NULL,
  marked INTEGER NOT NULL,
  PRIMARY KEY (epoch, file)
);

-- The relay processes that share the store, by the names of the rollback marks in their secret files. Each scan of the
-- store gets the next number. scan is the number of the process's latest scan; scan_began is the highest number of all
-- processes when that scan began. standing is 0 for a member, 1 for a fenced process, 2 for a joining one, and 3 for
-- one that has found the store rolled back.
CREATE TABLE processes (
  file       TEXT PRIMARY KEY,
  scan       INTEGER NOT NULL,
  scan_began INTEGER NOT NULL,
  standing   INTEGER NOT NULL
);

-- Which processes have recorded which batches in their rollback marks. The relay deletes a row when it deletes the
-- batch's ciphertexts.
CREATE TABLE cuts (
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  file  TEXT NOT NULL,
  PRIMARY KEY (epoch, seq, file)
);
