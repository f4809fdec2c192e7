package store

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// TestNoncesOfAllProcesses: if several processes that share a store get the same request, exactly one of them must
// accept it. For each signing key, the store must keep the last [KeptNonces] nonces.
func TestNoncesOfAllProcesses(t *testing.T) {
	url := postgresURL(t)
	vault, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
	require.NoError(t, err)
	var handles []*Store
	for range 2 {
		d, err := openPostgres(url, vault)
		require.NoError(t, err)
		t.Cleanup(func() { d.Close() })
		handles = append(handles, d)
	}
	key := task.SignKey{1}
	const n = 63 // odd, so that both processes ask for each nonce
	taken := make(chan byte, 2*n)
	atOnce(handles, 2*n, func(d *Store, i int) {
		fresh, err := d.Fresh(t.Context(), key, signing.Nonce{byte(i % n)})
		if err == nil && fresh {
			taken <- byte(i % n)
		}
	})
	close(taken)
	seen := map[byte]bool{}
	for nonce := range taken {
		require.False(t, seen[nonce], "two processes have accepted one request")
		seen[nonce] = true
	}
	require.Len(t, seen, n)
	fresh, err := handles[0].Fresh(t.Context(), task.SignKey{2}, signing.Nonce{})
	require.NoError(t, err)
	require.True(t, fresh, "the nonce of another key must be new")

	const fill = `INSERT INTO nonces (key, nonce) SELECT $1, int8send(i) || int8send(i) FROM generate_series(1, $2) AS i`
	_, err = handles[0].write.ExecContext(t.Context(), fill, key[:], 2*KeptNonces)
	require.NoError(t, err)
	for i := range pruneEvery {
		_, err := handles[1].Fresh(t.Context(), key, signing.Nonce{1, byte(i), byte(i >> 8)})
		require.NoError(t, err)
	}
	var kept, others int
	const count = `SELECT COUNT(*) FILTER (WHERE key = $1), COUNT(*) FILTER (WHERE key <> $1) FROM nonces`
	require.NoError(t, handles[0].read.QueryRowContext(t.Context(), count, key[:]).Scan(&kept, &others))
	require.LessOrEqual(t, kept, KeptNonces+pruneEvery)
	require.GreaterOrEqual(t, kept, KeptNonces)
	require.Equal(t, 1, others)
	fresh, err = handles[0].Fresh(t.Context(), key, signing.Nonce{1, 1})
	require.NoError(t, err)
	require.False(t, fresh, "the latest nonces must be known")

	require.NoError(t, handles[1].ForgetNonces(t.Context(), key))
	require.NoError(t, handles[0].read.QueryRowContext(t.Context(), count, key[:]).Scan(&kept, &others))
	require.Zero(t, kept)
	require.Equal(t, 1, others)
	require.NotContains(t, handles[1].requests.taken, key)
}
