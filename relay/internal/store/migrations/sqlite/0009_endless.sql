-- Of each reason one row an epoch, whatever the relay before signs: seq is the first number that it was found of,
-- latest the last, and further how many there were besides the first.
ALTER TABLE findings RENAME TO found;
CREATE TABLE findings (
  epoch   INTEGER NOT NULL,
  reason  TEXT NOT NULL,
  seq     INTEGER NOT NULL,
  latest  INTEGER NOT NULL,
  further INTEGER NOT NULL,
  PRIMARY KEY (epoch, reason)
);
INSERT INTO findings SELECT epoch, reason, min(seq), max(seq), count(*) - 1 FROM found GROUP BY epoch, reason;
DROP TABLE found;

-- How many batches below next a later relay has destroyed.
ALTER TABLE epochs ADD COLUMN destroyed INTEGER NOT NULL DEFAULT 0;

-- What was signed for a batch that is made stands in the batch's own manifest.
DELETE FROM witnessed WHERE other IS NULL AND seq < (SELECT next FROM epochs WHERE id = witnessed.epoch);
