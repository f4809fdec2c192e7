package keytree_test

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/rollback"
	"github.com/doona-dp/doona/relay/internal/keytree"
)

func label(n uint16) keytree.Label { return keytree.OfBytes(binary.BigEndian.AppendUint16(nil, n)) }

// open opens a key tree's file, or creates it.
func open(t *testing.T, path string) *keytree.File {
	t.Helper()
	f, err := keytree.OpenOrCreate(path)
	require.NoError(t, err)
	return f
}

// TestCut cuts labels in random order, alternately in two copies of a file. After each cut, the label must be gone from
// that file and all other keys must be unchanged.
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
		require.Equal(t, step > 0, cut[false], "labels that were cut earlier")
	}
	for _, path := range paths {
		require.NoError(t, open(t, path).Cut(""))
		require.Empty(t, values(t, path))
	}
}

// values returns the node values in a file, by the node's path.
func values(t *testing.T, path string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var document struct{ Kind, Tree string }
	require.NoError(t, json.NewDecoder(bytes.NewReader(raw)).Decode(&document))
	require.Equal(t, "doona secret", document.Kind)
	in, err := base64.RawURLEncoding.DecodeString(document.Tree)
	require.NoError(t, err)
	all := map[string]string{}
	var node func(path string)
	node = func(path string) {
		kind := in[0]
		in = in[1:]
		switch kind {
		case 1:
			all[path], in = string(in[:keytree.Size]), in[keytree.Size:]
		case 2:
			node(path + "0")
			node(path + "1")
		default:
			require.Zero(t, kind)
		}
	}
	node("")
	require.Empty(t, in)
	return all
}

// TestCutBranch: cutting a label must cut all labels that begin with it. The file must then hold no node from which its
// value follows: none at, above or below it.
func TestCutBranch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	f := open(t, path)
	of := func(b ...byte) keytree.Label { return keytree.OfBytes(b) }
	require.NoError(t, f.Cut(of(7, 1)))
	require.NoError(t, f.Cut(of(7)))
	before, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, f.Cut(of(7, 2)), "cutting twice must be no error")
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "cutting twice must write nothing")
	for _, f := range []*keytree.File{f, open(t, path)} {
		for _, gone := range []keytree.Label{of(7), of(7, 0), of(7, 1), of(7, 1, 1), of(7, 255), "0000", ""} {
			_, err := f.Key(gone, "test")
			require.ErrorIs(t, err, keytree.ErrCut)
			require.Equal(t, len(gone) < 8, f.Has(gone))
		}
		for _, left := range []keytree.Label{of(6, 1), of(8), of(0), of(255, 3)} {
			_, err := f.Key(left, "test")
			require.NoError(t, err)
			require.True(t, f.Has(left))
		}
	}
	all := values(t, path)
	require.Len(t, all, 8)
	for at := range all {
		require.False(t, strings.HasPrefix(at, "00000111") || strings.HasPrefix("00000111", at), at)
	}
}

// TestShared: two processes share one file and cut labels in turn. Neither may restore what the other has cut. If a cut
// cannot be written, the key must remain until a second attempt succeeds.
func TestShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	one, other := open(t, path), open(t, path)
	for i := range uint16(20) {
		f := []*keytree.File{one, other}[i%2]
		require.NoError(t, f.Cut(label(i<<3)))
		require.NoError(t, f.Mark().Raise(map[rollback.EpochKey]rollback.Entry{{Epoch: uint64(i)}: {Steps: 1}}))
		if i%3 == 0 { // rewrite the whole file, with another process's mark in it
			require.NoError(t, one.Mark().Change(func(*rollback.Mark) {}))
		}
		for j := range uint16(32) {
			_, err := open(t, path).Key(label(j<<3), "test")
			require.Equal(t, j <= i, errors.Is(err, keytree.ErrCut), "%d of %d", j, i)
		}
	}
	require.Len(t, open(t, path).Mark().Known().Entries, 20)
	require.NoError(t, os.Mkdir(path+".new", 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(path+".new", "file"), nil, 0o600))
	require.Error(t, one.Cut(label(25<<3)))
	_, err := one.Key(label(25<<3), "test")
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(path+".new"))
	require.NoError(t, one.Cut(label(25<<3)))
	_, err = open(t, path).Key(label(25<<3), "test")
	require.ErrorIs(t, err, keytree.ErrCut)
}

