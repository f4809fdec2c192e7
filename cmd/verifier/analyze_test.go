package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

const testBatch = 20

// files is a task with one relay, and files of batches that the relay signed.
type files struct {
	*relaytest.Cascade
	dir, bundle string
	paths       []string
}

func newFiles(t *testing.T, change ...func(*task.Task)) *files {
	t.Helper()
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(testBatch, change...)})
	f := &files{Cascade: c, dir: t.TempDir()}
	f.bundle = filepath.Join(c.Dir, "task0.bundle")
	require.FileExists(t, f.bundle)
	return f
}

// slots returns slots of n new clients, as the relay passes them on.
func (f *files) slots(t *testing.T, epoch uint64, n int) (lane [][]byte) {
	t.Helper()
	client, err := shufflerclient.New(f.Open, shufflerclient.Options{MaxEpsilon: 10})
	require.NoError(t, err)
	opener := f.Opener(t, 0, epoch)
	for i := range n {
		r, err := client.Report(epoch, []float64{float64(i % 10)})
		require.NoError(t, err)
		envelope, err := opener.OpenEnvelope(r.Body)
		require.NoError(t, err)
		lane = append(lane, envelope.Lanes[0]...)
	}
	return lane
}

// write writes the file of a batch with the given slots and slots of new clients.
func (f *files) write(t *testing.T, seq uint64, name string, more ...[]byte) [][]byte {
	t.Helper()
	lane := append(more, f.slots(t, 0, testBatch-len(more))...)
	b, err := onion.NewBatch(f.SignKey(t, 0), onion.BatchDraft{
		Context: onion.Context{TaskID: f.Open.ID}, Seq: seq, Submissions: testBatch, In: []uint64{testBatch},
	}, onion.Lanes{lane})
	require.NoError(t, err)
	raw, err := b.Bytes()
	require.NoError(t, err)
	f.put(t, name, raw)
	return lane
}

func (f *files) put(t *testing.T, name string, raw []byte) {
	t.Helper()
	path := filepath.Join(f.dir, name)
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	f.paths = append(f.paths, path)
}

func run(t *testing.T, status int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	require.Equal(t, status, cli.Run(cmd, args), "%v", args)
	return out.String()
}

// TestFaultsAreNamedAndTheRestCounts: even if some files are faulty, analyze prints JSON, names each fault, counts the
// good batches and exits with status 1. Merged shards print the same bytes.
func TestFaultsAreNamedAndTheRestCounts(t *testing.T) {
	f := newFiles(t)
	keys := f.VerifierKeys("task0")
	analyze := func(status int, more ...string) string {
		return run(t, status, append([]string{"analyze", "--task", f.bundle, "--keys", keys, "--json"}, more...)...)
	}
	lane := f.write(t, 0, "c.batch")
	f.write(t, 1, "b.batch", lane[0])
	require.Equal(t, []finding.Name{finding.Repeated}, namesIn(t, analyze(1, f.paths...)))
	run(t, 0, append([]string{"verify", "--task", f.bundle}, f.paths...)...)
	f.write(t, 3, "a.batch")
	raw, err := os.ReadFile(f.paths[2])
	require.NoError(t, err)
	f.put(t, "copy.batch", raw)
	f.put(t, "cut.batch", raw[:len(raw)-1])
	f.paths = append(f.paths, filepath.Join(f.dir, "absent.batch"))

	want := analyze(1, f.paths...)
	require.Equal(t, []finding.Name{finding.Duplicate, finding.Gap, finding.Repeated,
		finding.Truncated, finding.Unread}, namesIn(t, want))
	var r struct{ Users, Batches uint64 }
	require.NoError(t, json.Unmarshal([]byte(want), &r))
	require.EqualValues(t, 3, r.Batches)
	require.EqualValues(t, 3*testBatch, r.Users)
	checked := run(t, 1, append([]string{"verify", "--task", f.bundle, "--json"}, f.paths...)...)
	require.Equal(t, []finding.Name{finding.Duplicate, finding.Gap, finding.Truncated,
		finding.Unread}, namesIn(t, checked))

	slices.Reverse(f.paths)
	require.Equal(t, want, analyze(1, f.paths...))
	for _, shards := range []int{1, 3, 8} {
		merge := []string{"merge", "--task", f.bundle, "--json", "--ledger", filepath.Join(f.dir, "merged"), "--new-ledger"}
		for i := range shards {
			out := filepath.Join(f.dir, fmt.Sprintf("%d of %d", i+1, shards))
			analyze(0, append([]string{"--shard", fmt.Sprintf("%d/%d", i+1, shards), "--out", out}, f.paths...)...)
			merge = append(merge, out)
		}
		require.Equal(t, want, run(t, 1, merge...))
	}
	analyze(2, append([]string{"--shard", "4/3", "--out", "x"}, f.paths...)...)
	analyze(2, append([]string{"--shard", "1/3"}, f.paths...)...)
	run(t, 1, "merge", "--task", f.bundle, "--ledger", f.dir, "--new-ledger", f.paths[0])
}

