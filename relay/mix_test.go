package relay_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// span returns the n numbers first, first+1, …
func span(first, n uint64) (out []uint64) {
	for i := range n {
		out = append(out, first+i)
	}
	return out
}

func hasFinding(t *testing.T, c *relaytest.Cascade, want relay.Finding) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Contains(c.Status(t, 1).Findings, want) }, relaytest.Patience,
		10*time.Millisecond, "%v", want)
}

// foundOf returns how many batches of epoch 0 a relay's findings with this reason cover.
func foundOf(t *testing.T, c *relaytest.Cascade, hop int, why relay.Reason) (n uint64) {
	t.Helper()
	for _, f := range c.Status(t, hop).Findings {
		if f.Epoch == 0 && f.Reason == why {
			n += f.Batches()
		}
	}
	return n
}

// TestForgedBatches gives the second relay batches that its first relay did not make, or that were changed on the way.
// The second relay must release none of them, and must still mix the right batch of that number when it comes.
func TestForgedBatches(t *testing.T) {
	_, stranger, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	var signed onion.Batch
	alter := func(change func(slots [][]byte) [][]byte) func(*testing.T, *relaytest.Cascade,
		*relaytest.Rogue) *onion.Batch {
		return func(t *testing.T, c *relaytest.Cascade, f *relaytest.Rogue) *onion.Batch {
			b := f.Batch(t, 0, 0, 10, c.Slots(t, 0, span(50, 10)...))
			signed = *b // the right batch, which comes later
			b.Ciphertexts = [][][]byte{change(slices.Clone(b.Ciphertexts[0]))}
			return b
		}
	}
	const altered = "ciphertexts are not those of the manifest"
	const other = "not the batch asked for"
	tests := []struct {
		name    string
		finding relay.Reason
		forge   func(*testing.T, *relaytest.Cascade, *relaytest.Rogue) *onion.Batch
	}{
		{"signed by a stranger", "signed by a stranger",
			func(t *testing.T, c *relaytest.Cascade, f *relaytest.Rogue) *onion.Batch {
				f.Sign = stranger
				return f.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...))
			}},
		{"manifest not the signed one", "signed by a stranger",
			func(t *testing.T, c *relaytest.Cascade, f *relaytest.Rogue) *onion.Batch {
				b := f.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...))
				b.Manifest[len(b.Manifest)-2] ^= 1
				return b
			}},
		{"of another number", other, func(t *testing.T, c *relaytest.Cascade, f *relaytest.Rogue) *onion.Batch {
			return f.Batch(t, 0, 1, 10, c.Slots(t, 0, span(0, 10)...))
		}},
		{"of another epoch", other, func(t *testing.T, c *relaytest.Cascade, f *relaytest.Rogue) *onion.Batch {
			return f.Batch(t, 1, 0, 10, c.Slots(t, 0, span(0, 10)...))
		}},
		{"of another task", other, func(t *testing.T, c *relaytest.Cascade, f *relaytest.Rogue) *onion.Batch {
			b, err := onion.NewBatch(f.Sign, onion.BatchDraft{
				Context: onion.Context{Epoch: 0}, Submissions: 10, In: []uint64{10},
			}, c.Slots(t, 0, span(0, 10)...))
			require.NoError(t, err)
			return b
		}},
		{"a message removed", altered, alter(func(slots [][]byte) [][]byte { return slots[1:] })},
		{"a message duplicated", altered, alter(func(slots [][]byte) [][]byte { return append(slots, slots[0]) })},
		{"a message swapped in", altered,
			alter(func(slots [][]byte) [][]byte { slots[0] = make([]byte, len(slots[0])); return slots })},
		{"messages in another order", altered,
			alter(func(slots [][]byte) [][]byte { slots[0], slots[1] = slots[1], slots[0]; return slots })},
		{"a bit flipped", altered,
			alter(func(slots [][]byte) [][]byte { slots[3] = bytes.Clone(slots[3]); slots[3][50] ^= 1; return slots })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := relaytest.New(t, relaytest.Options{})
			first := c.StartFirst(t)
			sign := first.Sign
			first.Serve(t, 0, 0, tt.forge(t, c, first))
			first.Sign = sign
			c.Start(t, 1)
			hasFinding(t, c, relay.Finding{Reason: tt.finding})
			_, err := c.Verifier.Pull(t.Context(), c.Open, 1, 0, 0)
			require.ErrorIs(t, err, handover.ErrNotSealed)
			require.False(t, first.Confirmed(0, 0))

			right := first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(50, 10)...))
			if tt.finding == altered {
				right = &signed
			}
			first.Serve(t, 0, 0, right)
			batch, _ := c.Pull(t, 0, 0)
			require.ElementsMatch(t, span(50, 10), c.Values(t, 0, batch)[0])
		})
	}
}

