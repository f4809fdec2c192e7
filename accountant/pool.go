package accountant

import (
	"math"

	"github.com/doona-dp/doona/internal/invalid"
)

// A pool is a number M of dummies, each uniform over all cells, among which one client's message hides. That message
// is uniform over a set of cells that depends on its value and has a b-th of all cells. With N and N′ the messages of
// a batch in the sets of two values,
//
//	δ(ε) = b/(M+1)·E[(N − e^ε·N′)₊],   (N, N′) multinomial(M+1; 1/b, 1/b)
//
// if the two sets share no cell, and less if they do (docs/proofs/strings.md). This is the pair of rule [Revealed] for
// b cells and M+1 messages, of which all but the target's are from the blanket, but without that rule's factor 1−γ.

// PoolDelta returns an upper bound on δ(ε) of a pool of dummies, at eps = ε ≥ 0. It is at most 1 and rounded up by at
// most a relative 1e-9. b is the number of sets of cells, 2 to [MaxK]; the pool has at most [MaxUsers] dummies.
//
// Errors are of type [invalid.FieldError].
func PoolDelta(b, dummies uint64, eps float64) (float64, error) {
	if err := checkPool(b, dummies); err != nil {
		return 0, err
	}
	if err := checkEpsilon(Revealed, eps); err != nil {
		return 0, err
	}
	return math.Min(1, twoCells(1/float64(b), dummies+1, eps)+tiny), nil
}

// PoolDummies returns the fewest dummies with which [PoolDelta] at ε = eps is at most delta.
//
// Errors are of type [invalid.FieldError]. More than [MaxUsers] dummies is one.
func PoolDummies(b uint64, eps, delta float64) (uint64, error) {
	if err := checkEpsilon(Revealed, eps); err != nil {
		return 0, err
	}
	if err := checkDelta(delta); err != nil {
		return 0, err
	}
	if err := checkPool(b, 1); err != nil {
		return 0, err
	}
	enough := func(m uint64) bool { return PoolSuffices(b, m, eps, delta) }
	lo, hi := uint64(0), min(b, MaxUsers-1)
	for !enough(hi) {
		if lo, hi = hi, min(2*hi, MaxUsers-1); lo == hi {
			return 0, invalid.Field("noise.pool", "more than 999999999", "fewer cells in a table, or a larger epsilon")
		}
	}
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; enough(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi, nil
}

// PoolSuffices reports whether [PoolDelta] of a pool of dummies at ε = eps is at most delta, on any machine. It takes
// as many dummies as a pool can have, if there are more.
func PoolSuffices(b, dummies uint64, eps, delta float64) bool {
	target := delta * (1 - 5e-10) // a client's float64 may differ from ours in the last digits
	dummies = min(dummies, MaxUsers-1)
	return dummies > 0 && twoCells(1/float64(b), dummies+1, eps)+tiny <= target
}

// PoolOutcomes is [KRROutcomes] for a pool.
func PoolOutcomes(b, dummies uint64, visit func(p, q float64)) (infinite float64, err error) {
	if err := checkPool(b, dummies); err != nil {
		return 0, err
	}
	o := &krrOutcomes{n: float64(dummies + 1), p: 1 / float64(b), revealed: true, visit: visit}
	o.run()
	return o.infinite, nil
}

func checkPool(b, dummies uint64) error {
	if dummies < 1 || dummies >= MaxUsers {
		return invalid.Field("noise.pool", text(float64(dummies)), "1 to 999999999")
	}
	if b < 2 || b > MaxK {
		return invalid.Field("params.b", text(float64(b)), "2 to 2^40")
	}
	return nil
}
