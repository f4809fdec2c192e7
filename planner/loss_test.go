package planner_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// perMille are the tested shares of lost slots, in thousandths.
var perMille = []uint64{1, 20, 50}

// TestIntervalsCoverWhatIsLost: for every protocol and query, 0.1 %, 2 % or 5 % of slots are lost. The report must then
// be unusable, or its 95 % intervals and its band must contain the truth for all clients in at least 94.5 % of runs.
// The verifier learns from the manifests that slots are lost, so the hop makes no difference. The test loses slots at
// random, or all slots of the clients with the largest values. For protocols with several messages per client, it also
// loses ten times as many of the messages that add most. A check fails by chance with probability 10⁻⁸, the whole test
// with at most 4·10⁻⁶.
func TestIntervalsCoverWhatIsLost(t *testing.T) {
	one, several, shares := 60, 3, []float64{0.8}
	full := stattest.Long
	if full {
		one, several, shares = 4000, 400, []float64{0.8, 0.9}
	}
	var found []losing
	for _, p := range registry.All() {
		t.Run(p.ProtocolName(), func(t *testing.T) {
			runs := several
			if oneMessage(p.ProtocolName()) && (full || p.ProtocolName() != strings.Name) { // a text search is slow
				runs = one
			}
			for _, c := range p.Row().Trials {
				for _, h := range shares {
					found = append(found, loseSome(t, planner.Example(p.ProtocolName(), c, h), runs)...)
				}
			}
		})
	}
	keepFigures(t, "loss", found)
}

// losing has the measured coverage of one task's intervals if slots are lost.
type losing struct {
	Protocol string       `json:"protocol"`
	Query    task.Query   `json:"query"`
	Padding  task.Padding `json:"padding"`
	Honest   float64      `json:"honest"`
	PerMille uint64       `json:"per_mille_lost"`
	Which    string       `json:"which"`
	Runs     int          `json:"runs"`
	Least    float64      `json:"least_coverage"` // lowest of an entry's 95 % intervals
	Band     float64      `json:"band_coverage"`
	Unusable float64      `json:"unusable"` // share of the runs; they claim nothing, so they count as covered
}

func loseSome(t *testing.T, q planner.Query, runs int) (out []losing) {
	d, m := open(t, q)
	values := various(d, m)
	slices.SortFunc(values, func(a, b []float64) int { return slices.Compare(b, a) })
	heaviest := heaviest(t, d, m, values)
	for _, lost := range perMille {
		for name, how := range map[string]planner.Lost{
			"at random": chance(lost),
			"the largest values": func(_ *randomizer.Source, client int, _ task.Message) bool {
				return uint64(client+1)*1000 <= lost*d.Batch.Size
			},
			"the largest messages": func(src *randomizer.Source, _ int, message task.Message) bool {
				return !message.Cover && message.Body[0] == heaviest && src.Below(100) < lost
			},
		} {
			if name == "the largest messages" && oneMessage(q.Protocol) {
				continue
			}
			trial := planner.Trial{Repeats: runs, Confidences: []float64{0.95}, Lost: how}
			o, err := trial.Run(d, m, values)
			require.NoError(t, err)
			f := losing{Protocol: q.Protocol, Query: q.Query, Padding: d.Slots.Padding, Honest: q.Honest,
				PerMille: lost,
				Which:    name, Runs: runs, Least: slices.Min(o.Coverage[0].Entries), Band: o.Coverage[0].Band,
				Unusable: o.Unusable}
			t.Logf("%+v", f)
			out = append(out, f)
			requireCoverage(t, f, f.Least, runs, 0.945, 1)
			requireCoverage(t, f, f.Band, runs, 0.945, 1)
			if oneMessage(q.Protocol) {
				require.Zero(t, o.Unusable, "%+v", f)
			}
		}
	}
	return out
}

// oneMessage reports whether a client of a protocol sends one message about each entry. Then any loss leaves a usable
// answer.
func oneMessage(protocol string) bool {
	return slices.Contains([]string{"histogram", "realsum", "vectorsum", "vectorgrid", "strings"}, protocol)
}

func chance(perMille uint64) planner.Lost {
	return func(src *randomizer.Source, _ int, _ task.Message) bool { return src.Below(1000) < perMille }
}

// heaviest returns the first byte of the messages that add most to the answer, which is the largest. In the tested
// tasks, clients who send several messages send messages of one byte.
func heaviest(t *testing.T, d *task.Task, m protocols.Mechanism, values [][]float64) (most byte) {
	t.Helper()
	src := randomizer.NewSource()
	for _, v := range values {
		lanes, err := m.Randomize(src, v)
		require.NoError(t, err)
		for _, messages := range lanes {
			for _, message := range messages {
				most = max(most, message[0])
			}
		}
	}
	return most
}

