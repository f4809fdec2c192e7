package planner_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// bandRuns returns the number of runs of a case: in the long form 20,000, or 2,000 of 365 epochs, or $DOONA_RUNS.
func bandRuns(t *testing.T, c planner.BandCase) int {
	if !stattest.Long {
		return max(2, 400/int(c.Epochs*max(1, c.Dim/4)))
	}
	if text := os.Getenv("DOONA_RUNS"); text != "" {
		runs, err := strconv.Atoi(text)
		require.NoError(t, err)
		require.Positive(t, runs)
		return runs
	}
	if c.Epochs > 90 {
		return 2000
	}
	return 20_000
}

// mostMisses returns the number that a Poisson variable exceeds with a probability of at most 10⁻⁷.
func mostMisses(mean float64) int {
	sum := 0.
	for most := 0; ; most++ {
		factorial, _ := math.Lgamma(float64(most + 1))
		sum += math.Exp(float64(most)*math.Log(mean) - mean - factorial) // exp(−mean) alone is 0 from a mean of 746 on
		if sum >= 1-1e-7 {
			return most
		}
	}
}

// bandCode returns the hash of the code that decides whether bands hold.
func bandCode(t *testing.T) string {
	return stattest.CodeHash(t, "bands.go", "-../protocols/row.go", "-../protocols/capabilities.go",
		"../protocols/*.go", "../protocols/realsum/*.go", "../protocols/rappor/*.go", "../protocols/vectorsum/*.go",
		"../protocols/vectorgrid/*.go")
}

// TestBands checks that bands hold in at least 94.5 % of runs, where few reports decide: it counts the epochs whose
// band misses an entry. It fails by chance at most once in 5·10⁵ runs. The long form (make test-full PART=coverage) has
// 20,000 runs of most cases. It writes the figures to $DOONA_FIGURES; a new run of the same code continues with the
// missing runs.
func TestBands(t *testing.T) {
	path, done := "", &stattest.Rows[*planner.BandCoverage]{}
	if stattest.Long {
		path = os.Getenv("DOONA_FIGURES")
		done = stattest.ReadRows[*planner.BandCoverage](t, path, bandCode(t))
	}
	for _, c := range planner.BandCases() {
		name := fmt.Sprintf("%s/%d/%d/%g/%d/%s", c.Protocol, c.Users, c.Dim, c.Epsilon, c.Epochs, c.Values)
		t.Run(name, func(t *testing.T) {
			at := slices.IndexFunc(done.Rows, func(o *planner.BandCoverage) bool { return o.BandCase == c })
			if at < 0 {
				at = len(done.Rows)
				done.Rows = append(done.Rows, &planner.BandCoverage{BandCase: c})
			}
			b, runs := done.Rows[at], bandRuns(t, c)
			for b.Runs < runs {
				more, err := c.Run(min(runs-b.Runs, max(10, bandChunk/int(c.Epochs))), func() {})
				require.NoError(t, err)
				b.Merge(more)
				done.Write(t, path)
			}
			t.Logf("%.2f %% of %d runs; below %d, above %d; width %.2f", 100*b.Share(), b.Runs, b.Below, b.Above,
				b.Width())
			require.Zero(t, b.Surprises)
			miss := 1 - math.Pow(.945, 1/float64(c.Epochs))
			require.LessOrEqual(t, b.Below+b.Above, mostMisses(float64(b.Runs)*float64(c.Epochs)*miss))
		})
	}
}

// bandChunk is about the number of epochs after which TestBands writes its figures.
const bandChunk = 100_000

// TestBandsByRealCode checks that batches of the cases have the same distribution whether clients randomize and send
// messages, or the simulation draws the sum. The Kolmogorov-Smirnov statistic of 200 and 2,000 estimates exceeds the
// limit by chance once in 10⁶ runs, over all cases.
func TestBandsByRealCode(t *testing.T) {
	const real, fast = 200, 2000
	for _, c := range planner.BandCases() {
		if !stattest.Long && c.Users*max(1, c.Dim) > 2000 {
			continue
		}
		_, m, err := c.Task()
		require.NoError(t, err)
		rows, src := c.Rows(m), randomizer.NewSource()
		draw, err := protocols.CapabilitiesOf(m).Fast(rows)
		require.NoError(t, err)
		var one, other []float64
		for range real {
			agg := m.Aggregate()
			for _, row := range rows {
				lanes, err := m.Randomize(src, row)
				require.NoError(t, err)
				for lane, messages := range lanes {
					for _, message := range messages {
						require.NoError(t, agg.Add(lane, message))
					}
				}
			}
			agg.AddUsers(c.Users)
			one = append(one, agg.Total()[0])
		}
		for range fast {
			agg, _ := draw(src)
			agg.AddUsers(c.Users)
			other = append(other, agg.Total()[0])
		}
		slices.Sort(one)
		slices.Sort(other)
		gap := 0.
		for _, x := range one {
			at, _ := slices.BinarySearch(other, x-1e-9)
			past, _ := slices.BinarySearch(other, x+1e-9)
			first, _ := slices.BinarySearch(one, x-1e-9)
			last, _ := slices.BinarySearch(one, x+1e-9)
			gap = max(gap, math.Abs(float64(at)/fast-float64(first)/real),
				math.Abs(float64(past)/fast-float64(last)/real))
		}
		limit := math.Sqrt(-math.Log(1e-6/float64(len(planner.BandCases()))/2) / 2 * (1./real + 1./fast))
		require.Less(t, gap, limit, "%+v", c)
	}
}
