package correlated_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/protocols/correlated"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// TestClosedFormNextToEpsilon: what the closed form leaves for the zero-sum noise may be too little to be
// drawn. That is an error of the task and must not end the client.
func TestClosedFormNextToEpsilon(t *testing.T) {
	d := draft(task.Count, task.PaddingFull, 1000, "1", "1e-6", whole("max", 1))
	d.Rule = correlated.RuleTheorem2
	d.Slots = task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 100, MessageBytes: 1}
	for _, below := range []int64{1, 10} {
		d.Params = []task.Param{{Key: "central", Value: randomizer.NewRational(1<<40-below, 1<<40)}, whole("max", 1)}
		_, err := new(correlated.Protocol).Open(d)
		requireField(t, err, "params.central")
	}
	d.Params[0].Value = randomizer.NewRational(1<<40-100, 1<<40)
	_, err := new(correlated.Protocol).Open(d)
	require.NoError(t, err)
}
