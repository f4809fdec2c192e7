package adversary_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// loot is what a malicious first relay has: its clients' slots. inside is what the test knows besides: the content that
// an honest second relay finds in each slot.
type loot struct {
	*relaytest.Cascade
	rng     *rand.Rand
	inside  map[string]inner // by ciphertext
	clients uint64
}

// inner is the content of a slot, one layer deeper.
type inner struct {
	epoch uint64
	lane  int
	tag   [onion.TagSize]byte
	next  string
}

// plan is a batch that the malicious relay assembles.
type plan struct {
	epoch, submissions uint64
	lanes              [][][]byte
}

// honest returns a plan with the slots of n new clients in an epoch.
func (l *loot) honest(t testing.TB, epoch, n uint64) *plan {
	t.Helper()
	p := &plan{epoch, n, l.Slots(t, epoch, span(l.clients, n)...)}
	l.clients += n
	opener := l.Opener(t, 1, epoch)
	for lane, slots := range p.lanes {
		for _, slot := range slots {
			l.keep(t, opener, epoch, lane, slot)
		}
	}
	return p
}

func (l *loot) keep(t testing.TB, opener *onion.Opener, epoch uint64, lane int, slot []byte) {
	t.Helper()
	tag, next, err := opener.OpenSlot(lane, slot)
	require.NoError(t, err)
	l.inside[string(slot)] = inner{epoch, lane, tag, string(next)}
}

// sameTag seals a new slot for the second relay, with a given tag.
func (l *loot) sameTag(t testing.TB, epoch uint64, lane int, tag [onion.TagSize]byte) []byte {
	t.Helper()
	public := l.PublicKey(t, 1, epoch)
	key, err := ecdh.X25519().NewPublicKey(public)
	require.NoError(t, err)
	recipient, err := hpke.NewDHKEMPublicKey(key)
	require.NoError(t, err)
	info := append([]byte("doona-v1 onion"), l.Open.ID[:]...)
	info = append(binary.BigEndian.AppendUint64(info, epoch), 1)
	id := sha256.Sum256(append([]byte{0, 0x20}, public...))
	enc, sender, err := hpke.NewSender(recipient, hpke.HKDFSHA256(), hpke.AES128GCM(), append(info, id[:]...))
	require.NoError(t, err)
	layout, err := onion.NewLayout(l.Open.Task)
	require.NoError(t, err)
	next := make([]byte, layout.SlotSize(2))
	for i := range next {
		next[i] = byte(l.rng.Uint32())
	}
	sealed, err := sender.Seal([]byte{byte(lane >> 8), byte(lane), 0}, append(tag[:], next...))
	require.NoError(t, err)
	slot := append(enc, sealed...)
	l.keep(t, l.Opener(t, 1, epoch), epoch, lane, slot)
	return slot
}

// attack changes k slots in every lane of a plan, at random positions. It may use the slots of earlier plans.
type attack struct {
	name string
	do   func(t testing.TB, l *loot, p *plan, earlier []*plan, k int)
}

// each replaces k random slots of every lane by what with returns.
func each(l *loot, p *plan, k int, with func(lane int, slot []byte) []byte) {
	for lane, slots := range p.lanes {
		for _, i := range l.rng.Perm(len(slots))[:min(k, len(slots))] {
			slots[i] = with(lane, slots[i])
		}
	}
}

// pick returns a random slot of a lane from a random plan; otherwise if that lane is empty.
func pick(l *loot, from []*plan, lane int, otherwise []byte) []byte {
	p := from[l.rng.IntN(len(from))]
	if slots := p.lanes[lane]; len(slots) > 0 {
		return slots[l.rng.IntN(len(slots))]
	}
	return otherwise
}

