package adversary_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/relay/internal/storage"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
)

// auditNoise returns a law that adds few dummies to two cells. An n−1 attack on a few hundred batches can measure its
// δ: .0884 at ε = 2 for auditLaw.
func auditNoise(rise, fall float64, c, most int) *task.Noise {
	return &task.Noise{Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{relaynoise.Laplace(rise, fall, c, most)}}
}

func auditLaw() *task.Noise { return auditNoise(1, 1, 2, 5) }

// tally counts the messages in each cell of a batch, without those that the attacker knows. It uses two cells, or four
// for a pool.
type tally [4]int

// sight is what an attacker sees: the tally of a batch with the victim, and of a later batch with known clients only.
type sight struct{ first, second tally }

// guess is the guess of an attacker who knows everything but the victim's value: event says at which sights the
// attacker guesses 0 instead of 1. p0 and p1 are the probabilities of these sights for each value.
type guess struct {
	event  func(sight) bool
	p0, p1 float64
	eps    float64 // the guess's advantage is p0 − e^ε·p1
}

// best returns the guess with the largest advantage at ε against a noise law, and its advantage δ.
func best(n *task.Noise, eps float64) (g guess, delta float64) {
	g = bestOfCopies(n, eps, 1)
	return g, g.p0 - math.Exp(eps)*g.p1
}

// bestOfCopies returns the best guess at ε if the batch has the victim's message several times.
func bestOfCopies(n *task.Noise, eps float64, times int) (g guess) {
	laws, _ := relaynoise.NewLaws(n)
	g.eps = eps
	mass := func(y0, y1 int) float64 {
		a, b := laws.Cells[0].Mass, laws.Cells[1].Mass
		if y0 < 0 || y1 < 0 || y0 >= len(a) || y1 >= len(b) {
			return 0
		}
		return a[y0] * b[y1]
	}
	g.event = func(s sight) bool {
		return mass(s.first[0]-times, s.first[1]) > math.Exp(eps)*mass(s.first[0], s.first[1]-times)
	}
	for y0 := range len(laws.Cells[0].Mass) + times {
		for y1 := range len(laws.Cells[1].Mass) + times {
			if g.event(sight{first: tally{y0, y1}}) {
				g.p0, g.p1 = g.p0+mass(y0-times, y1), g.p1+mass(y0, y1-times)
			}
		}
	}
	return g
}

// same returns the guess that both batches have the same dummies.
func same() guess {
	return guess{func(s sight) bool { return s.first[0] == s.second[0]+1 && s.first[1] == s.second[1] }, 1, 0, 0}
}

// advantage estimates p0 − e^ε·p1 from sights that alternate between both values, and returns the standard error.
func (g guess) advantage(sights []sight) (found, err float64) {
	var hits [2]float64
	for i, s := range sights {
		if g.event(s) {
			hits[i%2]++
		}
	}
	n := float64(len(sights)) / 2
	return (hits[0] - math.Exp(g.eps)*hits[1]) / n, g.deviation(hits[0]/n, hits[1]/n, n)
}

// deviation returns the standard error with n trials of each value. It adds a hit and a miss to both, so that it is
// never 0.
func (g guess) deviation(p0, p1, n float64) float64 {
	p0, p1 = (p0*n+1)/(n+2), (p1*n+1)/(n+2)
	return math.Sqrt((p0*(1-p0) + math.Exp(2*g.eps)*p1*(1-p1)) / n)
}

// limit is how many standard errors above the claim the estimate must be to count as a finding. By chance that happens
// once in 3 million audits.
const limit = 5

// sure is the probability with which an audit must detect a planted fault.
const sure = 1 - 1e-6

// power returns the probability that an audit of that many sights finds more than claimed, if the guess's p0 and p1
// hold.
func (g guess) power(claim float64, sights int) float64 {
	n := float64(sights) / 2
	deviation := g.deviation(g.p0, g.p1, n)
	return math.Erfc((claim+limit*deviation-(g.p0-math.Exp(g.eps)*g.p1))/deviation/math.Sqrt2) / 2
}

// drawing draws the dummies of a relay for one batch.
type drawing func(*randomizer.Source) ([]uint64, error)

// again returns a faulty drawing that repeats one draw for all batches.
func again(draw drawing) drawing {
	once := sync.OnceValues(func() ([]uint64, error) { return draw(randomizer.NewSource()) })
	return func(*randomizer.Source) ([]uint64, error) { return once() }
}

