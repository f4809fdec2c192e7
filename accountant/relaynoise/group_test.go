package relaynoise_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/wire/task"
)

// TestEqualReports compares the curve of a person with one to three equal reports in a batch with the enumeration of
// all batches of three cells, for independent cells and for a fixed total. Four copies of one report's pair are no
// bound for two equal reports.
func TestEqualReports(t *testing.T) {
	total := uint64(12)
	for name, n := range map[string]*task.Noise{
		"independent": {Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{relaynoise.Gaussian(1.5, 5)}},
		"fixed":       {Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{relaynoise.Laplace(.6, .6, 4, 12)}, Total: &total},
	} {
		for reports := 1; reports <= 3; reports++ {
			curve, err := relaynoise.Group(n, reports)
			require.NoError(t, err)
			pair := equalBetween(n, 0, 1, reports)
			for _, eps := range []float64{0, .3, 1, 2, 3.5} {
				require.InDelta(t, pair.delta(math.Exp(eps)), curve.Delta(eps), 1e-8, "%s, %d reports, ε = %v", name,
					reports, eps)
			}
		}
	}
	n := &task.Noise{Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{relaynoise.Gaussian(.864, 5)}}
	one, err := relaynoise.New(n)
	require.NoError(t, err)
	two, err := relaynoise.Group(n, 2)
	require.NoError(t, err)
	most := 0.0
	for eps := 1.0; eps < 12; eps += .5 {
		copies := compose.Delta([]compose.Observation{one.Observation(4)}, eps, 1e-6)
		most = max(most, two.Delta(eps)/copies)
	}
	require.Greater(t, most, 1.2)
	t.Logf("two equal reports: at most %.3g times the δ of four copies of one", most)
	_, err = relaynoise.Group(&task.Noise{Kind: task.NoiseCells, Cells: 2, Tables: n.Tables, Tilt: &task.Tilt{}}, 2)
	require.ErrorContains(t, err, "noise.tilt")
	n.Cells, n.Total, n.Rest = 3, &total, new(uint64)
	_, err = relaynoise.Group(n, 2)
	require.ErrorContains(t, err, "noise.rest")
}
