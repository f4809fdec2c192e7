package verifier_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// TestPromiseOfNoise: if relays add the noise, the promise needs no other honest client. It mentions exact answers only
// if clients do not randomize.
func TestPromiseOfNoise(t *testing.T) {
	noisy := &task.Task{Protocol: "augmented", Claim: task.Claim{Assumption: task.NoneHonest}}
	promise, err := verifier.Promise(noisy)
	require.NoError(t, err)
	require.Contains(t, promise, "no other client needs to be honest")
	require.Contains(t, promise, "exact answers, unlinked")
	require.NotContains(t, promise, "n_min")
	noisy.Params = []task.Param{{Key: "gamma"}}
	promise, err = verifier.Promise(noisy)
	require.NoError(t, err)
	require.NotContains(t, promise, "exact")
}

func TestPromiseNamesTheRelay(t *testing.T) {
	for _, c := range []struct {
		protocol string
		slots    task.Slots
		relay    string
		whole    bool
	}{
		{"histogram", task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1},
			"reach one relay that does not collude", false},
		{"vectorsum", task.Slots{Padding: task.PaddingFull, Lanes: 4, PerLane: 1},
			"reach one relay that does not collude", false},
		{"splitmix", task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 7},
			"reach one relay that does not collude", true},
		{"rappor", task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 5},
			"reach one relay that does not collude", true},
		{"correlated", task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 322},
			"reach a first relay that does not collude", false},
		{"vectormean", task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 128},
			"reach a first relay that does not collude", false},
		{"vectormean", task.Slots{Padding: task.PaddingNone, Lanes: 1, PerLane: 128},
			"reach a first relay that does not collude", false},
	} {
		promise, err := verifier.Promise(&task.Task{Protocol: c.protocol, Slots: c.slots})
		require.NoError(t, err)
		require.Contains(t, promise, c.relay, c.protocol)
		if c.whole {
			require.Contains(t, promise, "must stay in one batch", c.protocol)
		} else {
			require.NotContains(t, promise, "batch", c.protocol)
		}
	}
}
