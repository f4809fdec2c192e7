-- As migrations/sqlite/0008_runs.sql, which says what the table is for; names stay in seen and clients.
CREATE TABLE runs (
  id    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  epoch INTEGER NOT NULL,
  seq   BIGINT NOT NULL,
  level INTEGER NOT NULL,
  bytes BYTEA NOT NULL
);
ALTER TABLE runs ALTER bytes SET STORAGE EXTERNAL;
CREATE INDEX placed ON runs (epoch, seq, level);
ALTER TABLE open ADD COLUMN fresh BIGINT NOT NULL DEFAULT 0;