// setting is the environment of the audited honest relay.
type setting struct {
	hop      int // 0 or 1
	kem      task.KEM
	postgres bool
	single   bool        // after the victim's batches come no batches of known clients: half the work
	copies   int         // copies of the victim's slot in place of the first relay's dummies: at most 3
	admits   bool        // the honest relay, the second, does not drop the copies
	noise    *task.Noise // nil: the audit law
}

func (at setting) law() *task.Noise {
	if at.noise != nil {
		return at.noise
	}
	return auditLaw()
}

// own returns how many dummies the attacker's first relay adds. The attacker knows them.
func (at setting) own() uint64 {
	if n := at.law(); n.Kind == task.NoisePool {
		return n.Pool
	}
	return 3
}

// victim returns the victim's cell in a batch. For a pool, the cell is in a randomly drawn table.
func (at setting) victim(batch int) uint64 {
	cell := uint64(batch % 2)
	if at.law().Kind == task.NoisePool {
		cell += poolB * randomizer.NewSource().Below(at.law().Cells/poolB)
	}
	return cell
}

// surrounded plays the n−1 attack on one honest relay: the attacker has every other key. Each batch has the victim, who
// sends 0 and 1 alternately, and a known client. Unless at.single, a batch of known clients follows each. surrounded
// asserts that neither positions nor bytes distinguish clients' slots from dummies.
func surrounded(t *testing.T, at setting, sights int, draw drawing) (out []sight) {
	const known = 1000
	hop := at.hop
	c := relaytest.New(t, relaytest.Options{Postgres: at.postgres, Task: func(draft *task.Task) {
		draft.Claim.Assumption, draft.Noise, draft.Batch.Size = task.NoneHonest, at.law(), 2
		draft.KEM = at.kem
	}})
	cfg := c.Config(t, hop)
	cfg.Seam = &storage.Seam{Draw: draw}
	if at.admits {
		cfg.Seam.Store = func(kept *store.Store, all *storage.Stores) { all.Mixes = &forgetful{kept} }
	}
	r, err := relay.New(cfg)
	require.NoError(t, err)
	c.Serve(t, r, cfg.Admin)
	var batches [][]uint64
	for i := range sights {
		batches = append(batches, []uint64{at.victim(i), known})
		if !at.single {
			batches = append(batches, []uint64{known, known})
		}
	}
	next := handover.NewRequester(c.SignKey(t, 1), nil)
	if hop == 0 {
		for i, values := range batches {
			for j, value := range values {
				require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, value), relaytest.Network(2*i+j)))
			}
		}
	} else {
		next = c.Verifier
		f := c.StartFirst(t)
		for seq, values := range batches { // with the first relay's dummies, which the attacker knows
			own := at.own()
			slots := c.Slots(t, 0, append(values, slices.Repeat([]uint64{known}, int(own))...)...)
			for i := range at.copies {
				slots[0][len(slots[0])-1-i] = slots[0][0]
			}
			b, err := onion.NewBatch(f.Sign, onion.BatchDraft{
				Context:     f.Context(0),
				Seq:         uint64(seq),
				Submissions: 2, In: []uint64{2}, Added: []uint64{own},
			}, slots)
			require.NoError(t, err)
			f.Serve(t, 0, uint64(seq), b)
		}
	}
	var all []tally
	var compared comparison
	for seq := range batches {
		var b *onion.Batch
		require.Eventually(t, func() bool {
			b, err = next.Pull(t.Context(), c.Open, hop, 0, uint64(seq))
			return !errors.Is(err, handover.ErrNotSealed)
		}, relaytest.Patience, 5*time.Millisecond)
		require.NoError(t, err)
		all = append(all, counted(t, c, hop, b, &compared))
	}
	if at.copies == 0 {
		compared.requireAlike(t)
	}
	for i := range sights {
		if at.single {
			out = append(out, sight{first: all[i]})
		} else {
			out = append(out, sight{all[2*i], all[2*i+1]})
		}
	}
	return out
}

// forgetful is the store of a relay that does not drop replayed slots.
type forgetful struct{ *store.Store }

