-- What clients bring, in runs: each is many rows in one value, in no order of arrival, and encrypted under the nonce that
-- it begins with. A run of level 0 is of one transaction; runs of one level are merged into one of the next, and deleted.
-- seq is 2^32 for the names of tags, receipts and clients. Not WITHOUT ROWID: SQLite would read runs to compare keys.
-- (adopt.go moves what was in slots, seen and clients.)
CREATE TABLE runs (
  id    INTEGER PRIMARY KEY,
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  level INTEGER NOT NULL,
  bytes BLOB NOT NULL
);
CREATE INDEX placed ON runs (epoch, seq, level);

-- What the batch's runs of level 0 take.
ALTER TABLE open ADD COLUMN fresh INTEGER NOT NULL DEFAULT 0;
