package protocols_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// EpochsEpsilon returns the least of the known bounds: the task's total, the sum of the claims, and the composed law.
// It tries several δ, and more epochs than the task has.
func TestWithin(t *testing.T) {
	draft, err := planner.Draft(planner.Query{Name: "within", Query: task.Histogram, Bins: 16, Labels: true,
		Batch:  10_000,
		Honest: 1, TotalEpsilon: 5.2, TotalDelta: 3e-5, Epochs: 30})
	require.NoError(t, err)
	m, err := registry.Open(draft)
	require.NoError(t, err)
	within := func(epochs uint64, delta float64) float64 {
		eps, err := protocols.EpochsEpsilon(draft, m.Law, epochs, delta)
		require.NoError(t, err)
		return eps
	}
	require.Equal(t, 5.2, within(30, 3e-5))
	require.Equal(t, draft.Claim.Epsilon.Value(), within(1, 1e-4))
	law, err := m.Law()
	require.NoError(t, err)
	for epochs, delta := range map[uint64]float64{1: 1e-9, 30: 1e-5, 31: 3e-5, 365: 1e-5} {
		eps := within(epochs, delta)
		derived := compose.Delta([]compose.Observation{law.Observation(epochs)}, eps, delta)
		require.LessOrEqual(t, derived, delta)
		require.Greater(t, derived, delta*.999, "%d epochs", epochs)
	}
	_, err = protocols.EpochsEpsilon(draft, m.Law, 30, 1e-30)
	require.ErrorContains(t, err, "delta")
	added := *draft
	added.Claim.Total = task.Claim{}.Total
	eps, err := protocols.EpochsEpsilon(&added,
		func() (*compose.Law, error) { return compose.LawOf(func(float64) float64 { return 1 }, 1), nil }, 3, 1e-3)
	require.NoError(t, err)
	require.Equal(t, protocols.AddedClaims(draft.Claim, 3).Epsilon, eps)
}
