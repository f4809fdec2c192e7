package shufflerclient_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

const day = 86400

// price is the price of daily reports: each costs (1, 10⁻⁶), and 30 of them composed cost (5.25, 3·10⁻⁵).
var price = shufflerclient.Price{First: compose.Spend{Epsilon: 1, Delta: 1e-6}, Reports: 30,
	All: compose.Spend{Epsilon: 5.25, Delta: 3e-5}}

// wish is a report that a client asks the ledger to admit.
type wish struct {
	Line    string               `json:"line"`
	Price   shufflerclient.Price `json:"price"`
	Start   int64                `json:"start"`
	Length  task.Length          `json:"length"`
	Cap     task.Cap             `json:"cap"`
	Verdict string               `json:"verdict"`
}

// exceeds reports whether reports exceed a budget. It only uses the definition in docs/proofs/budget.md, and tries each
// window.
func exceeds(b shufflerclient.Budget, reports []wish, stepped map[string]bool) bool {
	for _, first := range reports {
		counts, prices := map[string]int{}, map[string]shufflerclient.Price{}
		for _, r := range reports {
			if r.Start >= first.Start && float64(r.Start) < float64(first.Start)+b.Days*day {
				counts[r.Line]++
				prices[r.Line] = r.Price
			}
		}
		eps, delta := 0.0, 0.0
		for id, n := range counts {
			p := prices[id]
			k := math.Floor(p.All.Epsilon / p.First.Epsilon)
			for ; n > 0; n -= int(p.Reports) {
				switch group := math.Min(float64(n), float64(p.Reports)); {
				case !stepped[id]:
					eps, delta = eps+p.All.Epsilon, delta+p.All.Delta
				case k >= float64(p.Reports):
					eps, delta = eps+group*p.First.Epsilon, delta+float64(p.Reports)*p.First.Delta
				default:
					eps += math.Min(group*p.First.Epsilon, p.All.Epsilon)
					if group > k {
						eps += p.All.Epsilon - math.Min(group*p.First.Epsilon, p.All.Epsilon)
					}
					delta += p.All.Delta + k*p.First.Delta
				}
			}
		}
		if eps > b.Epsilon || (b.Delta < 1 && delta > b.Delta) {
			return true
		}
	}
	return false
}

// TestLedgersAdmitWhatEveryWindowHasRoomFor replays the ledgers of the test vectors. Admitted reports must exceed the
// budget of no window. A refused report would have exceeded one.
func TestLedgersAdmitWhatEveryWindowHasRoomFor(t *testing.T) {
	raw, err := os.ReadFile("../testdata/v1/ledger.json")
	require.NoError(t, err)
	var vectors []struct {
		Budget shufflerclient.Budget
		Spends []wish
		Lines  []shufflerclient.Line
	}
	require.NoError(t, json.Unmarshal(raw, &vectors))
	for _, v := range vectors {
		plans := map[string]bool{}
		for _, line := range v.Lines {
			plans[line.ID] = line.Stepped
		}
		var ledger shufflerclient.Ledger
		var made []wish
		for i, w := range v.Spends {
			err := ledger.Spend(v.Budget, w.Line, w.Price, w.Start, task.Epochs{Length: w.Length, Cap: w.Cap})
			switch w.Verdict {
			case "admitted":
				require.NoError(t, err, i)
				made = append(made, w)
				require.False(t, exceeds(v.Budget, made, plans), i)
			case "reported":
				require.ErrorIs(t, err, shufflerclient.ErrReported, i)
			case "capped":
				require.ErrorIs(t, err, shufflerclient.ErrCapped, i)
			case "budget":
				require.ErrorIs(t, err, shufflerclient.ErrBudget, i)
				if _, begun := plans[w.Line]; begun {
					require.True(t, exceeds(v.Budget, append(made[:len(made):len(made)], w), plans), i)
				}
			}
		}
		require.Equal(t, v.Lines, ledger.Lines)
	}
}

