-- What the relay itself must know: the number of its schema and whose secret encrypts it.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;

-- One row per epoch that has seen anything; id stands for (task, epoch) in the other tables. next
-- is the number of the batch that will be begun next.
CREATE TABLE epochs (
  id    INTEGER PRIMARY KEY,
  task  BLOB NOT NULL,
  epoch INTEGER NOT NULL,
  state INTEGER NOT NULL DEFAULT 0,
  next  INTEGER NOT NULL DEFAULT 0,
  UNIQUE (task, epoch)
);

-- Batches that have submissions and are not sealed.
CREATE TABLE open (
  epoch       INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  submissions INTEGER NOT NULL,
  PRIMARY KEY (epoch, seq)
) WITHOUT ROWID;

-- Their slots, each encrypted, in a place of its own under a random key: no two columns, and no
-- order of rows, say which came from one client or when.
CREATE TABLE slots (
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  id    BLOB NOT NULL,
  slot  BLOB NOT NULL,
  PRIMARY KEY (epoch, seq, id)
) WITHOUT ROWID;

-- The replay set: keyed hashes of tags. receipt is set for submissions only.
CREATE TABLE seen (
  epoch   INTEGER NOT NULL,
  hash    BLOB NOT NULL,
  receipt BLOB,
  PRIMARY KEY (epoch, hash)
) WITHOUT ROWID;

-- How many submissions each client has in an epoch.
CREATE TABLE clients (
  epoch       INTEGER NOT NULL,
  client      BLOB NOT NULL,
  submissions INTEGER NOT NULL,
  PRIMARY KEY (epoch, client)
) WITHOUT ROWID;

-- Sealed batches: bytes are what the next hop gets, encrypted, NULL once it has confirmed. told is
-- 0 while the relay before has not been told to delete the batch this one was made from.
CREATE TABLE batches (
  epoch    INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  manifest BLOB NOT NULL,
  bytes    BLOB,
  told     INTEGER NOT NULL,
  PRIMARY KEY (epoch, seq)
);
CREATE INDEX held ON batches (epoch, seq) WHERE bytes IS NOT NULL;
CREATE INDEX untold ON batches (epoch, seq) WHERE told = 0;

-- What operators should know about other parties' batches.
CREATE TABLE findings (
  epoch  INTEGER NOT NULL,
  seq    INTEGER NOT NULL,
  reason TEXT NOT NULL,
  PRIMARY KEY (epoch, seq, reason)
);
