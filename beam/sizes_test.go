//go:build long

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/keyfile"
)

// TestSizes prints the cost of a message in the pipeline and in one verifier. It takes a minute.
func TestSizes(t *testing.T) {
	const batches, size = 10, 10_000
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(size)})
	folder := t.TempDir()
	bundle, keys, out := filepath.Join(c.Dir, "task0.bundle"), c.VerifierKeys("task0"),
		filepath.Join(folder, "all.state")
	var paths []string
	for seq := range uint64(batches) {
		raw, err := c.Chain(t, 0, seq, c.Slots(t, 0, make([]uint64, size)...)[0]).Bytes()
		require.NoError(t, err)
		paths = append(paths, filepath.Join(folder, relaytest.FileName(int(seq))))
		require.NoError(t, os.WriteFile(paths[seq], raw, 0o600))
	}
	private, err := keyfile.LoadHPKE(keys)
	require.NoError(t, err)
	whole, err := verifier.New(c.Open, private)
	require.NoError(t, err)
	begun := cpu(t)
	for _, path := range paths {
		file, err := os.Open(path)
		require.NoError(t, err)
		require.NoError(t, whole.AddFile(path, file))
		require.NoError(t, file.Close())
	}
	want := report(t, whole)
	alone := cpu(t) - begun
	begun = cpu(t)
	require.NoError(t, run(t.Context(), bundle, keys, out, []string{filepath.Join(folder, "*.batch")}))
	here := cpu(t) - begun
	l := &laid{out: out, cascade: c}
	require.Equal(t, want, l.merged(t))
	info, err := os.Stat(out)
	require.NoError(t, err)
	const messages = batches * size
	t.Logf("%d messages: %v of CPU each here, %v in one verifier; a state of %d bytes", messages, here/messages,
		alone/messages, info.Size())
}
