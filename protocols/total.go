package protocols

import (
	"strconv"
	"strings"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// CheckTotal returns an error unless all epochs together keep the task's total, if it claims one. law returns the law
// of each epoch. The claim of one epoch must have been checked. The epochs have one law, fixed before the first:
// docs/proofs/loss-laws.md, Theorem 3 (a).
func CheckTotal(t *task.Task, law func() (*compose.Law, error)) error {
	total := t.Claim.Total
	if total.IsZero() {
		return nil
	}
	if t.Epochs.Count == 0 {
		return invalid.Field("epochs.count", "0", "at least 1 with a claim over all epochs")
	}
	sum := AddedClaims(t.Claim, t.Epochs.Count)
	if sum.Epsilon <= total.Epsilon.Value() && sum.Delta <= total.Delta.Value() {
		return nil // The claims of the epochs add up to no more.
	}
	one, err := law()
	if err != nil {
		return err
	}
	derived := compose.Delta([]compose.Observation{one.Observation(t.Epochs.Count)}, total.Epsilon.Value(),
		total.Delta.Value())
	if !(derived <= total.Delta.Value()) {
		return invalid.Field("claim.total.delta", total.Delta.String(), "at least "+decimal.Up(derived, 7)+
			", what "+strconv.FormatUint(t.Epochs.Count, 10)+" epochs add up to at epsilon "+total.Epsilon.String())
	}
	return nil
}

// AddedClaims returns the claim times a number of epochs. Decimals of up to 15 digits give exact multiples; longer
// ones are rounded up.
//
//go:noinline
func AddedClaims(claim task.Claim, epochs uint64) compose.Spend {
	return compose.Spend{
		Epsilon: multiple(claim.Epsilon.String(), claim.Epsilon.Value(), epochs),
		Delta:   multiple(claim.Delta.String(), claim.Delta.Value(), epochs),
	}
}

// multiple returns the number nearest to a multiple of a decimal. Up to 15 digits are exact: the product is off by a
// relative 2.3e-16, and half a unit of the last digit is at least 5e-16.
func multiple(text string, value float64, times uint64) float64 {
	product := value * float64(times)
	mantissa, _, _ := strings.Cut(text, "e")
	if len(mantissa) > 10 || times > 99999 {
		product *= 1 + 6e-15 // More than the rounding below.
	}
	return decimal.Near(product, 15)
}

// EpochsSpend returns the cost of a number of a task's epochs to one client. It is the least ε of three: the composed
// laws and the added claims, both at the sum of their δ, and the task's total. The task's claim must have been
// checked. The theorem is that of [CheckTotal].
func EpochsSpend(t *task.Task, law func() (*compose.Law, error), epochs uint64) (compose.Spend, error) {
	best := AddedClaims(t.Claim, epochs)
	if epochs > 1 && best.Delta < 1 {
		one, err := law()
		if err != nil {
			return best, err
		}
		// An error means only that unbounded losses are as likely as δ allows.
		eps, err := compose.Epsilon([]compose.Observation{one.Observation(epochs)}, best.Delta)
		if err == nil && eps > 0 && eps < best.Epsilon {
			best.Epsilon = eps
		}
	}
	if total := t.Claim.Total; !total.IsZero() && epochs <= t.Epochs.Count && total.Epsilon.Value() < best.Epsilon {
		best = compose.Spend{Epsilon: total.Epsilon.Value(), Delta: total.Delta.Value()}
	}
	return best, nil
}
