-- The processes that share the store, by the names of their secrets' marks: when each was last heard of, in
-- seconds, and whether the others go on without it.
CREATE TABLE processes (
  file   TEXT PRIMARY KEY,
  seen   REAL NOT NULL,
  fenced INTEGER NOT NULL
);

-- Which of them have cut which batches. Rows go with the batch's ciphertexts.
CREATE TABLE cuts (
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  file  TEXT NOT NULL,
  PRIMARY KEY (epoch, seq, file)
);
