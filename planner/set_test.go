package planner_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// site returns six metrics of a web site, with at most 8 slots; in the short form two of them, with 1 slot.
func site() planner.Set {
	s, slots := planner.Set{Users: 5000, Epsilon: 8, Delta: 1e-5}, uint64(8)
	if !stattest.Long {
		s.Users, slots = 300, 1
	}
	add := func(weight float64, q planner.Query) {
		q.Honest, q.Clip, q.Epochs = .9, true, 30
		s.Goals = append(s.Goals,
			planner.Goal{Query: q, Noise: planner.NoiseAny, Hops: 2, MaxSlots: slots, Batches: 100})
		s.Weights = append(s.Weights, weight)
	}
	add(2, planner.Query{Name: "lcp", Query: task.Histogram, Hi: 6000, Bins: 12})
	add(1, planner.Query{Name: "signed up", Query: task.Count})
	if !stattest.Long {
		return s
	}
	add(1, planner.Query{Name: "cls", Query: task.Mean, Hi: 1})
	add(1, planner.Query{Name: "inp", Query: task.Histogram, Hi: 1000, Bins: 8})
	add(.5, planner.Query{Name: "basket", Query: task.Sum, Hi: 200})
	add(.5, planner.Query{Name: "country", Query: task.Histogram, Bins: 30, Labels: true})
	return s
}

// TestSetKeepsItsTotal: all queries and epochs together must cost at most the total, composed here from the tasks' own
// laws, and nearly all of it. The weights must be kept. In simulations, each interval must have the predicted width
// within 10 %, or within a step if answers are whole numbers, and each error must be within 10 %. The long form has six
// metrics on 30 days.
func TestSetKeepsItsTotal(t *testing.T) {
	s := site()
	plan, err := planner.PlanSet(s, nil)
	require.NoError(t, err)
	var seen []compose.Observation
	for i, w := range plan.Ways {
		require.NoError(t, w.Mechanism.CheckClaim())
		law, err := w.Mechanism.Law()
		require.NoError(t, err)
		seen = append(seen, law.Observation(s.Reports(i)))
	}
	require.LessOrEqual(t, compose.Delta(seen, s.Epsilon, s.Delta), s.Delta)
	require.LessOrEqual(t, plan.Epsilon, s.Epsilon*(1+1e-9))
	require.Greater(t, plan.Epsilon, .99*s.Epsilon)
	require.Greater(t, plan.Added, plan.Epsilon)
	t.Logf("ε = %.4f together, %.4f added up", plan.Epsilon, plan.Added)
	repeats := 4000
	for i, w := range plan.Ways {
		fast := protocols.CapabilitiesOf(w.Mechanism).Fast != nil
		if !fast {
			repeats = 1250
		}
		trial := planner.Trial{Repeats: repeats, Fast: fast, Confidences: []float64{.95}}
		out, err := trial.Run(w.Task, w.Mechanism, slices.Repeat([][]float64{w.Mechanism.Worst().Value}, int(s.Users)))
		require.NoError(t, err)
		width := slices.Max(out.Coverage[0].Width)
		t.Logf("%s by %s: ε %s a day, interval %.4g, found %.4g; rmse %.4g, found %.4g", s.Goals[i].Name, w.Protocol,
			w.Task.Claim.Epsilon, w.Width, width, w.RMSE, out.RMSE)
		step := 0.0
		if q := w.Task.Query; q == task.Count || q == task.Histogram {
			step = 2
		}
		require.LessOrEqual(t, math.Abs(w.Width-width), .1*w.Width+step, s.Goals[i].Name)
		require.InEpsilon(t, w.RMSE, out.RMSE, .1, s.Goals[i].Name)
	}
}

// sitesTable is a table of a site's set, in the form of `doona plan --set`.
type sitesTable struct {
	Name    string
	Bins    uint64
	Per     planner.Clock
	Cap     string // Of a year.
	Events  string // Of a year.
	Default uint64
	Share   float64
}

// sitesTables reads one of two sets for a year under (10, 10⁻⁵), for sites from 2,000 visitors a day and for smaller
// ones. Goals are rare events. In the smaller set there are four, for which the noise with the least error alone is a
// Laplace table. With that, the other tables are 12 % above the rule. A browser test plans the same files.
func sitesTables(t *testing.T, name string) []sitesTable {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	var set struct{ Queries []sitesTable }
	require.NoError(t, json.Unmarshal(raw, &set))
	require.Len(t, set.Queries, 6)
	return set.Queries
}

