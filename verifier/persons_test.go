package verifier

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// costsOf returns the costs of a task of a year of days under (10, 10⁻⁵).
func costsOf(t *testing.T, q planner.Query) *costs {
	t.Helper()
	q.Name, q.Batch, q.Honest, q.TotalEpsilon, q.TotalDelta, q.Epochs = "year", 10_000, .9, 10, 1e-5, 365
	draft, err := planner.Draft(q)
	require.NoError(t, err)
	signed, err := fixture.Sign(draft, []string{"https://a.example", "https://b.example"},
		task.Epochs{Start: 1_800_000_000, Length: 86400, Count: 365, Cap: q.Cap, Events: q.Events})
	require.NoError(t, err)
	open, err := signed.Bundle.Open(nil)
	require.NoError(t, err)
	m, err := registry.Open(open.Task)
	require.NoError(t, err)
	return newCosts(subject{open: open, mechanism: m})
}

// gaussianEpsilon returns the ε at which Gaussian noise with μ² = square has this δ.
func gaussianEpsilon(square, delta float64) float64 {
	lo, hi := 0.0, 100.0
	for hi-lo > 1e-6 {
		if found, _ := compose.GaussianDelta(square, (lo+hi)/2); found > delta {
			lo = (lo + hi) / 2
		} else {
			hi = (lo + hi) / 2
		}
	}
	return hi
}

// TestPersons: with Gaussian noise over many epochs, two devices have twice the μ of one, and a wiped browser the μ² of
// its reports and of four. The costs must be within a tenth of that, and not below a thousandth under it. Group privacy
// promises much less, and is used where the law of equal reports is not known.
func TestPersons(t *testing.T) {
	c := costsOf(t, planner.Query{Query: task.Histogram, Bins: 64, Labels: true,
		Cap: task.Cap{Reports: 56, Window: 365}, Relays: &planner.RelayNoise{}})
	ten := 10.0
	p, err := c.ofPersons(56, 365, ledger.PersonCost{Epsilon: &ten, Delta: 1e-5})
	require.NoError(t, err)
	require.True(t, p.Exact)
	one := compose.GaussianSquare(10, 1e-5) / 56
	within := func(want float64, c ledger.PersonCost) {
		t.Helper()
		require.NotNil(t, c.Epsilon)
		t.Logf("ε = %.4g, Gaussian %.4g, δ = %.3g", *c.Epsilon, want, c.Delta)
		require.Greater(t, *c.Epsilon, want*.999)
		require.Less(t, *c.Epsilon, want*1.1)
	}
	within(gaussianEpsilon(56*4*one, 1e-5), p.Devices)
	within(gaussianEpsilon((110+4)*one, 1e-5), p.Wiped)
	within(gaussianEpsilon(4*one, c.open.Claim.Delta.Value()), p.Batch)
	again, err := c.ofPersons(56, 365, ledger.PersonCost{Epsilon: &ten, Delta: 1e-5})
	require.NoError(t, err)
	require.Same(t, p, again)
	none, err := c.ofPersons(0, 0, ledger.PersonCost{Epsilon: new(float64)})
	require.NoError(t, err)
	require.Nil(t, none)

	requireGroupPrivacy(t, costsOf(t, planner.Query{Query: task.Histogram, Protocol: "histogram", Bins: 16,
		Labels: true}))
	c = costsOf(t, planner.Query{Query: task.Histogram, Bins: 7, Labels: true,
		Events: task.Events{Most: 1, Window: 30, Default: 2}, Relays: &planner.RelayNoise{}})
	require.NotNil(t, c.open.Noise.Rest)
	requireGroupPrivacy(t, c)
}

// requireGroupPrivacy checks the costs of persons in a task whose law of equal reports is not known.
func requireGroupPrivacy(t *testing.T, c *costs) {
	t.Helper()
	small := 1.0
	p, err := c.ofPersons(30, 30, ledger.PersonCost{Epsilon: &small, Delta: 1e-6})
	require.NoError(t, err)
	require.False(t, p.Exact)
	require.InEpsilon(t, 2, *p.Devices.Epsilon, 1e-9)
	require.InEpsilon(t, 1e-6*(1+math.E), p.Devices.Delta, 1e-9)
	rest, err := c.of(29)
	require.NoError(t, err)
	require.Greater(t, *p.Wiped.Epsilon, rest.Epsilon+*p.Batch.Epsilon*(1-1e-9))
}

// TestPersonsWithEvents: noise with and without a rest cell has costs of persons, by group privacy: of the copies that
// events need and not of all epochs.
func TestPersonsWithEvents(t *testing.T) {
	for _, most := range []uint64{1, 4} {
		c := costsOf(t, planner.Query{Query: task.Histogram, Bins: 16, Labels: true, Relays: &planner.RelayNoise{},
			Events: task.Events{Most: most, Window: 365, Default: 5}})
		r := &Report{}
		for day := range uint64(365) {
			r.Ledger.Epochs = append(r.Ledger.Epochs, EpochReport{Start: epochStart(c.open.Task, day)})
		}
		visitor, err := c.of(c.open.MostCopies(365))
		require.NoError(t, err)
		r.Ledger.Epsilon, r.Ledger.Delta = &visitor.Epsilon, visitor.Delta
		require.NoError(t, c.setPersons(r))
		p := r.Ledger.Persons
		require.False(t, p.Exact)
		t.Log(c.open.Noise.Rest, visitor, p.Devices.Delta, *p.Wiped.Epsilon, p.Wiped.Delta)
		require.NotNil(t, p.Wiped.Epsilon)
		require.Greater(t, *p.Wiped.Epsilon, visitor.Epsilon)
		require.Less(t, *p.Wiped.Epsilon, 6*visitor.Epsilon)
	}
}
