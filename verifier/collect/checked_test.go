package collect

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestACheckedFileIsReadOnce: check must compare the bytes that were read, even if the file changes after it was
// opened. It must also cover the part of the file that was not read.
func TestACheckedFileIsReadOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.record")
	require.NoError(t, streamChecked(path, func(out io.Writer) error {
		_, err := out.Write([]byte("what was learnt"))
		return err
	}))
	open := func() *checkedFile {
		f, err := openChecked(path)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	good, unread, changed := open(), open(), open()
	raw, err := io.ReadAll(good)
	require.NoError(t, err)
	require.Equal(t, "what was learnt", string(raw))
	require.NoError(t, good.check())
	require.NoError(t, unread.check())
	written, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = written.WriteAt([]byte("Z"), 40)
	require.NoError(t, err)
	require.NoError(t, written.Close())
	raw, err = io.ReadAll(changed)
	require.NoError(t, err)
	require.Contains(t, string(raw), "Z")
	require.ErrorIs(t, changed.check(), errDamaged)
	require.ErrorIs(t, open().check(), errDamaged)
	require.NoError(t, os.Truncate(path, 31))
	_, err = openChecked(path)
	require.ErrorIs(t, err, errDamaged)
}