// TestMaliciousFirstRelay plays a first relay that signs false manifests. The second relay must release only valid
// slots, and nothing of a batch with fewer than n_min = 9 of them.
func TestMaliciousFirstRelay(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(t *task.Task) { t.Slots.Lanes, t.Epochs.Count = 2, 3 }})
	first := c.StartFirst(t)
	slots := func(epoch uint64, values ...uint64) [][][]byte { return c.Slots(t, epoch, values...) }
	garbage := make([]byte, len(slots(0, 1)[0][0]))
	zeroShare := func(slot []byte) []byte { return append(make([]byte, 32), slot[32:]...) }
	replayed := slots(0, span(100, 10)...)
	type lanes = [][][]byte
	tests := []struct {
		name    string
		lanes   lanes
		want    []uint64 // messages of each lane that come out; nil if the batch is destroyed
		finding bool
	}{
		{"honest", replayed, span(100, 10), false},
		{"one slot replayed from another batch", lanes{
			append(slots(0, span(200, 9)...)[0], replayed[0][4]),
			append(slots(0, span(200, 9)...)[1], replayed[1][4])}, span(200, 9), false},
		{"two slots replayed from another batch", lanes{
			append(slots(0, span(300, 8)...)[0], replayed[0][:2]...),
			append(slots(0, span(300, 8)...)[1], replayed[1][:2]...)}, nil, true},
		{"a whole batch replayed", replayed, nil, true},
		{"one slot twice", func() lanes {
			s := slots(0, span(400, 10)...)
			s[0][9], s[1][9] = s[0][0],
				s[1][0]
			return s
		}(), span(400, 9), false},
		{"two slots twice in one lane only", func() lanes {
			s := slots(0, span(500, 10)...)
			s[1][8], s[1][9] = s[1][0], s[1][1]
			return s
		}(), nil, true},
		{"lanes exchanged", func() lanes { s := slots(0, span(600, 10)...); s[0], s[1] = s[1], s[0]; return s }(), nil,
			true},
		{"slots of another epoch", slots(1, span(700, 10)...), nil, true},
		{"one corrupt", func() lanes {
			s := slots(0, span(800, 10)...)
			s[0][9], s[1][9] = garbage,
				garbage
			return s
		}(), span(800, 9), false},
		{"key shares all zero", func() lanes {
			s := slots(0, span(900, 10)...)
			for lane := range s {
				s[lane][9] = zeroShare(s[lane][9])
			}
			return s
		}(), span(900, 9), false},
		{"all but one client dropped", slots(0, 1000), nil, true},
		{"honest again", slots(0, span(1100, 10)...), span(1100, 10), false},
		{"nothing", lanes{{}, {}}, nil, false}, // must be last: no batch may follow one without slots
	}
	for seq, tt := range tests {
		first.Serve(t, 0, uint64(seq), first.Batch(t, 0, uint64(seq), 10, tt.lanes))
	}
	c.Start(t, 1)
	found := uint64(0)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seq := uint64(i)
			batch, chain := c.Pull(t, 0, seq)
			require.Equal(t, tt.want == nil, chain[1].Destroyed())
			for _, values := range c.Values(t, 0, batch) {
				require.ElementsMatch(t, tt.want, values)
			}
			require.Len(t, chain, 2, "the manifest must contain the first relay's manifest")
			require.Equal(t, chain[0].Lanes[0].Out, chain[1].Lanes[0].In)
			require.Eventually(t, func() bool { return first.Confirmed(0, seq) }, relaytest.Patience,
				10*time.Millisecond)
		})
		if tt.finding {
			found++
		}
	}
	requireSoon(t, func() bool { return foundOf(t, c, 1, "too few valid slots") == found })
}

