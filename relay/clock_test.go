package relay_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// jump sets one relay's clock wrong while a task runs.
type jump struct {
	by      time.Duration
	party   int           // the hop of the relay whose clock jumps
	at      time.Duration // time of the jump since the first epoch's start
	restart bool          // the relay is stopped before the jump and started after it
}

func (j jump) String() string {
	return fmt.Sprintf("%v at hop %d %v into epoch 0, restart %v", j.by, j.party, j.at, j.restart)
}

// jumps returns jumps before, during and after the first epoch.
func jumps() (all []jump) {
	day := 24 * time.Hour
	for _, by := range []time.Duration{10 * time.Minute, day, 3653 * day} {
		for _, at := range []time.Duration{-20 * time.Minute, 30 * time.Minute, relaytest.Epoch + 2*time.Second} {
			for party := range 2 {
				for _, restart := range []bool{false, true} {
					all = append(all, jump{by, party, at, restart}, jump{-by, party, at, restart})
				}
			}
		}
	}
	return all
}

// jumpEpochs is how many epochs the task of these tests has.
const jumpEpochs = 30

// clocks runs two relays, each on a machine whose clock the test can set wrong.
type clocks struct {
	*relaytest.Cascade
	off   [2]atomic.Int64
	begun time.Time
	start time.Time // start of epoch 0
	acked [jumpEpochs]uint64
	next  int // network number of the latest client
}

func newClocks(t *testing.T) *clocks {
	l := &clocks{}
	l.Cascade = relaytest.New(t, relaytest.Options{
		Task: func(draft *task.Task) {
			draft.Epochs.Start += 20 * 60
			draft.Epochs.Count = jumpEpochs
			l.start = time.Unix(int64(draft.Epochs.Start), 0)
		},
		Config: func(hop int, cfg *relay.Config) {
			cfg.Clock = func() time.Time { return l.Clock.Now().Round(0).Add(time.Duration(l.off[hop].Load())) }
			cfg.Elapsed = func() time.Duration { return l.Clock.Now().Sub(l.begun) }
		}})
	l.begun = l.Clock.Now()
	return l
}

// at advances the true time to a moment that is since after the first epoch's start.
func (l *clocks) at(since time.Duration) {
	l.Clock.Advance(max(0, l.start.Add(since).Sub(l.Clock.Now())))
}

// post sends reports of clients whose clocks are right. A relay may answer that it doubts the time, but never that an
// epoch is over or not yet open.
func (l *clocks) post(t *testing.T, epoch uint64, n int) {
	t.Helper()
	for range n {
		l.next++
		err := l.Post(t.Context(), epoch, l.Seal(t, epoch, uint64(l.next)), relaytest.Network(l.next))
		if err == nil {
			l.acked[epoch]++
			continue
		}
		require.ErrorIs(t, err, problem.New(problem.ClockInDoubt, ""))
	}
}

func (l *clocks) ready(t *testing.T, hop int) bool {
	resp, err := http.Get("http://" + l.Config(t, hop).Admin + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusNoContent
}

// keys returns the first epoch whose key a relay still has, and how many keys it has.
func (l *clocks) keys(t *testing.T, hop int) (first uint64, n int) {
	t.Helper()
	keys, err := keyfile.LoadHPKE(filepath.Join(l.Dir, []string{"relay1", "relay2"}[hop], "task0.keys"))
	require.NoError(t, err)
	first = jumpEpochs
	for epoch := range uint64(jumpEpochs) {
		if _, err := keys.Key(epoch); err == nil {
			first = min(first, epoch)
			n++
		}
	}
	return first, n
}

// over waits until both relays have erased the keys of all epochs below before. It then requires for about one second
// that they erase no further key.
func (l *clocks) over(t *testing.T, before uint64) {
	t.Helper()
	erased := func() bool {
		for hop := range 2 {
			if first, _ := l.keys(t, hop); first < before {
				return false
			}
		}
		return true
	}
	require.Eventually(t, erased, relaytest.Patience, 20*time.Millisecond, "epoch %d", before)
	for range 5 {
		for hop := range 2 {
			_, n := l.keys(t, hop)
			require.Equal(t, int(jumpEpochs-before), n, "hop %d erased early", hop)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// accounted requires that every acknowledged report of an epoch is in a batch that reaches the verifier.
func (l *clocks) accounted(t *testing.T, epoch uint64) {
	t.Helper()
	var submissions uint64
	for seq := uint64(0); ; seq++ {
		var ended bool
		require.Eventually(t, func() bool {
			_, err := l.Verifier.Pull(t.Context(), l.Open, 1, epoch, seq)
			ended = errors.Is(err, handover.ErrEpochComplete)
			return ended || err == nil
		}, relaytest.Patience, 10*time.Millisecond)
		if ended {
			break
		}
		_, chain := l.Pull(t, epoch, seq)
		submissions += chain[0].Submissions
	}
	require.Equal(t, l.acked[epoch], submissions, "epoch %d", epoch)
}

// TestClockJumps sets the clock of either relay ahead or back, before, in or after an epoch, while the relay runs or
// before it starts. No key may be erased early or kept longer, and every acknowledged report must reach a batch. The
// long form has all jumps.
func TestClockJumps(t *testing.T) {
	all := jumps()
	if !stattest.Long {
		all = []jump{
			{10 * time.Minute, 0, 30 * time.Minute, false}, {3653 * 24 * time.Hour, 0, -20 * time.Minute, true},
			{-24 * time.Hour, 0, 30 * time.Minute, true}, {24 * time.Hour, 1, relaytest.Epoch + 2*time.Second, false},
		}
	}
	for _, j := range all {
		t.Run(j.String(), func(t *testing.T) {
			t.Parallel()
			testJump(t, j)
		})
	}
}

func testJump(t *testing.T, j jump) {
	l := newClocks(t)
	stop := []func(){l.Start(t, 1), l.Start(t, 0)} // the mix first, so that the first relay can ask it for the time
	stop[0], stop[1] = stop[1], stop[0]
	if j.at > 0 {
		l.at(time.Minute)
		l.post(t, 0, 13)
		require.EqualValues(t, 13, l.acked[0])
	}
	l.at(j.at)
	if j.restart {
		stop[j.party]()
	}
	l.off[j.party].Store(int64(j.by))
	if j.restart {
		stop[j.party] = l.run(t, j.party)
	}
	if j.at < relaytest.Epoch {
		time.Sleep(1500 * time.Millisecond) // time to ask the other relay, and to erase wrongly
		l.at(40 * time.Minute)
		l.post(t, 0, 5)
		l.at(relaytest.Epoch + 2*time.Second)
	}
	l.over(t, 1)
	l.off[j.party].Store(0)
	require.Eventually(t, func() bool { return l.ready(t, 0) && l.ready(t, 1) }, relaytest.Patience,
		20*time.Millisecond)
	l.at(relaytest.Epoch + 10*time.Minute)
	l.post(t, 1, 13)
	require.EqualValues(t, 13, l.acked[1])
	l.at(2*relaytest.Epoch + 2*time.Second)
	l.over(t, 2)
	l.accounted(t, 0)
	l.accounted(t, 1)
}

// run starts a relay and does not wait until it is ready.
func (l *clocks) run(t *testing.T, hop int) (stop func()) {
	t.Helper()
	r, err := relay.New(l.Config(t, hop))
	require.NoError(t, err)
	return l.ServeUnready(t, r)
}