// TestDerivation compares keys with those that the standard library derives from the root.
func TestDerivation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	f := open(t, path)
	expand := func(from, info string) string {
		out, err := hkdf.Expand(sha256.New, []byte(from), info, keytree.Size)
		require.NoError(t, err)
		return string(out)
	}
	follow := func(value string, label keytree.Label) string {
		for _, bit := range string(label) {
			value = expand(value, "bit"+string(bit))
		}
		return value
	}
	root := values(t, path)[""]
	for _, label := range []keytree.Label{"", "0", "1", "0110", label(1), label(math.MaxUint16)} {
		for _, purpose := range []string{"", "test"} {
			got, err := f.Key(label, purpose)
			require.NoError(t, err)
			require.Equal(t, expand(follow(root, label), "key "+purpose), string(got))
		}
	}
	require.NoError(t, f.Cut(label(1)))
	left := values(t, path)
	require.Len(t, left, 16)
	for label, value := range left {
		require.Equal(t, follow(root, keytree.Label(label)), value)
	}
}

// TestSequence: cutting numbers in ascending order must leave few nodes. No number's path may be the beginning of
// another's.
func TestSequence(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	f := open(t, path)
	for i := range uint32(200) {
		require.NoError(t, f.Cut(keytree.OfNumber(i)))
		_, err := f.Key(keytree.OfNumber(i+1), "test")
		require.NoError(t, err)
		require.LessOrEqual(t, len(values(t, path)), 2+2*bits.Len32(i+1))
	}
	require.Equal(t, keytree.Label("0"), keytree.OfNumber(0))
	require.Equal(t, keytree.Label("11001"), keytree.OfNumber(4))
	require.Len(t, keytree.OfNumber(math.MaxUint32), 65)
	for i := range uint32(300) {
		require.Less(t, keytree.OfNumber(i), keytree.OfNumber(i+1))
		for j := range i {
			require.False(t, strings.HasPrefix(string(keytree.OfNumber(i)), string(keytree.OfNumber(j))))
		}
	}
}

// TestManyLabels: a label that is far from all others must add at most one node per bit to the file.
func TestManyLabels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	f := open(t, path)
	var labels []keytree.Label
	for range 1000 {
		labels = append(labels, keytree.OfBytes(binary.BigEndian.AppendUint64(nil, rand.Uint64())))
	}
	require.NoError(t, f.Cut(labels...))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(1000*(64-8)*(keytree.Size+2)*4/3))
}

// TestOpenAtOnce: concurrent creators of a file must all get the same tree, and the file must be private.
func TestOpenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	_, err := keytree.Open(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoFileExists(t, path)
	keys := make([][]byte, 16)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			if f, err := keytree.OpenOrCreate(path); err == nil {
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
	_, err = keytree.OpenOrCreate(path)
	require.ErrorContains(t, err, "want mode 0600")
}

// TestBadFiles: OpenOrCreate must refuse a damaged file and not replace it.
func TestBadFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	value := strings.Repeat("\x00", keytree.Size)
	deep := strings.Repeat("\x02\x00", 2000) + "\x01" + value
	texts := []string{"", "{}", `{"kind": "doona secret"}`, `{"kind": "other", "tree": "AA"}`,
		`{"kind": "doona secret", "tree": "AA="}`}
	for _, tree := range []string{"\x01", "\x01" + value[1:], "\x01" + value + "\x00", "\x03", "\x02", "\x02\x00\x00",
		"\x02\x00\x01" + value[1:], "\x00\x00", deep} {
		texts = append(texts, fmt.Sprintf(`{"kind": "doona secret", "tree": %q}`,
			base64.RawURLEncoding.EncodeToString([]byte(tree))))
	}
	for _, text := range texts {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, err := keytree.OpenOrCreate(path)
		require.ErrorContains(t, err, "not a doona secret file", text)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(raw))
	}
}
