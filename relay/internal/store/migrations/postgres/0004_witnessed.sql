-- What the relay before has signed, by number, from before its first slot was read; other is a second
-- manifest of the number, if one has come.
CREATE TABLE witnessed (
  epoch  INTEGER NOT NULL,
  seq    BIGINT NOT NULL,
  signed BYTEA NOT NULL,
  other  BYTEA,
  PRIMARY KEY (epoch, seq)
);
