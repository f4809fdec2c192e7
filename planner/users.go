package planner

import (
	"errors"
	"math"

	"github.com/doona-dp/doona/internal/invalid"
)

// usersTolerance is the relative amount by which the result of [SolveUsers] may exceed the smallest possible number.
const usersTolerance = 0.02

// ErrNeverReached is the error of [SolveUsers] if no number of users reaches the goal.
var ErrNeverReached = errors.New("no number of users reaches this goal: it can be that a query's error grows with " +
	"them, or that the target is below what any protocol proves")

// SolveUsers returns the smallest number of users, within 2 %, with which the best way has 95 % intervals of at most
// the given width, and all ways for this number. A width of 0 accepts any way. With more users the errors of means
// fall, while those of sums and histograms grow or stay. So SolveUsers searches from few users to many, and returns the
// first number that suffices. It calls done as [Plan] does, in each of its plans.
func SolveUsers(g Goal, width float64, done func(of int)) (users uint64, ways []Way, err error) {
	if !(width >= 0) {
		return 0, nil, invalid.Field("interval-width", format(width), "a number above 0")
	}
	enough := func(n float64) bool {
		g.Batch = uint64(math.Ceil(n))
		ways, err = Plan(g, done)
		return err == nil && ways[0].Why == nil && (width == 0 || ways[0].Width <= width)
	}
	// The smallest number with at least one honest client.
	lo := math.Ceil(1 / g.Honest)
	if !(g.Honest > 0 && g.Honest <= 1) {
		lo = 1 // Plan reports the error.
	}
	if lo > math.MaxUint32 {
		return 0, nil, invalid.Field("honest", format(g.Honest), "2.4e-10 or more, and at most 1: a batch has fewer users")
	}
	if enough(lo) || err != nil {
		return g.Batch, ways, err
	}
	hi := lo
	for !enough(hi) {
		if err != nil {
			return 0, nil, err
		}
		if lo, hi = hi, hi*4; hi > math.MaxUint32 {
			return 0, nil, ErrNeverReached
		}
	}
	for hi > lo*(1+usersTolerance)+1 {
		if mid := math.Sqrt(lo * hi); enough(mid) {
			hi = mid
		} else if lo = mid; err != nil {
			return 0, nil, err
		}
	}
	enough(hi)
	return g.Batch, ways, err
}
