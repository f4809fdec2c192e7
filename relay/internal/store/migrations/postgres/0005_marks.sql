-- How far each epoch has come by the marks outside the store: steps are the transactions made with a key file,
-- and marked is how many of them its mark had on disk when the last one began. kind is 0 for the secret and 1
-- for HPKE keys; file is the mark's name.
CREATE TABLE marks (
  epoch  INTEGER NOT NULL,
  file   TEXT NOT NULL,
  kind   INTEGER NOT NULL,
  steps  BIGINT NOT NULL,
  marked BIGINT NOT NULL,
  PRIMARY KEY (epoch, file)
);
