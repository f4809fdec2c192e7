package relay_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/relay/internal/epochs"
	"github.com/doona-dp/doona/relay/internal/storage"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
)

// aDay is the length of a set's day.
const aDay = 24 * time.Hour

// setOf returns a set whose tables have the given epochs. Each table has four cells, and its batch holds size
// submissions.
func setOf(size uint64, epochs ...task.Epochs) *quickstart.Set {
	s := &quickstart.Set{Name: "site", Set: tableset.Set{Name: "a site",
		Total: tableset.Total{Epsilon: task.NewEpsilon("100"), Delta: task.NewDelta("1e-3"), Days: 1}}}
	for i, e := range epochs {
		t := fixture.Table(4, e)
		t.Name, t.Batch.Size = "table "+string(rune('a'+i)), size
		s.Tables = append(s.Tables, t)
		s.Set.Tables = append(s.Set.Tables, tableset.Table{Name: string(rune('a' + i))})
	}
	return s
}

// midnight returns the start of this day, in UTC.
func midnight() time.Time { return time.Now().UTC().Truncate(aDay) }

// epochsOf returns a table's epochs: count epochs of days days each, of which the first begins after some days.
func epochsOf(after, days, count int) task.Epochs {
	return task.Epochs{Start: uint64(midnight().Add(time.Duration(after) * aDay).Unix()),
		Length: task.Length(days * 86400), Count: uint64(count)}
}

// cells returns the slots of a submission on a day: for each table the message of a cell, or a cover for a negative
// one.
func cells(s *tableset.Open, day uint64, values ...int) (slots []onion.SetSlot) {
	for i, v := range values {
		epoch, open := s.At(i, day)
		m := task.Message{Cover: true}
		if open && v >= 0 {
			m = task.Message{Body: []byte{byte(v)}}
		}
		slots = append(slots, onion.SetSlot{Epoch: epoch, Message: m})
	}
	return slots
}

// TestSetReachesTheVerifier: a set's submission goes through two relays, and each table's messages arrive in its batch.
func TestSetReachesTheVerifier(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Set: setOf(10, epochsOf(0, 1, 2), epochsOf(0, 2, 1))})
	c.StartAll(t)
	sealer := c.SetSealer(t)
	for i := range 10 {
		body, err := sealer.Seal(0, cells(c.OpenSet(), 0, 1, i%2*3-1+i%2))
		require.NoError(t, err)
		require.NoError(t, c.PostSet(t.Context(), 0, body, relaytest.Network(i)))
	}
	for table, want := range []int{10, 5} {
		of := c.Table(t, table)
		batch, chain := of.Pull(t, 0, 0)
		require.EqualValues(t, 10, chain[0].Submissions)
		opener, n := of.VerifierOpener(t, 0), 0
		for _, slot := range batch.Ciphertexts[0] {
			_, m, err := opener.OpenMessage(0, slot)
			require.NoError(t, err)
			if !m.Cover {
				n++
			}
		}
		require.GreaterOrEqual(t, n, want)
	}
	err := c.Table(t, 1).Post(t.Context(), 0, []byte("x"), relaytest.Network(1))
	require.Equal(t, http.StatusNotFound, requireProblem(t, problem.SetOnly, err).Status)
}

// threeClocks is a set of 60 days, with tables of days, weeks and months. It begins ten days before a month.
type threeClocks struct {
	*relaytest.Cascade
	*testing.T
	set      *tableset.Open
	sealer   *onion.SetSealer
	start    time.Time
	reports  []map[uint64]int  // by table and epoch: values sent
	values   map[[3]uint64]int // by table, epoch and cell: values sent
	covers   []map[uint64]int  // by table and epoch: covers sent while the table was open
	notOpen  map[uint64]int    // by day: slots sent for tables that were not open
	reported []map[[2]uint64]bool
}