// TestCapsLimitEveryPattern replays every pattern of visits in up to ten epochs, in its long form 14, in order or by a
// clock that runs backwards, and with a restart between two visits. No window of W epochs may have more than R reports.
// The largest number of reports of a pattern must be the number that the claim covers. A report that is refused must be
// one that breaks the cap, in whatever order the visits come.
func TestCapsLimitEveryPattern(t *testing.T) {
	b := shufflerclient.Budget{Epsilon: 1e6, Delta: .5, Days: 3650}
	price := shufflerclient.Price{First: compose.Spend{Epsilon: 1e-3, Delta: 1e-9}, Reports: 99,
		All: compose.Spend{Epsilon: 1, Delta: 1e-8}}
	for _, limit := range []task.Cap{{Reports: 1, Window: 2}, {Reports: 1, Window: 5}, {Reports: 2, Window: 3},
		{Reports: 3, Window: 7}, {Reports: 2, Window: 12}} {
		longest := 10
		if stattest.Long {
			longest = 14
		}
		epochs := task.Epochs{Start: 20_000 * day, Length: day, Count: 14, Cap: limit}
		for n := 1; n <= longest; n++ {
			most := uint64(0)
			for pattern := range 1 << n {
				if n < longest && pattern>>(n-1) == 0 {
					continue // tried with a smaller n
				}
				ledger, made := &shufflerclient.Ledger{}, []int{}
				for i := range n {
					at := i
					if pattern%3 == 1 { // A clock that runs backwards.
						at = n - 1 - i
					}
					if pattern>>at&1 == 0 {
						continue
					}
					if pattern%5 == 2 {
						ledger = restarted(t, ledger)
					}
					err := ledger.Spend(b, "a", price, int64(epochs.Start)+int64(at)*day, epochs)
					within := fitsCap(append(made[:len(made):len(made)], at), limit)
					if within {
						require.NoError(t, err)
						made = append(made, at)
					} else {
						require.ErrorIs(t, err, shufflerclient.ErrCapped)
					}
				}
				most = max(most, uint64(len(made)))
			}
			require.Equal(t, epochs.MostReports(uint64(n)), most, "%v in %d epochs", limit, n)
		}
	}
}

// TestPaceIsFlat: for every phase that a device may draw, a daily reader's reports are at most 4 in each block of 28
// days, and never refused by the cap. On every day after the first block exactly 4 of the 28 phases report: readers do
// not fall silent together. A device that comes on random days, by a clock that leaps, keeps to the blocks too.
func TestPaceIsFlat(t *testing.T) {
	b := shufflerclient.Budget{Epsilon: 1e6, Delta: .5, Days: 3650}
	price := shufflerclient.Price{First: compose.Spend{Epsilon: 1e-3, Delta: 1e-9}, Reports: 99,
		All: compose.Spend{Epsilon: 1, Delta: 1e-8}}
	epochs := task.Epochs{Length: day, Cap: task.Cap{Reports: 56, Window: 365}, Pace: task.Cap{Reports: 4, Window: 28}}
	const first, days, phases = 20_000, 500, 28
	seen := make([]int, days)
	for phase := range int64(phases) {
		block := (int64(first) - phase) * day
		ledger := &shufflerclient.Ledger{}
		require.NoError(t, ledger.Spend(b, "a", price, first*day, epochs))
		ledger.Lines[0].Block = &block
		seen[0]++
		made := map[int64]int{phase / phases: 1}
		for at := int64(1); at < days; at++ {
			err := ledger.Spend(b, "a", price, (first+at)*day, epochs)
			if made[(at+phase)/phases] == 4 {
				require.ErrorIs(t, err, shufflerclient.ErrCapped)
				require.ErrorContains(t, err, "by its pace")
				continue
			}
			require.NoError(t, err, "phase %d, day %d", phase, at)
			made[(at+phase)/phases]++
			seen[at]++
		}
	}
	for at := phases; at < days; at++ {
		require.Equal(t, 4, seen[at], at)
	}
	phasesDrawn := map[int64]bool{}
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 46))
		ledger, made := &shufflerclient.Ledger{}, map[int64]int{}
		for i := range 40 {
			at := int64(first + rng.IntN(90))
			err := ledger.Spend(b, "a", price, at*day, epochs)
			if i == 0 {
				phasesDrawn[at-*ledger.Lines[0].Block/day] = true
			}
			block := (at*day - *ledger.Lines[0].Block) / day // The first block began at most 27 days before a report.
			if block = block + 28*100; err == nil {
				made[block/28]++
			} else if !errors.Is(err, shufflerclient.ErrReported) {
				require.ErrorIs(t, err, shufflerclient.ErrCapped)
				require.Equal(t, 4, made[block/28])
			}
			require.LessOrEqual(t, made[block/28], 4)
		}
	}
	require.Greater(t, len(phasesDrawn), 14) // At most 14 by chance: below C(28,14)·2^-400.
}

