package compose_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
)

// curveOf returns the curve δ(ε) of a task with the given noise parameter.
type curveOf func(parameter float64) func(eps float64) float64

// both extends a symmetric pair's curve from ε ≥ 0 to all real ε.
func both(forward func(eps float64) float64) func(eps float64) float64 {
	return func(eps float64) float64 {
		if eps < 0 {
			return -math.Expm1(eps) + math.Exp(eps)*forward(-eps)
		}
		return forward(eps)
	}
}

func gaussianTask(mu float64) func(eps float64) float64 {
	return both(func(eps float64) float64 {
		delta, _ := compose.GaussianDelta(mu*mu, eps)
		return delta
	})
}

func pureTask(eps0 float64) func(eps float64) float64 {
	return both(func(eps float64) float64 {
		return math.Max(0, (math.Exp(eps0)-math.Exp(eps))/(1+math.Exp(eps0)))
	})
}

func failingTask(delta float64) func(eps float64) float64 {
	return both(func(float64) float64 { return delta })
}

// after returns δ(eps) of a Gaussian with μ = .8, followed by a task with a curve that may depend on the Gaussian's
// loss.
func after(eps float64, curve func(eps float64) float64) (delta float64) {
	const step = 1.0 / 1024
	for loss := -8.0; loss < 10; loss += step {
		z := loss/firstMu - firstMu/2
		delta += step * math.Exp(-z*z/2) / (firstMu * math.Sqrt(2*math.Pi)) * curve(eps-loss)
	}
	return delta
}

const firstMu = .8

// second returns the curve of the task that, after the Gaussian with μ = .8, costs δ = 10⁻⁶ at ε = 4. It searches the
// parameter between low and high.
func second(family curveOf, low, high float64) func(eps float64) float64 {
	for range 25 {
		if mid := (low + high) / 2; after(4, family(mid)) < 1e-6 {
			low = mid
		} else {
			high = mid
		}
	}
	return family(low)
}

// If the owner chooses the second task by the first task's results, composing laws as if the tasks were fixed
// beforehand is wrong. Each of the three choices costs δ = 10⁻⁶ together with the first task, but choosing among them
// costs 1.96·10⁻⁶. [compose.Adaptive] adds ε and δ instead, and must never be below the truth.
func TestChoosingTasksByResultsCostsMoreThanAnyChoice(t *testing.T) {
	choices := []func(eps float64) float64{
		second(pureTask, .001, 3), second(gaussianTask, .01, 2), second(failingTask, 1e-9, 1e-5),
	}
	chosen := after(4, func(eps float64) (most float64) {
		for _, curve := range choices {
			most = max(most, curve(eps))
		}
		return most
	})
	require.InEpsilon(t, 1.957e-6, chosen, 1e-3)
	first := gaussianTask(firstMu)
	for i, curve := range choices {
		require.InEpsilon(t, 1e-6, after(4, curve), 1e-3, "choice %d, fixed beforehand", i)
		for share := .5; share < 4; share += .1 {
			total := compose.Adaptive(compose.Spend{Epsilon: 4 - share, Delta: first(4 - share)},
				compose.Spend{Epsilon: share, Delta: curve(share)})
			require.InDelta(t, 4, total.Epsilon, 1e-9)
			require.Greater(t, total.Delta, chosen, "choice %d, of whose ε is %v", i, share)
		}
	}
}