func newThreeClocks(t *testing.T, o relaytest.Options) *threeClocks {
	now := time.Now().UTC()
	month := time.Date(now.Year(), now.Month()+2, 1, 0, 0, 0, 0, time.UTC)
	s := &threeClocks{T: t, start: month.AddDate(0, 0, -10), notOpen: map[uint64]int{},
		values: map[[3]uint64]int{}}
	monday := s.start.AddDate(0, 0, (8-int(s.start.Weekday()))%7)
	unix := func(at time.Time) uint64 { return uint64(at.Unix()) }
	o.Set = setOf(1_000_000, task.Epochs{Start: unix(s.start), Length: 86400, Count: 60},
		task.Epochs{Start: unix(monday), Length: 7 * 86400, Count: 7},
		task.Epochs{Start: unix(month), Length: task.Month, Count: 1},
		task.Epochs{Start: unix(s.start), Length: 86400, Count: 60})
	o.Set.Set.Tables[3].Bare = true
	s.Cascade = relaytest.New(t, o)
	s.set, s.sealer = s.OpenSet(), s.SetSealer(t)
	for range s.set.Tables {
		s.reports, s.covers = append(s.reports, map[uint64]int{}), append(s.covers, map[uint64]int{})
		s.reported = append(s.reported, map[[2]uint64]bool{})
	}
	s.StartAll(t)
	s.Clock.Advance(s.start.Add(time.Minute).Sub(s.Clock.Now()))
	return s
}

// visit posts the submission of a browser on a day. The browser reports to each table once per epoch.
func (s *threeClocks) visit(day uint64, browser int) {
	values := make([]int, len(s.set.Tables))
	for i, table := range s.set.Tables {
		epoch, open := s.set.At(i, day)
		key := [2]uint64{uint64(browser), epoch}
		values[i] = -1
		switch {
		case !open:
			s.notOpen[day]++
		case table.Bare || s.reported[i][key]:
			s.covers[i][epoch]++
		default:
			values[i], s.reported[i][key] = browser%4, true
			s.reports[i][epoch]++
			s.values[[3]uint64{uint64(i), epoch, uint64(values[i])}]++
		}
	}
	body, err := s.sealer.Seal(day, cells(s.set, day, values...))
	require.NoError(s, err)
	require.NoError(s, s.PostSet(s.Context(), day, body, relaytest.Network(browser)))
}

// requireBatch asserts that the verifier finds exactly the messages and covers that the browsers sent to an epoch, and
// in each cell no fewer than they sent, nor more than both relays may add to them.
func (s *threeClocks) requireBatch(table int, epoch uint64) {
	if s.reports[table][epoch]+s.covers[table][epoch] == 0 {
		return
	}
	of := s.Table(s.T, table)
	batch, chain := of.Pull(s.T, epoch, 0)
	opener, messages, covers := of.VerifierOpener(s.T, epoch), 0, 0
	found := map[byte]int{}
	for _, slot := range batch.Ciphertexts[0] {
		_, m, err := opener.OpenMessage(0, slot)
		require.NoError(s, err)
		if m.Cover {
			covers++
		} else {
			messages++
			found[m.Body[0]]++
		}
	}
	_, most := of.Open.Noise.Support()
	for cell := range byte(4) {
		truth := s.values[[3]uint64{uint64(table), epoch, uint64(cell)}]
		require.GreaterOrEqual(s, found[cell], truth, "table %d, epoch %d, cell %d", table, epoch, cell)
		require.LessOrEqual(s, found[cell], truth+2*int(most), "table %d, epoch %d, cell %d", table, epoch, cell)
	}
	for _, m := range chain {
		messages -= int(m.Lanes[0].Added)
	}
	require.EqualValues(s, s.reports[table][epoch]+s.covers[table][epoch], chain[0].Submissions)
	require.Equal(s, s.reports[table][epoch], messages, "table %d, epoch %d", table, epoch)
	require.Equal(s, s.covers[table][epoch], covers, "table %d, epoch %d", table, epoch)
}