// restarted returns a ledger as a new process reads it.
func restarted(t *testing.T, ledger *shufflerclient.Ledger) *shufflerclient.Ledger {
	stored, err := json.Marshal(ledger)
	require.NoError(t, err)
	again := &shufflerclient.Ledger{}
	require.NoError(t, json.Unmarshal(stored, again))
	return again
}

// fitsCap reports whether no window has more epochs than a cap allows.
func fitsCap(epochs []int, limit task.Cap) bool {
	for _, first := range epochs {
		reports := uint64(0)
		for _, at := range epochs {
			if at >= first && at < first+int(limit.Window) {
				reports++
			}
		}
		if reports > limit.Reports {
			return false
		}
	}
	return true
}

// TestMostReportsOfPublishedEpochs compares the most reports in some published epochs with every choice of them.
func TestMostReportsOfPublishedEpochs(t *testing.T) {
	for _, limit := range []task.Cap{{Reports: 1, Window: 3}, {Reports: 2, Window: 5}, {Reports: 3, Window: 4}} {
		e := task.Epochs{Start: 7, Length: 60, Count: 11, Cap: limit}
		for published := range 1 << 11 {
			var starts []uint64
			most := 0
			for at := range 11 {
				if published>>at&1 == 1 {
					starts = append(starts, e.Start+uint64(at)*uint64(e.Length))
				}
			}
			for choice := published; ; choice = (choice - 1) & published {
				var chosen []int
				for at := range 11 {
					if choice>>at&1 == 1 {
						chosen = append(chosen, at)
					}
				}
				if fitsCap(chosen, limit) {
					most = max(most, len(chosen))
				}
				if choice == 0 {
					break
				}
			}
			require.Equal(t, uint64(most), e.MostReportsAt(starts), "%v of %b", limit, published)
		}
	}
}

// TestNoClockForgets lets a clock jump ten years forward and back. Reports from before the jump and during it must stay
// charged.
func TestNoClockForgets(t *testing.T) {
	var ledger shufflerclient.Ledger
	b := shufflerclient.Budget{Epsilon: 5.25, Delta: 3e-5, Days: 30}
	spend := func(line string, at int64) error {
		return ledger.Spend(b, line, price, at*day, task.Epochs{Length: day})
	}
	require.NoError(t, spend("a", 20_000))
	require.NoError(t, spend("b", 20_000+3650), "another window must have its own budget")
	require.ErrorIs(t, spend("b", 20_010), shufflerclient.ErrBudget, "back")
	require.ErrorIs(t, spend("b", 19_990), shufflerclient.ErrBudget, "the clock goes back further")
	require.NoError(t, spend("a", 20_010))
	require.ErrorIs(t, spend("a", 20_010), shufflerclient.ErrReported)
	require.ErrorIs(t, spend("a", 20_000+3650-29), shufflerclient.ErrBudget, "an entry in the future must count")
	require.NoError(t, spend("b", 20_011+30), "a window later, the budget must be free again")
	require.Len(t, ledger.Lines, 2)
}

// TestOtherEpochsCountWhenTheyBegin: a stream of months goes on with days. A day's report counts from that day on, and
// not from the month's start.
func TestOtherEpochsCountWhenTheyBegin(t *testing.T) {
	at := func(month time.Month, date int) int64 {
		return time.Date(2027, month, date, 0, 0, 0, 0, time.UTC).Unix()
	}
	var ledger shufflerclient.Ledger
	b := shufflerclient.Budget{Epsilon: price.All.Epsilon, Delta: 1e-3, Days: 30}
	months, days := task.Epochs{Length: task.Month}, task.Epochs{Length: day}
	require.NoError(t, ledger.Spend(b, "a", price, at(time.January, 1), months))
	require.NoError(t, ledger.Spend(b, "a", price, at(time.March, 31), days))
	require.ErrorIs(t, ledger.Spend(b, "b", price, at(time.April, 29), days), shufflerclient.ErrBudget)
	require.NoError(t, ledger.Spend(b, "b", price, at(time.April, 30), days))
}

