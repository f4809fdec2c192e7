package shufflerclient_test

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/task"
)

var eventPrice = shufflerclient.Price{First: compose.Spend{Epsilon: 1e-3, Delta: 1e-9}, Reports: 99,
	All: compose.Spend{Epsilon: 1, Delta: 1e-8}, Events: true}

// sent replays visits and events through a ledger, in the given order of epochs. It returns the epochs whose report is
// an event.
func sent(t *testing.T, ledger *shufflerclient.Ledger, order []int, visits, happened uint,
	e task.Epochs) (events uint) {
	t.Helper()
	b := shufflerclient.Budget{Epsilon: 1e6, Delta: .5, Days: 3650}
	for _, at := range order {
		if visits>>at&1 == 0 {
			continue
		}
		start := int64(e.Start) + int64(at)*day
		require.NoError(t, ledger.Spend(b, "a", eventPrice, start, task.Epochs{Length: day}))
		if happened>>at&1 == 1 {
			if err := ledger.Event("a", start, e); err == nil {
				events |= 1 << at
			} else {
				require.ErrorIs(t, err, shufflerclient.ErrAllowance)
			}
		}
	}
	return events
}

// crowded reports whether some window has more events than the task allows.
func crowded(events uint, e task.Events) bool {
	for ; events > 0; events >>= 1 {
		if bits.OnesCount(events&(1<<e.Window-1)) > int(e.Most) {
			return true
		}
	}
	return false
}

// TestEventsKeepTheirAllowance replays every pattern of events of up to 14 epochs, with visits on all days, and every
// pattern of visits and events of up to 6. The most events must be M(N) of docs/proofs/events.md. An event that became
// the default must be one that the window has no room for.
func TestEventsKeepTheirAllowance(t *testing.T) {
	for _, limit := range []task.Events{{Most: 1, Window: 2}, {Most: 1, Window: 5}, {Most: 2, Window: 3},
		{Most: 2, Window: 6}, {Most: 3, Window: 7}} {
		e := task.Epochs{Start: 20_000 * day, Length: day, Count: 14, Events: limit}
		rest := uint64(0)
		counted := &task.Task{Epochs: e, Noise: &task.Noise{Rest: &rest}}
		for n := 1; n <= 14; n++ {
			if n > 6 && n < 14 || n == 14 && limit.Window < 5 {
				continue
			}
			order := make([]int, n)
			for i := range order {
				order[i] = i
			}
			most := 0
			for visits := range uint(1) << n {
				if n > 6 && visits != 1<<n-1 {
					continue
				}
				for happened := visits; ; happened = (happened - 1) & visits {
					events := sent(t, &shufflerclient.Ledger{}, order, visits, happened, e)
					require.False(t, crowded(events, limit), "%b of %b", events, happened)
					for at := range n {
						if happened>>at&1 == 1 && events>>at&1 == 0 {
							require.True(t, crowded(events&(1<<at-1)|1<<at, limit), "%b of %b", events, happened)
						}
					}
					most = max(most, bits.OnesCount(events))
					if happened == 0 {
						break
					}
				}
			}
			require.Equal(t, counted.MostCopies(uint64(n)), uint64(most), "%v in %d epochs", limit, n)
		}
	}
}

// TestEventsUnderAnyClock: visits come in any order of epochs, as with a clock that leaps. No window may have more
// events than allowed, and none may be sent in an epoch at or below one that has been.
func TestEventsUnderAnyClock(t *testing.T) {
	rng := rand.New(rand.NewPCG(46, 8))
	limit := task.Events{Most: 2, Window: 4}
	e := task.Epochs{Start: 20_000 * day, Length: day, Count: 12, Events: limit}
	for range 3000 {
		ledger := &shufflerclient.Ledger{}
		order := rng.Perm(12)
		events := sent(t, ledger, order, 1<<12-1, uint(rng.IntN(1<<12)), e)
		require.False(t, crowded(events, limit), "%b in order %v", events, order)
		require.LessOrEqual(t, len(ledger.Lines[0].Events), 2)
	}
}