func namesIn(t *testing.T, out string) (names []finding.Name) {
	t.Helper()
	var r struct{ Findings []finding.Finding }
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	for _, finding := range r.Findings {
		names = append(names, finding.Name)
	}
	return names
}

// TestAnalyzeFollowsAFolder: analyze --follow reads a folder while it fills, until it has the signed end of the last
// epoch. Its report must be the same as for all files at once.
func TestAnalyzeFollowsAFolder(t *testing.T) {
	f := newFiles(t, func(draft *task.Task) { draft.Epochs.Count = 1 })
	f.write(t, 0, "a.batch")
	f.write(t, 1, "b.batch")
	f.put(t, "epoch.end", f.end(t, f.paths...))
	with := func(args ...string) []string {
		return append([]string{"analyze", "--task", f.bundle, "--keys", f.VerifierKeys("task0"), "--json"}, args...)
	}
	want := run(t, 0, with(f.paths...)...)
	require.Equal(t, want, run(t, 0, with(f.dir)...), "a folder is its files")
	fills := t.TempDir()
	go func() {
		for _, name := range []string{"epoch.end", "b.batch", "a.batch"} {
			raw, err := os.ReadFile(filepath.Join(f.dir, name))
			if err == nil {
				err = durable.WriteFile(filepath.Join(fills, name), raw, 0o600)
			}
			if err != nil {
				return // the test then fails, because analyze never ends
			}
			time.Sleep(pause / 4)
		}
	}()
	require.Equal(t, want, run(t, 0, with("--follow", fills)...))
	run(t, 2, with("--follow", "--shard", "1/2", "--out", "x", fills)...)
}

// end returns the signed end of an epoch, given the files of its batches.
func (f *files) end(t *testing.T, paths ...string) []byte {
	t.Helper()
	var manifests []onion.Manifest
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		b, err := onion.ParseBatch(raw)
		require.NoError(t, err)
		m, err := b.Header()
		require.NoError(t, err)
		manifests = append(manifests, *m)
	}
	end, err := onion.NewEnd(f.SignKey(t, 0), f.Open.Task, onion.Context{TaskID: f.Open.ID}, manifests, nil)
	require.NoError(t, err)
	raw, err := end.Bytes()
	require.NoError(t, err)
	return raw
}

// TestAFileThatGrowsIsLeftForLater: a file written since the last scan must not count as unchanged.
func TestAFileThatGrowsIsLeftForLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.batch")
	stat := func() fs.FileInfo {
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info
	}
	require.NoError(t, os.WriteFile(path, []byte("a"), 0o600))
	first := stat()
	require.False(t, unchanged(nil, first), "it is new")
	require.True(t, unchanged(first, stat()))
	require.NoError(t, os.WriteFile(path, []byte("ab"), 0o600))
	require.False(t, unchanged(first, stat()))
	second := stat()
	require.NoError(t, os.Chtimes(path, time.Time{}, second.ModTime().Add(time.Second)))
	require.False(t, unchanged(second, stat()), "written over")
}