// TestTheSumOfTens: 10,000 clients all have the value 10, and 2 % of their messages are lost. An interval that ignored
// this would be wrong by 13 standard errors in every run.
func TestTheSumOfTens(t *testing.T) {
	for _, protocol := range []string{"realsum", "rappor", "correlated", "splitmix"} {
		d, m := open(t, planner.Query{Query: task.Sum, Protocol: protocol, Hi: 10, Batch: 10_000, Honest: 0.9})
		// At 95 % confidence, one of the runs could miss the truth. This interval has about 6 standard errors on each
		// side, and a faulty one is off by 13. The test fails by chance with a probability of at most 4·10⁻⁷.
		trial := planner.Trial{Repeats: 4, Confidences: []float64{1 - 1e-8}, Lost: chance(20)}
		o, err := trial.Run(d, m, column(10_000, func(int) float64 { return 10 }))
		require.NoError(t, err)
		t.Logf("%s: coverage %v, unusable %v, mean estimate %v", protocol, o.Coverage[0].Entries, o.Unusable,
			o.Estimate)
		require.Equal(t, 1.0, o.Coverage[0].Entries[0], protocol)
		if protocol == "realsum" {
			require.Zero(t, o.Unusable)
			require.InDelta(t, 100_000, o.Estimate[0], 1000, "the missing are taken to be like the others")
		}
		if protocol == "splitmix" {
			require.Equal(t, 1.0, o.Unusable)
		}
	}
}

// TestCorrelatedStaysUsable: clients send some hundred messages each, and 0.1 % of the slots are lost. The interval
// must contain the truth, well inside the query's range.
func TestCorrelatedStaysUsable(t *testing.T) {
	d, m := open(t, planner.Query{Query: task.Mean, Protocol: "correlated", Hi: 10, Batch: 2000, Honest: 0.9})
	trial := planner.Trial{Repeats: 4, Confidences: []float64{1 - 1e-8}, Lost: chance(1)}
	o, err := trial.Run(d, m, column(2000, func(i int) float64 { return float64(i % 11) }))
	require.NoError(t, err)
	require.Equal(t, 1.0, o.Coverage[0].Entries[0])
	require.Zero(t, o.Unusable)
}

// TestCorrelatedIsUsableUnlessBeyondTheRange loses 0.1 % of the slots. With padding none, the default, every query of
// correlated must stay usable. With padding full most slots are covers, so more slots are lost. A report may then be
// unusable only if its interval is wider than the query's range. No correct interval is much narrower
// ([protocols.Aggregate.LossEffect]). The long form has up to 100,000 clients.
func TestCorrelatedIsUsableUnlessBeyondTheRange(t *testing.T) {
	queries := []planner.Query{{Query: task.Count}, {Query: task.Sum, Hi: 4}}
	clients := []uint64{150}
	if stattest.Long {
		clients = []uint64{1000, 10_000, 100_000}
		queries = []planner.Query{{Query: task.Count}, {Query: task.Sum, Hi: 16}, {Query: task.Mean, Hi: 1},
			{Query: task.Histogram, Bins: 16, Hi: 1, Labels: true}}
	}
	for _, q := range queries {
		for _, padding := range []task.Padding{task.PaddingNone, task.PaddingFull} {
			for _, n := range clients {
				q.Protocol, q.Batch, q.Honest, q.Padding = "correlated", n, 0.9, padding
				if q.Query == task.Sum {
					q.Params = planner.Params{"max": uint64(q.Hi)}
				}
				d, m := open(t, q)
				values := slices.Repeat([][]float64{m.Worst().Value}, int(n))
				trial := planner.Trial{Repeats: 1, Confidences: []float64{0.95}, Lost: chance(1)}
				o, err := trial.Run(d, m, values)
				require.NoError(t, err)
				width := widthOfLoss(d, m, o.MessagesPerUser)
				t.Logf("%s, %d clients, padding %s: %.4g of the range, unusable %v", q.Query, n, padding, width,
					o.Unusable)
				if padding == task.PaddingNone {
					require.Less(t, width, 0.5)
				}
				if math.Abs(width-1) > 0.2 { // near 1, chance decides
					require.Equal(t, width > 1, o.Unusable == 1)
				}
			}
		}
	}
}

// widthOfLoss returns the width of the first entry's interval if 0.1 % of the slots are lost, divided by the query's
// range. With padding none, all slots are messages.
func widthOfLoss(d *task.Task, m protocols.Mechanism, messages float64) float64 {
	n, slots := d.Batch.Size, messages/0.999
	if d.Slots.Padding == task.PaddingFull {
		slots = float64(d.Slots.PerLane * d.Slots.Lanes)
	}
	empty := m.Aggregate()
	empty.AddUsers(n)
	missing := empty.LossEffect(protocols.Loss{Clients: n, Messages: uint64(slots * float64(n) / 1000)}, 0)
	lo, hi := missing.Complete(empty.Errors()[0]).Interval(0.95)
	least, most := protocols.Contribution(d)
	return (hi - lo) / ((most - least) * float64(n))
}