// TestDecimalsAddUp: three lines of 0.1 must fit into 0.3, although their binary sum is larger. Four must not.
func TestDecimalsAddUp(t *testing.T) {
	tenth := shufflerclient.Price{First: compose.Spend{Epsilon: .1, Delta: 1e-6}, Reports: 1,
		All: compose.Spend{Epsilon: .1, Delta: 1e-6}}
	for _, b := range []shufflerclient.Budget{{Epsilon: .3, Delta: 3e-6}, {Epsilon: .3, Delta: .1},
		{Epsilon: 3, Delta: 3e-6}} {
		var ledger shufflerclient.Ledger
		b.Days = 30
		for i := range int64(3) {
			require.NoError(t, ledger.Spend(b, fmt.Sprint(i), tenth, i, task.Epochs{Length: day}))
		}
		require.ErrorIs(t, ledger.Spend(b, "3", tenth, 3, task.Epochs{Length: day}), shufflerclient.ErrBudget)
	}
}

// TestNoLedger: the client must refuse an inconsistent ledger from the caller's keeper, or an invalid price, before it
// uses them.
func TestNoLedger(t *testing.T) {
	good := func() shufflerclient.Line {
		return shufflerclient.Line{ID: "a", Price: price, Length: day, Runs: []shufflerclient.Run{{Start: 0, Count: 2}}}
	}
	for name, change := range map[string]func(*shufflerclient.Ledger){
		"no length":    func(l *shufflerclient.Ledger) { l.Lines[0].Length = 0 },
		"no reports":   func(l *shufflerclient.Ledger) { l.Lines[0].Price.Reports = 0 },
		"no epsilon":   func(l *shufflerclient.Ledger) { l.Lines[0].Price.First.Epsilon = 0 },
		"NaN":          func(l *shufflerclient.Ledger) { l.Lines[0].Price.All.Delta = math.NaN() },
		"a line twice": func(l *shufflerclient.Ledger) { l.Lines = append(l.Lines, good()) },
		"no epoch":     func(l *shufflerclient.Ledger) { l.Lines[0].Runs[0].Count = 0 },
		"endless":      func(l *shufflerclient.Ledger) { l.Lines[0].Runs[0].Count = 1 << 63 },
		"overlap": func(l *shufflerclient.Ledger) {
			l.Lines[0].Runs = append(l.Lines[0].Runs, shufflerclient.Run{Start: day, Count: 1})
		},
		"out of order": func(l *shufflerclient.Ledger) {
			l.Lines[0].Runs = append(l.Lines[0].Runs, shufflerclient.Run{Start: -day, Count: 1})
		},
	} {
		ledger := shufflerclient.Ledger{Lines: []shufflerclient.Line{good()}}
		change(&ledger)
		b := shufflerclient.Budget{Epsilon: 100, Delta: 1e-2, Days: 30}
		require.ErrorContains(t, ledger.Spend(b, "b", price, 50*day, task.Epochs{Length: day}), "invalid ledger", name)
	}
	b := shufflerclient.Budget{Epsilon: 100, Delta: 1e-2, Days: 30}
	err := new(shufflerclient.Ledger).Spend(b, "a", shufflerclient.Price{}, 0, task.Epochs{Length: day})
	require.ErrorContains(t, err, "invalid ledger")
}

