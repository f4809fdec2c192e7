-- The bytes of sealed batches in pieces, so that none need be in memory whole: each is encrypted under a key of its
-- attempt at making the batch. batches.bytes has the attempt's name (8 bytes) and its key, encrypted under the batch's;
-- it is empty for a batch that was made before there were attempts, and NULL for one that is confirmed.
CREATE TABLE pieces (
  epoch  INTEGER NOT NULL,
  seq    INTEGER NOT NULL,
  made   BLOB NOT NULL,
  number INTEGER NOT NULL,
  bytes  BLOB NOT NULL,
  PRIMARY KEY (epoch, seq, made, number)
);
INSERT INTO pieces SELECT epoch, seq, x'', 0, bytes FROM batches WHERE bytes IS NOT NULL;
UPDATE batches SET bytes = x'' WHERE bytes IS NOT NULL;

-- What is to be deleted bit by bit when its batch has been made: the pieces of an attempt, or, where made is empty, the
-- slots of the open batch.
CREATE TABLE sweeps (
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  made  BLOB NOT NULL,
  PRIMARY KEY (epoch, seq, made)
) WITHOUT ROWID;