// TestSitesPlan plans the tables of a site for a year under (10, 10⁻⁵): daily ones with a cap, weekly and monthly ones,
// and daily goals as rare events. The product of their laws must keep the total, and the error of a cell be within 3 %
// of √(copies/share), or less by √(1−1/K) for few cells. With a rest cell, that cell's error is √(K−1) times as large.
// The short form has three tables of the larger set and two of the smaller one. The long form logs each set’s time.
func TestSitesPlan(t *testing.T) {
	for _, name := range []string{"site-daily", "site-weekly"} {
		t.Run(name, func(t *testing.T) {
			began, tables := time.Now(), sitesTables(t, name)
			switch {
			case stattest.Long:
				planSite(t, name, tables)
			case tables[0].Per == planner.Daily:
				planSite(t, name, tables[:3])
			default:
				planSite(t, name, []sitesTable{tables[1], tables[5]})
			}
			t.Logf("%.3g s", time.Since(began).Seconds())
		})
	}
}

func planSite(t *testing.T, name string, tables []sitesTable) {
	s := planner.Set{Users: 100_000, Epsilon: 10, Delta: 1e-5}
	for _, table := range tables {
		epochs, err := table.Per.Epochs(365)
		require.NoError(t, err)
		q := planner.Query{Name: table.Name, Query: task.Histogram, Labels: true, Bins: table.Bins, Honest: .9,
			Epochs: epochs}
		require.NoError(t, q.Cap.Parse("cap", table.Cap))
		require.NoError(t, q.Events.Parse(table.Events))
		q.Events.Default = table.Default
		s.Goals = append(s.Goals, planner.Goal{Query: q, Noise: planner.NoiseRelays, Hops: 2, Batches: 100})
		s.Shares = append(s.Shares, table.Share)
	}
	plan, err := planner.PlanSet(s, nil)
	require.NoError(t, err, name)
	require.LessOrEqual(t, plan.Epsilon, s.Epsilon, name)
	require.Greater(t, plan.Epsilon, .99*s.Epsilon, name)
	whole := 0.0
	for i := range s.Goals {
		whole += s.Part(i)
	}
	require.InDelta(t, 1, whole, 1e-9)
	// A message moves two cells, and two relays add noise: the constant is 2/μ, which is 1 at (10, 10⁻⁵).
	unit := 2 / math.Sqrt(compose.GaussianSquare(s.Epsilon, s.Delta))
	for i, w := range plan.Ways {
		want := unit * math.Sqrt(float64(w.Task.MostCopies(s.Goals[i].Epochs))/s.Part(i))
		if w.Task.Noise.Total != nil { // The errors of few cells nearly cancel. A rest cell has those of all others.
			want *= math.Sqrt(1 - 1/float64(w.Task.Noise.Cells))
		}
		require.Equal(t, tables[i].Events != "", w.Task.Noise.Rest != nil, s.Goals[i].Name)
		if w.Task.Noise.Rest != nil {
			want *= math.Sqrt2
		}
		t.Logf("%s, %s: %.4g, by the rule %.4g: %+.2f %%", name, s.Goals[i].Name, w.RMSE, want, 100*(w.RMSE/want-1))
		require.InEpsilon(t, want, w.RMSE, .03, "%s, %s", name, s.Goals[i].Name)
	}
	if tables[1].Bins != 144 { // The rest is of the larger set.
		return
	}
	explained, err := s.Laws(plan, 1)
	require.NoError(t, err)
	require.Equal(t, "independent cells, Gaussian tables", explained[1].Law)
	require.Less(t, explained[1].Deviation, explained[0].Deviation, "Laplace tables have more noise over many epochs")
}

// TestASetOfOneQueryIsThatQuery: a set of one query must have a plan at every number of epochs, with and without a cap
// and with rare events. It gets all of the total, so its error must be at most 3 % above the error of the query's own
// plan. For a few of these laws the total is kept at every scale of the search; the short form has three of them.
func TestASetOfOneQueryIsThatQuery(t *testing.T) {
	type claim struct{ epsilon, delta float64 }
	horizons, bins, claims := []uint64{90}, []uint64{2, 17}, []claim{{10, 1e-5}}
	if stattest.Long {
		horizons, claims = []uint64{1, 2, 7, 30, 90, 365}, []claim{{10, 1e-5}, {1, 1e-6}}
	}
	for _, epochs := range horizons {
		limits := []task.Epochs{{Events: task.Events{Most: 1, Window: epochs}},
			{Cap: task.Cap{Reports: min(12, epochs-1), Window: epochs}}, {}, {Events: task.Events{Most: 2, Window: 7}},
			{Cap: task.Cap{Reports: 1, Window: 2}, Events: task.Events{Most: 4, Window: epochs, Default: 1}}}
		if !stattest.Long {
			limits = limits[:2]
		}
		for _, limit := range limits {
			for _, cells := range bins {
				for _, total := range claims {
					q := planner.Query{Name: "alone", Query: task.Histogram, Bins: cells, Labels: true, Honest: .9,
						Epochs: epochs, Cap: limit.Cap, Events: limit.Events}
					if cells == 2 {
						q.Query, q.Bins, q.Labels = task.Count, 0, false
					}
					if limit.CheckLimits() != nil || limit.Events.Check() != nil {
						continue // No fewer epochs than the limit allows.
					}
					t.Run(fmt.Sprintf("%d epochs, %d bins, cap %v, events %v, (%g, %g)", epochs, cells, q.Cap, q.Events,
						total.epsilon, total.delta), func(t *testing.T) { alone(t, q, total.epsilon, total.delta) })
				}
			}
		}
	}
}