// TestPlans: a budget equal to the sum of the lines' costs must admit all reports of all lines. A smaller budget must
// still admit a few reports of many lines.
func TestPlans(t *testing.T) {
	for name, c := range map[string]struct {
		budget  shufflerclient.Budget
		lines   int
		stepped int
	}{
		"the sum":           {shufflerclient.Budget{Epsilon: 10.5, Delta: 6e-5, Days: 365}, 2, 0},
		"less ε":            {shufflerclient.Budget{Epsilon: 8.25, Delta: 2e-4, Days: 365}, 4, 3},
		"no bound on δ":     {shufflerclient.Budget{Epsilon: 10, Delta: 1, Days: 365}, 10, 10},
		"less δ than lines": {shufflerclient.Budget{Epsilon: 100, Delta: 4e-5, Days: 365}, 1, 0},
	} {
		var ledger shufflerclient.Ledger
		lines := 0
		for ; ; lines++ {
			if err := ledger.Spend(c.budget, fmt.Sprint(lines), price, 0, task.Epochs{Length: day}); err != nil {
				require.ErrorIs(t, err, shufflerclient.ErrBudget, name)
				break
			}
		}
		require.Equal(t, c.lines, lines, name)
		stepped := 0
		for _, line := range ledger.Lines {
			if line.Stepped {
				stepped++
			}
		}
		require.Equal(t, c.stepped, stepped, name)
	}
}

// TestTheAdaptiveCounterexampleIsRefused uses the counterexample in docs/proofs/loss-laws.md, where the second task is
// chosen by the first task's result. Composed in advance, its tasks cost δ = 10⁻⁶ at ε = 4. A ledger with that budget
// admits the first task at a fraction of δ. It must then admit at most one of the possible second tasks, so that no
// choice is left.
func TestTheAdaptiveCounterexampleIsRefused(t *testing.T) {
	b := shufflerclient.Budget{Epsilon: 4, Delta: 1e-6, Days: 1}
	epsilon := func(mu, delta float64) float64 {
		low, high := 0.0, 20.0
		for range 60 {
			mid := (low + high) / 2
			if d, _ := compose.GaussianDelta(mu*mu, mid); d > delta {
				low = mid
			} else {
				high = mid
			}
		}
		return high
	}
	one := func(eps, delta float64) shufflerclient.Price {
		s := compose.Spend{Epsilon: eps, Delta: delta}
		return shufflerclient.Price{First: s, Reports: 1, All: s}
	}
	for share := .3; share < 1; share += .01 {
		admitted := 0
		for _, second := range []shufflerclient.Price{
			one(.2946, 0), one(epsilon(.249, (1-share)*1e-6), (1-share)*1e-6), one(1e-9, 7.07e-7),
		} {
			var ledger shufflerclient.Ledger
			require.NoError(t, ledger.Spend(b, "first", one(epsilon(.8, share*1e-6), share*1e-6), 0, task.Epochs{Length: day}))
			if err := ledger.Spend(b, "second", second, 0, task.Epochs{Length: day}); err == nil {
				admitted++
			} else {
				require.ErrorIs(t, err, shufflerclient.ErrBudget)
			}
		}
		require.LessOrEqual(t, admitted, 1, "%.2f", share)
	}
}

// TestLedgerFilesExcludeEachOther lets ten processes compete for the last report that fits. Exactly one must get it.
func TestLedgerFilesExcludeEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.json")
	b := shufflerclient.Budget{Epsilon: 5.25, Delta: 3e-5, Days: 30}
	var group sync.WaitGroup
	results := make([]error, 10)
	for i := range results {
		group.Go(func() {
			results[i] = shufflerclient.LedgerFile(path).Update(func(l *shufflerclient.Ledger) error {
				return l.Spend(b, fmt.Sprint(i), price, 0, task.Epochs{Length: day})
			})
		})
	}
	group.Wait()
	admitted := 0
	for _, err := range results {
		if err == nil {
			admitted++
		} else {
			require.ErrorIs(t, err, shufflerclient.ErrBudget)
		}
	}
	require.Equal(t, 1, admitted)

	keeper := shufflerclient.LedgerFile(path)
	require.NoError(t, keeper.Update(func(l *shufflerclient.Ledger) error {
		require.Len(t, l.Lines, 1)
		require.Equal(t, []shufflerclient.Run{{Start: 0, Count: 1}}, l.Lines[0].Runs)
		return nil
	}))
	failed := errors.New("changed my mind")
	require.ErrorIs(t, keeper.Update(func(l *shufflerclient.Ledger) error {
		l.Lines = nil
		return failed
	}), failed)
	require.NoError(t, keeper.Update(func(l *shufflerclient.Ledger) error {
		require.Len(t, l.Lines, 1)
		return nil
	}))
	for _, bad := range []string{"", "{", `{"lines":[{"id":"a"}]}`} {
		require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
		require.Error(t, keeper.Update(func(*shufflerclient.Ledger) error { return nil }), "%q is no ledger", bad)
	}
}

