package correlated_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/protocols/correlated"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// draft returns a task of the protocol before calibration.
func draft(query, padding string, n uint64, eps, delta string, params ...task.Param) *task.Task {
	t := &task.Task{
		Name: "test", Query: query, Protocol: correlated.Name, Rule: correlated.RuleMoments, Params: params,
		Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1)},
		Claim: task.Claim{Epsilon: eps, Delta: delta},
		Batch: task.Batch{Size: n, Honest: randomizer.NewRational(1, 1), Min: n},
		Slots: task.Slots{Padding: padding}, Clients: task.Clients{Kind: task.ClientAddress, Quota: 1}, KEM: task.KEMX25519,
	}
	if query == task.Histogram {
		t.Input.Bins, t.Input.Labels = 8, true
	}
	if query == task.Vector {
		t.Input.Bins = 8
	}
	return t
}

func whole(key string, v int64) task.Param {
	return task.Param{Key: key, Value: randomizer.NewRational(v, 1)}
}

func calibrated(t *testing.T, d *task.Task, o correlated.Options) *correlated.Mechanism {
	t.Helper()
	start := time.Now()
	require.NoError(t, correlated.CalibrateWith(d, o))
	took := time.Since(start)
	require.NoError(t, d.ValidateDraft())
	m, err := new(correlated.Protocol).Open(d)
	require.NoError(t, err)
	start = time.Now()
	require.NoError(t, m.CheckClaim())
	t.Logf("%s, padding %s, n=%d: calibrated in %v, checked in %v", d.Query, d.Slots.Padding, d.Batch.Size, took, time.Since(start))
	return m.(*correlated.Mechanism)
}

func TestDelta16(t *testing.T) {
	for _, padding := range []string{task.PaddingNone, task.PaddingFull} {
		d := draft(task.Sum, padding, 1e6, "1", "1e-6", whole("max", 16))
		m := calibrated(t, d, correlated.Options{})
		zeroSum, central := m.Messages()
		t.Logf("zero-sum messages per user %.4f, central %.2g, B = %d", zeroSum, central, d.Slots.PerLane)
		if padding == task.PaddingNone {
			require.LessOrEqual(t, zeroSum, 0.3)
		} else {
			require.LessOrEqual(t, zeroSum, 1.0)
			require.LessOrEqual(t, d.Slots.PerLane, uint64(450))
		}
		p := math.Exp(-0.9 / 16)
		require.InEpsilon(t, (2*p/((1-p)*(1-p))+1e6/4)/(16*16), m.WorstVariance()*1e6, 1e-6)
	}
}
