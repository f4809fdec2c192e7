-- The ends of epochs that this relay has signed. They stay when an epoch expires: a next hop may ask late.
CREATE TABLE ends (
  epoch INTEGER PRIMARY KEY,
  bytes BLOB NOT NULL
);