// TestAClientWithALedger: a client with a ledger must make one report per epoch, and none beyond the budget. An invalid
// value must cost nothing.
func TestAClientWithALedger(t *testing.T) {
	c := newCascade(t, nil) // ε = 2 and δ = 10⁻⁴ in each of two epochs; ε = 3.63 composed over both.
	path := filepath.Join(t.TempDir(), "ledger.json")
	o := shufflerclient.Options{Budget: shufflerclient.Budget{Epsilon: 3.7, Delta: 2e-4, Days: 365},
		Ledger: shufflerclient.LedgerFile(path)}
	client, err := shufflerclient.New(c.Open, o)
	require.NoError(t, err)
	_, err = client.Report(0, []float64{11})
	require.ErrorContains(t, err, "value")
	_, err = client.Report(2, []float64{5})
	require.ErrorContains(t, err, "epoch")
	require.NoFileExists(t, path)
	for epoch := range uint64(2) {
		_, err = client.Report(epoch, []float64{5})
		require.NoError(t, err)
		_, err = client.Report(epoch, []float64{5})
		require.ErrorIs(t, err, shufflerclient.ErrReported)
	}

	other := newCascade(t, func(draft *task.Task) { draft.Name = "another" })
	second, err := shufflerclient.New(other.Open, o)
	require.NoError(t, err)
	_, err = second.Report(0, []float64{5})
	require.ErrorIs(t, err, shufflerclient.ErrBudget)

	for name, bad := range map[string]func(*shufflerclient.Options){
		"Ledger":         func(o *shufflerclient.Options) { o.Ledger = nil },
		"Budget.Epsilon": func(o *shufflerclient.Options) { o.Budget.Epsilon = 0 },
		"Budget.Delta":   func(o *shufflerclient.Options) { o.Budget.Delta = 2 },
		"Budget.Days":    func(o *shufflerclient.Options) { o.Budget.Days = math.NaN() },
		"Budget":         func(o *shufflerclient.Options) { o.Budget.Epsilon = 3.6 },
	} {
		changed := o
		bad(&changed)
		changed.MaxEpsilon = 4
		_, err := shufflerclient.New(c.Open, changed)
		var field *invalid.FieldError
		require.ErrorAs(t, err, &field, name)
		require.Equal(t, name, field.Field)
	}
}

// TestADailyVisitor: a client that reports on each of 365 days must stay within (10, 10⁻⁵). The test composes these
// reports again from the task's privacy law alone. Another task of the same kind must then not fit on any day of that
// year.
func TestADailyVisitor(t *testing.T) {
	for name, noise := range map[string]*planner.RelayNoise{"clients": nil, "relays": {}} {
		draft, err := planner.Draft(planner.Query{Name: "year", Query: task.Histogram, Bins: 16, Labels: true,
			Batch: 10_000, Honest: .9, TotalEpsilon: 10, TotalDelta: 1e-5, Epochs: 365, Relays: noise})
		require.NoError(t, err, name)
		signed, err := fixture.Sign(draft, []string{"https://a.example", "https://b.example"},
			task.Epochs{Start: 1_800_000_000, Length: day, Count: 365})
		require.NoError(t, err)
		open, err := signed.Bundle.Open(nil)
		require.NoError(t, err)
		b := shufflerclient.Budget{Epsilon: 10, Delta: 1e-5, Days: 365}
		keeper := &kept{}
		client, err := shufflerclient.New(open, shufflerclient.Options{Budget: b, Ledger: keeper})
		require.NoError(t, err)
		left := map[uint64]bool{}
		for epoch := range uint64(365) {
			report, err := client.Report(epoch, []float64{3})
			require.NoError(t, err, "%s, day %d", name, epoch)
			left[report.Epoch] = true
		}
		m, err := registry.Open(signed.Task)
		require.NoError(t, err)
		law, err := m.Law()
		require.NoError(t, err)
		spent := compose.Delta([]compose.Observation{law.Observation(uint64(len(left)))}, b.Epsilon, b.Delta)
		t.Logf("noise by %s: %d reports, δ = %.4g at ε = 10", name, len(left), spent)
		require.LessOrEqual(t, spent, b.Delta)
		require.Len(t, left, 365)
		for _, at := range []int64{-364, 0, 364, 364 + 364} {
			err := keeper.Spend(b, "other", price, 1_800_000_000+at*day, task.Epochs{Length: day})
			require.ErrorIs(t, err, shufflerclient.ErrBudget)
		}
	}
}

