package crosstab_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/verifier/crosstab"
)

// TestLargeTable: of 100,000 cells, the counts of 1,000 groups have intervals that hold, and so have shares of groups
// that are too large for exact laws. The test logs how long each question takes.
func TestLargeTable(t *testing.T) {
	truth := make([]int, crosstab.MaxCells)
	for i := range 50_000 {
		truth[i*i%len(truth)]++
	}
	pages, edges := make([]string, 1000), make([]string, 21)
	for i := range pages {
		pages[i] = fmt.Sprintf("/%d", i)
	}
	for i := range edges {
		edges[i] = fmt.Sprint(i)
	}
	s := readShape(t, fmt.Sprintf("dimensions: [{name: device, categories: [a, b, c, d, e]}, "+
		"{name: page, categories: [%s]}, {name: lcp, edges: [%s]}]", strings.Join(pages, ", "), strings.Join(edges, ", ")))
	draft, m, values := tableTask(t, planner.Query{Epsilon: 1, Delta: 1e-6, Honest: 1,
		Relays: &planner.RelayNoise{NoiseOptions: protocols.NoiseOptions{MaxDummies: 1e7}}}, truth)
	within := func(ends [2]float64, x float64) bool { return ends[0] <= x && x <= ends[1] }
	require.NoError(t, planner.Trial{Repeats: 1, Fast: true}.Batches(draft, m, values, func(agg protocols.Aggregate) {
		table, err := crosstab.New(draft, m, agg)
		require.NoError(t, err)
		ask := func(q crosstab.Question) []crosstab.Row {
			begun := time.Now()
			a, err := crosstab.Ask(table, s, q, confidence)
			require.NoError(t, err)
			t.Logf("%d groups in %v", len(a.Rows), time.Since(begun))
			return a.Rows
		}
		held := 0
		for i, row := range ask(crosstab.Question{By: []string{"page"}}) {
			clients := 0
			for device := range 5 {
				for bin := range 20 {
					clients += truth[(device*1000+i)*20+bin]
				}
			}
			if within(row.Clients.Interval, float64(clients)) {
				held++
			}
		}
		atLeast(t, .945, held, 1000, "counts of pages")
		rows := ask(crosstab.Question{By: []string{"device"}, Share: crosstab.Where{"lcp": {"..10"}}})
		for device, row := range rows {
			clients, low := 0, 0
			for cell := device * 20_000; cell < (device+1)*20_000; cell++ {
				clients += truth[cell]
				if cell%20 < 10 {
					low += truth[cell]
				}
			}
			// A single interval misses in 5 of 100 runs, all five bands at 10 times their width practically never.
			band := row.Share.Band
			middle, reach := (band[0]+band[1])/2, 5*(band[1]-band[0])
			require.InDelta(t, float64(low)/float64(clients), middle, reach)
		}
		ask(crosstab.Question{Where: crosstab.Where{"page": {"/7"}},
			Quantile: &crosstab.Quantile{Dimension: "lcp", P: .75}})
	}))
}
