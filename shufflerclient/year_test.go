package shufflerclient_test

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// mortal is a ledger whose process can die before it stores a report, or right after.
type mortal struct {
	shufflerclient.Keeper
	dies string // "before", "after" or "".
}

var errDied = errors.New("the process died")

func (m mortal) Update(change func(*shufflerclient.Ledger) error) error {
	if m.dies == "before" {
		return errDied
	}
	err := m.Keeper.Update(change)
	if err == nil && m.dies == "after" {
		return errDied
	}
	return err
}

// limitedTask returns a task of daily epochs for a year under (10, 10⁻⁵), whose cap and pace limit a browser's reports.
func limitedTask(t *testing.T, days uint64, limit, pace task.Cap) *taskfile.Open {
	t.Helper()
	draft, err := planner.Draft(planner.Query{Name: "year", Query: task.Histogram, Bins: 16, Labels: true, Batch: 10_000,
		Honest: .9, TotalEpsilon: 10, TotalDelta: 1e-5, Epochs: min(days, 365), Cap: limit, Pace: pace,
		Relays: &planner.RelayNoise{}})
	require.NoError(t, err)
	signed, err := fixture.Sign(draft, []string{"https://a.example", "https://b.example"}, task.Epochs{
		Start: 1_800_000_000, Length: day, Count: days, Cap: limit, Pace: pace})
	require.NoError(t, err)
	open, err := signed.Bundle.Open(nil)
	require.NoError(t, err)
	return open
}

// TestAYearAtRandom: a visitor comes on random days for up to a year, in one or two processes that share the ledger's
// file. Processes die before or after the ledger has recorded a report, or before they send it; others start. The clock
// leaps. What left must never cost more than the claim, composed again from the days on which reports left. The short
// form has a cap of five in thirty days over 60 days, the long form a cap and a pace over a year, five times.
func TestAYearAtRandom(t *testing.T) {
	days, runs, limit, pace := uint64(60), 1, task.Cap{Reports: 5, Window: 30}, task.Cap{}
	if stattest.Long {
		days, runs, limit, pace = 365, 5, task.Cap{Reports: 20, Window: 365}, task.Cap{Reports: 2, Window: 42}
	}
	open := limitedTask(t, days, limit, pace)
	m, err := registry.Open(open.Task)
	require.NoError(t, err)
	law, err := m.Law()
	require.NoError(t, err)
	b := shufflerclient.Budget{Epsilon: 10, Delta: 1e-5, Days: 365}
	for run := range runs {
		rng := rand.New(rand.NewPCG(46, uint64(run)))
		path := filepath.Join(t.TempDir(), "ledger.json")
		start := func(dies string) *shufflerclient.Client {
			client, err := shufflerclient.New(open, shufflerclient.Options{Budget: b,
				Ledger: mortal{shufflerclient.LedgerFile(path), dies}})
			require.NoError(t, err)
			return client
		}
		fates := map[string]*shufflerclient.Client{"": start(""), "before": start("before"), "after": start("after")}
		left, refused, lost := map[uint64]int{}, 0, 0
		report := func(fate string, epoch uint64) {
			_, err := fates[fate].Report(epoch, []float64{float64(rng.IntN(16))})
			switch {
			case err == nil && rng.IntN(8) == 0:
				lost++ // It dies before it sends the report.
			case err == nil:
				left[epoch]++
			case errors.Is(err, shufflerclient.ErrCapped):
				refused++
			default:
				require.True(t, errors.Is(err, errDied) || errors.Is(err, shufflerclient.ErrReported), err)
			}
		}
		for today := range days {
			epoch := today
			if rng.IntN(12) == 0 { // The clock leaps for one visit.
				epoch = rng.Uint64N(days)
			}
			switch rng.IntN(10) {
			case 0:
				report("before", epoch)
			case 1:
				report("after", epoch)
			case 2, 3: // Two processes.
				report("", epoch)
				report("", epoch)
			case 4:
				fates[""] = start("")
				report("", epoch)
			case 5: // No visit.
			default:
				report("", epoch)
			}
		}
		var at []int
		for epoch, reports := range left {
			require.Equal(t, 1, reports, "one report of an epoch")
			at = append(at, int(epoch))
		}
		require.True(t, fitsCap(at, limit), at)
		require.Greater(t, refused, 5)
		require.NotEmpty(t, at)
		most := uint64(0)
		for _, first := range at {
			reports := uint64(0)
			for _, other := range at {
				if other >= first && other < first+365 {
					reports++
				}
			}
			most = max(most, reports)
		}
		spent := compose.Delta([]compose.Observation{law.Observation(most)}, b.Epsilon, b.Delta)
		t.Logf("%d reports left, %d in the worst year, %d refused, %d lost: δ = %.3g at ε = 10", len(at), most, refused,
			lost, spent)
		require.LessOrEqual(t, spent, b.Delta)
	}
	over := law.Observation(open.Epochs.MostReports(min(days, 365)) + 1)
	require.Greater(t, compose.Delta([]compose.Observation{over}, b.Epsilon, b.Delta), b.Delta, "one report more")
}

// TestCapsNeedALedger: a client without a ledger, such as an edge worker, refuses a task with a cap, and so does one
// that knows only a later task of its stream: neither can count the reports of one browser.
func TestCapsNeedALedger(t *testing.T) {
	for _, pace := range []task.Cap{{}, {Reports: 1, Window: 4}} {
		open := limitedTask(t, 20, task.Cap{Reports: 5, Window: 15}, pace)
		_, err := shufflerclient.New(open, shufflerclient.Options{MaxEpsilon: 20})
		var field *invalid.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "cap", field.Field)
		require.ErrorContains(t, err, "edge worker")
		later := *open.Task
		later.Stream = &task.StreamPosition{Name: "site", Position: 1, Before: task.ID{1}}
		second := *open
		second.Task = &later
		keeper := shufflerclient.LedgerFile(filepath.Join(t.TempDir(), "ledger.json"))
		b := shufflerclient.Budget{Epsilon: 10, Delta: 1e-5, Days: 365}
		_, err = shufflerclient.New(&second, shufflerclient.Options{Budget: b, Ledger: keeper})
		require.ErrorAs(t, err, &field)
		require.Equal(t, "cap", field.Field)
		_, err = shufflerclient.New(open, shufflerclient.Options{Budget: b, Ledger: keeper})
		require.NoError(t, err)
	}
}
