package verifier

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// fileOf opens the unlinked file that a space has in a folder; nil if there is none.
func fileOf(t *testing.T, folder string) *os.File {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, link := range links {
		to, err := os.Readlink(link)
		if err == nil && strings.HasPrefix(to, folder+"/") && strings.HasSuffix(to, " (deleted)") {
			f, err := os.OpenFile(link, os.O_RDWR, 0)
			require.NoError(t, err)
			t.Cleanup(func() { f.Close() })
			return f
		}
	}
	return nil
}

// onDisk returns a space that stores all blocks in its file, and the file's folder.
func onDisk(t *testing.T, most int) (*scratchSpace, string) {
	folder := t.TempDir()
	s := newScratch(folder, most, 0)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, folder
}

func put(t *testing.T, s *scratchSpace, data []byte) scratchBlock {
	t.Helper()
	b, err := s.Put(bytes.Clone(data))
	require.NoError(t, err)
	return b
}

func requireGet(t *testing.T, s *scratchSpace, want []byte, b scratchBlock) {
	t.Helper()
	got, _, err := s.Get(b, nil)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// TestTheFileTellsNothing: the file must not contain what was stored, and only its owner may open it. Equal blocks must
// give different bytes at two offsets (otherwise they share a nonce) and in two files (otherwise they share a key).
func TestTheFileTellsNothing(t *testing.T) {
	const most = 256
	data := bytes.Repeat([]byte("sixteen bytes..."), most/16)
	seen := map[string]bool{}
	for range 2 {
		s, folder := onDisk(t, most)
		for range 3 {
			put(t, s, data)
		}
		f := fileOf(t, folder)
		require.NotNil(t, f)
		info, err := f.Stat()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode())
		require.EqualValues(t, 3*(most+16), info.Size())
		raw := make([]byte, info.Size())
		_, err = f.ReadAt(raw, 0)
		require.NoError(t, err)
		require.NotContains(t, string(raw), "bytes")
		for ; len(raw) > 0; raw = raw[most+16:] {
			for at := 0; at < most; at += 16 {
				require.False(t, seen[fmt.Sprint(at, raw[at:at+16])])
				seen[fmt.Sprint(at, raw[at:at+16])] = true
			}
		}
	}
}

// TestPlacesGetNewNonces: the same block at a reused offset must be encrypted differently.
func TestPlacesGetNewNonces(t *testing.T) {
	s, folder := onDisk(t, 64)
	put(t, s, make([]byte, 64)) // with this block the file is not truncated
	read := func() []byte {
		b := put(t, s, make([]byte, 64))
		raw := make([]byte, 80)
		_, err := fileOf(t, folder).ReadAt(raw, 80)
		require.NoError(t, err)
		s.Free(b)
		return raw
	}
	require.NotEqual(t, read(), read())
	require.EqualValues(t, 160, s.PeakFileBytes(), "one block, used again")
}

// TestAChangedFileIsAnError: a changed byte, or another block's bytes, must be an error.
func TestAChangedFileIsAnError(t *testing.T) {
	s, folder := onDisk(t, 40)
	one, two := bytes.Repeat([]byte{1}, 40), bytes.Repeat([]byte{2}, 40)
	a, b := put(t, s, one), put(t, s, two)
	f := fileOf(t, folder)
	raw := make([]byte, 2*56)
	_, err := f.ReadAt(raw, 0)
	require.NoError(t, err)
	for at := range 56 {
		_, err := f.WriteAt([]byte{raw[at] ^ 1}, int64(at))
		require.NoError(t, err)
		_, _, err = s.Get(a, nil)
		require.ErrorContains(t, err, "it was changed", at)
		requireGet(t, s, two, b)
		_, err = f.WriteAt(raw[at:at+1], int64(at))
		require.NoError(t, err)
	}
	requireGet(t, s, one, a)
	_, err = f.WriteAt(raw[56:], 0)
	require.NoError(t, err)
	_, _, err = s.Get(a, nil)
	require.ErrorContains(t, err, "it was changed", "another block instead")
	require.NoError(t, f.Truncate(0))
	_, _, err = s.Get(b, nil)
	require.ErrorContains(t, err, "couldn't read a scratch file")
}

// TestARefusedWriteLosesNothing: a full disk is an error. Earlier blocks can still be read, and freeing one makes
// space.
func TestARefusedWriteLosesNothing(t *testing.T) {
	const most = 100
	s, _ := onDisk(t, most)
	one, two := bytes.Repeat([]byte{1}, most), bytes.Repeat([]byte{2}, most)
	a, b := put(t, s, one), put(t, s, two)
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var was syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was))
	limit := syscall.Rlimit{Cur: 2*(most+16) + 50, Max: was.Max} // writing the next block fails after 50 bytes
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	_, err := s.Put(bytes.Clone(two))
	_, again := s.Put(bytes.Clone(two))
	s.Free(a)
	c, freed := s.Put(bytes.Clone(one[:most/2]))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was))
	require.ErrorIs(t, err, syscall.EFBIG)
	require.ErrorIs(t, again, syscall.EFBIG)
	require.NoError(t, freed)
	require.EqualValues(t, 2*(most+16), s.PeakFileBytes())
	requireGet(t, s, two, b)
	requireGet(t, s, one[:most/2], c)
	d := put(t, s, one)
	requireGet(t, s, one, d)
	requireGet(t, s, two, b)
	require.EqualValues(t, 3*(most+16), s.PeakFileBytes())
}

// TestRoomGoesBack: when all blocks are freed, the file must be empty. After Close there must be no file.
func TestRoomGoesBack(t *testing.T) {
	s, folder := onDisk(t, 100)
	one := bytes.Repeat([]byte{1}, 100)
	for range 2 {
		a, b := put(t, s, one), put(t, s, one)
		f := fileOf(t, folder)
		size := func() int64 {
			info, err := f.Stat()
			require.NoError(t, err)
			return info.Size()
		}
		s.Free(a)
		require.EqualValues(t, 2*116, size())
		requireGet(t, s, one, b)
		s.Free(b)
		require.Zero(t, size())
		require.NoError(t, f.Close())
	}
	b := put(t, s, one)
	requireGet(t, s, one, b)
	f := fileOf(t, folder)
	require.NotNil(t, f)
	require.NoError(t, f.Close())
	require.NoError(t, s.Close())
	require.Nil(t, fileOf(t, folder))
	_, _, err := s.Get(b, nil)
	require.ErrorIs(t, err, os.ErrClosed)
	_, err = s.Put(one)
	require.ErrorContains(t, err, "closed")
	s.Free(b)
	require.NoError(t, s.Close())
}
