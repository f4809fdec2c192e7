package planner_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// falseAlarm is the probability with which one check of a coverage fails though it is right. There are fewer
// than 2,000, so that a run of all is a false alarm with probability 2·10⁻⁵ at most.
const falseAlarm = 1e-8

// covering is what one task's intervals were found to hold.
type covering struct {
	Protocol string     `json:"protocol"`
	Query    task.Query `json:"query"`
	Honest   float64    `json:"honest"`
	Values   string     `json:"values"`
	Runs     int        `json:"runs"`
	Least    float64    `json:"least_coverage"` // Of an entry, at 95 %.
	Most     float64    `json:"most_coverage"`
	Band     float64    `json:"band_coverage"`
	Wide     float64    `json:"least_coverage_99_9"`
}

// TestIntervalsCover: for every protocol and query, with as many honest clients as clients and with fewer,
// intervals from the data of 95 % hold the truth in 94.5 % of runs or more, and those of 99.9 % in 99.8 %. Where all
// values are the worst, those of 95 % hold it in 96 % at most, or, where errors are on a lattice so coarse
// that a value at either end of the interval has a share in that, in as much as goes with it. The long
// form has 100,000 runs, 10,000 where every message is drawn.
func TestIntervalsCover(t *testing.T) {
	runs, slow, full := 2000, 200, os.Getenv("DOONA_FULL") != ""
	shares := []float64{0.8}
	if full {
		runs, slow, shares = 100_000, 10_000, []float64{0.8, 0.9, 1}
	}
	var found []covering
	for _, p := range registry.All() {
		for _, c := range p.Row().Trials {
			for _, h := range shares {
				found = append(found, cover(t, planner.Example(p.ProtocolName(), c, h), runs, slow)...)
			}
		}
	}
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		text, err := json.Marshal(found)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
}

// cover checks one task, with the worst values and with others.
func cover(t *testing.T, q planner.Query, runs, slow int) (out []covering) {
	d, m := open(t, q)
	trial := planner.Trial{Repeats: slow}
	if _, ok := m.(protocols.FastSimulator); ok {
		trial.Repeats, trial.Fast = runs, true
	}
	worst := slices.Repeat([][]float64{m.WorstValue()}, int(q.Batch))
	for name, values := range map[string][][]float64{"worst": worst, "various": various(d, m)} {
		trial.Confidence = 0.95
		o, err := trial.Run(d, m, values)
		require.NoError(t, err)
		trial.Confidence = 0.999
		wide, err := trial.Run(d, m, values)
		require.NoError(t, err)
		f := covering{
			Protocol: q.Protocol, Query: q.Query, Honest: q.Honest, Values: name, Runs: o.Repeats,
			Least: slices.Min(o.Coverage), Most: slices.Max(o.Coverage), Band: o.BandCoverage,
			Wide: slices.Min(wide.Coverage),
		}
		t.Logf("%+v", f)
		most := 1.0
		if name == "worst" {
			most = math.Min(math.Max(0.96, 0.95+ends(q.Query, o.PredictedVariance)), 1)
		}
		requireCoverage(t, f, f.Least, 0.945, 1)
		requireCoverage(t, f, f.Most, 0.5, most)
		requireCoverage(t, f, f.Band, 0.945, 1)
		requireCoverage(t, f, f.Wide, 0.998, 1)
		out = append(out, f)
	}
	return out
}

// misses returns the numbers between which a number of runs that miss the truth, each with the given
// probability, lies but for a false alarm on either side. Beyond them a Poisson law has heavier tails than
// the binomial one.
func misses(probability float64, runs int) (least, most int) {
	mean := probability * float64(runs)
	if mean > 400 { // The tails are below 10⁻⁸ with the law's skewness.
		return int(mean - 6*math.Sqrt(mean)), int(mean + 6*math.Sqrt(mean))
	}
	below, p := 0.0, math.Exp(-mean)
	for k := 0; ; k++ {
		if below < falseAlarm {
			least = k
		}
		if below += p; 1-below < falseAlarm {
			return least, k
		}
		p *= mean / float64(k+1)
	}
}

// requireCoverage is an error where a share of runs is not between two probabilities, but for chance.
func requireCoverage(t *testing.T, f covering, share, least, most float64) {
	t.Helper()
	missed := int(math.Round((1 - share) * float64(f.Runs)))
	_, limit := misses(1-least, f.Runs)
	require.LessOrEqual(t, missed, limit, "%+v", f)
	limit, _ = misses(1-most, f.Runs)
	require.GreaterOrEqual(t, missed, limit, "%+v", f)
}

// ends bounds the probability of the values at both ends of an interval of a count, whose estimates are
// about 1 apart: twice the density of a normal or a discrete Laplace law at its quantile.
func ends(q task.Query, variance []float64) float64 {
	if q != task.Count && q != task.Histogram {
		return 0
	}
	return 2 * 0.0707 / math.Sqrt(slices.Min(variance))
}

// various returns values that differ from client to client, and lie between levels and at them.
func various(d *task.Task, m protocols.Mechanism) [][]float64 {
	out := make([][]float64, d.Batch.Size)
	for i := range out {
		out[i] = make([]float64, len(m.WorstValue()))
		x := math.Sqrt(float64(i*i%101) / 100)
		for l := range out[i] {
			switch d.Query {
			case task.Count:
				out[i][l] = float64(i % 7 / 6)
			case task.Histogram:
				out[i][l] = float64(i * i % int(d.Input.Bins))
			case task.VectorMean:
				out[i][l] = x / math.Sqrt(float64(len(out[i])))
			default:
				out[i][l] = d.Input.Lo.Float64() + x*d.Input.Width()
			}
		}
	}
	return out
}