// TestALongerWindowIsRefused: the price of a line with events covers a number of epochs. With a longer window, or a
// stream that was not followed before, the same reports could hold more events.
func TestALongerWindowIsRefused(t *testing.T) {
	ledger := &shufflerclient.Ledger{}
	b := shufflerclient.Budget{Epsilon: 100, Delta: .5, Days: 30}
	longer, dearer, looser, single := eventPrice, eventPrice, eventPrice, eventPrice
	longer.Reports, dearer.All.Epsilon, single.Events = 100, 1.1, false
	looser.All.Epsilon, looser.All.Delta = .9, 1e-7 // A larger δ has a smaller ε, of however many copies.
	require.NoError(t, ledger.Spend(b, "a", eventPrice, 0, task.Epochs{Length: day}))
	for i, p := range []shufflerclient.Price{longer, dearer, looser, single} {
		require.ErrorIs(t, ledger.Spend(b, "a", p, int64(i+1)*day, task.Epochs{Length: day}), shufflerclient.ErrBudget)
	}
	require.NoError(t, ledger.Spend(b, "a", eventPrice, day, task.Epochs{Length: day}))
	ledger.Lines[0].Events = []int64{day, day}
	require.ErrorContains(t, ledger.Spend(b, "a", eventPrice, 2*day, task.Epochs{Length: day}), "invalid ledger")
}

// TestAClientWithEvents: event k+1 and an invalid value become the default. Reports are charged alike with and without
// events. A report that exists is one whose event is recorded. Without a ledger the client refuses the task.
func TestAClientWithEvents(t *testing.T) {
	draft, err := planner.Draft(planner.Query{Name: "sign-ups", Query: task.Histogram, Bins: 17, Labels: true,
		Batch: 1000, Honest: .9, TotalEpsilon: 1, TotalDelta: 1e-6, Epochs: 365,
		Events: task.Events{Most: 1, Window: 30, Default: 3}, Relays: &planner.RelayNoise{}})
	require.NoError(t, err)
	require.EqualValues(t, 3, *draft.Noise.Rest)
	signed, err := fixture.Sign(draft, []string{"https://a.example", "https://b.example"},
		task.Epochs{Start: 1_800_000_000, Length: day, Count: 365, Events: draft.Epochs.Events})
	require.NoError(t, err)
	open, err := signed.Bundle.Open(nil)
	require.NoError(t, err)
	b := shufflerclient.Budget{Epsilon: 1, Delta: 1e-6, Days: 365}
	_, err = shufflerclient.New(open, shufflerclient.Options{MaxEpsilon: 1})
	require.ErrorContains(t, err, "events")
	quiet, busy := &kept{}, &kept{}
	without, err := shufflerclient.New(open, shufflerclient.Options{Budget: b, Ledger: quiet})
	require.NoError(t, err)
	client, err := shufflerclient.New(open, shufflerclient.Options{Budget: b, Ledger: busy})
	require.NoError(t, err)
	for epoch := range uint64(365) {
		_, err := without.Report(epoch, []float64{3})
		require.NoError(t, err)
		value := []float64{float64(epoch % 17)}
		if epoch == 40 {
			value = []float64{99}
		}
		_, failed := client.Report(epoch, value)
		require.NoError(t, failed, "day %d", epoch)
	}
	require.Len(t, busy.Lines[0].Events, 1)
	busy.Lines[0].Events, quiet.Lines[0].Events = nil, nil
	require.Equal(t, quiet.Lines, busy.Lines, "the charge must not depend on events")
	require.EqualValues(t, 365, busy.Lines[0].Price.Reports)

	fresh := &kept{}
	client, err = shufflerclient.New(open, shufflerclient.Options{Budget: b, Ledger: fresh})
	require.NoError(t, err)
	for _, c := range []struct {
		epoch uint64
		value float64
		why   string // Contained in Instead; empty if the value is sent.
	}{{0, 3, ""}, {1, 7, ""}, {2, 9, "allowance"}, {3, 3, ""}, {4, -1, "value"}, {30, 7, "allowance"}, {31, 7, ""},
		{29, 7, "allowance"}} {
		report, err := client.Report(c.epoch, []float64{c.value})
		require.NoError(t, err)
		if c.why == "" {
			require.NoError(t, report.Instead)
		} else {
			require.ErrorContains(t, report.Instead, c.why)
		}
	}
	require.Equal(t, []int64{1_800_000_000 + 31*day}, fresh.Lines[0].Events)
}