// TestSetOfThreeClocks: of 60 days, some browsers come daily, some on one day, others now and then. The verifier must
// find each report in the batch of its day, week or month, and the covers apart. A month's batch closes with the month.
// Slots for a table that is not open are dropped, and counted with the day.
func TestSetOfThreeClocks(t *testing.T) {
	s := newThreeClocks(t, relaytest.Options{})
	browsers, random := 150, rand.New(rand.NewPCG(1, 2))
	if stattest.Long {
		browsers = 2000
	}
	once := make([]uint64, browsers)
	for i := range once {
		once[i] = random.Uint64N(60)
	}
	month := s.Table(t, 2)
	for day := range uint64(60) {
		for browser := range browsers {
			if browser%20 == 0 || browser%2 == 1 && once[browser] == day || browser%2 == 0 && random.IntN(10) == 0 {
				s.visit(day, browser)
			}
		}
		ends := s.set.Tasks[0].Epochs.End(day)
		if ends < s.set.Tasks[2].Epochs.Over() {
			_, err := s.Verifier.Pull(t.Context(), month.Open, 1, 0, 0)
			require.ErrorIs(t, err, handover.ErrNotSealed)
		}
		s.Clock.Advance(aDay)
		waitState(t, s.Table(t, 0), 1, day, "erased")
		if ends == s.set.Tasks[2].Epochs.Over() {
			waitState(t, month, 1, 0, "erased")
		}
	}
	for table := range s.set.Tables {
		for epoch := range s.set.Tasks[table].Epochs.Count {
			s.requireBatch(table, epoch)
		}
	}
	dropped := map[uint64]uint64{}
	for _, e := range s.Table(t, 0).Status(t, 0).Epochs {
		if n := e.Refused["set-slot-not-open"]; n > 0 {
			dropped[e.Epoch] = n
		}
		require.Zero(t, e.Refused["set-slot-dropped"])
	}
	want := map[uint64]uint64{}
	for day, n := range s.notOpen {
		want[day] = service.RoundUp(uint64(n))
	}
	require.Equal(t, want, dropped)
}

// TestSetRefusals: what a first relay must refuse, and what of it changes nothing.
func TestSetRefusals(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Set: setOf(10, epochsOf(-1, 1, 4), epochsOf(-1, 2, 1))})
	c.StartAll(t)
	sealer, set := c.SetSealer(t), c.OpenSet()
	seal := func(day uint64, tags ...[onion.TagSize]byte) []byte {
		body, err := sealer.Seal(day, cells(set, day, 1, 1), tags...)
		require.NoError(t, err)
		return body
	}
	post := func(day uint64, body []byte, network int) error {
		return c.PostSet(t.Context(), day, body, relaytest.Network(network))
	}
	requireProblem(t, problem.EpochClosed, post(0, seal(0), 1))
	requireProblem(t, problem.EpochNotOpen, post(2, seal(2), 1))
	requireProblem(t, problem.EpochNotOpen, post(4, seal(3), 1))
	requireProblem(t, problem.DoesNotOpen, post(1, seal(2), 1))
	body := seal(1)
	requireProblem(t, problem.Malformed, post(1, body[:len(body)-1], 1))
	requireProblem(t, problem.TooLarge, post(1, append(body, 0), 1))
	other := c.Table(t, 1)
	requireProblem(t, problem.SetOnly, other.Post(t.Context(), 0, other.Seal(t, 0, 1), relaytest.Network(1)))
	days := c.Table(t, 0)
	requireProblem(t, problem.SetOnly, days.Post(t.Context(), 1, days.Seal(t, 1, 1), relaytest.Network(1)))

	tags := sealer.Tags()
	first, draft := seal(1, tags...), seal(1, tags...)
	require.NoError(t, post(1, first, 1))
	require.NoError(t, post(1, first, 1), "the same bytes again")
	requireProblem(t, problem.Replayed, post(1, draft, 1))
	require.EqualValues(t, 1, query(t, c, 0, `SELECT submissions FROM open WHERE epoch = (SELECT MAX(id) FROM epochs)`))
}

