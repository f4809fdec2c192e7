package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// ofEpochs returns files with one batch in each of the first epochs.
func ofEpochs(t *testing.T, epochs int) *files {
	t.Helper()
	f := newFiles(t, func(draft *task.Task) { draft.Epochs.Count = 5 })
	for epoch := range uint64(epochs) {
		b, err := onion.NewBatch(f.SignKey(t, 0), onion.BatchDraft{
			Context: onion.Context{TaskID: f.Open.ID, Epoch: epoch}, Submissions: testBatch, In: []uint64{testBatch},
		}, onion.Lanes{f.slots(t, epoch, testBatch)})
		require.NoError(t, err)
		raw, err := b.Bytes()
		require.NoError(t, err)
		f.put(t, fmt.Sprintf("%06d-000000.batch", epoch), raw)
	}
	return f
}

// printed has the parts of a JSON report that the tests read.
type printed struct {
	Estimate *float64
	Verified uint64
	Users    uint64
	DryRun   bool `json:"dry_run"`
	Usable   bool
	Ledger   struct {
		Withheld  []uint64
		Published struct {
			Epochs  uint64
			Epsilon float64
			Delta   float64
			Budget  *struct{ Epsilon, Delta float64 }
		}
		Epochs []struct{ Estimate *float64 }
	}
}

func parsed(t *testing.T, out string) (p printed) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	return p
}

// folderOf returns the content of every file in a folder, by path.
func folderOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		out[path] = string(raw)
		return err
	}))
	return out
}

// TestAnalyzePublishesWithinABudget: analyze prints results after it has charged their epochs, and none beyond the
// budget. A dry run charges nothing and prints no answer.
func TestAnalyzePublishesWithinABudget(t *testing.T) {
	f := ofEpochs(t, 3)
	ledger := filepath.Join(t.TempDir(), "ledger")
	with := func(command []string, more ...string) []string {
		return slices.Concat(command, []string{"--task", f.bundle, "--ledger", ledger, "--json", "--total-epsilon", "4",
			"--total-delta", "2e-4"}, more)
	}
	analyze := func(status int, more ...string) string {
		return run(t, status, with([]string{"analyze", "--keys", f.VerifierKeys("task0")}, more...)...)
	}
	before := folderOf(t, f.Dir)
	dry := parsed(t, analyze(0, "--dry-run", f.paths[0], f.paths[1]))
	require.True(t, dry.DryRun && dry.Usable)
	require.EqualValues(t, 2*testBatch, dry.Users)
	require.Zero(t, dry.Verified)
	require.Nil(t, dry.Estimate)
	require.Len(t, dry.Ledger.Epochs, 2)
	require.Nil(t, dry.Ledger.Epochs[0].Estimate)
	require.EqualValues(t, 2, dry.Ledger.Published.Epochs)
	require.NoDirExists(t, ledger)
	require.Equal(t, before, folderOf(t, f.Dir), "a dry run writes nothing")

	first := analyze(0, f.paths[0])
	require.NotNil(t, parsed(t, first).Estimate)
	require.Equal(t, 2.0, parsed(t, first).Ledger.Published.Epsilon)
	require.Equal(t, first, analyze(0, f.paths[0]), "again costs nothing")
	both := analyze(0, f.paths[:2]...)
	require.Equal(t, 2e-4, parsed(t, both).Ledger.Published.Delta)
	require.LessOrEqual(t, parsed(t, both).Ledger.Published.Epsilon, 4.0)

	charged := folderOf(t, ledger)
	require.Empty(t, analyze(1, f.paths...), "nothing is printed past the budget")
	refused := parsed(t, analyze(1, append([]string{"--dry-run"}, f.paths...)...))
	require.Equal(t, []uint64{2}, refused.Ledger.Withheld)
	require.Equal(t, charged, folderOf(t, ledger))
	require.Equal(t, both, analyze(0, f.paths[:2]...))

	out := filepath.Join(f.dir, "state")
	run(t, 0, "analyze", "--task", f.bundle, "--keys", f.VerifierKeys("task0"), "--out", out, f.paths[0], f.paths[1])
	require.Equal(t, both, run(t, 0, with([]string{"merge"}, out)...), "what merge publishes is charged like that")
	require.NoError(t, os.RemoveAll(ledger))
	require.Empty(t, analyze(1, f.paths[0]), "a ledger that is gone is not begun anew")
	require.Empty(t, run(t, 1, with([]string{"merge"}, out)...))

	for _, bad := range [][]string{{"--total-epsilon", "1"}, {"--total-delta", "1"}, {"--total-epsilon", "1",
		"--total-delta", "1"}, {"--total-epsilon", "0", "--total-delta", "1e-6"}, {"--dry-run", "--show-unusable"},
		{"--dry-run", "--out", "x"}, {"--ledger", "y", "--out", "x"}} {
		run(t, 2, append(append([]string{"analyze", "--task", f.bundle, "--keys", f.VerifierKeys("task0")}, bad...),
			f.paths[0])...)
	}
}

