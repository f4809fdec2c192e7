package wasm_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wasm"
)

// TestSettingsAreRefused: the build refuses what go env -w has stored if it would change the module, and names it.
func TestSettingsAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	t.Setenv("GOENV", file)
	for _, setting := range []string{"GOEXPERIMENT=nosizespecializedmalloc", "GOWASM=satconv"} {
		require.NoError(t, os.WriteFile(file, []byte(setting+"\n"), 0o600))
		err := wasm.Build(t.Context(), wasm.Browser, filepath.Join(t.TempDir(), "doona.wasm"), wasm.Options{})
		require.ErrorContains(t, err, setting)
	}
}

// TestSettingsAreIgnored: other settings of go env -w do not reach the build.
func TestSettingsAreIgnored(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	require.NoError(t, os.WriteFile(file, []byte("GOFLAGS=-race\nGOARCH=arm\nGOOS=plan9\n"), 0o600))
	want := built(t, wasm.Browser)
	t.Setenv("GOENV", file)
	require.Equal(t, want, built(t, wasm.Browser))
}

// brotlied returns the size of a module after brotli, at its best.
func brotlied(t *testing.T, module []byte) int {
	t.Helper()
	var out bytes.Buffer
	w := brotli.NewWriterOptions(&out, brotli.WriterOptions{Quality: brotli.BestCompression, LGWin: 24})
	_, err := w.Write(module)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Len()
}