var attacks = []attack{
	{"replay", func(_ testing.TB, l *loot, p *plan, earlier []*plan, k int) {
		each(l, p, k, func(lane int, slot []byte) []byte { return pick(l, earlier, lane, slot) })
	}},
	{"duplicate", func(_ testing.TB, l *loot, p *plan, _ []*plan, k int) {
		each(l, p, k, func(lane int, slot []byte) []byte { return pick(l, []*plan{p}, lane, slot) })
	}},
	{"other lane", func(_ testing.TB, l *loot, p *plan, _ []*plan, k int) {
		each(l, p, k, func(lane int, slot []byte) []byte { return pick(l, []*plan{p}, (lane+1)%len(p.lanes), slot) })
	}},
	{"other epoch", func(t testing.TB, l *loot, p *plan, _ []*plan, k int) {
		other := l.honest(t, 1-p.epoch, 2)
		each(l, p, k, func(lane int, slot []byte) []byte { return pick(l, []*plan{other}, lane, slot) })
	}},
	{"corrupt", func(_ testing.TB, l *loot, p *plan, _ []*plan, k int) {
		each(l, p, k, func(_ int, slot []byte) []byte {
			slot = bytes.Clone(slot)
			slot[l.rng.IntN(len(slot))] ^= 1 << l.rng.IntN(8)
			return slot
		})
	}},
	{"key share all zero", func(_ testing.TB, l *loot, p *plan, _ []*plan, k int) {
		each(l, p, k, func(_ int, slot []byte) []byte { return append(make([]byte, 32), slot[32:]...) })
	}},
	{"drop", func(_ testing.TB, _ *loot, p *plan, _ []*plan, k int) {
		for lane, slots := range p.lanes {
			p.lanes[lane] = slots[min(k, len(slots)):]
		}
	}},
	{"a tag twice", func(t testing.TB, l *loot, p *plan, earlier []*plan, k int) {
		each(l, p, k, func(lane int, slot []byte) []byte {
			if of, ok := l.inside[string(pick(l, earlier, lane, slot))]; ok {
				return l.sameTag(t, p.epoch, lane, of.tag)
			}
			return slot
		})
	}},
	{"fewer submissions", func(_ testing.TB, l *loot, p *plan, _ []*plan, k int) {
		p.submissions -= min(uint64(k), p.submissions)
		for lane, slots := range p.lanes { // more slots than clients can send are refused
			p.lanes[lane] = slots[:min(uint64(len(slots)), p.submissions*l.Open.Slots.PerLane)]
		}
	}},
	{"more submissions", func(_ testing.TB, _ *loot, p *plan, _ []*plan, k int) { p.submissions += uint64(k) }},
}

// seen holds the tags that an honest relay has received in an epoch, as the test computes them.
type seen map[[onion.TagSize]byte]bool

// expect returns the slots of a plan that an honest second relay must release; nil if it must destroy the batch.
func (l *loot) expect(p *plan, before seen) (lanes [][]string) {
	least := int(l.Open.Batch.Min)
	if l.Open.Slots.Padding == task.PaddingFull {
		least *= int(l.Open.Slots.PerLane)
	}
	enough := p.submissions >= l.Open.Batch.Size
	for lane, slots := range p.lanes {
		lanes = append(lanes, nil)
		for _, slot := range slots {
			in, ok := l.inside[string(slot)]
			if !ok || in.epoch != p.epoch || in.lane != lane || before[in.tag] {
				continue
			}
			before[in.tag] = true
			lanes[lane] = append(lanes[lane], in.next)
		}
		enough = enough && len(lanes[lane]) >= least
	}
	if !enough {
		return nil
	}
	return lanes
}

// TestMaliciousFirstRelayInCombinations: a malicious first relay serves batches with one to three attacks each, near
// the limit at which a batch is destroyed. The second relay must release exactly the slots that the test computes: no
// slot twice, in any batch, and nothing among fewer than n_min. Its manifests must say how much it dropped, and its
// findings what it destroyed.
func TestMaliciousFirstRelayInCombinations(t *testing.T) {
	rounds := uint64(1)
	if stattest.Long {
		rounds = 40
	}
	for _, slots := range []task.Slots{
		{Padding: task.PaddingFull, Lanes: 2, PerLane: 1, MessageBytes: 8},
		{Padding: task.PaddingFull, Lanes: 2, PerLane: 2, MessageBytes: 8},
		{Padding: task.PaddingNone, Lanes: 2, PerLane: 2, MessageBytes: 8},
	} {
		for round := range rounds {
			t.Run(fmt.Sprintf("%s, %d per lane, round %d", slots.Padding, slots.PerLane, round), func(t *testing.T) {
				l := &loot{relaytest.New(t, relaytest.Options{Task: func(t *task.Task) { t.Slots = slots }}),
					rand.New(rand.NewPCG(slots.PerLane, round)), map[string]inner{}, 0}
				playAttacks(t, l)
			})
		}
	}
}

