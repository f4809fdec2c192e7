package vectormean

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Protocol is the protocol's row in the table of all.
type Protocol struct{}

// ProtocolName is [Name].
func (*Protocol) ProtocolName() string { return Name }

// Open is [New].
func (*Protocol) Open(t *task.Task) (protocols.Mechanism, error) { return New(t) }

// Calibrate is [Calibrate].
func (*Protocol) Calibrate(t *task.Task) error { return Calibrate(t) }

// Row is [protocols.Protocol.Row].
func (*Protocol) Row() protocols.Row {
	return protocols.Row{
		Queries: []string{task.VectorMean},
		Default: []string{task.VectorMean},
		Rule:    Rule,
		Costs: []protocols.Case{
			{Query: task.VectorMean, Dim: 16, Padding: task.PaddingNone},
			{Query: task.VectorMean, Dim: 16, Padding: task.PaddingFull},
		},
		Trials: []protocols.Case{{Query: task.VectorMean, Dim: 2, Users: 100, Epsilon: 4}},
	}
}
