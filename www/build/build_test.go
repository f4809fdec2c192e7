package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckVendored(t *testing.T) {
	require.NoError(t, checkVendored(filepath.Join("..", "vendor")))

	dir := t.TempDir()
	require.Error(t, checkVendored(dir), "SHA256SUMS is missing")
	sum := "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824  lib.js\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sum), 0o600))
	require.Error(t, checkVendored(dir), "lib.js is missing")
	file := filepath.Join(dir, "lib.js")
	require.NoError(t, os.WriteFile(file, []byte("hello"), 0o600))
	require.NoError(t, checkVendored(dir))
	require.NoError(t, os.WriteFile(file, []byte("hullo"), 0o600))
	require.ErrorContains(t, checkVendored(dir), "lib.js")
}

func TestIgnoreCommentsKeepColumns(t *testing.T) {
	require.Len(t, ignoreComments, len(ignoreMark))
}

func TestAddHash(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.css")
	require.NoError(t, os.WriteFile(file, []byte("hello"), 0o600))
	got, err := addHash(file)
	require.NoError(t, err)
	require.Equal(t, asset{"page-2cf24dba5fb0.css", "sha256-LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="}, got)
	require.NoFileExists(t, file)
	require.FileExists(t, filepath.Join(filepath.Dir(file), got.File))
}
