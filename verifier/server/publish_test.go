package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// sealedIn are reports of an epoch as the one relay hands them on.
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

// TestPagesStayWithinABudget: results of epochs that the budget does not suffice for are on no page, over restarts;
// and no page is shown where the ledger is gone.
func TestPagesStayWithinABudget(t *testing.T) {
	c := newCascade(t, 1, 1, func(draft *task.Task) {
		draft.Epochs.Start -= 5 * draft.Epochs.Length
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
		require.Equal(t, "The budget is spent: what came after is withheld.", got.Verdict)
		status, page := fetch(t, r.pages+"/tasks/"+c.Open.ID.String()+"/")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, page, "The budget does not suffice for 1 epoch, 2: no result of them is shown.")
		require.Contains(t, page, "of which results are published so far, 2, for a client")
		require.Contains(t, page, "The budget is ε\u00a0=\u00a04 at that δ.")
		require.Contains(t, page, `class="wideband"`)
		require.Contains(t, page, `aria-label="ε spent so far by epoch`)
		_, csv := fetch(t, r.pages+"/tasks/"+c.Open.ID.String()+"/api/report.csv")
		require.Contains(t, csv, ",,10,1,,,,,,,,10,0,false,the budget does not suffice for it,,,,")
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
	require.ErrorIs(t, err, verifier.ErrSetBack)
	cfg.Tasks[0].TotalDelta = 0
	_, err = server.New(cfg)
	require.ErrorContains(t, err, "invalid total_delta 0")
}

// published is what the tests read of a report's ledger.
type published struct {
	Withheld  []uint64
	Published struct{ Epochs uint64 }
	Epochs    []struct{ Estimate *float64 }
}
