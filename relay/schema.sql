-- One row per epoch that has seen anything; id stands for (task, epoch) in the other tables.
CREATE TABLE IF NOT EXISTS epochs (
  id    INTEGER PRIMARY KEY,
  task  BLOB NOT NULL,
  epoch INTEGER NOT NULL,
  state INTEGER NOT NULL DEFAULT 0,
  UNIQUE (task, epoch)
);

-- Batches that have submissions and are not sealed.
CREATE TABLE IF NOT EXISTS open (
  epoch       INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  submissions INTEGER NOT NULL,
  PRIMARY KEY (epoch, seq)
) WITHOUT ROWID;

-- Their slots, each in a place of its own under a random key: no two columns, and no order
-- of rows, say which came from one client or when.
CREATE TABLE IF NOT EXISTS slots (
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  id    BLOB NOT NULL,
  lane  INTEGER NOT NULL,
  slot  BLOB NOT NULL,
  PRIMARY KEY (epoch, seq, id)
) WITHOUT ROWID;

-- The replay set: truncated hashes of tags and ciphertexts. receipt is set for envelopes only.
CREATE TABLE IF NOT EXISTS seen (
  epoch   INTEGER NOT NULL,
  hash    BLOB NOT NULL,
  receipt BLOB,
  PRIMARY KEY (epoch, hash)
) WITHOUT ROWID;

-- How many submissions each client has in an epoch.
CREATE TABLE IF NOT EXISTS clients (
  epoch       INTEGER NOT NULL,
  client      BLOB NOT NULL,
  submissions INTEGER NOT NULL,
  PRIMARY KEY (epoch, client)
) WITHOUT ROWID;

-- Sealed batches, for good: bytes are what the next hop gets, NULL once it has confirmed. told
-- is 0 while the relay before has not been told to delete the batch this one was made from.
CREATE TABLE IF NOT EXISTS batches (
  epoch    INTEGER NOT NULL,
  seq      INTEGER NOT NULL,
  manifest BLOB NOT NULL,
  bytes    BLOB,
  told     INTEGER NOT NULL,
  PRIMARY KEY (epoch, seq)
);

-- What operators should know about other parties' batches.
CREATE TABLE IF NOT EXISTS findings (
  epoch  INTEGER NOT NULL,
  seq    INTEGER NOT NULL,
  reason TEXT NOT NULL,
  PRIMARY KEY (epoch, seq, reason)
);
