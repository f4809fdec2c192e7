package server_test

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// sealedIn returns the slots of a batch of an epoch, as the only relay passes them on.
func sealedIn(t *testing.T, c *relaytest.Cascade, epoch uint64) (out [][]byte) {
	t.Helper()
	client, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: 10})
	require.NoError(t, err)
	opener := c.Opener(t, 0, epoch)
	for range batchSize {
		r, err := client.Report(epoch, []float64{7})
		require.NoError(t, err)
		envelope, err := opener.OpenEnvelope(r.Body)
		require.NoError(t, err)
		out = append(out, envelope.Lanes[0]...)
	}
	return out
}

// TestPagesStayWithinABudget: no page may show results of epochs beyond the budget, also after restarts. If the ledger
// is missing, the server must not start.
func TestPagesStayWithinABudget(t *testing.T) {
	c := newCascade(t, 1, 1, func(draft *task.Task) {
		draft.Epochs.Start -= uint64(5 * draft.Epochs.Length)
		draft.Epochs.Count = 5
	})
	rogue := c.StartFirst(t)
	for epoch := range uint64(3) {
		rogue.Serve(t, epoch, 0, rogue.Batch(t, epoch, 0, batchSize, onion.Lanes{sealedIn(t, c, epoch)}))
	}
	cfg := config(t, c, t.TempDir(), 0)
	cfg.Tasks[0].TotalEpsilon, cfg.Tasks[0].TotalDelta = 4, 2e-4
	for range 2 {
		r := serve(t, cfg)
		got := r.wait(t, c.Open, func(s summary) bool { return len(s.Ledger.Epochs) == 3 })
		require.EqualValues(t, 2, got.Batches)
		require.Equal(t, []uint64{2}, got.Ledger.Withheld)
		require.EqualValues(t, 2, got.Ledger.Published.Epochs)
		require.NotNil(t, got.Ledger.Epochs[1].Estimate)
		require.Nil(t, got.Ledger.Epochs[2].Estimate)
		require.Equal(t, "The budget is spent: later results are withheld.", got.Verdict)
		_, metrics := fetch(t, r.admin+"/metrics")
		require.Contains(t, metrics, "doona_verifier_epochs_withheld{task=\""+c.Open.ID.String()[:8]+"\"} 1")
		status, page := fetch(t, r.pages+"/tasks/"+c.Open.ID.String()+"/")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, page, "The budget is too small for 1 epoch (2). Results beyond it are withheld.")
		require.Contains(t, page, "the total of all epochs with published results (2), for a client")
		require.Contains(t, page, "The budget is ε\u00a0=\u00a04 at that δ.")
		require.Contains(t, page, `class="wideband"`)
		require.Contains(t, page, `aria-label="ε spent so far by epoch`)
		_, csv := fetch(t, r.pages+"/tasks/"+c.Open.ID.String()+"/api/report.csv")
		require.Contains(t, csv, ",,10,1,,,,,,,,10,0,false,the budget is too small for it,,,,")
		r.stop()
	}
	more := cfg
	more.Tasks = []server.TaskConfig{cfg.Tasks[0]}
	more.Tasks[0].TotalEpsilon, more.Tasks[0].TotalDelta = 6, 3e-4
	r := serve(t, more)
	r.wait(t, c.Open, batches(3))
	r.stop()
	r = serve(t, cfg)
	got := r.wait(t, c.Open, batches(3))
	require.Empty(t, got.Ledger.Withheld, "what was published is")
	r.stop()

	require.NoError(t, os.RemoveAll(filepath.Join(cfg.Data, "ledger")))
	_, err := server.New(cfg)
	require.ErrorIs(t, err, verifier.ErrRolledBack)
	cfg.Tasks[0].TotalDelta = 0
	_, err = server.New(cfg)
	require.ErrorContains(t, err, "invalid total_delta 0")
}

