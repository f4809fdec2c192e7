package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/testing/stattest"
)

// binomialLeast returns a number k. If each of n independent intervals contains the truth with probability at least p,
// fewer than k do so with probability at most 10⁻⁶. By Chernoff's bound, at most a fraction x of them do so with
// probability at most exp(−n·KL(x‖p)).
func binomialLeast(n, p float64) float64 {
	lo, hi := 0.0, p
	for range 60 {
		x := (lo + hi) / 2
		if n*(x*math.Log(x/p)+(1-x)*math.Log((1-x)/(1-p))) > math.Log(1e6) {
			lo = x
		} else {
			hi = x
		}
	}
	return lo * n
}

// months holds the months that tests have made, by seed. A month takes seconds.
var months = map[uint64]*month{}

// ofSeed returns the month of a seed. Tests must not change it.
func ofSeed(t *testing.T, seed uint64) *month {
	t.Helper()
	if months[seed] == nil {
		m, err := makeMonth(t.Context(), seed, func() {})
		require.NoError(t, err)
		months[seed] = m
	}
	return months[seed]
}

// TestMonthHoldsTheTruth: of the 30,030 intervals of pages on single days, whose noise is independent, as many contain
// the truth as 95 % intervals must, with an error probability of 10⁻⁶. Of all intervals, some of which depend on each
// other, 94 % contain it. Every entry that is called seen has a visitor.
func TestMonthHoldsTheTruth(t *testing.T) {
	for seed := range uint64(stattest.Times) {
		d, err := playDays(t.Context(), seed, func() {})
		require.NoError(t, err)
		pages := &diary{questions: d.questions[1:2], visitors: d.visitors}
		for day := range monthDays {
			pages.answers[day] = d.answers[day][1:2]
		}
		require.Nil(t, d.questions[1].task.Noise.Total, "the noise of pages must be drawn cell by cell")
		c := pages.coverage()
		t.Logf("seed %d: %s of pages", seed, c)
		require.EqualValues(t, monthDays*(listedPages+1), c.Intervals)
		require.GreaterOrEqual(t, float64(c.Held), binomialLeast(float64(c.Intervals), .95))

		m := ofSeed(t, seed)
		t.Logf("seed %d: %s of days, %s of the month", seed, m.Coverage.Days, m.Coverage.Month)
		for _, c := range []heldCount{m.Coverage.Days, m.Coverage.Month} {
			require.Greater(t, float64(c.Held), .94*float64(c.Intervals)-4.9*math.Sqrt(.06*.94*float64(c.Intervals)))
		}
		for _, l := range []*monthList{m.Pages, m.Referrers, m.Countries} {
			for i, e := range l.Entries {
				require.Equal(t, e.Band[0] > 0, e.Seen)
				if e.Seen {
					require.Positive(t, e.Truth, e.Name)
				}
				require.True(t, i == 0 || e.Estimate <= l.Entries[i-1].Estimate, "entries must be sorted by falling estimate")
			}
		}
	}
}

// TestMonthIsOfItsSeed: the same seed gives the same month, in whatever order the days are simulated. Another seed must
// give another month.
func TestMonthIsOfItsSeed(t *testing.T) {
	figures := func(m *month) string {
		of := *m
		of.Elapsed, of.Seed = 0, 0
		raw, err := json.Marshal(of)
		require.NoError(t, err)
		return string(raw)
	}
	first := figures(ofSeed(t, 0))
	for seed := range uint64(2) {
		again, err := makeMonth(t.Context(), seed, func() {})
		require.NoError(t, err)
		require.Equal(t, seed == 0, first == figures(again), seed)
	}
}

// TestMonthKeepsItsBudget: all questions on all days, composed from the tasks' own loss laws, cost less than the budget
// of set.json and nearly as much. Adding up costs instead gives more.
func TestMonthKeepsItsBudget(t *testing.T) {
	of, err := questions()
	require.NoError(t, err)
	b, err := newMonthBudget(of)
	require.NoError(t, err)
	var seen []compose.Observation
	for _, q := range of {
		law, err := q.mechanism.Law()
		require.NoError(t, err)
		seen = append(seen, law.Observation(monthDays))
	}
	require.LessOrEqual(t, compose.Delta(seen, b.Epsilon, b.Delta), b.Delta)
	require.LessOrEqual(t, b.Composed, b.Epsilon)
	require.Greater(t, b.Composed, .99*b.Epsilon)
	require.Greater(t, b.Each, b.Composed)
	require.Greater(t, b.Added, b.Each)
	for i, q := range b.Questions {
		require.LessOrEqual(t, q.Composed, q.Added)
		require.InEpsilon(t, q.Weight, q.Epsilon/b.Questions[0].Epsilon, 1e-2, "a question's ε must be proportional to its weight")
		require.LessOrEqual(t, uint64(mostVisitors), of[i].task.Batch.Size, "all visitors of a day must fit into a batch")
		require.EqualValues(t, max(len(of[i].entries), 0), of[i].task.Input.Bins)
	}
	for day := range b.Days[1:] {
		require.Greater(t, b.Days[day+1].Composed, b.Days[day].Composed)
	}
}

// TestMonthTakesNoOtherFlags: --month either accepts or refuses each flag of the demo.
func TestMonthTakesNoOtherFlags(t *testing.T) {
	cmd := &cobra.Command{}
	new(options).flags(cmd)
	for _, name := range []string{"month", "seed", "headless"} {
		require.NotContains(t, notOfMonth, name)
		require.NotNil(t, cmd.Flags().Lookup(name))
	}
	all := 3
	for _, name := range notOfMonth {
		require.NotNil(t, cmd.Flags().Lookup(name), name)
		all++
	}
	require.Equal(t, strings.Count(cmd.Flags().FlagUsages(), "      --"), all)
}

// TestPagesHaveTheirNames: the site has 1000 pages with distinct names, and "other".
func TestPagesHaveTheirNames(t *testing.T) {
	names := map[string]bool{}
	for _, name := range pageNames() {
		names[name] = true
	}
	require.Len(t, names, listedPages+1)
}
