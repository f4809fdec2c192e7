package protocols

import (
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// CheckTotal is an error unless all epochs of a task, of each of which the law is given, keep the task's total,
// if it claims one; that of an epoch has been checked. The epochs have one law, fixed before the first:
// docs/proofs/loss-laws.md, Theorem 3 (a).
func CheckTotal(t *task.Task, law func() (*compose.Law, error)) error {
	total := t.Claim.Total
	if total.IsZero() {
		return nil
	}
	if t.Epochs.Count == 0 {
		return invalid.Field("epochs.count", "0", "at least 1 with a claim over all epochs")
	}
	if n := float64(t.Epochs.Count); n*t.Claim.Epsilon.Value() <= total.Epsilon.Value() &&
		n*t.Claim.Delta.Value() <= total.Delta.Value() {
		return nil // The claim of an epoch is enough: it adds up to no more.
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

// Together returns what a number of a task's epochs cost a client together, at least 1: that of their laws at the
// sum of their δ, or the task's total, or the sum of their claims, whichever has the least ε. The task's claim must
// have been checked. The theorem is that of [CheckTotal].
func Together(t *task.Task, m Mechanism, epochs uint64) (compose.Spend, error) {
	n, claim := float64(epochs), t.Claim
	sum := compose.Spend{Epsilon: n * claim.Epsilon.Value(), Delta: n * claim.Delta.Value()}
	if total := claim.Total; !total.IsZero() && epochs <= t.Epochs.Count && total.Epsilon.Value() < sum.Epsilon {
		return compose.Spend{Epsilon: total.Epsilon.Value(), Delta: total.Delta.Value()}, nil
	}
	if epochs <= 1 || sum.Delta >= 1 {
		return sum, nil
	}
	law, err := m.Law()
	if err != nil {
		return sum, err
	}
	eps, err := compose.Epsilon([]compose.Observation{law.Observation(epochs)}, sum.Delta)
	if err != nil { // Losses without bound alone are as likely as δ allows.
		return sum, nil
	}
	return compose.Spend{Epsilon: min(sum.Epsilon, eps), Delta: sum.Delta}, nil
}
