package figures

import (
	"math"
	"slices"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// ourFigures returns this module's own figures, which are in no paper.
func ourFigures() []Figure {
	return []Figure{
		{
			Name: "ours-protocols", Paper: Ours, Title: "All protocols for a sum, at one guarantee", X: "users n",
			Y: "root mean square error for (1, 10⁻⁶)",
			Caption: "A sum of n numbers in [0, 1], the worst values. Randomized response with one message, and " +
				"RAPPOR's bits, have an error that grows as n^⅙. Split-and-mix and correlated noise stay close " +
				"to a curator. Where two relays add noise (augmented), clients send one message and none need " +
				"be honest. Prio's two servers each add a curator's noise: √2 times that error.",
			Slow:    true,
			Slopes:  []Slope{{Series: "realsum", From: 1e4, Theory: 1. / 6}, {Series: "splitmix", Theory: 0}},
			compute: oursProtocols,
		},
		{
			Name: "ours-honest", Paper: Ours, Title: "When not everybody is honest", X: "share of honest clients",
			LinearX: true,
			Y:       "root mean square error of a count, n = 10⁴",
			Caption: "A histogram of 16 values, and a sum, for (1, 10⁻⁶). Malicious clients add no noise, so " +
				"noise is calibrated for the honest share. If everybody is honest, all of it is added. Noise by " +
				"two relays does not depend on clients: its lines are flat, down to one honest client. So are a " +
				"curator's discrete Laplace noise, and Prio's, whose two servers each add a curator's. Nobody " +
				"can verify the assumed share.",
			compute: oursHonest,
		},
		{
			Name: "ours-epochs", Paper: Ours, Title: "What many epochs cost together", X: "epochs T",
			Y: "ε of all, δ = T·10⁻⁶",
			Caption: "A histogram of 16 values over 10,000 clients, who report in every epoch at (1, 10⁻⁶). " +
				"Added up, T epochs cost T times ε. At ε = 1 the theorem of advanced composition gives nothing " +
				"better. The exact composition of the laws of privacy loss costs less: a third of that for a " +
				"week, and a sixteenth for a year.",
			compute: oursEpochs,
		},
	}
}

func oursProtocols(quick bool) (*Table, error) {
	kinds := []string{"realsum", "rappor", "splitmix", "correlated", "augmented"}
	t := newTable("users", append(kinds, "Prio, both servers add noise", "curator")...)
	for _, n := range spread(1e3, 1e7, 9, quick) {
		var row []float64
		for _, p := range kinds {
			e, err := sumError(p, n, quick)
			if err != nil {
				return nil, err
			}
			row = append(row, e)
		}
		t.add(n, append(row, 2, math.Sqrt2)...)
	}
	return t, nil
}

// sumError returns the predicted root mean square error of a sum of n numbers in [0, 1]. In a quick run it returns NaN
// for protocol correlated with n > 10⁴, which takes ten seconds.
func sumError(protocol string, n float64, quick bool) (float64, error) {
	q := planner.Query{Query: task.Sum, Protocol: protocol, Hi: 1, Batch: uint64(n), Honest: 1, Epsilon: 1, Delta: 1e-6}
	switch protocol {
	case "augmented":
		q.Relays = &planner.RelayNoise{}
	case "correlated":
		if n > 1e4 && quick {
			return math.NaN(), nil
		}
	}
	_, m, err := draft(q)
	if err != nil {
		return 0, err
	}
	return withRelays(m, uint64(n)), nil
}

// withRelays returns the predicted root mean square error for n clients with the worst value. It includes the dummies
// of two relays if the protocol has dummies.
func withRelays(m protocols.Mechanism, n uint64) float64 {
	square := m.Worst().Variance * float64(n)
	if dummies := protocols.CapabilitiesOf(m).Dummies; dummies != nil {
		a := dummies(m.Aggregate())
		a.AddDummies(planner.DefaultRelays, 0)
		square += slices.Max(a.DummyVariance())
	}
	return math.Sqrt(square)
}

func oursHonest(quick bool) (*Table, error) {
	t := newTable("share", "histogram", "histogram, noise by relays", "histogram, Prio", "histogram, curator",
		"sum, realsum", "sum, splitmix", "sum, noise by relays", "sum, Prio", "sum, curator")
	for i := 1; i <= 10; i++ {
		h := float64(i) / 10
		if quick && i%5 != 0 {
			continue
		}
		var errors []float64
		for _, q := range []planner.Query{
			{Query: task.Histogram, Protocol: "histogram", Bins: 16, Labels: true},
			{Query: task.Histogram, Protocol: "augmented", Bins: 16, Labels: true, Relays: &planner.RelayNoise{}},
			{Query: task.Sum, Protocol: "realsum", Hi: 1},
			{Query: task.Sum, Protocol: "splitmix", Hi: 1},
			{Query: task.Sum, Protocol: "augmented", Hi: 1, Relays: &planner.RelayNoise{}},
		} {
			q.Batch, q.Honest, q.Epsilon, q.Delta = 1e4, h, 1, 1e-6
			_, m, err := draft(q)
			if err != nil {
				return nil, err
			}
			errors = append(errors, withRelays(m, 1e4))
		}
		bins := math.Sqrt(discreteLaplaceVariance(1. / 2)) // a client that changes its value changes two counts
		row := append(slices.Clone(errors[:2]), math.Sqrt2*bins, bins)
		row = append(row, errors[2:]...)
		t.add(h, append(row, 2, math.Sqrt2)...)
	}
	return t, nil
}

// discreteLaplaceVariance returns the variance of Pr[k] ~ e^{−s·|k|} over the whole numbers.
func discreteLaplaceVariance(s float64) float64 {
	q := math.Exp(-s)
	return 2 * q / ((1 - q) * (1 - q))
}

func oursEpochs(quick bool) (*Table, error) {
	const users, eps, delta = 1e4, 1., 1e-6
	law, err := compose.KRRLaw(accountant.Exact, 16, gammaOf(accountant.Exact, 16, users, eps, delta), users)
	if err != nil {
		return nil, err
	}
	t := newTable("epochs", "added up", "advanced composition", "composed exactly")
	for _, n := range []float64{1, 2, 4, 7, 14, 30, 60, 120, 365} {
		if quick && n != 7 && n != 365 {
			continue
		}
		exact, err := compose.Epsilon([]compose.Observation{law.Observation(uint64(n))}, n*delta)
		if err != nil {
			return nil, err
		}
		advanced, _ := compose.Advanced(eps, delta/2, n*delta/2, int(n))
		t.add(n, n*eps, min(advanced, n*eps), exact)
	}
	return t, nil
}
