package main

import (
	"context"
	"math"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

// accuracy is the root mean square error of an entry of the answer to the tasks of the client rows: 5,000 clients with
// the worst values, ε = 1 and δ = 10⁻⁶ against a substitution. The peer's is that of the same claim: each of two
// aggregators adds the noise of a curator, as either may be the one that does not collude. The limit is such a curator.
//
// The promises differ. Ours holds if one relay of two does not collude, and for 9 in 10 clients honest, as clients add
// the noise; that of two aggregators for one of them honest, whatever clients do, and they prove that their values are
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

// worstError is that of the worst values.
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

// curatorError is the standard deviation of discrete Laplace or of Gaussian noise, whichever is less, where a
// substitution moves a count or sum by its range, two bins by 1, and every coordinate of a vector by its range.
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
