-- What the relay before has signed, by number, from before its first slot was read; other is a second
-- manifest of the number, if one has come.
CREATE TABLE witnessed (
  epoch  INTEGER NOT NULL,
  seq    INTEGER NOT NULL,
  signed BLOB NOT NULL,
  other  BLOB,
  PRIMARY KEY (epoch, seq)
) WITHOUT ROWID;
