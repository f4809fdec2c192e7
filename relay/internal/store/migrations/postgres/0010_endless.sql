-- As migrations/sqlite/0009_endless.sql.
ALTER TABLE findings RENAME TO found;
CREATE TABLE findings (
  epoch   INTEGER NOT NULL,
  reason  TEXT NOT NULL,
  seq     BIGINT NOT NULL,
  latest  BIGINT NOT NULL,
  further BIGINT NOT NULL,
  PRIMARY KEY (epoch, reason)
);
INSERT INTO findings SELECT epoch, reason, min(seq), max(seq), count(*) - 1 FROM found GROUP BY epoch, reason;
DROP TABLE found;

ALTER TABLE epochs ADD COLUMN destroyed BIGINT NOT NULL DEFAULT 0;

DELETE FROM witnessed WHERE other IS NULL AND seq < (SELECT next FROM epochs WHERE id = witnessed.epoch);
