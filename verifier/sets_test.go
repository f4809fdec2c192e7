package verifier_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
)

// TestTablesOfASet: of 40 submissions to a set, 25 have a report for the second table, and all have covers for the
// first, which is bare. The covers must be in no estimate, and no report may count as lost. All submissions count as
// visits.
func TestTablesOfASet(t *testing.T) {
	const submissions, reports = 40, 25
	days := task.Epochs{Start: uint64(time.Now().UTC().Truncate(24 * time.Hour).Unix()), Length: 86400, Count: 2}
	set := &quickstart.Set{Name: "site", Set: tableset.Set{Name: "a site",
		Total:  tableset.Total{Epsilon: task.NewEpsilon("3"), Delta: task.NewDelta("1e-5"), Days: 2},
		Tables: []tableset.Table{{Name: "visitors", Bare: true}, {Name: "page"}}}}
	for _, of := range set.Set.Tables {
		table := fixture.Table(4, days)
		table.Name, table.Batch.Size = of.Name, submissions
		set.Tables = append(set.Tables, table)
	}
	c := relaytest.New(t, relaytest.Options{Set: set})
	c.StartAll(t)
	sealer := c.SetSealer(t)
	for i := range submissions {
		page := task.Message{Cover: i >= reports}
		if !page.Cover {
			page.Body = []byte{byte(i % 2)}
		}
		body, err := sealer.Seal(0, []onion.SetSlot{{Message: task.Message{Cover: true}}, {Message: page}})
		require.NoError(t, err)
		require.NoError(t, c.PostSet(t.Context(), 0, body, relaytest.Network(i)))
	}
	for i, want := range []uint64{0, reports} {
		of := c.Table(t, i)
		batch, _ := of.Pull(t, 0, 0)
		keys, err := keyfile.LoadHPKE(c.VerifierKeys("site-" + set.Set.Tables[i].Name))
		require.NoError(t, err)
		v, err := verifier.New(of.Open, keys)
		require.NoError(t, err)
		require.NoError(t, v.Add(batch))
		report, err := v.Report()
		require.NoError(t, err)
		require.Empty(t, report.Findings)
		require.EqualValues(t, want, report.Users)
		require.EqualValues(t, submissions-want, report.CoverMessages)
		require.Zero(t, report.Missing)
		visits, err := v.ReportsByStart()
		require.NoError(t, err)
		require.EqualValues(t, submissions, visits[int64(days.Start)])
		if want == 0 {
			continue
		}
		// Each relay adds noise of a known range to each cell, so the estimate's error has bounds.
		_, most := of.Open.Noise.Support()
		for cell, truth := range []float64{13, 12, 0, 0} {
			require.LessOrEqual(t, math.Abs(report.Estimate[cell]-truth), 2*float64(most), "cell %d", cell)
		}
	}
}
