package relay_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// barren is a malicious upstream relay. It has a batch for every number, but none of them can be released.
type barren struct {
	*relaytest.Cascade
	hop     int
	pulls   atomic.Int64 // pulls that it has answered, of all numbers
	reached chan struct{}
	goOn    chan struct{}
}

// newBarren runs such a relay. At the pull of batch halfway it closes reached, and answers once goOn is closed.
func newBarren(t *testing.T, c *relaytest.Cascade, hop int, offered, halfway uint64, batch func(*relaytest.Rogue,
	uint64) *onion.Batch) *barren {
	t.Helper()
	rogue := c.StartRogue(t, hop)
	e := &barren{Cascade: c, hop: hop, reached: make(chan struct{}), goOn: make(chan struct{})}
	for seq := range offered {
		rogue.Answer(0, seq, func(w http.ResponseWriter, _ *http.Request) {
			if e.pulls.Add(1); seq == halfway {
				close(e.reached)
				<-e.goOn
			}
			raw, err := batch(rogue, seq).Bytes()
			assert.NoError(t, err)
			w.Write(raw)
		})
	}
	return e
}

// start runs the next relay, and makes it believe that before batches of each epoch were already destroyed.
func (e *barren) start(t *testing.T, before uint64) (stop func()) {
	t.Helper()
	cfg := e.Config(t, e.hop+1)
	r, err := relay.New(cfg)
	require.NoError(t, err)
	relay.DestroyedBefore(r, before)
	return e.Serve(t, r, cfg.Admin)
}

// barrenBatches are kinds of batches that a malicious relay can sign endlessly at almost no cost.
var barrenBatches = []struct {
	name, finding string
	hops, hop     int
	batch         func(t *testing.T, c *relaytest.Cascade) func(*relaytest.Rogue, uint64) *onion.Batch
}{
	{"n submissions, and one bad slot", "too few valid slots", 2, 0,
		func(t *testing.T, c *relaytest.Cascade) func(*relaytest.Rogue, uint64) *onion.Batch {
			bad := c.Slots(t, 0, 1)
			bad[0][0][40] ^= 1
			return func(r *relaytest.Rogue, seq uint64) *onion.Batch { return r.Batch(t, 0, seq, 10, bad) }
		}},
	{"counts that do not add up", "inconsistent manifest", 2, 0,
		func(t *testing.T, c *relaytest.Cascade) func(*relaytest.Rogue, uint64) *onion.Batch {
			return func(r *relaytest.Rogue, seq uint64) *onion.Batch {
				return r.Sealed(t, onion.BatchDraft{Seq: seq, Submissions: 10, In: []uint64{11}}, onion.Lanes{{}})
			}
		}},
	{"destroyed by a relay that works with the first one", "", 3, 1,
		func(t *testing.T, c *relaytest.Cascade) func(*relaytest.Rogue, uint64) *onion.Batch {
			sign, slots := c.SignKey(t, 0), c.Slots(t, 0, span(0, 10)...)
			return func(r *relaytest.Rogue, seq uint64) *onion.Batch {
				source, err := onion.NewBatch(sign, onion.BatchDraft{
					Context: onion.Context{TaskID: c.Open.ID},
					Seq:     seq, Submissions: 10, In: []uint64{10},
				}, slots)
				assert.NoError(t, err)
				return r.Sealed(t, onion.BatchDraft{
					Seq: seq, Submissions: 10, In: []uint64{10}, Source: source.Signed(),
				}, nil)
			}
		}},
}

