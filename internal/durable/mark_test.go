package durable_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/durable"
)

// TestMark: the last value written can be read, also by readers, and one process has the mark open.
func TestMark(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	value, err := durable.ReadMark(file)
	require.NoError(t, err)
	require.Nil(t, value)
	require.NoFileExists(t, file+".mark")

	m, err := durable.OpenMark(file)
	require.NoError(t, err)
	require.Nil(t, m.Value())
	for i := range 5 {
		want := bytes.Repeat([]byte{byte(i)}, durable.MaxMark-100*i)
		require.NoError(t, m.Write(want))
		require.Equal(t, want, m.Value())
		got, err := durable.ReadMark(file)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.ErrorContains(t, m.Write(make([]byte, durable.MaxMark+1)), "want at most")
	_, err = durable.OpenMark(file)
	require.ErrorIs(t, err, durable.ErrClaimed)
	require.NoError(t, m.Close())
	m, err = durable.OpenMark(file)
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{4}, durable.MaxMark-400), m.Value())
	require.NoError(t, m.Close())
}

// TestMarkTorn: a write that a crash interrupts at any byte leaves the previous value or the new one, and the file can
// be written again.
func TestMarkTorn(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "keys")
	m, err := durable.OpenMark(file)
	require.NoError(t, err)
	var states [][]byte // the file after each write
	values := [][]byte{nil, []byte("one"), []byte("two"), []byte("three")}
	for _, value := range values {
		if value != nil {
			require.NoError(t, m.Write(value))
		}
		raw, err := os.ReadFile(file + ".mark")
		require.NoError(t, err)
		states = append(states, raw)
	}
	require.NoError(t, m.Close())
	for i, old := range states[:3] {
		next := states[i+1]
		old = append(old, make([]byte, max(0, len(next)-len(old)))...)
		for cut := range next {
			torn := append(bytes.Clone(next[:cut]), old[cut:]...)
			if bytes.Equal(torn, old) || cut%3 > 0 && !bytes.Equal(torn, next) {
				continue
			}
			require.NoError(t, os.WriteFile(file+".mark", torn, 0o600))
			m, err := durable.OpenMark(file)
			require.NoError(t, err)
			require.Contains(t, [][]byte{values[i], values[i+1]}, m.Value(), "write %d cut at byte %d", i+1, cut)
			require.NoError(t, m.Write([]byte("after")))
			require.NoError(t, m.Close())
			got, err := durable.ReadMark(file)
			require.NoError(t, err)
			require.Equal(t, "after", string(got))
		}
	}
}