// TestMergeBeginsNoLedger: merge has no keys, so no rollback mark shows it which ledger was charged. Its flags must
// name the ledger. It creates one only with --new-ledger.
func TestMergeBeginsNoLedger(t *testing.T) {
	f := ofEpochs(t, 2)
	ledger, out := filepath.Join(t.TempDir(), "ledger"), filepath.Join(f.dir, "state")
	keys := []string{"--task", f.bundle, "--keys", f.VerifierKeys("task0")}
	budget := []string{"--total-epsilon", "2", "--total-delta", "1e-4", "--json"}
	run(t, 0, slices.Concat([]string{"analyze", "--ledger", ledger}, keys, budget, f.paths[:1])...)
	run(t, 0, slices.Concat([]string{"analyze", "--out", out}, keys, f.paths[1:])...)
	merge := func(status int, more ...string) string {
		return run(t, status, slices.Concat([]string{"merge", "--task", f.bundle, out}, budget, more)...)
	}
	merge(2)
	for _, dry := range [][]string{nil, {"--dry-run"}} {
		require.Empty(t, merge(1, append(dry, "--ledger", filepath.Dir(f.bundle))...))
	}
	require.Empty(t, merge(1, "--ledger", ledger), "the budget is of one epoch")
	require.Empty(t, merge(1, "--ledger", ledger, "--new-ledger"), "there is one")
	require.EqualValues(t, 1, parsed(t,
		merge(0, "--ledger", filepath.Dir(f.bundle), "--new-ledger")).Ledger.Published.Epochs)
	merge(0, "--ledger", filepath.Dir(f.bundle))
}

// TestLaterTaskIsChargedToItsStream: a later task of a stream is charged to the ledger of the first task. If the first
// task is unknown, analyze must refuse.
func TestLaterTaskIsChargedToItsStream(t *testing.T) {
	root := newFiles(t, func(draft *task.Task) { draft.Stream = &task.StreamPosition{Name: "site"} })
	other := newFiles(t, func(draft *task.Task) { draft.Stream = &task.StreamPosition{Name: "other"} })
	f := newFiles(t, func(draft *task.Task) {
		draft.Stream = &task.StreamPosition{Name: "site", Position: 2, Before: task.ID{5}}
	})
	b, err := onion.NewBatch(f.SignKey(t, 0), onion.BatchDraft{
		Context: onion.Context{TaskID: f.Open.ID}, Submissions: testBatch, In: []uint64{testBatch},
	}, onion.Lanes{f.slots(t, 0, testBatch)})
	require.NoError(t, err)
	raw, err := b.Bytes()
	require.NoError(t, err)
	f.put(t, "000000-000000.batch", raw)
	ledger := filepath.Join(t.TempDir(), "ledger")
	analyze := func(status int, more ...string) string {
		return run(t, status, slices.Concat([]string{"analyze", "--task", f.bundle, "--keys", f.VerifierKeys("task0"),
			"--json", "--ledger", ledger, f.paths[0]}, more)...)
	}
	require.Empty(t, analyze(1, "--new-ledger"), "its first task is not known")
	require.Empty(t, analyze(1, "--root", root.bundle), "there is none yet")
	require.Empty(t, analyze(1, "--root", other.bundle, "--new-ledger"), "that is another stream")
	require.Empty(t, analyze(1, "--root", f.bundle, "--new-ledger"), "that is not the first")
	require.NoDirExists(t, ledger)
	require.NotEmpty(t, analyze(0, "--root", root.bundle, "--new-ledger"))
	require.FileExists(t, filepath.Join(ledger, root.Open.ID.String()+".ledger"))
	require.NotEmpty(t, analyze(0), "the ledger tells")
}