// TestSetKeptByADishonestRelay: a first relay that keeps two drafts of a day, which have the same tags, gets one slot
// of each table through the second relay.
func TestSetKeptByADishonestRelay(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Set: setOf(2, epochsOf(0, 1, 2), epochsOf(0, 2, 1))})
	set, sealer := c.OpenSet(), c.SetSealer(t)
	keys, err := keyfile.LoadHPKE(filepath.Join(c.Dir, "relay1", "site-a.keys"))
	require.NoError(t, err)
	key, err := keys.Key(0)
	require.NoError(t, err)
	opener, err := onion.NewOpener(set.Tasks[0], set.ID, 0, 0, key)
	require.NoError(t, err)
	var layouts []onion.Layout
	for _, table := range set.Tasks {
		layout, err := onion.NewLayout(table)
		require.NoError(t, err)
		layouts = append(layouts, layout)
	}
	kept := make([][][]byte, len(set.Tables))
	for tags, draft := sealer.Tags(), 0; draft < 2; draft++ {
		body, err := sealer.Seal(0, cells(set, 0, 1+draft, 1+draft), tags...)
		require.NoError(t, err)
		envelope, err := opener.OpenSet(body, layouts)
		require.NoError(t, err)
		for i, slots := range envelope.Lanes {
			kept[i] = append(kept[i], slots[0])
		}
	}
	batches := map[string][]byte{}
	for i, table := range set.Tables {
		least, _ := set.Tasks[i].Noise.Support()
		dummies := c.Table(t, i).Slots(t, 0, slices.Repeat([]uint64{3}, int(least))...)[0]
		batch, err := onion.NewBatch(c.SignKey(t, 0), onion.BatchDraft{
			Context: onion.Context{TaskID: table.Task}, Submissions: 2, In: []uint64{2}, Added: []uint64{least},
		}, onion.Lanes{append(kept[i], dummies...)})
		require.NoError(t, err)
		batches[table.Task.String()], err = batch.Bytes()
		require.NoError(t, err)
	}
	c.StartFirst(t).Answer(0, 0, func(w http.ResponseWriter, req *http.Request) {
		if raw := batches[req.PathValue("task")]; raw != nil {
			w.Write(raw)
			return
		}
		problem.New(problem.NotSealed, "").Write(w)
	})
	c.Start(t, 1)
	for i := range set.Tables {
		_, chain := c.Table(t, i).Pull(t, 0, 0)
		require.EqualValues(t, 1, chain[1].Lanes[0].Dropped)
		require.Equal(t, chain[0].Lanes[0].Added+1, chain[1].Lanes[0].Out-chain[1].Lanes[0].Added)
	}
}

// hoursOf returns epochs of some hours each that have just begun.
func hoursOf(hours, count int) task.Epochs {
	return task.Epochs{Start: uint64(time.Now().Unix()) - 60, Length: task.Length(hours * 3600), Count: uint64(count)}
}

// TestSetsOnTwoProcesses: two processes of a first relay share a database, and are killed at random. Each table must
// get one slot of every acknowledged submission, and so for one process with its own file.
func TestSetsOnTwoProcesses(t *testing.T) {
	for _, postgres := range []bool{false, true} {
		t.Run(fmt.Sprint("postgres ", postgres), func(t *testing.T) {
			const n, kills = 400, 4
			first, second := hoursOf(1, 2), hoursOf(2, 1)
			c := relaytest.New(t, relaytest.Options{Postgres: postgres, Set: setOf(n/4, first, second, second)})
			processes, seen := []*process{startProcess(t, c, 0)}, []*relaytest.Cascade{c}
			if postgres {
				config, twin := c.Twin(t, 0)
				processes, seen = append(processes, startConfig(t, twin, 0, config)), append(seen, twin)
			}
			c.Start(t, 1)
			sealer, set := c.SetSealer(t), c.OpenSet()
			var acked atomic.Int64
			var clients sync.WaitGroup
			for client := range 8 {
				clients.Go(func() {
					for i := client; i < n; i += 8 {
						body, err := sealer.Seal(0, cells(set, 0, 1, 2, 3))
						if err == nil {
							err = untilTaken(t.Context(), func() error {
								return seen[i%len(seen)].PostSet(t.Context(), 0, body, relaytest.Network(i))
							})
						}
						if err != nil {
							t.Error(err)
							return
						}
						acked.Add(1)
					}
				})
			}
			for k := range int64(kills) {
				for acked.Load() < (k*n+n/2)/kills && !t.Failed() {
					time.Sleep(time.Millisecond)
				}
				processes[rand.IntN(len(processes))].crash(t)
			}
			clients.Wait()
			for i := range set.Tables {
				of := c.Table(t, i)
				messages, opener := 0, of.VerifierOpener(t, 0)
				for seq := range uint64(4) {
					batch, chain := of.Pull(t, 0, seq)
					require.Zero(t, chain[1].Lanes[0].Dropped)
					for _, slot := range batch.Ciphertexts[0] {
						_, m, err := opener.OpenMessage(0, slot)
						require.NoError(t, err)
						require.False(t, m.Cover)
						messages++
					}
					for _, m := range chain {
						messages -= int(m.Lanes[0].Added)
					}
				}
				require.Equal(t, n, messages, "table %d", i)
			}
		})
	}
}