// TestMonitoringChargesNothing: whoever asks for status and metrics, however often, must change neither ledger nor
// mark, and see nothing that depends on clients' answers.
func TestMonitoringChargesNothing(t *testing.T) {
	c := newCascade(t, 1, 1, func(draft *task.Task) {
		draft.Epochs.Start -= uint64(5 * draft.Epochs.Length)
		draft.Epochs.Count = 5
	})
	rogue := c.StartFirst(t)
	cfg := config(t, c, t.TempDir(), 0)
	r := serve(t, cfg)
	before := ledgerOf(t, cfg)
	for epoch := range uint64(3) {
		rogue.Serve(t, epoch, 0, rogue.Batch(t, epoch, 0, batchSize, onion.Lanes{sealedIn(t, c, epoch)}))
		var status server.Status
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			_, body := fetch(t, r.admin+"/status")
			require.NoError(t, json.Unmarshal([]byte(body), &status))
			if status.Tasks[0].Batches == epoch+1 {
				break
			}
			require.True(t, time.Now().Before(deadline), body)
		}
		for range 100 {
			fetch(t, r.admin+"/status")
			_, metrics := fetch(t, r.admin+"/metrics")
			require.NotContains(t, metrics, `fate="verified"`)
			require.NotContains(t, metrics, `fate="cover"`)
		}
		require.EqualValues(t, (epoch+1)*batchSize, status.Tasks[0].Users)
		require.Equal(t, before, ledgerOf(t, cfg))
		require.EqualValues(t, epoch+1, r.report(t, c.Open).Ledger.Published.Epochs, "a page charges")
		charged := ledgerOf(t, cfg)
		require.NotEqual(t, before, charged)
		before = charged
	}
}

// ledgerOf returns the bytes of the ledger's files and of its mark, by name.
func ledgerOf(t *testing.T, cfg server.Config) map[string]string {
	t.Helper()
	files := map[string]string{}
	beside, err := filepath.Glob(cfg.Tasks[0].HPKEKeys + "*")
	require.NoError(t, err)
	ledgers, err := filepath.Glob(filepath.Join(cfg.Data, "ledger", "*"))
	require.NoError(t, err)
	for _, name := range append(beside, ledgers...) {
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		files[name] = string(raw)
	}
	require.NotEmpty(t, files)
	return files
}

// TestEntriesOfAStreamShareABudget: tasks of one stream that are listed separately charge one ledger, whoever signed
// them. So different budgets must be refused, and so must a task whose stream's first task is unknown.
func TestEntriesOfAStreamShareABudget(t *testing.T) {
	c := newCascade(t, 1, 1, relaytest.InStream())
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	cfg := config(t, c, t.TempDir(), 0)
	before := c.Open.ID
	for position := range uint64(2) {
		next := *c.Open.Task
		next.Stream = &task.StreamPosition{Name: next.Stream.Name, Position: position + 1, Before: before,
			Allow: next.Stream.Allow}
		bundle, err := taskfile.Sign(&next, key, c.Open.KeyLists)
		require.NoError(t, err)
		raw, err := bundle.Bytes()
		require.NoError(t, err)
		entry := server.TaskConfig{File: filepath.Join(c.Dir, fmt.Sprintf("later%d.bundle", position+1)),
			HPKEKeys: cfg.Tasks[0].HPKEKeys}
		require.NoError(t, os.WriteFile(entry.File, raw, 0o600))
		cfg.Tasks = append(cfg.Tasks, entry)
		before = taskfile.ID(&next)
	}
	try := func(entries ...server.TaskConfig) error {
		only := cfg
		only.Tasks = entries
		s, err := server.New(only)
		if err == nil {
			require.NoError(t, s.Close())
		}
		return err
	}
	first, second, third := cfg.Tasks[0], cfg.Tasks[1], cfg.Tasks[2]
	require.NoError(t, try(first, second, third))
	first.TotalEpsilon, first.TotalDelta = 4, 2e-4
	for _, more := range [][]server.TaskConfig{{second}, {second, third}} {
		err := try(append(more, first)...)
		require.ErrorContains(t, err, "4 at total_delta 0.0002 for "+first.File)
		require.ErrorContains(t, err, "want none, as for "+second.File)
	}
	second.TotalEpsilon, second.TotalDelta = 4, 2e-4
	require.NoError(t, try(first, second))
	require.ErrorContains(t, try(first, second, third), "none for "+third.File)
	require.ErrorContains(t, try(third), "name the stream's first task")
	require.ErrorContains(t, try(first, third), "name the stream's first task", "nothing links them")
	third.Root = first.File
	require.ErrorContains(t, try(first, third), "none for "+third.File)
	third.TotalEpsilon, third.TotalDelta = 4, 2e-4
	require.NoError(t, try(first, third))
	for _, alone := range []server.TaskConfig{second, third} {
		err := try(alone)
		require.ErrorIs(t, err, verifier.ErrNoLedger, "what was published of the stream elsewhere is not known")
		require.ErrorContains(t, err, "new_ledger: true")
		alone.NewLedger = true
		require.NoError(t, try(alone))
	}
	require.ErrorIs(t, try(second, third), verifier.ErrNoLedger)
	third.Root = second.File
	require.ErrorContains(t, try(third), "invalid root")
}

// published has the parts of a report's ledger that the tests read.
type published struct {
	Withheld  []uint64
	Published struct{ Epochs uint64 }
	Epochs    []struct{ Estimate *float64 }
}
