package histogram

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Row implements [protocols.Protocol.Row].
func (*Protocol) Row() protocols.Row {
	return protocols.Row{
		Queries: []task.Query{task.Histogram},
		Default: []task.Query{task.Histogram},
		Costs:   []protocols.Case{{Query: task.Histogram, Bins: 16}},
		Trials:  []protocols.Case{{Query: task.Histogram, Bins: 5, Users: 500}},
	}
}

// Calibrate sets the parameters and slots of a task whose query, input, claim and batch are set. It takes the smallest
// γ that proves the claim, by the task's rule or, if it has none, by the tightest rule for K values.
func (*Protocol) Calibrate(t *task.Task) error {
	if err := checkQuery(t); err != nil {
		return err
	}
	krr, err := protocols.CalibrateKRR(t, t.Input.Bins)
	if err != nil {
		return err
	}
	t.Rule = krr.Rule(t)
	t.Params, t.Slots = []task.Param{{Key: "gamma", Value: krr.Gamma}}, krr.Slots()
	return nil
}
