package keytree_test

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay/internal/keytree"
)

func label(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

// open opens the file in a folder.
func open(t *testing.T, path string) *keytree.File {
	t.Helper()
	f, err := keytree.Open(path, true)
	require.NoError(t, err)
	return f
}

// TestCut cuts labels in a random order, from two copies in turn, and finds after every step that
// what was cut is gone from the file and all else is as it was.
func TestCut(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	first := open(t, paths[0])
	raw, err := os.ReadFile(paths[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(paths[1], raw, 0o600))
	const n = 64
	want := map[uint16][]byte{}
	seen := map[string]bool{}
	for i := range uint16(n) {
		key, err := first.Key(label(i<<5), "test")
		require.NoError(t, err)
		require.Len(t, key, keytree.Size)
		require.False(t, seen[string(key)])
		seen[string(key)], want[i] = true, key
	}
	other, err := first.Key(label(0), "another purpose")
	require.NoError(t, err)
	require.NotEqual(t, want[0], other)
	for step, i := range rand.Perm(n) {
		require.NoError(t, open(t, paths[step%2]).Cut(label(uint16(i)<<5)))
		cut := map[bool]bool{}
		for _, path := range paths {
			f := open(t, path)
			for j := range uint16(n) {
				key, err := f.Key(label(j<<5), "test")
				if err == nil {
					require.Equal(t, want[j], key)
					continue
				}
				require.ErrorIs(t, err, keytree.ErrCut)
				cut[int(j) == i] = true
			}
		}
		require.True(t, cut[true])
		require.Equal(t, step > 0, cut[false], "what was cut before")
	}
	for _, path := range paths {
		require.NoError(t, open(t, path).Cut(nil))
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.JSONEq(t, `{"kind": "doona secret", "nodes": {}}`, string(raw))
	}
}

// TestCutBranch: a label takes with it all that begin with it, cut before or not, and its value
// does not follow from the file: no node of the file is at, above or below it.
func TestCutBranch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	f := open(t, path)
	require.NoError(t, f.Cut([]byte{7, 1}))
	require.NoError(t, f.Cut([]byte{7}))
	require.NoError(t, f.Cut([]byte{7, 2}), "cutting twice is no error")
	for _, gone := range [][]byte{{7}, {7, 0}, {7, 1}, {7, 1, 1}, {7, 255}} {
		_, err := f.Key(gone, "test")
		require.ErrorIs(t, err, keytree.ErrCut)
	}
	for _, left := range [][]byte{{6, 1}, {8}, {0}, {255, 3}} {
		_, err := f.Key(left, "test")
		require.NoError(t, err)
	}
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(raw), `"00000111`)
	for n := range 8 {
		require.NotContains(t, string(raw), fmt.Sprintf("%q", "00000111"[:n]))
	}
}

// TestSequence: labels cut in order leave few nodes behind.
func TestSequence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	f := open(t, path)
	for i := range uint16(200) {
		require.NoError(t, f.Cut(label(i)))
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(100*16), "at most 16 nodes of 2 bytes' labels")
}

// TestOpenAtOnce: of many that make a file at once, all get the same, for nobody else to read.
func TestOpenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	_, err := keytree.Open(path, false)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoFileExists(t, path)
	keys := make([][]byte, 16)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			if f, err := keytree.Open(path, true); err == nil {
				keys[i], _ = f.Key(label(1), "test")
			}
		})
	}
	all.Wait()
	for _, key := range keys {
		require.Len(t, key, keytree.Size)
		require.Equal(t, keys[0], key)
	}
	require.NoError(t, os.Chmod(path, 0o640))
	_, err = keytree.Open(path, true)
	require.ErrorContains(t, err, "want mode 0600")
}

// TestBadFiles: what is not a tree is refused, and not replaced.
func TestBadFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	value := strings.Repeat("A", 43)
	for _, text := range []string{fmt.Sprintf(`{"kind": "doona secret", "nodes": {"01": %q, "0110": %q}}`, value,
		value), "", "{}", `{"kind": "doona secret"}`, `{"kind": "other", "nodes": {}}`,
		`{"kind": "doona secret", "nodes": {"0": "AA"}}`,
		`{"kind": "doona secret", "nodes": {"2": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}}`} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := keytree.Open(path, true)
		require.ErrorContains(t, err, "not a doona secret file", text)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(raw))
	}
}