// TestServeBeginsNoLedger: if only a later task of a stream is configured, serve must not create a ledger without the
// flag. Another folder may have the ledger, with published results.
func TestServeBeginsNoLedger(t *testing.T) {
	f := newFiles(t, func(draft *task.Task) {
		draft.Stream = &task.StreamPosition{Name: "site", Position: 1, Before: task.ID{5}}
	})
	flags := serveFlags{tasks: []string{f.bundle}, keys: []string{f.VerifierKeys("task0")}, sign: f.VerifierSign(),
		data: t.TempDir(), interval: time.Second}
	cmd := serveCommand()
	require.NoError(t, cmd.ParseFlags([]string{"--task", "", "--keys", "", "--sign-key", "", "--data", ""}))
	try := func() error {
		c, err := flags.read(cmd)
		require.NoError(t, err)
		s, err := server.New(c)
		if err == nil {
			err = s.Close()
		}
		return err
	}
	require.ErrorIs(t, try(), verifier.ErrNoLedger)
	flags.begin = true
	require.NoError(t, try())
	run(t, 2, "serve", "--config", "x", "--new-ledger")
}

// TestKilledAnalyze kills `verifier analyze` at random moments. An epoch must be charged exactly once, however often
// analyze is killed. The long form kills it 50 times instead of 5.
func TestKilledAnalyze(t *testing.T) {
	kills := 5
	if stattest.Long {
		kills = 50
	}
	f := ofEpochs(t, 2)
	args := []string{"analyze", "--task", f.bundle, "--keys", f.VerifierKeys("task0"), "--json", "--total-epsilon", "2",
		"--total-delta", "1e-4"}
	begin := time.Now()
	require.NoError(t, exec.Command("verifier", slices.Concat(args, []string{"--dry-run", f.paths[0]})...).Run())
	within, late := 2*time.Since(begin), 0
	for range kills {
		cmd := exec.Command("verifier", slices.Concat(args, f.paths[:1])...)
		require.NoError(t, cmd.Start())
		time.Sleep(time.Duration(rand.Int64N(int64(within))))
		cmd.Process.Kill()
		if cmd.Wait() == nil {
			late++
		}
	}
	t.Logf("%d kills, of which %d came too late", kills, late)
	require.EqualValues(t, 1, parsed(t, run(t, 0, slices.Concat(args, f.paths[:1])...)).Ledger.Published.Epochs)
	require.Empty(t, run(t, 1, slices.Concat(args, f.paths[1:])...), "the budget is of one epoch")
}

// TestKilledBeforePrinting kills `verifier analyze` after it has charged an epoch and before it can print: its output is
// a full pipe. The same command must then print, with the epoch charged once.
func TestKilledBeforePrinting(t *testing.T) {
	f := ofEpochs(t, 1)
	folder := filepath.Join(t.TempDir(), "ledger")
	args := slices.Concat([]string{"analyze", "--task", f.bundle, "--keys", f.VerifierKeys("task0"), "--ledger", folder,
		"--json", "--total-epsilon", "2", "--total-delta", "1e-4"}, f.paths)
	out, in, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	require.NoError(t, in.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	full, err := in.Write(make([]byte, 4<<20))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	cmd := exec.Command("verifier", args...)
	cmd.Stdout = in
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill()
	require.NoError(t, in.Close())
	require.Eventually(t, func() bool {
		ledgers, err := filepath.Glob(filepath.Join(folder, "*.ledger"))
		require.NoError(t, err)
		marks, err := filepath.Glob(f.VerifierKeys("task0") + ".*.ledger.mark")
		require.NoError(t, err)
		return len(ledgers) == 1 && len(marks) == 1
	}, relaytest.Patience, time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	require.ErrorContains(t, cmd.Wait(), "signal: killed")
	printed, err := io.ReadAll(out)
	require.NoError(t, err)
	require.Len(t, printed, full, "nothing was printed")
	got := parsed(t, run(t, 0, args...))
	require.NotNil(t, got.Estimate)
	require.EqualValues(t, 1, got.Ledger.Published.Epochs)
}