// alone compares the plan of a set of one query with the query's own plan.
func alone(t *testing.T, q planner.Query, epsilon, delta float64) {
	goal := planner.Goal{Query: q, Noise: planner.NoiseRelays, Hops: 2, Batches: 100}
	set := planner.Set{Goals: []planner.Goal{goal}, Weights: []float64{1}, Users: 10_000, Epsilon: epsilon,
		Delta: delta}
	plan, err := planner.PlanSet(set, nil)
	require.NoError(t, err, "%+v", q)
	goal.Batch, goal.TotalEpsilon, goal.TotalDelta = set.Users, epsilon, delta
	ways, err := planner.Plan(goal, nil)
	require.NoError(t, err)
	require.NoError(t, ways[0].Why)
	t.Logf("%.4g in a set, %.4g alone", plan.Ways[0].RMSE, ways[0].RMSE)
	require.LessOrEqual(t, plan.Ways[0].RMSE, 1.03*ways[0].RMSE, "%+v", q)
	require.LessOrEqual(t, plan.Epsilon, epsilon)
	require.Equal(t, ways[0].Task.Noise.Rest, plan.Ways[0].Task.Noise.Rest)
}

// TestClocks compares the most epochs in a stretch of days with counts by hand.
func TestClocks(t *testing.T) {
	for _, c := range []struct {
		per        planner.Clock
		days, most uint64
	}{
		{planner.Daily, 365, 365}, {planner.Weekly, 365, 53}, {planner.Monthly, 365, 12}, {planner.Monthly, 366, 13},
		{planner.Monthly, 364, 12}, {planner.Weekly, 7, 1}, {planner.Weekly, 8, 2}, {planner.Monthly, 28, 1},
		{planner.Monthly, 29, 2}, {planner.Monthly, 1, 1}, {planner.Monthly, 30, 2}, {planner.Monthly, 60, 3},
		{planner.Monthly, 36_525, 1201},
	} {
		found, err := c.per.Epochs(c.days)
		require.NoError(t, err)
		require.Equal(t, c.most, found, "%s in %d days", c.per, c.days)
	}
	_, err := planner.Clock("year").Epochs(365)
	require.ErrorContains(t, err, "day, week or month")
	_, err = planner.Weekly.Epochs(0)
	require.ErrorContains(t, err, "days")
}

// TestSetsNameWhatIsWrong: a set without a claim, or with a query that has no way, is an error that names the field.
func TestSetsNameWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*planner.Set)
		want   string
	}{
		"no query":         {func(s *planner.Set) { s.Goals = nil }, "queries"},
		"no epoch":         {func(s *planner.Set) { s.Goals[1].Epochs = 0 }, "epochs"},
		"both":             {func(s *planner.Set) { s.Shares = s.Weights }, "weights or of shares"},
		"no weight":        {func(s *planner.Set) { s.Weights[1] = 0 }, "weight 0"},
		"a weight is lost": {func(s *planner.Set) { s.Weights = s.Weights[1:] }, "weights"},
		"a claim":          {func(s *planner.Set) { s.Goals[0].Epsilon = 1 }, "epsilon and delta of their own"},
		"no total":         {func(s *planner.Set) { s.Epsilon = 0 }, "total-epsilon"},
		"a tiny total":     {func(s *planner.Set) { s.Delta = 1e-38 }, "invalid total-delta 1e-38: want at least "},
		"no way": {func(s *planner.Set) {
			s.Goals[0].LeastLocal, s.Goals[0].Noise = 1e-3, planner.NoiseClients
		}, "query lcp"},
	} {
		s := site()
		c.change(&s)
		_, err := planner.PlanSet(s, nil)
		require.ErrorContains(t, err, c.want, name)
	}
}
