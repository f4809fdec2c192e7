package keyfile_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/memscan"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// TestErasedKeysAreGone makes, loads, checks and uses keys of every KEM, and erases some. Memory must then hold no
// erased key, nor its text. The test must still find the keys that it did not erase.
func TestErasedKeysAreGone(t *testing.T) {
	for _, kem := range []task.KEM{task.KEMX25519, task.KEMMLKEM768X25519, task.KEMMLKEM768} {
		t.Run(string(kem), func(t *testing.T) {
			f := newFiles(t, kem)
			h, err := keyfile.LoadHPKE(f.hpke)
			require.NoError(t, err)
			require.NoError(t, h.Check(f.task, f.list))
			require.NoError(t, h.Bind("store"))
			m, err := h.Mark()
			require.NoError(t, err)
			_, err = m.Name() // writes a mark into the file, which every later read includes
			require.NoError(t, err)
			needles := memscan.File(t, f.hpke)
			require.Len(t, needles, 3)
			memscan.RequireFound(t, needles[1])
			key, err := h.Key(1)
			require.NoError(t, err)
			opener, err := onion.NewOpener(f.task, task.ID{}, 0, 1, key)
			require.NoError(t, err)
			for range 100 {
				_, _, err = opener.OpenSlot(0, make([]byte, 2000))
				require.ErrorIs(t, err, onion.ErrOpen)
			}
			require.NoError(t, h.Erase(1))
			memscan.RequireGone(t, needles[1:2], needles[0], needles[2])
			_, _, err = opener.OpenSlot(0, make([]byte, 2000))
			require.ErrorIs(t, err, onion.ErrErased, "the error must not be ErrOpen")
			h.Close()
			m.Close()
		})
	}
}

// TestSignKeysAreGone: besides the signing key in use, memory may hold only one copy: crypto/ed25519 keeps it until the
// process ends. Memory must never hold the key's text.
func TestSignKeysAreGone(t *testing.T) {
	dir := t.TempDir()
	newest, old := filepath.Join(dir, "newest"), filepath.Join(dir, "old")
	for _, path := range []string{newest, old} {
		clear(newSign(t, path))
	}
	needles := append(memscan.File(t, newest), memscan.File(t, old)...)
	require.Len(t, needles, 2)
	s, err := keyfile.LoadSigners(newest, []string{old})
	require.NoError(t, err)
	for _, public := range s.Public() {
		signing.Sign(s.Of(public), signing.Time, []byte("message"))
	}
	memscan.RequireFound(t, needles...)
	s.Close()
	var found []string
	inText := func(f string) bool { return !strings.HasSuffix(f, ", raw") }
	memscan.Retry(t, func() bool {
		found = memscan.Count(t, needles...)
		return len(found) <= 2*len(needles) && !slices.ContainsFunc(found, inText)
	})
	require.LessOrEqual(t, len(found), 2*len(needles), "%v", found)
	require.False(t, slices.ContainsFunc(found, inText), "%v", found)
}
