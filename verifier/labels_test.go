package verifier_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// binned returns a task for a histogram over a range.
func binned(t *testing.T, lo, hi float64, bins uint64) *task.Task {
	t.Helper()
	from, ok := randomizer.RationalFromFloat(lo)
	require.True(t, ok)
	to, ok := randomizer.RationalFromFloat(hi)
	require.True(t, ok)
	return &task.Task{Query: task.Histogram, Input: task.Input{Lo: from, Hi: to, Bins: bins}}
}

// TestLabelsOfBins: labels and ticks must keep all bins apart and be near their edges, in ASCII without thousands
// separators.
func TestLabelsOfBins(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		bins   uint64
		first  string
	}{
		{97, 105, 16, "97 to 97.5"},        // body temperature in °F
		{1000, 1001, 10, "1000 to 1000.1"}, // air pressure
		{-50, 50, 10, "-50 to -40"},
		{0, 10000, 10, "0 to 1000"},
		{0, 1, 3, "0 to 0.3333"},
		{0, 180, 16, "0 to 11.25"},
		{0, 1, 10, "0 to 0.1"},
		{-1e9, 1e9, 2, "-1000000000 to 0"},
		{999999999, 1e9, 1 << 12, "999999999 to 999999999.0002441"},
		{-.001, .001, 7, "-0.001 to -0.0007143"},
		{.25, .75, 2, "0.25 to 0.5"},
	} {
		of := binned(t, c.lo, c.hi, c.bins)
		labels, ticks, edges := verifier.Labels(of), verifier.Ticks(of), verifier.Edges(of)
		require.Equal(t, c.first, labels[0])
		require.Len(t, edges, int(c.bins)+1)
		require.Equal(t, []float64{c.lo, c.hi}, []float64{edges[0], edges[c.bins]})
		seen := map[string]bool{}
		for j, label := range labels {
			require.False(t, seen[label] || seen[ticks[j]], "%s, %s", label, ticks[j])
			seen[label], seen[ticks[j]] = true, true
			require.NotContains(t, label, ",")
			from, to, _ := strings.Cut(label, " to ")
			require.Equal(t, ticks[j], from)
			width := edges[j+1] - edges[j]
			require.Positive(t, width)
			for i, text := range []string{from, to} {
				x, err := strconv.ParseFloat(text, 64)
				require.NoError(t, err, "a label that is not in ASCII")
				require.InDelta(t, edges[j+i], x, .0006*width)
			}
		}
	}
	clips := binned(t, -50, 50, 10)
	clips.Input.Clip = true
	labels := verifier.Labels(clips)
	require.Equal(t, []string{"below -40", "-40 to -30", "40 or more"}, []string{labels[0], labels[1], labels[9]})
}

// TestEdgesAreTheNearestNumbers: an edge such as 0.3 must be exactly the number that the text "0.3" gives.
func TestEdgesAreTheNearestNumbers(t *testing.T) {
	for j, x := range verifier.Edges(binned(t, 0, 1, 10)) {
		want, err := strconv.ParseFloat("0."+strconv.Itoa(j), 64)
		if j == 10 {
			want, err = 1, nil
		}
		require.NoError(t, err)
		require.Equal(t, want, x)
	}
	for _, without := range []*task.Task{
		{Query: task.Mean, Input: task.Input{Hi: randomizer.NewRational(1, 1), Lo: randomizer.NewRational(0, 1)}},
		{Query: task.Histogram, Input: task.Input{Bins: 4, Labels: true}},
		{Query: task.Vector, Input: task.Input{Bins: 4}},
	} {
		require.Empty(t, verifier.Edges(without))
	}
}
