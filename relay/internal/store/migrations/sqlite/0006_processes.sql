-- The processes that share the store, by the names of their secrets' marks. Each look at the store takes the next
-- number: looked is that of the process's last one, and begun the highest of all when it began. standing is 0 for a
-- member, 1 for one that is fenced, 2 for one that is joining, and 3 for one that has found the store set back.
CREATE TABLE processes (
  file     TEXT PRIMARY KEY,
  looked   INTEGER NOT NULL,
  begun    INTEGER NOT NULL,
  standing INTEGER NOT NULL
);

-- Which of them have cut which batches. Rows go with the batch's ciphertexts.
CREATE TABLE cuts (
  epoch INTEGER NOT NULL,
  seq   INTEGER NOT NULL,
  file  TEXT NOT NULL,
  PRIMARY KEY (epoch, seq, file)
);
