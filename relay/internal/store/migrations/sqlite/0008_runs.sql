-- What clients bring, in runs: each is many rows in one value, in no order of arrival, and encrypted. A run of level 0
-- is of one transaction; runs of one level are merged into one of the next, and deleted. seq is -1 for the names of
-- tags, receipts and clients. A row's id is the nonce. (adopt.go moves what was in slots.)
CREATE TABLE runs (
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  level INTEGER NOT NULL,
  id    BLOB NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (epoch, seq, level, id)
) WITHOUT ROWID;

-- What the batch's runs of level 0 take.
ALTER TABLE open ADD COLUMN fresh INTEGER NOT NULL DEFAULT 0;
