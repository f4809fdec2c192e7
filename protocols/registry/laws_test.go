package registry_test

import (
	"errors"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// proves says whether the rule of a task derives another claim from its parameters. That is not known where
// the claim is refused for something else than δ.
func proves(t *testing.T, draft *task.Task, eps, delta float64) (proven, known bool) {
	other := *draft
	other.Claim.Epsilon = task.NewEpsilon(strconv.FormatFloat(eps, 'f', 12, 64))
	other.Claim.Delta = task.NewDelta(strconv.FormatFloat(delta, 'e', 12, 64))
	require.NotZero(t, other.Claim.Delta.Value(), "%v", delta)
	m, err := registry.Open(&other)
	require.NoError(t, err)
	err = m.CheckClaim()
	var field *invalid.FieldError
	if errors.As(err, &field) && field.Field != "claim.delta" {
		return false, false
	}
	return err == nil, true
}

// checkLaw says of how many ε the law of a task was found to be nowhere below the task's rule, nor above it by more
// than 1 % in ε.
func checkLaw(t *testing.T, draft *task.Task) (checked int) {
	m, err := registry.Open(draft)
	require.NoError(t, err)
	law, err := m.Law()
	require.NoError(t, err)
	read, err := compose.DecodeLaw(law.Encode())
	require.NoError(t, err, "%s %s", draft.Protocol, draft.Query)
	require.Equal(t, law, read)
	claimed := draft.Claim.Epsilon.Value()
	shares := []float64{.3, .6, .9, 1, 1.1, 1.3}
	switch draft.Protocol {
	case "correlated": // Its claim is proven at one θ, its law at several.
		shares = shares[3:4]
	case "vectormean": // What a rule leaves out is a part of the claim's δ, of a law that of the task's.
		shares = shares[2:5]
	}
	for _, share := range shares {
		eps := claimed * share
		delta := law.Delta(eps)
		if delta < 1e-12 || delta > .1 {
			continue
		}
		proven, known := proves(t, draft, eps, delta*(1+1e-9))
		if !known {
			continue
		}
		checked++
		if !proven && eps > claimed { // Terms that are added grow with ε. What is proven at a smaller one holds too.
			proven, _ = proves(t, draft, claimed, delta*(1+1e-4))
		}
		require.True(t, proven, "%s %s: δ(%v) is above the law's %v", draft.Protocol, draft.Query, eps, delta)
		if less := law.Delta(eps * 1.01); less > 1e-12 {
			proven, _ = proves(t, draft, eps, less*(1-1e-4))
			require.False(t, proven, "%s %s: δ(%v) is below the law's at 1.01 times that, %v", draft.Protocol,
				draft.Query,
				eps, less)
		}
	}
	if os.Getenv("DOONA_FULL") != "" {
		checkFar(t, draft, law)
	}
	// Both directions have one curve, so ε < 0 is its mirror image.
	for _, eps := range []float64{.003, .1, 1, 2.9, 8} {
		mirrored, name := -math.Expm1(-eps)+math.Exp(-eps)*law.Delta(eps), draft.Protocol+" "+string(draft.Query)
		require.GreaterOrEqual(t, law.Delta(-eps), mirrored*(1-1e-10), "%s at −%v", name, eps)
	}
	epochs, err := compose.Epsilon([]compose.Observation{law.Observation(30)}, 30*draft.Claim.Delta.Value())
	require.NoError(t, err)
	require.LessOrEqual(t, epochs, 30*claimed*1.002)
	checkTogether(t, draft, law)
	return checked
}

// checkFar says that a law is nowhere below its rule far from its claim either, up to ε = 8 and as far as rules tell.
func checkFar(t *testing.T, draft *task.Task, law *compose.Law) {
	if draft.Protocol == "correlated" { // Its claim is proven at one θ, its law at several.
		return
	}
	claimed := draft.Claim.Epsilon.Value()
	for _, eps := range []float64{.01 * claimed, .1 * claimed, 1.7 * claimed, 2.5 * claimed, 4, 8} {
		delta := law.Delta(eps) * (1 + 1e-9)
		if delta < 1e-12 || delta > .9 { // Some rules say nothing of less.
			continue
		}
		proven, known := proves(t, draft, eps, delta)
		if known && !proven && eps > claimed {
			proven, _ = proves(t, draft, claimed, delta*(1+1e-4))
		}
		if known {
			require.True(t, proven, "%s %s: δ(%v) is above the law's %v", draft.Protocol, draft.Query, eps, delta)
		}
	}
}

// checkTogether says that more epochs cost more, and none less than the mean of their losses.
func checkTogether(t *testing.T, draft *task.Task, law *compose.Law) {
	epochs, last := []uint64{7, 30, 1500}, 0.0
	if os.Getenv("DOONA_FULL") != "" {
		epochs = []uint64{7, 30, 365, 800, 1500, 4096, 1 << 14, 1 << 16}
	}
	name, mean := draft.Protocol+" "+string(draft.Query), meanLoss(law)
	for _, n := range epochs {
		spent, err := protocols.Together(draft, func() (*compose.Law, error) { return law, nil }, n)
		require.NoError(t, err, name)
		require.Greater(t, spent.Epsilon, last, "%s, %d epochs", name, n)
		require.LessOrEqual(t, spent.Epsilon, float64(n)*draft.Claim.Epsilon.Value()*(1+1e-15), name)
		require.GreaterOrEqual(t, spent.Epsilon, float64(n)*mean, "%s, %d epochs", name, n)
		last = spent.Epsilon
	}
}

// meanLoss is not above the mean of a symmetric pair's finite losses, ∫ δ(ε)(1+e^{−ε})dε without the infinite ones, or
// 0 where these matter: then there may be an ε below the mean.
func meanLoss(law *compose.Law) (mean float64) {
	const step, infinite = 1e-3, 50
	if law.Delta(infinite) > 1e-9 {
		return 0
	}
	for eps := step; eps < 3; eps += step {
		mean += step * (law.Delta(eps) - law.Delta(infinite)) * (1 + math.Exp(-eps))
	}
	return mean
}

// Every protocol's law agrees with what its rule derives, wherever that says something.
func TestEveryLawIsItsRule(t *testing.T) {
	for _, p := range registry.All() {
		checked := 0
		trials := p.Row().Trials
		if p.ProtocolName() == "correlated" { // The planner's search takes a second for each.
			trials = trials[:1]
		}
		for _, c := range trials {
			draft, err := planner.Draft(planner.Example(p.ProtocolName(), c, 1))
			require.NoError(t, err)
			checked += checkLaw(t, draft)
		}
		require.NotZero(t, checked, p.ProtocolName())
	}
}
