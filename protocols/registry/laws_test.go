package registry_test

import (
	"errors"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// proves reports whether the task's rule derives the claim (eps, delta) from the task's parameters. known is false if
// the claim is refused for a field other than δ.
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

// checkLaw checks the law of a task against the task's rule, and returns at how many ε it compared them. The law must
// nowhere be below the rule, and at most 1 % in ε above it. For correlated and vectormean it compares only at the
// claim, because their rule is the least of several bounds. Their own tests LawIsItsRuleAtEveryEpsilon compare the law
// with what these bounds prove together.
func checkLaw(t *testing.T, draft *task.Task) (checked int) {
	m, err := registry.Open(draft)
	require.NoError(t, err)
	law, err := m.Law()
	require.NoError(t, err)
	read, err := compose.DecodeLaw(law.Encode())
	require.NoError(t, err, "%s %s", draft.Protocol, draft.Query)
	require.Equal(t, law, read)
	claimed := draft.Claim.Epsilon.Value()
	at, slack := points(law, claimed), 1e-9
	several := draft.Protocol == "correlated" || draft.Protocol == "vectormean"
	if several {
		at, slack = at[len(at)-1:], .05
	}
	for _, eps := range at {
		delta := law.Delta(eps)
		proven, known := proves(t, draft, eps, delta*(1+slack))
		if !known {
			continue
		}
		checked++
		if !proven && eps > claimed { // The rule's bound may grow with ε; a proof at a smaller ε holds too.
			proven, _ = proves(t, draft, claimed, delta*(1+1e-4))
		}
		require.True(t, proven, "%s %s: δ(%v) is above the law's %v", draft.Protocol, draft.Query, eps, delta)
		if less := law.Delta(eps * 1.01); less > 1e-12 {
			proven, _ = proves(t, draft, eps, less*(1-1e-4))
			require.False(t, proven, "%s %s: δ(%v) is below the law's at 1.01 times that, %v", draft.Protocol,
				draft.Query, eps, less)
		}
	}
	if !several {
		checkFar(t, draft, law)
	}
	// Both directions of a substitution have the same curve, so at ε < 0 the curve is the mirror image. Both are
	// rounded up; composed laws by up to 10⁻⁶ of their δ.
	for _, eps := range []float64{.003, .1, 1, 2.9, 8} {
		mirrored, name := -math.Expm1(-eps)+math.Exp(-eps)*law.Delta(eps), draft.Protocol+" "+string(draft.Query)
		require.GreaterOrEqual(t, law.Delta(-eps), mirrored*(1-1e-6), "%s at −%v", name, eps)
	}
	epochs, err := compose.Epsilon([]compose.Observation{law.Observation(30)}, 30*draft.Claim.Delta.Value())
	require.NoError(t, err)
	require.LessOrEqual(t, epochs, 30*claimed*1.002)
	checkTogether(t, draft, law)
	return checked
}

// points returns ε at which the law's δ is between 10⁻¹ and 10⁻¹², and the claimed ε. In full runs, neighbouring δ
// differ by half a power of ten.
func points(law *compose.Law, claimed float64) (all []float64) {
	step := 2.75
	if stattest.Long {
		step = .5
	}
	for exponent := 1.0; exponent <= 12; exponent += step {
		lo, hi := 0.0, 10.0
		for range 60 {
			if mid := (lo + hi) / 2; law.Delta(mid) > math.Pow(10, -exponent) {
				lo = mid
			} else {
				hi = mid
			}
		}
		hi = math.Floor(hi*1e6) / 1e6 // So that a claim's decimals give exactly this number.
		if hi < 10 && law.Delta(hi) >= 1e-12 && hi > 1e-3*claimed {
			all = append(all, hi)
		}
	}
	return append(all, claimed)
}

// checkFar checks that a law is not below its rule far from its claim either: up to ε = 8, where the rule applies.
func checkFar(t *testing.T, draft *task.Task, law *compose.Law) {
	claimed, far := draft.Claim.Epsilon.Value(), []float64{8}
	if stattest.Long {
		far = []float64{.003, .03, .1, .3, 1, 2, 3, 4, 5, 6, 7, 8}
	}
	for _, eps := range far {
		delta := law.Delta(eps) * (1 + 1e-9)
		if delta < 1e-12 || delta > .9 { // Some rules prove nothing for a δ below 1e-12.
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

// checkTogether checks that more epochs cost more, and that n epochs cost at least n times the mean loss of one.
func checkTogether(t *testing.T, draft *task.Task, law *compose.Law) {
	epochs, last := []uint64{7, 30, 1500}, 0.0
	if stattest.Long {
		epochs = []uint64{7, 30, 365, 800, 1500, 4096, 1 << 14, 1 << 16}
	}
	name, mean := draft.Protocol+" "+string(draft.Query), meanLoss(law)
	for _, n := range epochs {
		spent, err := protocols.EpochsSpend(draft, func() (*compose.Law, error) { return law, nil }, n)
		require.NoError(t, err, name)
		require.Greater(t, spent.Epsilon, last, "%s, %d epochs", name, n)
		require.LessOrEqual(t, spent.Epsilon, float64(n)*draft.Claim.Epsilon.Value()*(1+1e-15), name)
		require.GreaterOrEqual(t, spent.Epsilon, float64(n)*mean, "%s, %d epochs", name, n)
		last = spent.Epsilon
	}
}

// meanLoss returns a lower bound of the mean privacy loss of one epoch, ∫ δ(ε)(1+e^{−ε})dε, without infinite losses. It
// returns 0 if infinite losses are too probable to neglect: the true ε could then be below the mean.
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

// Every protocol's law agrees with its rule, wherever the rule proves something.
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
		t.Logf("%s: %d ε in %d tasks", p.ProtocolName(), checked, len(trials))
		require.NotZero(t, checked, p.ProtocolName())
	}
}
