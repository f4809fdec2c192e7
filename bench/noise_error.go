package main

import (
	"context"
	"math"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// noiseError is the predicted standard deviation of one bin's count if two relays add the noise. The histogram has 256
// bins and 10⁵ clients, half of them in that bin, at ε = 1 and δ ≤ 10⁻⁶ (docs/accountant.md).
var noiseError = Group{
	Names: []string{"relay/noise/error/prio", "relay/noise/error/one-sided", "relay/noise/error/randomized"},
	Run: func(context.Context, *Setup) ([]Row, error) {
		_, m, err := histogram256(&planner.RelayNoise{})
		if err != nil {
			return nil, err
		}
		aggregate := protocols.CapabilitiesOf(m).Dummies(m.Aggregate())
		aggregate.AddDummies(planner.DefaultRelays, 0)
		ours := math.Sqrt(aggregate.DummyVariance()[0])
		t, _, err := histogram256(nil)
		if err != nil {
			return nil, err
		}
		gamma, _ := t.Param("gamma")
		row := func(name, peer string, variance float64) Row {
			return newRow("relay/noise/error/"+name, "clients", lower, ours).against(peer, math.Sqrt(variance))
		}
		return []Row{
			row("prio", "two aggregators of shares, each with discrete Laplace noise", prioVariance()),
			row("one-sided", "one shuffler's one-sided geometric dummies, arXiv 2504.07362", oneSidedVariance()),
			row("randomized", "randomized response, 9 in 10 clients honest", responseVariance(gamma.Float64())),
		}, nil
	},
}

// halfBin is the number of clients whose value falls into the measured bin.
const halfBin = usualClients / 2

func histogram256(noise *planner.RelayNoise) (*task.Task, protocols.Mechanism, error) {
	t, err := planner.Draft(planner.Query{Name: "error", Query: task.Histogram, Bins: 256, Labels: true,
		Batch: usualClients, Honest: 0.9, Epsilon: 1, Delta: 1e-6, Relays: noise})
	if err != nil {
		return nil, nil, err
	}
	m, err := registry.Open(t)
	return t, m, err
}

// prioVariance returns the variance of the sum of two draws from Pr[k] ~ e^{−|k|/2}, one per aggregator. The exponent
// is ε/2 because a client that changes its value changes two bins.
func prioVariance() float64 {
	q := math.Exp(-0.5)
	return 2 * 2 * q / ((1 - q) * (1 - q))
}

// oneSidedVariance returns the variance of a bin's estimate in arXiv 2504.07362. The shuffler keeps each of the bin's
// ν reports with probability β = 1−e^{−ε/2} and adds Z dummies, Pr[z] ~ 1/(1+e^{ε/2})^z. The variance is
// ν(1−β)/β + Var[Z]/β².
func oneSidedVariance() float64 {
	beta, ratio := -math.Expm1(-0.5), 1/(1+math.Exp(0.5))
	return halfBin*(1-beta)/beta + ratio/((1-ratio)*(1-ratio))/(beta*beta)
}

// responseVariance returns the variance of a bin's estimate if clients use randomized response: formula (2) in the
// documentation of [protocols.Cell].
func responseVariance(gamma float64) float64 {
	other := gamma / 256
	own := 1 - gamma + other
	return (halfBin*own*(1-own) + halfBin*other*(1-other)) / ((1 - gamma) * (1 - gamma))
}
