package protocols

import (
	"strconv"
	"strings"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// CheckTotal returns an error unless all reports of one browser together keep the task's claimed total, if the task has
// one. A browser reports once per epoch. With a cap or with events, fewer copies of the law cover all its reports. law
// returns the privacy law of one epoch. The caller must have checked the claim of one epoch. All epochs have the same
// law, fixed before the first; then Theorem 3 (a) of docs/proofs/loss-laws.md lets their losses add up.
func CheckTotal(t *task.Task, law func() (*compose.Law, error)) error {
	total := t.Claim.Total
	if total.IsZero() {
		return nil
	}
	if t.Epochs.Count == 0 {
		return invalid.Field("epochs.count", "0", "at least 1 with a claim over all epochs")
	}
	reports := t.MostCopies(t.Epochs.Count)
	sum := AddedClaims(t.Claim, reports)
	if sum.Epsilon <= total.Epsilon.Value() && sum.Delta <= total.Delta.Value() {
		return nil // The epochs' claims, added up, are within the total.
	}
	one, err := law()
	if err != nil {
		return err
	}
	derived := compose.Delta([]compose.Observation{one.Observation(reports)}, total.Epsilon.Value(),
		total.Delta.Value())
	if !(derived <= total.Delta.Value()) {
		return invalid.Field("claim.total.delta", total.Delta.String(), "at least "+decimal.Up(derived, 7)+
			", the delta of "+strconv.FormatUint(reports, 10)+" reports of a browser together at epsilon "+
			total.Epsilon.String())
	}
	return nil
}

// AddedClaims returns the claimed ε and δ of one epoch, each multiplied by the number of epochs. The product is exact
// for up to 99999 epochs if the decimal has at most 10 characters before its exponent; otherwise it is rounded up.
//
//go:noinline
func AddedClaims(claim task.Claim, epochs uint64) compose.Spend {
	return compose.Spend{
		Epsilon: multiple(claim.Epsilon.String(), claim.Epsilon.Value(), epochs),
		Delta:   multiple(claim.Delta.String(), claim.Delta.Value(), epochs),
	}
}

// multiple returns the float64 nearest to times × the decimal in text; value is that decimal. It is exact up to 15
// digits: the float64 product is off by a relative 2.3e-16, and half a unit of the last digit is at least 5e-16.
func multiple(text string, value float64, times uint64) float64 {
	product := value * float64(times)
	mantissa, _, _ := strings.Cut(text, "e")
	if len(mantissa) > 10 || times > 99999 {
		product *= 1 + 6e-15 // More than Near can round down.
	}
	return decimal.Near(product, 15)
}

// EpochsSpend returns the (ε, δ) that a number of a client's reports for a task cost it, each in its own epoch. With
// events, the number is that of [task.Task.MostCopies]. EpochsSpend compares three bounds and takes the least ε: the
// composed laws, at the sum of the epochs' claimed δ; the sum of the claims; and the task's total. The caller must have
// checked the task's claim. The composition is that of [CheckTotal].
func EpochsSpend(t *task.Task, law func() (*compose.Law, error), reports uint64) (compose.Spend, error) {
	best := AddedClaims(t.Claim, reports)
	if reports > 1 && best.Delta < 1 {
		one, err := law()
		if err != nil {
			return best, err
		}
		// compose.Epsilon fails if unbounded losses are as likely as δ allows. Then the sum of the claims stands.
		eps, err := compose.Epsilon([]compose.Observation{one.Observation(reports)}, best.Delta)
		if err == nil && eps > 0 && eps < best.Epsilon {
			best.Epsilon = eps
		}
	}
	covered := reports <= t.MostCopies(t.Epochs.Count)
	if total := t.Claim.Total; !total.IsZero() && covered && total.Epsilon.Value() < best.Epsilon {
		best = compose.Spend{Epsilon: total.Epsilon.Value(), Delta: total.Delta.Value()}
	}
	return best, nil
}

// SetDelta returns an upper bound on δ at eps of all reports to the tables of a set: the product of copies[i] copies of
// the law of table i (docs/proofs/sets.md). 0 copies leave a table out. delta is the δ that the caller wants to know
// of.
func SetDelta(laws []func() (*compose.Law, error), copies []uint64, eps, delta float64) (float64, error) {
	var seen []compose.Observation
	for i, law := range laws {
		if copies[i] == 0 {
			continue
		}
		one, err := law()
		if err != nil {
			return 1, err
		}
		seen = append(seen, one.Observation(copies[i]))
	}
	return compose.Delta(seen, eps, delta), nil
}
