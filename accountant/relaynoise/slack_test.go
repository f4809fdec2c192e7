package relaynoise_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/relaynoise"
)

// eventsFigure is the largest error of one relay's noise in each epoch, for k events in all epochs of a claim.
type eventsFigure struct {
	eps, delta float64
	k          uint64
	most       float64
}

// check searches laws for a count, which has one other letter and takes 2k copies of its law, and for 17 cells with a
// rest cell, which take k.
func (c eventsFigure) check(t *testing.T) {
	count := relaynoise.Target{Epsilon: c.eps, Delta: c.delta, Epochs: 2 * c.k}
	n, err := relaynoise.FixedTotal(2, count)
	counted := math.Sqrt(requireKeeps(t, n, err, count).Cells[0].Variance())
	require.LessOrEqual(t, counted, c.most, "%+v", c)
	target := relaynoise.Target{Epsilon: c.eps, Delta: c.delta, Epochs: c.k}
	n, err = relaynoise.Slack(17, 3, target, 0)
	laws := requireKeeps(t, n, err, target)
	cell := math.Sqrt(laws.Cells[0].Variance())
	require.InDelta(t, counted, cell, .03*counted, "%+v", c)
	require.InDelta(t, 4*cell, math.Sqrt(laws.Cells[3].Variance()), .01*cell)
	require.InDelta(t, float64(*n.Total), laws.Dummies(), 1e-6*float64(*n.Total))
	t.Logf("(%g, %g), k = %d: count %.3f, 17 cells %.3f with %d dummies", c.eps, c.delta, c.k, counted, cell, *n.Total)
}

// TestEventsFigures: the error does not depend on the number of epochs. The long form has all figures of
// docs/proofs/events.md.
func TestEventsFigures(t *testing.T) {
	eventsFigure{1, 1e-6, 1, 2.9}.check(t)
	eventsFigure{3, 1e-5, 2, 1.9}.check(t)
}
