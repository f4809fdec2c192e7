-- Nonces of the requests that next hops and owners have signed, of each key the last ones: no process takes a request
-- that another one had. at is their order, not a time. Unlogged: a request waits for no disk for its sake, and a
-- server that crashed has forgotten them.
CREATE UNLOGGED TABLE nonces (
  key   BYTEA NOT NULL,
  nonce BYTEA NOT NULL,
  at    BIGINT GENERATED ALWAYS AS IDENTITY,
  PRIMARY KEY (key, nonce)
);
CREATE INDEX nonces_at ON nonces (key, at);