// TestBeyondTheLastBatch: only the first relay's last batch of an epoch may have fewer than n submissions or be
// destroyed. If another batch follows it, a mix must refuse that batch, record a finding and end the epoch.
func TestBeyondTheLastBatch(t *testing.T) {
	for name, last := range map[string]func(c *relaytest.Cascade, first *relaytest.Rogue) *onion.Batch{
		"short": func(c *relaytest.Cascade, first *relaytest.Rogue) *onion.Batch {
			return first.Batch(t, 0, 1, 9, c.Slots(t, 0, span(10, 9)...))
		},
		"destroyed": func(_ *relaytest.Cascade, first *relaytest.Rogue) *onion.Batch {
			return first.Sealed(t, onion.BatchDraft{Seq: 1, Submissions: 10, In: []uint64{10}}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := relaytest.New(t, relaytest.Options{})
			first := c.StartFirst(t)
			first.Serve(t, 0, 0, first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...)))
			first.Serve(t, 0, 1, last(c, first))
			c.Start(t, 1)
			requireSoon(t, func() bool { return first.Confirmed(0, 1) })
			require.Equal(t, "open", c.Status(t, 1).Epochs[0].State, "a short batch may be the last one")
			first.Serve(t, 0, 2, first.Batch(t, 0, 2, 10, c.Slots(t, 0, span(20, 10)...)))
			waitState(t, c, 1, 0, "complete")
			hasFinding(t, c, relay.Finding{Batch: 2, Reason: "a batch after the last one of the epoch"})
			require.False(t, first.Confirmed(0, 2))
			requireSoon(t, func() bool {
				_, err := c.Verifier.Pull(t.Context(), c.Open, 1, 0, 2)
				return errors.Is(err, handover.ErrEpochComplete)
			})
			batch, _ := c.Pull(t, 0, 0)
			require.ElementsMatch(t, span(0, 10), c.Values(t, 0, batch)[0])
		})
	}
}

// unending runs a first relay that has a batch for every number of epoch 0, always with the same slots.
func unending(t *testing.T, c *relaytest.Cascade) (pulls *atomic.Int64) {
	t.Helper()
	pulls = &atomic.Int64{}
	sign := c.SignKey(t, 0)
	slots := c.Slots(t, 0, span(0, 10)...)
	c.Listen(t, 0, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var epoch, seq uint64
		_, path, _ := strings.Cut(req.URL.Path, "/epochs/")
		n, _ := fmt.Sscanf(path, "%d/batches/%d", &epoch, &seq)
		switch {
		case n != 2 || epoch > 1 || epoch == 1 && seq > 0:
			problem.New(problem.NotSealed, "").Write(w)
			return
		case req.Method == http.MethodPost:
			w.WriteHeader(http.StatusNoContent)
			return
		}
		lanes := slots
		if epoch == 1 {
			lanes = c.Slots(t, 1, span(20, 10)...)
		} else {
			pulls.Add(1)
		}
		b, err := onion.NewBatch(sign, onion.BatchDraft{
			Context: onion.Context{TaskID: c.Open.ID, Epoch: epoch},
			Seq:     seq, Submissions: 10, In: []uint64{10},
		}, lanes)
		assert.NoError(t, err)
		raw, err := b.Bytes()
		assert.NoError(t, err)
		w.Write(raw)
	}))
	return pulls
}

// TestEndlessBatches: a first relay has endless batches of one epoch. That must delay neither other epochs nor the end
// of this epoch, after which the relay must pull no more batches of it.
func TestEndlessBatches(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Config: func(_ int, cfg *relay.Config) { cfg.GiveUp = 10 * time.Minute }})
	pulls := unending(t, c)
	c.Clock.Advance(relaytest.Epoch)
	c.Start(t, 1)
	batch, _ := c.Pull(t, 1, 0)
	require.ElementsMatch(t, span(20, 10), c.Values(t, 1, batch)[0], "another epoch")
	requireSoon(t, func() bool { return pulls.Load() > 40 })
	c.Clock.Advance(11 * time.Minute)
	requireSoon(t, func() bool { return len(c.Status(t, 1).Epochs) > 0 && c.Status(t, 1).Epochs[0].State == "erased" })
	hasReason(t, c, "gave up waiting for the end of the epoch")
	requireStill(t, pulls)
}

// TestEndlessBatchesAfterRollback: the relay must pull no more of the endless batches after the next hop has revealed a
// state rollback.
func TestEndlessBatchesAfterRollback(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	pulls := unending(t, c)
	c.Start(t, 1)
	requireSoon(t, func() bool { return pulls.Load() > 1 })
	_, err := c.Verifier.Pull(t.Context(), c.Open, 1, 0, (&task.Task{}).MostBatches())
	requireProblem(t, problem.StateRolledBack, err)
	requireStill(t, pulls)
}

// requireStill waits until the number of pulls stays the same for 200 ms.
func requireStill(t *testing.T, pulls *atomic.Int64) {
	t.Helper()
	requireSoon(t, func() bool {
		before := pulls.Load()
		time.Sleep(200 * time.Millisecond)
		return pulls.Load() == before
	})
}

func hasReason(t *testing.T, c *relaytest.Cascade, why relay.Reason) {
	t.Helper()
	require.True(t, slices.ContainsFunc(c.Status(t, 1).Findings, func(f relay.Finding) bool { return f.Reason == why }))
}

