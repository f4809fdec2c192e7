package keyfile_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/keyfile"
)

func TestRSA(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token.keys")
	made := 0
	public, err := keyfile.NewRSA(path, 3, func() { made++ })
	require.NoError(t, err)
	require.Len(t, public, 3)
	require.Equal(t, 3, made)
	requirePrivate(t, path)
	_, err = keyfile.NewRSA(path, 1, nil)
	require.ErrorContains(t, err, "exists")

	keys, err := keyfile.LoadRSA(path)
	require.NoError(t, err)
	require.Equal(t, []uint64{0, 1, 2}, keys.Epochs())
	for epoch, want := range public {
		key, err := keys.Key(uint64(epoch))
		require.NoError(t, err)
		require.Equal(t, want.N, key.Modulus())
		require.Equal(t, 2048, key.Modulus().BitLen())
	}
	require.NoError(t, keys.Erase(1))
	require.NoError(t, keys.Erase(1), "erasing twice must succeed")
	for _, k := range []*keyfile.RSA{keys, reload(t, path)} {
		require.Equal(t, []uint64{0, 2}, k.Epochs())
		_, err = k.Key(1)
		require.ErrorIs(t, err, keyfile.ErrErased)
	}
	_, err = keyfile.LoadHPKE(path)
	require.ErrorContains(t, err, "not a doona hpke keys file")
}

func reload(t *testing.T, path string) *keyfile.RSA {
	t.Helper()
	keys, err := keyfile.LoadRSA(path)
	require.NoError(t, err)
	return keys
}
