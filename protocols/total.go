package protocols

import (
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// CheckTotal is an error unless all epochs of a task, of each of which the law is given, keep the task's total,
// if it claims one. The epochs have one law, fixed before the first: docs/proofs/loss-laws.md, Theorem 3 (a).
func CheckTotal(t *task.Task, law func() (*compose.Law, error)) error {
	total := t.Claim.Total
	if total.IsZero() {
		return nil
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