// upToShort returns the order in which to play the plans: first the full ones, after which the first relay may have
// more batches, then the others. The second relay accepts only the first of the others; last is the number of the plan
// after that one.
func (l *loot) upToShort(plans []*plan) (order []int, last int) {
	var short []int
	for i, p := range plans {
		slots := 0
		for _, lane := range p.lanes {
			slots += len(lane)
		}
		if p.submissions < l.Open.Batch.Size || slots == 0 {
			short = append(short, i)
		} else {
			order = append(order, i)
		}
	}
	last = len(order) + min(1, len(short))
	return append(order, short...), last
}

func playAttacks(t *testing.T, l *loot) {
	first := l.StartFirst(t)
	perClient := int(l.Open.Slots.PerLane)
	if l.Open.Slots.Padding == task.PaddingNone {
		perClient = 1
	}
	slack := perClient * int(l.Open.Batch.Size-l.Open.Batch.Min)
	plans := []*plan{l.honest(t, 0, l.Open.Batch.Size)}
	names := []string{"honest"}
	for i := range 3 * len(attacks) {
		p, name := l.honest(t, 0, l.Open.Batch.Size), ""
		first := i % len(attacks) // every attack alone, with k at the limit and above it, then combinations
		k := slack + i/len(attacks)%2
		attacks[first].do(t, l, p, plans, k)
		name = fmt.Sprint(attacks[first].name, " ", k)
		for range i / len(attacks) / 2 * (1 + l.rng.IntN(2)) {
			other, k := attacks[l.rng.IntN(len(attacks))], l.rng.IntN(slack+2)
			other.do(t, l, p, plans, k)
			name += fmt.Sprint(", ", other.name, " ", k)
		}
		plans, names = append(plans, p), append(names, name)
	}
	order, last := l.upToShort(plans)
	for seq, i := range order {
		first.Serve(t, 0, uint64(seq), first.Batch(t, 0, uint64(seq), plans[i].submissions, plans[i].lanes))
	}
	l.Start(t, 1)
	account, out := seen{}, map[string]int{}
	released, destroyed := 0, 0
	for n, i := range order[:last] {
		seq, p := uint64(n), plans[i]
		want := l.expect(p, account)
		batch, chain := l.Pull(t, 0, seq)
		require.Equal(t, want == nil, chain[1].Destroyed(), "batch %d: %s", seq, names[i])
		for lane, slots := range batch.Ciphertexts {
			var got []string
			for _, slot := range slots {
				got = append(got, string(slot))
				out[string(slot)]++
			}
			require.EqualValues(t, len(p.lanes[lane]), chain[1].Lanes[lane].In)
			require.EqualValues(t, len(p.lanes[lane])-len(got), chain[1].Lanes[lane].Dropped)
			if want != nil {
				require.ElementsMatch(t, want[lane], got, "batch %d: %s", seq, names[i])
			}
		}
		if want == nil {
			destroyed++
			continue
		}
		released++
	}
	requireSoon(t, func() bool { return foundOf(t, l.Cascade, 1, "too few valid slots") == uint64(destroyed) })
	for _, times := range out {
		require.Equal(t, 1, times, "a slot was released twice: intersecting the batches would identify it")
	}
	if last < len(order) {
		hasFinding(t, l.Cascade, relay.Finding{Batch: uint64(last), Reason: "a batch after the last one of the epoch"})
		waitState(t, l.Cascade, 1, 0, "complete")
	}
	require.Greater(t, released, len(attacks)/2, "enough batches must be released")
	require.Greater(t, destroyed, len(attacks)/2)
}

