package planner_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/table"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// falseAlarm is the probability that one coverage check fails by chance. There are fewer than 2,000 checks, so a full
// run fails by chance with probability at most 2·10⁻⁵.
const falseAlarm = 1e-8

// covering has the measured coverage of the intervals of one task.
type covering struct {
	Protocol string     `json:"protocol"`
	Query    task.Query `json:"query"`
	Lanes    uint64     `json:"lanes"`
	Honest   float64    `json:"honest"`
	Values   string     `json:"values"`
	Runs     int        `json:"runs"`
	Least    float64    `json:"least_coverage"` // lowest of an entry's 95 % intervals
	Most     float64    `json:"most_coverage"`
	Allowed  float64    `json:"most_allowed"`
	Band     float64    `json:"band_coverage"`
	Wide     float64    `json:"least_coverage_99_9"`
	Width    float64    `json:"width"` // width of 95 % intervals, divided by the width with the worst rounding
}

// TestIntervalsCover: for every protocol and query, with all clients honest or fewer, 95 % intervals must contain the
// truth in at least 94.5 % of runs, and 99.9 % intervals in 99.8 %. None may be wider than with the worst rounding. If
// all values are the worst, 95 % intervals may contain the truth in at most 96 %; if errors are on a lattice, in as
// many as the narrowest interval on it that reaches 95 %. In histograms of real data, standard errors from the data
// must be right in every bin. The long form has 100,000 runs, or a tenth of that if every message is drawn.
func TestIntervalsCover(t *testing.T) {
	runs, shares, bins := 100, []float64{0.8}, []uint64{16}
	if stattest.Long {
		runs, shares, bins = 100_000, []float64{0.8, 0.9, 1}, []uint64{16, 64, 256}
	}
	var intervals []covering
	var histograms []spread
	for _, p := range registry.All() {
		t.Run(p.ProtocolName(), func(t *testing.T) {
			for _, c := range p.Row().Trials {
				for _, h := range shares {
					intervals = append(intervals, cover(t, planner.Example(p.ProtocolName(), c, h), runs)...)
				}
			}
		})
	}
	for _, k := range bins {
		t.Run(fmt.Sprintf("flight delays in %d bins", k), func(t *testing.T) {
			histograms = append(histograms, spreadOf(t, k, max(runs, 4000)))
		})
	}
	keepFigures(t, "false_alarm_of_a_check", falseAlarm)
	keepFigures(t, "intervals", intervals)
	keepFigures(t, "bins", histograms)
}

