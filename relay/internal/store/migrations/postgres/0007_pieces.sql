-- As migrations/sqlite/0007_pieces.sql, which says what the tables are for.
CREATE TABLE pieces (
  epoch  INTEGER NOT NULL,
  seq    BIGINT NOT NULL,
  made   BYTEA NOT NULL,
  number BIGINT NOT NULL,
  bytes  BYTEA NOT NULL,
  PRIMARY KEY (epoch, seq, made, number)
);
ALTER TABLE pieces ALTER bytes SET STORAGE EXTERNAL;
INSERT INTO pieces SELECT epoch, seq, ''::bytea, 0, bytes FROM batches WHERE bytes IS NOT NULL;
UPDATE batches SET bytes = ''::bytea WHERE bytes IS NOT NULL;

CREATE TABLE sweeps (
  epoch INTEGER NOT NULL,
  seq   BIGINT NOT NULL,
  made  BYTEA NOT NULL,
  PRIMARY KEY (epoch, seq, made)
);
