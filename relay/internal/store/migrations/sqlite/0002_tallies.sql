-- How many reports and slots of an epoch were refused, by reason.
CREATE TABLE tallies (
  epoch   INTEGER NOT NULL,
  reason  TEXT NOT NULL,
  refused BIGINT NOT NULL,
  PRIMARY KEY (epoch, reason)
);