// TestEndlessDestroyed: every batch of an upstream relay must be destroyed. The next relay must end the epoch after
// [onion.DestroyedAllowance] of them. Until then it may store only a manifest for each and one finding for all, which
// status and metrics show. After a restart it must pull no more. In the short form it counts most of them as destroyed
// from the start; in the long form all come.
func TestEndlessDestroyed(t *testing.T) {
	const bound = onion.DestroyedAllowance + 1
	comes := uint64(14) // more than the number of rows that requireBytes allows in other tables
	if stattest.Long {
		comes = bound
	}
	for _, tt := range barrenBatches {
		t.Run(tt.name, func(t *testing.T) {
			c := relaytest.New(t, relaytest.Options{Hops: tt.hops})
			e := newBarren(t, c, tt.hop, comes+100, comes/2, tt.batch(t, c))
			stop := e.start(t, bound-comes)
			mine := tt.hop + 1
			<-e.reached
			admin := "http://" + c.Config(t, mine).Admin
			if tt.finding != "" {
				require.Equal(t, []relay.Finding{{Reason: relay.Reason(tt.finding), Further: comes/2 - 1,
					Latest: comes/2 - 1}}, c.Status(t, mine).Findings)
				require.Regexp(t, `doona_relay_findings\{owner="",reason="`+tt.finding+`",task="\w+"\} `+
					fmt.Sprint(comes/2), ask(t, admin+"/metrics"))
			}
			close(e.goOn)
			requireSoon(t, func() bool {
				epoch := c.Status(t, mine).Epochs[0]
				return epoch.State == "complete" || epoch.Batches > comes // too many
			})
			e.requireEnded(t, mine, comes, tt.finding)
			stop()
			e.requireBytes(t, mine, comes)
			stop = e.start(t, bound-comes)
			e.requireEnded(t, mine, comes, tt.finding)
			stop()
		})
	}
}

// requireEnded asserts that the epoch ended after some batches, with at most two findings, and that the relay pulled no
// further batch.
func (e *barren) requireEnded(t *testing.T, mine int, batches uint64, finding string) {
	t.Helper()
	status := e.Status(t, mine)
	want := []relay.Finding{{Batch: batches, Reason: "too many batches of the epoch were destroyed"}}
	if finding != "" {
		want = append([]relay.Finding{{Reason: relay.Reason(finding), Further: batches - 1, Latest: batches - 1}},
			want...)
	}
	require.Equal(t, want, status.Findings)
	require.Equal(t, "complete", status.Epochs[0].State)
	require.EqualValues(t, batches, status.Epochs[0].Batches)
	require.EqualValues(t, batches, e.pulls.Load())
}

// requireBytes asserts what the relay's store holds of the destroyed batches: a manifest for each, twice until the next
// hop has confirmed it, and at most 12 rows in each other table.
func (e *barren) requireBytes(t *testing.T, mine int, batches uint64) {
	t.Helper()
	path := filepath.Join(e.Dir, fmt.Sprintf("relay%d", mine+1), "relay.db")
	rows, bytes, err := relay.RowBytes(path)
	require.NoError(t, err)
	for table, n := range rows {
		switch table {
		case "batches", "pieces":
			require.EqualValues(t, batches, n)
			most := batches * uint64(onion.MaxManifest(e.Open.Task, mine)+rowBytes)
			require.LessOrEqual(t, uint64(bytes[table]), most, table)
			t.Logf("%s: %d bytes for each of %d batches, at most %d", table, uint64(bytes[table])/batches, batches,
				most/batches)
		case "seen": // at most the tag of one bad slot that opens
			require.LessOrEqual(t, n, 1)
		default:
			require.LessOrEqual(t, n, 12, table)
		}
	}
	for _, file := range []string{"relay.secret", "task0.keys.mark"} {
		if info, err := os.Stat(filepath.Join(filepath.Dir(path), file)); err == nil {
			require.Less(t, info.Size(), int64(32<<10), file)
			t.Logf("%s: %d bytes", file, info.Size())
		}
	}
}

// rowBytes is the most that a row takes besides a manifest, in bytes: numbers, and a piece's name, nonces and
// authentication tags.
const rowBytes = 160

// TestMostBatches: the first relay must pass the limit [task.Task.MostBatches] to its store with each report, even if
// the task itself states no limit.
func TestMostBatches(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	cfg := c.Config(t, 0)
	r, err := relay.New(cfg)
	require.NoError(t, err)
	limit := relay.BatchLimit(r)
	c.Serve(t, r, cfg.Admin)
	require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, 1), relaytest.Network(1)))
	require.EqualValues(t, (&task.Task{}).MostBatches(), limit.Load())
}