// stuckWhole is a store that cannot permute open batches while stuck is set.
type stuckWhole struct {
	epochs.WholeStore
	stuck *atomic.Bool
}

func (s stuckWhole) Reshuffle(ctx context.Context, b store.BatchID, size uint64) error {
	if s.stuck.Load() {
		return errors.New("a damaged run")
	}
	return s.WholeStore.Reshuffle(ctx, b, size)
}

// TestSetIsPermutedWhenADayEnds: until a day ends, the disk shows which slots of a week came in one transaction. Then
// the relay must permute them. If it cannot, the status and a metric must say so, and the relay must try again, while
// the days go on. A relay that starts again must do what it may have missed.
func TestSetIsPermutedWhenADayEnds(t *testing.T) {
	var stuck atomic.Bool
	c := relaytest.New(t, relaytest.Options{Hops: 1, Set: setOf(100, epochsOf(0, 1, 4), epochsOf(0, 4, 1)),
		Config: func(_ int, cfg *relay.Config) {
			cfg.Seam = &storage.Seam{Store: func(_ *store.Store, all *storage.Stores) {
				all.Whole = stuckWhole{all.Whole, &stuck}
			}}
		}})
	week := fmt.Sprintf(`SELECT COUNT(*) FROM runs r JOIN epochs e ON e.id = r.epoch
		WHERE r.seq < 4294967296 AND e.task = x'%s'`, c.OpenSet().Tables[1].Task)
	requireRuns := func(want int) {
		t.Helper()
		found := func() bool { return query(t, c, 0, week) == want }
		require.Eventually(t, found, relaytest.Patience, 10*time.Millisecond)
	}
	stop := c.Start(t, 0)
	postDay(t, c, 0, 0, 3)
	require.Equal(t, 3, query(t, c, 0, week))
	c.Clock.Advance(aDay)
	requireRuns(1)

	stuck.Store(true)
	postDay(t, c, 1, 0, 3)
	c.Clock.Advance(aDay)
	waitState(t, c.Table(t, 0), 0, 1, "erased")
	require.Eventually(t, func() bool {
		_, status := getAdmin(t, c, 0, "status")
		_, metrics := getAdmin(t, c, 0, "metrics")
		return strings.Contains(status, "a damaged run") &&
			strings.Contains(metrics, `doona_relay_sets{state="unpermuted"} 1`)
	}, relaytest.Patience, 10*time.Millisecond)
	require.Equal(t, 4, query(t, c, 0, week))
	stuck.Store(false)
	requireRuns(1)
	require.Eventually(t, func() bool {
		_, metrics := getAdmin(t, c, 0, "metrics")
		return strings.Contains(metrics, `doona_relay_sets{state="served"} 1`)
	}, relaytest.Patience, 10*time.Millisecond)

	postDay(t, c, 2, 0, 3)
	stop()
	require.Equal(t, 4, query(t, c, 0, week))
	c.Start(t, 0)
	requireRuns(1)
}
