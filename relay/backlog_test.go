package relay_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// order is a log handler that keeps the order of some events.
type order struct {
	slog.Handler
	mu   sync.Mutex // guards done
	done []string   // messages with the task, such as "batch sealed 0a1b2c3d"
}

func (o *order) Enabled(context.Context, slog.Level) bool { return true }

func (o *order) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "task" {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.done = append(o.done, r.Message+" "+a.Value.String())
		}
		return true
	})
	return nil
}

func (o *order) count(what string) (n, first int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	first = -1
	for i, done := range o.done {
		if done == what {
			if n++; n == 1 {
				first = i
			}
		}
	}
	return n, first
}

// ago gives a task count epochs of two minutes; the first past of them are over at time now.
func ago(past, count uint64, now time.Time) func(*task.Task) {
	return func(t *task.Task) {
		t.Epochs = task.Epochs{Start: uint64(now.Unix()) - past*120 - 60, Length: 120, Count: count}
	}
}

// TestBacklogLetsOthersSeal: an owner hands over a task of which hundreds of epochs are already over. While the relay
// ends them, it must seal another task's full batch within two ticks. It must end all those epochs.
func TestBacklogLetsOthersSeal(t *testing.T) {
	log := &order{Handler: slog.DiscardHandler}
	c := relaytest.New(t, relaytest.Options{Hops: 1, Config: func(_ int, cfg *relay.Config) {
		cfg.Log = slog.New(log)
	}}.Approving(t, 2))
	c.Start(t, 0)
	other := begin(t, c, c.Named("other"))
	const past = 300
	late := begin(t, c, c.Named("late", ago(past, past+2, c.Clock.Now())))
	erased, sealed := "epoch erased "+late.Open.ID.String()[:8], "batch sealed "+other.Open.ID.String()[:8]
	requireSoon(t, func() bool { n, _ := log.count(erased); return n > 0 })
	for i := range other.Open.Batch.Size {
		require.NoError(t, other.Post(t.Context(), 0, other.Seal(t, 0, i), relaytest.Network(int(i))))
	}
	before, _ := log.count(erased)
	requireSoon(t, func() bool { n, _ := log.count(sealed); return n == 1 })
	after, _ := log.count(erased)
	require.LessOrEqual(t, after-before, 2*65, "sealed within two ticks of at most 65 epochs each")
	requireSoon(t, func() bool { n, _ := log.count(erased); return n >= past-2 })
}

// TestBackdatedTaskIsRefused: the relay must refuse an approved owner's task whose first epoch ended more than a day
// ago.
func TestBackdatedTaskIsRefused(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1}.Approving(t, 2))
	c.Start(t, 0)
	refused := c.Sign(t, c.Named("backdated", ago(722, 730, c.Clock.Now())))
	err := c.Begin(t.Context(), t, 0, refused)
	requireProblem(t, problem.Malformed, err)
	require.ErrorContains(t, err, "epochs.start")
	require.ErrorContains(t, err, "first epoch ended less than 24 hours ago")
	c.Clock.Advance(-4 * time.Minute)
	require.NoError(t, c.Begin(t.Context(), t, 0, refused), "the first epoch ended less than a day ago")
}
