package main

import (
	"context"
	"math"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// accuracy is the root mean square error of one entry of the answer, for the tasks of the client rows. 5,000 clients
// hold the worst values; the claim is ε = 1 and δ = 10⁻⁶ if one client's value is replaced. The peer has two
// aggregators with the same claim. Each adds the noise of a trusted curator, because either may be the only honest one.
// The limit is one trusted curator.
//
// The trust assumptions differ. In ours clients add the noise: it needs one honest relay of two, and 9 in 10 clients
// honest. Two aggregators need one honest aggregator, whatever clients do, and clients prove that their values are
// valid.
var accuracy = Group{Names: accuracyNames(), Run: measureAccuracy}

func accuracyNames() (names []string) {
	for _, k := range kinds {
		names = append(names, "client/"+k.name+"/rmse")
	}
	return names
}

func measureAccuracy(context.Context, *Setup) (rows []Row, err error) {
	for _, k := range kinds {
		t, err := kindDraft(k.query)
		if err != nil {
			return nil, err
		}
		ours, err := worstError(t)
		if err != nil {
			return nil, err
		}
		curator := curatorError(t)
		rows = append(rows, newRow("client/"+k.name+"/rmse", "units of the sum", lower, ours).
			against("two aggregators, of whom each adds a curator's noise", math.Sqrt2*curator).
			within("a curator who sees all values", curator))
	}
	return rows, nil
}

// worstError returns the root mean square error of an entry if all clients hold the worst value.
func worstError(t *task.Task) (float64, error) {
	m, err := registry.Open(t)
	if err != nil {
		return 0, err
	}
	_, variance, err := m.Exact(m.Worst().Value)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, each := range variance {
		sum += each
	}
	clients := float64(t.Batch.Size)
	return math.Sqrt(clients*sum/float64(len(variance))) * protocols.Scale(t.Query, t.Batch.Size), nil
}

// curatorError returns the standard deviation of discrete Laplace or Gaussian noise, whichever is less. Replacing one
// client's value moves a count or sum by its range, two bins by 1 each, or every coordinate of a vector by its range.
func curatorError(t *task.Task) float64 {
	absolute, euclidean := 1.0, 1.0
	unit := t.Input.Hi.Float64() - t.Input.Lo.Float64()
	switch bins := float64(t.Input.Bins); t.Query.Info().Shape {
	case task.PerBin:
		absolute, euclidean, unit = 2, math.Sqrt2, 1
	case task.PerVector:
		absolute, euclidean = bins, math.Sqrt(bins)
	}
	eps, delta := t.Claim.Epsilon.Value(), t.Claim.Delta.Value()
	laplace := 1 / (math.Sqrt2 * math.Sinh(eps/absolute/2))
	return unit * min(laplace, euclidean/math.Sqrt(compose.GaussianSquare(eps, delta)))
}