// TestADailyVisitorOfAStream: a stream is planned for (10, 10⁻⁵) over 365 days and continues in tasks of a hundred
// days. A daily visitor must be able to report on any 365 consecutive days within that budget, with noise of clients
// and of relays, and on later days as the window moves. CI tests every 40th day. That suffices, because the price
// covers a whole window from the first report on.
func TestADailyVisitorOfAStream(t *testing.T) {
	for name, noise := range map[string]*planner.RelayNoise{"clients": nil, "relays": {}} {
		draft, err := planner.Draft(planner.Query{Name: "year", Query: task.Histogram, Bins: 16, Labels: true,
			Batch: 10_000, Honest: .9, TotalEpsilon: 10, TotalDelta: 1e-5, Epochs: 365, Relays: noise})
		require.NoError(t, err, name)
		draft.Stream = &task.StreamPosition{Name: "years"}
		begin := time.Unix(1_800_000_000, 0)
		chain, url := &taskfile.Chain{}, ""
		served := map[string]*taskfile.Bundle{} // by path
		serve := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			raw, err := chain.Bytes()
			if b := served[req.URL.Path]; b != nil {
				raw, err = b.Bytes()
			}
			if err == nil {
				w.Write(raw)
			}
		}))
		t.Cleanup(serve.Close)
		root, err := fixture.Sign(draft, []string{serve.URL, "https://b.example"},
			task.Epochs{Start: uint64(begin.Unix()), Length: day, Count: 100})
		require.NoError(t, err)
		for next := root; len(chain.Tasks) < 5; next = next.Succeed(root.Owner, func(*task.Task) {}) {
			chain.Tasks = append(chain.Tasks, next.Bundle.Bare())
			served[next.Path()+endpoint.AllKeys] = next.Bundle
		}
		first, err := root.Bundle.Open(nil)
		require.NoError(t, err)
		url = first.StreamURL(first.Task, 0)

		b := shufflerclient.Budget{Epsilon: 10, Delta: 1e-5, Days: 365}
		keeper := &kept{}
		stream, err := shufflerclient.Follow(t.Context(), shufflerclient.Options{Stream: url, Owner: root.OwnerText(),
			Budget: b, Ledger: keeper})
		require.NoError(t, err, name)
		stride := 40
		if stattest.Long {
			stride = 1
		}
		for at := 0; at < 400; at += stride {
			client, epoch, err := stream.At(t.Context(), begin.Add(time.Duration(at)*day*time.Second))
			require.NoError(t, err, "%s, day %d", name, at)
			_, err = client.Report(epoch, []float64{3})
			require.NoError(t, err, "%s, day %d", name, at)
		}
		require.EqualValues(t, 365, keeper.Lines[0].Price.Reports)
		require.Equal(t, 1e-5, keeper.Lines[0].Price.All.Delta)
		m, err := registry.Open(root.Task)
		require.NoError(t, err)
		law, err := m.Law()
		require.NoError(t, err)
		spent := compose.Delta([]compose.Observation{law.Observation(365)}, b.Epsilon, b.Delta)
		t.Logf("noise by %s: 365 reports in a window, δ = %.4g at ε = 10", name, spent)
		require.LessOrEqual(t, spent, b.Delta)
	}
}

// kept is a keeper that holds its ledger in memory.
type kept struct{ shufflerclient.Ledger }

func (k *kept) Update(change func(*shufflerclient.Ledger) error) error { return change(&k.Ledger) }
