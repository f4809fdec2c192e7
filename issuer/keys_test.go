package issuer_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
)

// TestHashes compares the issuer's hashes of accounts and requests with those that crypto/hmac computes.
func TestHashes(t *testing.T) {
	mac := func(key []byte, parts ...string) []byte {
		h := hmac.New(sha256.New, key)
		for _, p := range parts {
			h.Write(append([]byte(p), 0))
		}
		return h.Sum(nil)
	}
	exponent := bytes.Repeat([]byte{1, 2, 3, 4}, 64)
	counts := issuer.CountsKey(exponent)
	require.Equal(t, mac(exponent, "doona issuer counts"), counts)
	for _, kind := range []string{"account", "request"} {
		for size := range 300 {
			of := bytes.Repeat([]byte{byte(size)}, size)
			name, err := issuer.Named(bytes.Clone(counts), kind, of)
			require.NoError(t, err)
			require.Equal(t, mac(counts, kind, string(of))[:16], name)
		}
	}
}

// TestAnothersErasure: another process erases a key. This issuer must still clear the key for the epoch's hashes from
// its memory, even during a request that uses it.
func TestAnothersErasure(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens})
	cfg := c.IssuerConfig()
	i, err := issuer.New(cfg)
	require.NoError(t, err)
	defer relaytest.Run(t, i.Run)()
	first, second := issuer.Hashes(i, 0), issuer.Hashes(i, 1)
	require.NoError(t, first())
	another, err := keyfile.LoadRSA(cfg.Tasks[0].TokenKeys)
	require.NoError(t, err)
	require.NoError(t, another.Erase(0))
	require.NoError(t, issuer.EraseKey(i, 1)) // rereads the file, which no longer has the key of epoch 0
	require.NoError(t, first())
	require.ErrorIs(t, second(), keyfile.ErrErased)
	require.NoError(t, issuer.EraseKey(i, 0))
	require.ErrorIs(t, first(), keyfile.ErrErased)
}

// TestKeyFileLacksAnEpoch: an issuer must not start, and check-config must not pass, if its key file lacks an epoch
// after one that it has. Pages would find that epoch closed, with no sign at the issuer. A file without the first
// epochs is one whose epochs are over.
func TestKeyFileLacksAnEpoch(t *testing.T) {
	for lost, want := range map[uint64]string{0: "", 1: "epoch 1 is missing", 2: "epoch 2 is missing"} {
		c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
			relaytest.WithTokens(draft)
			draft.Epochs.Count = 3
		}})
		cfg := c.IssuerConfig()
		keys, err := keyfile.LoadRSA(cfg.Tasks[0].TokenKeys)
		require.NoError(t, err)
		require.NoError(t, keys.Erase(lost))
		for _, start := range []func(issuer.Config) (*issuer.Issuer, error){issuer.Inspect, issuer.New} {
			i, err := start(cfg)
			if want != "" {
				require.ErrorContains(t, err, want)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, i.Close())
		}
	}
}