// TestBoundary: a batch with exactly n_min·B valid slots in every lane (n_min slots with padding none) must be
// released. With one slot fewer in one lane, nothing of it may be released.
func TestBoundary(t *testing.T) {
	for _, slots := range []task.Slots{
		{Padding: task.PaddingFull, Lanes: 2, PerLane: 3, MessageBytes: 8},
		{Padding: task.PaddingNone, Lanes: 2, PerLane: 3, MessageBytes: 8},
	} {
		t.Run(string(slots.Padding), func(t *testing.T) {
			l := &loot{relaytest.New(t,
				relaytest.Options{Task: func(t *task.Task) { t.Slots, t.Batch.Min = slots, 7 }}),
				rand.New(rand.NewPCG(1, 2)), map[string]inner{}, 0}
			least := 7
			if slots.Padding == task.PaddingFull {
				least *= 3
			}
			first := l.StartFirst(t)
			for seq, keep := range [][]int{{least, least}, {least, least - 1}, {least - 1, least}, {least + 1, least}} {
				p := l.honest(t, 0, 10)
				for lane := range p.lanes {
					p.lanes[lane] = p.lanes[lane][:keep[lane]]
				}
				first.Serve(t, 0, uint64(seq), first.Batch(t, 0, uint64(seq), 10, p.lanes))
			}
			l.Start(t, 1)
			for seq, want := range []bool{true, false, false, true} {
				_, chain := l.Pull(t, 0, uint64(seq))
				require.Equal(t, !want, chain[1].Destroyed(), "batch %d", seq)
			}
		})
	}
}

// TestIntersection: a first relay that sees the verifier's messages tries to get a victim's message into two batches.
// It sends the victim's slots again in a second batch, in swapped lanes, under the same number, after the second
// relay's restart, and in a later epoch. The verifier must get the victim's message once per lane.
func TestIntersection(t *testing.T) {
	const victim = 1 << 40
	c := relaytest.New(t, relaytest.Options{Task: func(t *task.Task) { t.Slots.Lanes, t.Batch.Min = 2, 5 }})
	first := c.StartFirst(t)
	slots := c.Slots(t, 0, victim)
	among := func(value uint64) [][][]byte {
		others := c.Slots(t, 0, span(value, 9)...)
		return [][][]byte{append(others[0], slots[0][0]), append(others[1], slots[1][0])}
	}
	crossed := among(300)
	crossed[0][9], crossed[1][9] = crossed[1][9], crossed[0][9]
	for seq, lanes := range [][][][]byte{among(100), among(200), crossed} {
		first.Serve(t, 0, uint64(seq), first.Batch(t, 0, uint64(seq), 10, lanes))
	}
	stop := c.Start(t, 1)
	views := [][]uint64{}
	view := func(epoch, seq uint64) {
		batch, _ := c.Pull(t, epoch, seq)
		views = append(views, c.Values(t, epoch, batch)...)
	}
	for seq := range uint64(3) {
		require.Eventually(t, func() bool { return first.Confirmed(0, seq) }, relaytest.Patience, 10*time.Millisecond)
	}
	// The first relay serves another batch under a known number, and the same slots again after a restart.
	first.Serve(t, 0, 0, first.Batch(t, 0, 0, 10, among(400)))
	stop()
	stop = c.Start(t, 1)
	first.Serve(t, 0, 3, first.Batch(t, 0, 3, 10, among(500)))
	for seq := range uint64(4) {
		view(0, seq)
	}
	// The epoch ends, and its key and replay set are erased. Its slots must not open any more, in this epoch or the
	// next.
	c.Clock.Advance(relaytest.Epoch + 2*time.Second)
	first.End(0)
	waitState(t, c, 1, 0, "erased")
	first.Serve(t, 0, 4, first.Batch(t, 0, 4, 10, among(600)))
	first.Serve(t, 1, 0, first.Batch(t, 1, 0, 10, among(700)))
	later := c.Slots(t, 1, span(800, 9)...)
	first.Serve(t, 1, 1, first.Batch(t, 1, 1, 10,
		[][][]byte{append(later[0], slots[0][0]), append(later[1], slots[1][0])}))
	view(1, 0)
	view(1, 1)
	_, err := c.Verifier.Pull(t.Context(), c.Open, 1, 0, 4)
	require.Error(t, err)
	times := 0
	for _, values := range views {
		require.NotEqual(t, 1, len(values), "a released batch must not have a single message")
		for _, value := range values {
			if value == victim {
				times++
			}
		}
	}
	require.Equal(t, 2, times, "once in each lane, in the first batch")
	require.Contains(t, views[0], uint64(victim))
	require.Contains(t, views[1], uint64(victim))
	stop()
}
