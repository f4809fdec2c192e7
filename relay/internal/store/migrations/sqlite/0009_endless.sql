-- Of each reason one row an epoch, whatever the relay before signs: seq is the first number that it was found of, latest
-- the last, and further how many there were besides the first.
CREATE TABLE found (
  epoch   INTEGER NOT NULL,
  reason  TEXT NOT NULL,
  seq     INTEGER NOT NULL,
  latest  INTEGER NOT NULL,
  further INTEGER NOT NULL,
  PRIMARY KEY (epoch, reason)
);
INSERT INTO found SELECT epoch, reason, min(seq), max(seq), count(*) - 1 FROM findings GROUP BY epoch, reason;
DROP TABLE findings;
ALTER TABLE found RENAME TO findings;

-- How many batches below next a later relay has destroyed.
ALTER TABLE epochs ADD COLUMN destroyed INTEGER NOT NULL DEFAULT 0;

-- What was signed for a batch that is made stands in the batch's own manifest.
DELETE FROM witnessed WHERE other IS NULL AND seq < (SELECT next FROM epochs WHERE id = witnessed.epoch);
