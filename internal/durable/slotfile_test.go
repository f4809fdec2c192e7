package durable_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/durable"
)

// TestSlotFile: a reader must see the value of the last Write. Only one process may have the file open for writing.
func TestSlotFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	value, err := durable.ReadSlotFile(file)
	require.NoError(t, err)
	require.Nil(t, value)
	require.NoFileExists(t, file+".mark")

	m, err := durable.OpenSlotFile(file)
	require.NoError(t, err)
	require.Nil(t, m.Value())
	for i := range 5 {
		want := bytes.Repeat([]byte{byte(i)}, durable.MaxSlotValue-100*i)
		require.NoError(t, m.Write(want))
		require.Equal(t, want, m.Value())
		got, err := durable.ReadSlotFile(file)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.ErrorContains(t, m.Write(make([]byte, durable.MaxSlotValue+1)), "want at most")
	_, err = durable.OpenSlotFile(file)
	require.ErrorIs(t, err, durable.ErrClaimed)
	require.NoError(t, m.Close())
	m, err = durable.OpenSlotFile(file)
	require.NoError(t, err)
	require.Equal(t, bytes.Repeat([]byte{4}, durable.MaxSlotValue-400), m.Value())
	require.NoError(t, m.Close())
}

// TestSlotFileTorn interrupts a write at any byte, as a crash does. The file must hold the previous or the new value,
// and it must be possible to write it again.
func TestSlotFileTorn(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "keys")
	m, err := durable.OpenSlotFile(file)
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
			m, err := durable.OpenSlotFile(file)
			require.NoError(t, err)
			require.Contains(t, [][]byte{values[i], values[i+1]}, m.Value(), "write %d cut at byte %d", i+1, cut)
			require.NoError(t, m.Write([]byte("after")))
			require.NoError(t, m.Close())
			got, err := durable.ReadSlotFile(file)
			require.NoError(t, err)
			require.Equal(t, "after", string(got))
		}
	}
}
