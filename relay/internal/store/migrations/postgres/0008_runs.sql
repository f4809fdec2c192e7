-- As migrations/sqlite/0008_runs.sql, which says what the table is for; names stay in seen and clients.
CREATE TABLE runs (
  epoch INTEGER NOT NULL,
  seq   BIGINT NOT NULL,
  level INTEGER NOT NULL,
  id    BYTEA NOT NULL,
  bytes BYTEA NOT NULL,
  PRIMARY KEY (epoch, seq, level, id)
);
ALTER TABLE runs ALTER bytes SET STORAGE EXTERNAL;
ALTER TABLE open ADD COLUMN fresh BIGINT NOT NULL DEFAULT 0;