func (f *forgetful) Mix(ctx context.Context, b store.BatchID, tags []store.Short,
	build store.MixFunc) error {
	return f.Store.Mix(ctx, b, tags, func(_ *store.Fresh, put store.Put) (*store.Made, error) {
		return build(&store.Fresh{}, put)
	})
}

// counted opens a batch with the keys of all later hops and counts the messages in each cell.
func counted(t *testing.T, c *relaytest.Cascade, hop int, b *onion.Batch, compared *comparison) (y tally) {
	opener, last := c.Opener(t, 1, 0), c.VerifierOpener(t, 0)
	for i, slot := range b.Ciphertexts[0] {
		layers := slices.Clone(slot)
		if hop == 0 {
			_, peeled, err := opener.OpenSlot(0, slot)
			require.NoError(t, err)
			slot, layers = peeled, append(layers, peeled...)
		}
		_, m, err := last.OpenMessage(0, slot)
		require.NoError(t, err)
		value := binary.BigEndian.Uint64(m.Body)
		if value < uint64(len(y)) {
			y[value]++
		}
		compared.add(value == 1000, i, len(b.Ciphertexts[0]), layers)
	}
	return y
}

// comparison compares the slots of known clients with all others, which are nearly all dummies.
type comparison struct {
	positions, variance float64  // of clients' slots: sum of position minus expected position
	slots               [2]int   // number of other slots, and of clients' slots
	ones                [2][]int // how often each bit is 1, in other slots and in clients' slots
}

func (l *comparison) add(client bool, position, of int, layers []byte) {
	kind := 0
	if client {
		kind = 1
		l.positions += float64(position) - float64(of-1)/2
		l.variance += float64(of*of-1) / 12 // slightly too much: positions in a batch are not independent
	}
	l.slots[kind]++
	if l.ones[kind] == nil {
		l.ones[kind] = make([]int, 8*len(layers))
	}
	for i := range l.ones[kind] {
		l.ones[kind][i] += int(layers[i/8] >> (i % 8) & 1)
	}
}

// requireAlike makes two tests, one of them of up to 20,000 bits. It fails by chance once in a million runs.
func (l *comparison) requireAlike(t *testing.T) {
	t.Helper()
	require.Less(t, math.Abs(l.positions), 5*math.Sqrt(l.variance))
	require.Len(t, l.ones[0], len(l.ones[1]))
	n0, n1 := float64(l.slots[0]), float64(l.slots[1])
	for i := range l.ones[0] {
		a, b := float64(l.ones[0][i]), float64(l.ones[1][i])
		mean := (a + b) / (n0 + n1)
		require.LessOrEqual(t, math.Abs(a/n0-b/n1), 6.5*math.Sqrt(mean*(1-mean)*(1/n0+1/n1)), "bit %d", i)
	}
}

// TestSurroundedClient: an attacker knows every other client, every other relay's dummies and every key except the
// honest relay's. It must not be able to tell dummies from clients, wherever that relay is. With 100 batches the audit
// must detect a relay that adds no dummies to a cell, or uses a draw twice. The long form adds other KEMs and
// PostgreSQL.
func TestSurroundedClient(t *testing.T) {
	half := &task.Noise{Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{relaynoise.Laplace(1, 1, 2, 5), {1}},
		Which: []task.Run{{Count: 1, Table: 0}, {Count: 1, Table: 1}}}
	const few = 100
	full := stattest.Long
	settings := []setting{{hop: 0, kem: task.KEMX25519}, {hop: 1, kem: task.KEMX25519}}
	if full {
		settings = append(settings, setting{hop: 0, kem: task.KEMX25519, postgres: true},
			setting{hop: 1, kem: task.KEMX25519, postgres: true},
			setting{hop: 0, kem: task.KEMMLKEM768, postgres: true}, setting{hop: 1, kem: task.KEMMLKEM768},
			setting{hop: 0, kem: task.KEMMLKEM768X25519},
			setting{hop: 1, kem: task.KEMMLKEM768X25519, postgres: true})
	}
	for i, at := range settings {
		t.Logf("hop %d, %s, PostgreSQL: %t", at.hop, at.kem, at.postgres)
		if full || i == 0 {
			requireFound(t, "a draw used twice", same(), surrounded(t, at, few, again(dummies.New(auditLaw()).Draw)))
		}
		if full || i == 1 {
			g, _ := best(half, 0)
			at.single = true
			requireFound(t, "a cell left out", g, surrounded(t, at, few, dummies.New(half).Draw))
		}
	}
}