// keepFigures adds results of the long form to the JSON file $DOONA_FIGURES, if it is set.
func keepFigures(t *testing.T, name string, found any) {
	t.Helper()
	path := os.Getenv("DOONA_FIGURES")
	if path == "" {
		return
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	all := map[string]any{}
	require.NoError(t, json.Unmarshal(text, &all))
	if all == nil { // null, because this test is the first to write
		all = map[string]any{}
	}
	all[name] = found
	text, err = json.Marshal(all)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// spread has the errors of a histogram's bins, divided by the standard errors from the data.
type spread struct {
	Bins     uint64  `json:"bins"`
	Clients  int     `json:"clients"`
	Empty    int     `json:"empty"` // number of bins without clients
	Runs     int     `json:"runs"`
	Least    float64 `json:"least_rms_z"` // lowest root mean square over the bins
	Most     float64 `json:"most_rms_z"`
	Coverage float64 `json:"least_coverage"`
}

// spreadOf returns the root mean square error of every bin, in standard errors from the data, for 200,000 flights'
// delays. With 8,000 runs the result has a standard error of 0.8 %. So if the true value is 1 to within 1 %, the result
// is off by more than 5 % with a probability below 10⁻⁶.
func spreadOf(t *testing.T, bins uint64, runs int) spread {
	delays, err := table.Read("../cmd/demo/flights.csv.gz", table.Format{Column: "delay_minutes"}, 0)
	require.NoError(t, err)
	d, m := open(t, planner.Query{Query: task.Histogram, Lo: -40, Hi: 280, Bins: bins, Clip: true,
		Batch: uint64(len(delays)), Honest: 0.8, Epsilon: 1, Delta: 1e-6})
	trial := planner.Trial{Repeats: runs, Fast: true, Confidences: []float64{0.95}}
	o, err := trial.Run(d, m, column(len(delays), func(i int) float64 { return delays[i] }))
	require.NoError(t, err)
	s := spread{Bins: bins, Clients: len(delays), Runs: runs, Least: slices.Min(o.Z), Most: slices.Max(o.Z),
		Coverage: slices.Min(o.Coverage[0].Entries)}
	for _, count := range o.Truth {
		if count == 0 {
			s.Empty++
		}
	}
	t.Logf("%+v", s)
	require.GreaterOrEqual(t, s.Least, 0.95, "%+v", s)
	require.LessOrEqual(t, s.Most, 1.05, "%+v", s)
	requireCoverage(t, s, s.Coverage, runs, 0.945, 1)
	return s
}

// cover checks one task, with the worst-case values and with various values.
func cover(t *testing.T, q planner.Query, runs int) (out []covering) {
	d, m := open(t, q)
	trial := planner.Trial{Repeats: runs, Confidences: []float64{0.95, 0.999}}
	if trial.Fast = protocols.CapabilitiesOf(m).Fast != nil; !trial.Fast {
		trial.Repeats /= 10
	}
	worst := slices.Repeat([][]float64{m.Worst().Value}, int(q.Batch))
	for name, values := range map[string][][]float64{"worst": worst, "various": various(d, m)} {
		o, err := trial.Run(d, m, values)
		require.NoError(t, err)
		law := lawOf(t, d, m, values, slices.Min(o.PredictedVariance))
		f := covering{
			Protocol: q.Protocol, Query: q.Query, Lanes: d.Slots.Lanes, Honest: q.Honest, Values: name, Runs: o.Repeats,
			Least: slices.Min(o.Coverage[0].Entries), Most: slices.Max(o.Coverage[0].Entries), Allowed: 1,
			Band: o.Coverage[0].Band, Wide: slices.Min(o.Coverage[1].Entries),
		}
		if name == "worst" {
			f.Allowed = max(0.96, law.attained)
		}
		for j, width := range o.Coverage[0].Width {
			f.Width = max(f.Width, width/law.width(o.PredictedVariance[j]))
		}
		t.Logf("%+v", f)
		requireCoverage(t, f, f.Least, f.Runs, 0.945, 1)
		requireCoverage(t, f, f.Most, f.Runs, 0.5, f.Allowed)
		requireCoverage(t, f, f.Band, f.Runs, 0.945, 1)
		requireCoverage(t, f, f.Wide, f.Runs, 0.998, 1)
		require.LessOrEqual(t, f.Width, 1+1e-9, "%+v", f)
		out = append(out, f)
	}
	return out
}

// law is the predicted error of a task's answer.
type law struct {
	attained float64                        // coverage of the narrowest interval on the lattice that reaches 95 %
	width    func(variance float64) float64 // maximum width of a 95 % interval, given the exact variance
}

// z is the normal quantile for 95 % intervals. density is the normal density at z.
const z, density = 1.959964, 0.058445

// lawOf returns the law of the errors of a task's entries for the given values; least is the least variance of an
// entry. For a sum of noise that does not depend on the values it is exact, with the worst rounding. Other laws are
// nearly normal, on a lattice whose steps have a probability of density/σ each at the ends, with σ in steps. Skewness
// raises one end's probability by up to a fifth. It also moves the interval by up to a step, because its ends are the
// ends of a test.
func lawOf(t *testing.T, d *task.Task, m protocols.Mechanism, values [][]float64, least float64) law {
	agg, _ := drawn(t, true, m, values)(randomizer.NewSource())
	agg.AddUsers(uint64(len(values)))
	scale := protocols.Scale(d.Query, agg.Reports())
	first := agg.Errors()[0]
	lattice := func(step, ends, worst float64) law {
		width := func(variance float64) float64 { return 2 * (z*math.Sqrt(max(worst, variance)) + step) }
		return law{0.95 + 1.2*ends*density*step/math.Sqrt(max(worst, least)), width}
	}
	if d.Protocol == "augmented" { // relays add the noise
		if d.Query == task.Count || d.Query == task.Histogram {
			return lattice(1, 2, 0)
		}
		// The noise and the worst rounding, for any values. The tails are lighter than a Laplace law's.
		worst := float64(len(values)) * m.Worst().Variance * scale * scale
		return law{0.95, func(variance float64) float64 { return 4.25 * math.Sqrt(variance+worst) }}
	}
	switch e := first.(type) {
	case protocols.NoisyEstimate:
		reach := e.Noise.Reach(0.95)
		lo, hi := 0.95, 1.0
		for range 50 {
			if mid := (lo + hi) / 2; e.Noise.Reach(mid) > reach {
				hi = mid
			} else {
				lo = mid
			}
		}
		return law{hi, func(float64) float64 { return 2 * reach * e.Unit * scale }}
	case protocols.Normal:
		return lattice(e.Step/2*scale, 2, float64(len(values))*m.Worst().Variance*scale*scale)
	case protocols.Cell: // only one end of the interval has a tail
		// A client who has a text adds much more variance than others. So an estimate above 0 has a wider interval.
		if d.Protocol == "strings" {
			return lattice(2/(e.Own-e.Other), 1, 0)
		}
		return lattice(1/(e.Own-e.Other), 1, 0)
	}
	// The inverted law of a sum of levels (docs/proofs/bands.md). It holds for the worst values that the data allow, so
	// it holds more often for others.
	require.Contains(t, []string{"realsum", "vectorsum", "vectorgrid", "rappor"}, d.Protocol, "unknown law %T", first)
	worst := float64(len(values)) * m.Worst().Variance * scale * scale
	return law{0.99, func(variance float64) float64 { return 2.6 * z * math.Sqrt(max(worst, variance)) }}
}

// misses returns bounds on the number of runs that miss the truth, each with the given probability. Chance violates
// each bound with probability at most falseAlarm. Beyond the bounds, the Poisson law used here has heavier tails than
// the binomial law.
func misses(probability float64, runs int) (least, most int) {
	mean := probability * float64(runs)
	if mean > 400 { // here the tails are below 10⁻⁸, with the skewness of the law
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

// requireCoverage fails the test if a share of runs is below least or above most by more than chance explains.
func requireCoverage(t *testing.T, f any, share float64, runs int, least, most float64) {
	t.Helper()
	missed := int(math.Round((1 - share) * float64(runs)))
	_, limit := misses(1-least, runs)
	require.LessOrEqual(t, missed, limit, "%+v", f)
	limit, _ = misses(1-most, runs)
	require.GreaterOrEqual(t, missed, limit, "%+v", f)
}

// various returns values that differ between clients. Some are on rounding levels, others between them.
func various(d *task.Task, m protocols.Mechanism) [][]float64 {
	out := make([][]float64, d.Batch.Size)
	for i := range out {
		if d.Query == task.Strings {
			out[i] = []float64{float64('a' + i*i%7), float64('a' + i%3)}
			continue
		}
		out[i] = make([]float64, len(m.Worst().Value))
		x := math.Sqrt(float64(i*i%101) / 100)
		for l := range out[i] {
			switch {
			case d.Query == task.Count:
				out[i][l] = float64(i % 7 / 6)
			case d.Query == task.Histogram:
				out[i][l] = float64(i * i % int(d.Input.Bins))
			case d.Protocol == "correlated" && l != i%len(out[i]): // it takes vectors with one nonzero coordinate
			case d.Query == task.VectorMean:
				out[i][l] = x / math.Sqrt(float64(len(out[i])))
			default:
				out[i][l] = d.Input.Lo.Float64() + x*d.Input.Width()
			}
		}
	}
	return out
}
