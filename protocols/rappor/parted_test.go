package rappor_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/rappor"
)

// Checks step (iv) of the proof of Theorem 3 in docs/proofs/slots.md. It enumerates all ways to put two slots of each
// of four clients into two batches of four. On average, a verifier must learn no more than if the changed bit were
// hidden by the clients whose message of that bit is in the same batch. The test must catch half the flips.
func TestPartedClientsAreHiddenByTheirBatch(t *testing.T) {
	const f = 0.2
	groupings, caught, stronger := 0, 0, 0
	for _, eps := range []float64{0.5, 1, 1.5} {
		var whole [5]float64
		for others := range 4 {
			whole[others] = worstDelta(others+1, 2, f, eps, -1, false)
		}
		for code := range 81 {
			first := [4]int{code % 3, code / 3 % 3, code / 9 % 3, code / 27}
			if first[0]+first[1]+first[2]+first[3] != 4 {
				continue
			}
			bound, exact := hidden(first, whole), worstParted(first, f, eps)
			require.LessOrEqual(t, exact, bound*(1+1e-9), "%v ε = %g", first, eps)
			groupings++
			if worstParted(first, f/2, eps) > bound {
				caught++
			}
			if exact > whole[1]*(1+1e-9) { // more than with whole clients, n_min = 2
				stronger++
			}
		}
	}
	require.Equal(t, 57, groupings)
	require.Equal(t, groupings, caught)
	require.Equal(t, 6, stronger, "groupings in which parted clients reveal more than whole ones")
}

// hidden averages whole[n], the δ among n other clients, over which slots hold the two changed bits. first[i] of client
// i's two slots are in batch 0.
func hidden(first [4]int, whole [5]float64) (bound float64) {
	for places := range 16 { // bit i of places: whether client i's message of the first bit is in its slot 0
		var batch [2][4]int
		for i, n := range first {
			slots := [2]int{0, 1}
			if n != 1 {
				slots = [2]int{1 - n/2, 1 - n/2}
			}
			place := places >> i & 1
			batch[0][i], batch[1][i] = slots[place], slots[1-place]
		}
		near := [2]int{}
		for bit := range 2 {
			for i := 1; i < 4; i++ {
				if batch[bit][i] == batch[bit][0] {
					near[bit]++
				}
			}
		}
		bound += whole[min(near[0], near[1])] / 16
	}
	return bound
}

// worstParted returns the largest divergence Σ(P-e^ε·Q)₊ over all values of four clients with two bits. first[i] of
// client i's two slots are in batch 0. Client 0's value changes; the others' values are enumerated.
func worstParted(first [4]int, f, eps float64) (worst float64) {
	var others func(i int, d distribution)
	others = func(i int, d distribution) {
		if i < 4 {
			for x := range 3 {
				others(i+1, d.parted(first[i], x, f))
			}
			return
		}
		for x := range 3 {
			for y := range 3 {
				p, q, delta := d.parted(first[0], x, f), d.parted(first[0], y, f), 0.0
				for counts, mass := range p {
					delta += max(mass-math.Exp(eps)*q[counts], 0)
				}
				worst = max(worst, delta)
			}
		}
	}
	others(1, distribution{string(make([]byte, 4)): 1})
	return worst
}

// parted adds a client of two bits that holds x. Its messages are in random slots. The first slots of them are in batch
// 0, and messages are counted by batch and bit.
func (d distribution) parted(first, x int, f float64) distribution {
	out := distribution{}
	for flips := range 4 {
		for place := range 2 {
			counts, p := make([]byte, 4), 0.5
			for bit := range 2 {
				flipped := flips >> bit & 1
				p *= []float64{1 - f, f}[flipped]
				one := flipped
				if bit+1 == x {
					one ^= 1
				}
				batch := 0
				if slot := bit ^ place; slot >= first {
					batch = 1
				}
				counts[2*batch+bit] += byte(one)
			}
			for before, mass := range d {
				sum := []byte(before)
				for j := range sum {
					sum[j] += counts[j]
				}
				out[string(sum)] += mass * p
			}
		}
	}
	return out
}

// A first relay that parts clients gains less the more clients there are.
func TestPartedDelta(t *testing.T) {
	for _, c := range []struct {
		users uint64
		most  float64
	}{{100, 1}, {1000, 1e-4}, {10_000, 1e-5}, {100_000, 2e-6}, {1_000_000, 1.5e-6}} {
		_, m := draft(t, planner.Query{Batch: c.users, Honest: 0.9, Epsilon: 1, Delta: 1e-6,
			Params: planner.Params{"k": 16}})
		delta, err := m.(*rappor.Mechanism).PartedDelta()
		require.NoError(t, err)
		require.Greater(t, delta, 1e-6)
		require.LessOrEqual(t, delta, c.most, "%d users", c.users)
		t.Log(c.users, delta)
	}
}
