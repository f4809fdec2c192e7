-- What the relay itself must know: the number of its schema and whose secret encrypts it.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;

-- One row per epoch that has seen anything; id stands for (task, epoch) in the other tables. next is the number of the
-- next batch to begin, and destroyed how many batches below it a later relay has destroyed.
CREATE TABLE epochs (
  id        INTEGER PRIMARY KEY,
  task      BLOB NOT NULL,
  epoch     INTEGER NOT NULL,
  state     INTEGER NOT NULL DEFAULT 0,
  next      INTEGER NOT NULL DEFAULT 0,
  destroyed INTEGER NOT NULL DEFAULT 0,
  UNIQUE (task, epoch)
);

-- Batches that have submissions and are not sealed. fresh is what the batch's runs of level 0 take.
CREATE TABLE open (
  epoch       INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  submissions INTEGER NOT NULL,
  fresh       INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (epoch, seq)
) WITHOUT ROWID;

-- What clients bring, in runs: each is many rows in one value, in no order of arrival, and encrypted under the nonce that
-- it begins with. A run of level 0 is of one transaction; runs of one level are merged into one of the next, and deleted.
-- seq is 2^32 for the names of tags, receipts and clients. Not WITHOUT ROWID: SQLite would read runs to compare keys.
CREATE TABLE runs (
  id    INTEGER PRIMARY KEY,
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  level INTEGER NOT NULL,
  bytes BLOB NOT NULL
);
CREATE INDEX placed ON runs (epoch, seq, level);

-- The replay set of a later relay: keyed hashes of tags, and as receipt the number of the batch that brought each, plus
-- one.
CREATE TABLE seen (
  epoch   INTEGER NOT NULL,
  hash    BLOB NOT NULL,
  receipt BLOB,
  PRIMARY KEY (epoch, hash)
) WITHOUT ROWID;

-- Sealed batches: bytes is NULL once the next hop has confirmed the batch, and before that the name (8 bytes) and the
-- key of the attempt that made it, encrypted under the batch's. confirmed is 0 until
-- the previous hop knows that it may delete the batch that this one was made from.
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

-- The bytes of sealed batches in pieces, so that none need be in memory whole: each is encrypted under a key of its
-- attempt at making the batch.
CREATE TABLE pieces (
  epoch  INTEGER NOT NULL,
  seq    INTEGER NOT NULL,
  made   BLOB NOT NULL,
  number INTEGER NOT NULL,
  bytes  BLOB NOT NULL,
  PRIMARY KEY (epoch, seq, made, number)
);

-- What is to be deleted bit by bit when its batch has been made: the pieces of an attempt, or, where made is empty, the
-- slots of the open batch.
CREATE TABLE sweeps (
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  made  BLOB NOT NULL,
  PRIMARY KEY (epoch, seq, made)
) WITHOUT ROWID;

-- What operators should know about other parties' batches. Of each reason one row an epoch, whatever the previous hop
-- signs: seq is the first number that it was found of, latest the last, and further how many there were besides the
-- first.
CREATE TABLE findings (
  epoch   INTEGER NOT NULL,
  reason  TEXT NOT NULL,
  seq     INTEGER NOT NULL,
  latest  INTEGER NOT NULL,
  further INTEGER NOT NULL,
  PRIMARY KEY (epoch, reason)
);

-- How many reports and slots of an epoch were refused, by reason.
CREATE TABLE tallies (
  epoch   INTEGER NOT NULL,
  reason  TEXT NOT NULL,
  refused BIGINT NOT NULL,
  PRIMARY KEY (epoch, reason)
);

-- The ends of epochs that this relay has signed. They stay when an epoch expires: a next hop may ask late.
CREATE TABLE ends (
  epoch INTEGER PRIMARY KEY,
  bytes BLOB NOT NULL
);

-- What the previous hop has signed, by number, from before its first slot was read until the batch is made, whose own
-- manifest has it then; other is a second manifest of the number, if one has come.
CREATE TABLE recorded_manifests (
  epoch  INTEGER NOT NULL,
  seq    INTEGER NOT NULL,
  signed BLOB NOT NULL,
  other  BLOB,
  PRIMARY KEY (epoch, seq)
) WITHOUT ROWID;

-- How far each epoch has come by the marks outside the store: steps are the transactions made with a key file,
-- and marked is how many of them its mark had on disk when the last one began. kind is 0 for the secret and 1
-- for HPKE keys; file is the mark's name.
CREATE TABLE rollback_marks (
  epoch  INTEGER NOT NULL,
  file   TEXT NOT NULL,
  kind   INTEGER NOT NULL,
  steps  INTEGER NOT NULL,
  marked INTEGER NOT NULL,
  PRIMARY KEY (epoch, file)
);

-- The processes that share the store, by the names of their secrets' marks. Each scan of the store takes the next
-- number: scan is that of the process's last one, and scan_began the highest of all when it began. standing is 0 for a
-- member, 1 for one that is fenced, 2 for one that is joining, and 3 for one that has found the store rolled back.
CREATE TABLE processes (
  file       TEXT PRIMARY KEY,
  scan       INTEGER NOT NULL,
  scan_began INTEGER NOT NULL,
  standing   INTEGER NOT NULL
);

-- Which of them have cut which batches. Rows go with the batch's ciphertexts.
CREATE TABLE cuts (
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  file  TEXT NOT NULL,
  PRIMARY KEY (epoch, seq, file)
);
