package adversary_test

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/relay/internal/storage"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
)

// The audited pool has two tables of two cells each. One text has the first cell of both tables, the other the second.
const (
	poolB      = 2
	poolTables = 2
	poolSize   = 5
)

func auditPool() *task.Noise {
	return &task.Noise{Kind: task.NoisePool, Cells: poolB * poolTables, Pool: poolSize}
}

// ofTexts returns how many messages are in the cells of each text.
func (y tally) ofTexts() (x, other int) { return y[0] + y[poolB], y[1] + y[1+poolB] }

// samePool makes the guess of [same] from the counts of two texts, for noise from a pool of dummies.
func samePool() guess {
	return guess{p0: 1, event: func(s sight) bool {
		x, other := s.first.ofTexts()
		later, otherLater := s.second.ofTexts()
		return x == later+1 && other == otherLater
	}}
}

// bestOfPool returns the best guess at ε if a relay adds size dummies, each in a cell of one of the two texts. The
// attacker guesses that the victim sent the first text if N_x > e^ε·N_x′.
func bestOfPool(size int, eps float64) (g guess) {
	above := func(a, b int) bool { return float64(a) > math.Exp(eps)*float64(b) }
	g = guess{eps: eps, event: func(s sight) bool { return above(s.first.ofTexts()) }}
	p := math.Pow(.5, float64(size))
	for a := range size + 1 { // number of dummies in the first text's cells
		if above(a+1, size-a) {
			g.p0 += p
		}
		if above(a, size-a+1) {
			g.p1 += p
		}
		p *= float64(size-a) / float64(a+1)
	}
	return g
}

// oneTable returns the guess if all dummies are in the first table. A victim's message in the second table reveals its
// text. Otherwise the first table has more messages of that text.
func oneTable() guess {
	p := bestOfPool(poolSize, 0)
	return guess{p0: (1 + p.p0) / 2, p1: p.p1 / 2, event: func(s sight) bool {
		return s.first[poolB] > 0 || s.first[poolB+1] == 0 && s.first[0] > s.first[1]
	}}
}

// TestSurroundedClientOfAPool: an attacker knows every other client, every other relay's dummies and every key except
// the honest relay's. The audit must detect a relay that uses one draw twice. In the long form, at both hops and with
// both stores, the attacker must learn of a client's text what the claim says, and more if a table has no dummies.
func TestSurroundedClientOfAPool(t *testing.T) {
	const eps = .5
	claim := func(eps float64) float64 {
		delta, err := accountant.PoolDelta(poolB, poolSize, eps)
		require.NoError(t, err)
		return delta
	}
	g := bestOfPool(poolSize, eps)
	require.InEpsilon(t, claim(eps), g.p0-math.Exp(eps)*g.p1, 1e-9)
	draw := dummies.New(auditPool()).Draw
	at := setting{hop: 1, kem: task.KEMX25519, noise: auditPool()}
	samePool().requireAbove(t, "a draw used twice", claim(0), surrounded(t, at, 100, again(draw)))
	if !stattest.Long {
		return
	}
	first := dummies.New(&task.Noise{Kind: task.NoisePool, Cells: poolB, Pool: poolSize}).Draw
	at.single = true
	for i := range 4 {
		at.hop, at.postgres = i%2, i > 1
		found, deviation := g.advantage(surrounded(t, at, 1500, draw))
		t.Logf("hop %d, PostgreSQL %t: δ %.4f, claimed %.4f, standard error %.4f", at.hop, at.postgres, found,
			claim(eps),
			deviation)
		require.InDelta(t, claim(eps), found, limit*deviation)
		oneTable().requireAbove(t, "dummies in one table", claim(0), surrounded(t, at, 600, first))
	}
}

// TestDrawsAreFresh: a relay must draw new dummies for every batch.
func TestDrawsAreFresh(t *testing.T) {
	const cells, pool, clients = 1 << 40, 6, 2 // two draws are alike by chance once in 10⁶⁹ runs
	c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		draft.Claim.Assumption, draft.Batch.Size = task.NoneHonest, clients
		draft.Noise = &task.Noise{Kind: task.NoisePool, Cells: cells, Pool: pool}
	}})
	c.StartAll(t)
	var draws [2][]uint64
	for seq := range draws {
		for i := range clients {
			require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, cells), relaytest.Network(clients*seq+i)))
		}
		b, _ := c.Pull(t, 0, uint64(seq))
		for _, slot := range b.Ciphertexts[0] {
			_, m, err := c.VerifierOpener(t, 0).OpenMessage(0, slot)
			require.NoError(t, err)
			if cell := binary.BigEndian.Uint64(m.Body); cell != cells {
				draws[seq] = append(draws[seq], cell)
			}
		}
		require.Len(t, draws[seq], 2*pool)
		slices.Sort(draws[seq])
	}
	for _, cell := range draws[0] {
		require.NotContains(t, draws[1], cell)
	}
}

// TestPoolIsWhole: the verifier must refuse a batch if a relay added fewer or more dummies than the pool has.
func TestPoolIsWhole(t *testing.T) {
	for _, size := range []uint64{poolSize / 2, poolSize + 1} {
		c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
			draft.Claim.Assumption, draft.Noise, draft.Batch.Size = task.NoneHonest, auditPool(), 2
		}})
		cfg := c.Config(t, 1)
		law := &task.Noise{Kind: task.NoisePool, Cells: poolB * poolTables, Pool: size}
		cfg.Seam = &storage.Seam{Draw: dummies.New(law).Draw}
		r, err := relay.New(cfg)
		require.NoError(t, err)
		c.Serve(t, r, cfg.Admin)
		f := c.StartFirst(t)
		slots := c.Slots(t, 0, 0, 1, 2, 3, 2, 1, 0)
		b, err := onion.NewBatch(f.Sign, onion.BatchDraft{
			Context: f.Context(0), Submissions: 2, In: []uint64{2}, Added: []uint64{poolSize},
		}, slots)
		require.NoError(t, err)
		f.Serve(t, 0, 0, b)
		require.Eventually(t, func() bool {
			_, err = c.Verifier.Pull(t.Context(), c.Open, 1, 0, 0)
			return !errors.Is(err, handover.ErrNotSealed)
		}, relaytest.Patience, 5*time.Millisecond)
		require.ErrorContains(t, err, "slots added")
	}
}
