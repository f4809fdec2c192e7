package main

import (
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestTaskFiles: `doona task files` must write the bytes that the first relay serves at the same paths, of a task and of
// a stream with a later task, and nothing else.
func TestTaskFiles(t *testing.T) {
	for _, stream := range []bool{false, true} {
		change := func(draft *task.Task) { draft.Epochs.Count = 20 }
		if stream {
			change = func(draft *task.Task) { relaytest.InStream()(draft); draft.Epochs.Count = 20 }
		}
		c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10, change)})
		c.StartAll(t)
		files := 4
		if stream {
			keys := filepath.Join(c.Dir, "verifier", "next.keys")
			makeEpochKeys(t, c.VerifierSign(), 9, keys)
			june := filepath.Join(t.TempDir(), "june.bundle")
			require.Zero(t, cli.Run(root(), []string{"task", "renew", filepath.Join(c.Dir, "task0.bundle"), "--owner-key",
				filepath.Join(c.Dir, "owner.key"), "--verifier-keys", keys + ".pub", "--epochs", "9", "--out", june}))
			files += 2
		}
		out := t.TempDir()
		write := func(args ...string) int {
			return cli.Run(root(), append([]string{"task", "files", filepath.Join(c.Dir, "task0.bundle")}, args...))
		}
		require.Equal(t, 2, write(), "no --out")
		for range 2 { // it replaces what it has written
			require.Zero(t, write("--out", out))
		}
		require.NoError(t, filepath.WalkDir(out, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			files--
			written, err := os.ReadFile(path)
			require.NoError(t, err)
			at, err := filepath.Rel(out, path)
			require.NoError(t, err)
			resp, err := http.Get("http://" + c.Config(t, 0).Listen + "/" + filepath.ToSlash(at))
			require.NoError(t, err)
			defer resp.Body.Close()
			served, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, served, written, at)
			require.Less(t, len(written), 5<<10)
			return nil
		}))
		require.Zero(t, files)
	}
}

// TestTaskFilesRefused: a file that is no first task of a stream, or no bundle, must be an error, and write nothing.
func TestTaskFilesRefused(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10, relaytest.InStream())})
	out := t.TempDir()
	raw, err := os.ReadFile(filepath.Join(c.Dir, "task0.bundle"))
	require.NoError(t, err)
	bundle, err := taskfile.ParseBundle(raw)
	require.NoError(t, err)
	page, err := bundle.Block(c.Open.Lists(), 0).Bytes()
	require.NoError(t, err)
	for name, in := range map[string][]byte{"cut": raw[:len(raw)-1], "empty": nil, "a page's": append(page, 0)} {
		file := filepath.Join(t.TempDir(), "t.bundle")
		require.NoError(t, os.WriteFile(file, in, 0o600))
		require.Equal(t, 1, cli.Run(root(), []string{"task", "files", file, "--out", out}), name)
	}
	require.Equal(t, 1, cli.Run(root(), []string{"task", "files", filepath.Join(c.Dir, "task0.bundle"), "--out", out}),
		"no relay of the stream answers")
	entries, err := os.ReadDir(out)
	require.NoError(t, err)
	require.Empty(t, entries)
}