// TestReplayedSlotIsFound: a first relay sends the victim's slot three more times. The second relay must drop the
// copies, so that its batches reveal no more than claimed. With 100 batches the audit must detect a relay that keeps
// them.
func TestReplayedSlotIsFound(t *testing.T) {
	const batches, eps = 100, 0
	_, claim := best(auditLaw(), eps)
	again := bestOfCopies(auditLaw(), eps, 4)
	at := setting{hop: 1, kem: task.KEMX25519, single: true, copies: 3}
	draw := dummies.New(auditLaw()).Draw
	found, deviation := again.advantage(surrounded(t, at, batches, draw))
	require.LessOrEqual(t, found, claim+limit*deviation)
	at.admits = true
	requireFound(t, "replays admitted", again, surrounded(t, at, batches, draw))
}

// TestSurroundedClientShowsWhatIsClaimed: the attacker must learn what the claim says, neither more nor less. With
// enough batches the audit must detect a relay whose noise law has a peak lower by one. The long form uses both stores;
// the short form a few batches.
func TestSurroundedClientShowsWhatIsClaimed(t *testing.T) {
	const eps = 2
	g, claim := best(auditLaw(), eps)
	lower := auditNoise(1, 1, 1, 4)
	batches, settings := 40, []setting{{hop: 1, kem: task.KEMX25519, single: true}}
	if stattest.Long {
		batches, settings = 3500, []setting{{hop: 0, kem: task.KEMX25519, single: true},
			{hop: 1, kem: task.KEMX25519, postgres: true, single: true}}
	}
	for _, at := range settings {
		found, deviation := g.advantage(surrounded(t, at, batches, dummies.New(auditLaw()).Draw))
		t.Logf("honest relay at hop %d: δ %.4f, claimed %.4f, standard error %.4f", at.hop, found, claim, deviation)
		require.InDelta(t, claim, found, limit*deviation)
		if g, _ := best(lower, eps); g.power(claim, batches) > sure {
			requireFound(t, "a peak lower by one", g, surrounded(t, at, batches, dummies.New(lower).Draw))
		}
	}
}

// requireFound asserts that an audit detects a relay whose batches reveal more than the audit law's certificate allows,
// and would detect it with probability sure.
func requireFound(t *testing.T, name string, g guess, sights []sight) {
	t.Helper()
	curve, err := relaynoise.New(auditLaw())
	require.NoError(t, err)
	g.requireAbove(t, name, curve.Delta(g.eps), sights)
}

// requireAbove asserts that an audit finds more than claimed, and would find it with probability sure.
func (g guess) requireAbove(t *testing.T, name string, claim float64, sights []sight) {
	t.Helper()
	require.Greater(t, claim, .01)
	found, deviation := g.advantage(sights)
	t.Logf("%s: δ(%g) %.4f, claimed %.4f, standard error %.4f, power 1 - %.1e", name, g.eps, found, claim, deviation,
		1-g.power(claim, len(sights)))
	require.Greater(t, g.power(claim, len(sights)), sure, name)
	require.Greater(t, found, claim+limit*deviation, name)
}

// TestLessNoiseIsFound: a fall steeper by a tenth and a cut lower by one show only in more draws than a test can make
// batches. The audit must detect both in draws alone. The audit law's draws must reveal what its certificate says.
func TestLessNoiseIsFound(t *testing.T) {
	const eps = 2
	sample := func(n *task.Noise) (out []sight) {
		law, src := dummies.New(n), randomizer.NewSource()
		for i := range 500_000 {
			cells, err := law.Draw(src)
			require.NoError(t, err)
			var y tally
			y[i%2]++
			for _, cell := range cells {
				y[cell]++
			}
			out = append(out, sight{first: y})
		}
		return out
	}
	for name, n := range map[string]*task.Noise{
		"a fall steeper by a tenth": auditNoise(1, 1.1, 2, 5), "a cut lower by one": auditNoise(1, 1, 2, 4),
	} {
		g, _ := best(n, eps)
		requireFound(t, name, g, sample(n))
	}
	honest, claim := best(auditLaw(), eps)
	found, deviation := honest.advantage(sample(auditLaw()))
	require.InDelta(t, claim, found, limit*deviation)
}