// TestFewSubmissions: a mix must destroy a batch of fewer than n submissions, even if all its slots are valid.
func TestFewSubmissions(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	first := c.StartFirst(t)
	first.Serve(t, 0, 0, first.Batch(t, 0, 0, 9, c.Slots(t, 0, span(0, 9)...)))
	c.Start(t, 1)
	_, chain := c.Pull(t, 0, 0)
	require.True(t, chain[1].Destroyed())
	require.Equal(t, onion.LaneCount{In: 9, Dropped: 9}, chain[1].Lanes[0])
}

// TestInconsistentManifest: a mix must permanently refuse a signed manifest that cannot be true, and make a destroyed
// batch of its number.
func TestInconsistentManifest(t *testing.T) {
	tests := map[string]func(*onion.Manifest){
		"counts do not add up":    func(m *onion.Manifest) { m.Lanes[0].Dropped = 1 },
		"more slots than clients": func(m *onion.Manifest) { m.Submissions = 9 },
		"a lane too many":         func(m *onion.Manifest) { m.Lanes = append(m.Lanes, onion.LaneCount{}) },
		"no lane":                 func(m *onion.Manifest) { m.Lanes = []onion.LaneCount{} },
		"another version":         func(m *onion.Manifest) { m.Version = 2 },
		"a source":                func(m *onion.Manifest) { m.Source = []byte{1} },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			c := relaytest.New(t, relaytest.Options{})
			first := c.StartFirst(t)
			b := first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...))
			m, err := b.Signed().Open(c.Open.Task, 0)
			require.NoError(t, err)
			change(m)
			b.Manifest, err = codec.Marshal(m)
			require.NoError(t, err)
			b.Signature = signing.Sign(first.Sign, signing.Manifest, b.Manifest)
			first.Serve(t, 0, 0, b)
			first.Serve(t, 0, 1, first.Batch(t, 0, 1, 10, c.Slots(t, 0, span(50, 10)...)))
			c.Start(t, 1)
			batch, _ := c.Pull(t, 0, 1)
			require.ElementsMatch(t, span(50, 10), c.Values(t, 0, batch)[0])

			_, err = c.Verifier.Pull(t.Context(), c.Open, 1, 0, 0)
			refused := new(handover.InvalidBatchError)
			require.ErrorAs(t, err, &refused, "the second relay's batch must contain the inconsistent manifest")
			requireDestroyed(t, c, 1, refused.Signed)
			hasFinding(t, c, relay.Finding{Reason: "inconsistent manifest"})
		})
	}
}

// requireDestroyed asserts that the relay at a hop has signed a batch without slots.
func requireDestroyed(t *testing.T, c *relaytest.Cascade, hop int, signed *onion.SignedManifest) {
	t.Helper()
	m, err := signed.Open(c.Open.Task, hop)
	require.NoError(t, err)
	require.True(t, m.Destroyed())
}

// TestPaddingNone: without padding, clients have as many slots as messages, and n_min counts slots.
func TestPaddingNone(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(t *task.Task) {
		t.Slots.Padding,
			t.Slots.PerLane = task.PaddingNone, 4
	}})
	c.StartAll(t)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	batch, _ := c.Pull(t, 0, 0)
	require.ElementsMatch(t, span(0, 10), c.Values(t, 0, batch)[0])
}

// TestPostQuantum sends messages of 1024 bytes under the hybrid KEM, in slots of 3.4 kB.
func TestPostQuantum(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(t *task.Task) {
		t.KEM,
			t.Slots.MessageBytes = task.KEMMLKEM768X25519, 1024
	}})
	c.StartAll(t)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	batch, _ := c.Pull(t, 0, 0)
	require.ElementsMatch(t, span(0, 10), c.Values(t, 0, batch)[0])
}

// TestLongCascade sends a batch through four relays.
func TestLongCascade(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 4})
	c.StartAll(t)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	batch, chain := c.Pull(t, 0, 0)
	require.Len(t, chain, 4)
	require.ElementsMatch(t, span(0, 10), c.Values(t, 0, batch)[0])
}

// TestRetriedMix: the relay repeats a failed transaction. It must make one batch, and count each refused slot once.
func TestRetriedMix(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	first := c.StartFirst(t)
	r, err := relay.New(c.Config(t, 1))
	require.NoError(t, err)
	relay.RetryMixes(r)
	c.Serve(t, r, c.Config(t, 1).Admin)
	slots := c.Slots(t, 0, span(0, 9)...)
	slots[0] = append(slots[0], slots[0][3])
	first.Serve(t, 0, 0, first.Batch(t, 0, 0, 10, slots))
	batch, _ := c.Pull(t, 0, 0)
	require.ElementsMatch(t, span(0, 9), c.Values(t, 0, batch)[0])
	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	first.End(0)
	waitState(t, c, 1, 0, "erased")
	require.EqualValues(t, 1, c.Status(t, 1).Epochs[0].Refused["slot replayed"])
}
