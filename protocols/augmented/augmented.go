// Package augmented counts what clients hold, and relays hide each client by adding dummies: the augmented shuffle
// model ([MSE25]). No other client needs to be honest.
//
// A client sends its value unchanged: the bin or label of a histogram, or 0 or 1 for a count. For a sum it maps its
// value to x in [0, 1] and rounds xk stochastically to a level x̄ in {0, …, k}. A cell is a value that a message can
// have. Before it permutes, every relay adds Z_j dummies of each cell j, drawn by the law in the task. Let D be the
// number of these draws, over all relays and batches, N_j the number of messages of cell j, and n the number of
// messages from clients. The analyzer estimates
//
//	ĉ_j = (N_j − D·E[Z_j] − nγ/K) / (1−γ)                                                        (1)
//	Σx ≈ (zn + Σ_j (j−z)·N_j − D·E[Σ_j (j−z)·Z_j])/k, and then (… − nγ/2)/(1−γ)                   (2)
//
// z is 0, or k/2 for a Gaussian tilt: n is known exactly, and sums counted from the middle level need less noise. γ is
// 0 unless the task also asks for local randomization. Then a client sends one of the K cells, drawn uniformly, with
// probability γ.
//
// Guarantee: (ε, δ)-DP by substitution of one client's value, against everybody else together, if any one relay is
// honest (package accountant/relaynoise, docs/proofs/relay-noise.md). It does not depend on the number of clients.
// Participation is not protected. With γ = 0 the verifier receives exact values, unlinked from clients, and no
// protection remains if all relays collude with it. With γ > 0, ε₀ = ln(1 + K(1−γ)/γ) then remains.
//
// Accuracy: the estimates are unbiased. The variance of a count is D times that of one cell's dummies, for any n. The
// variance of a sum is D·Var[Σ_j (j−z)·Z_j]/k² and, for the worst values, n/(4k²) more. γ adds the same variance as in
// packages histogram and realsum.
//
// Limits: one slot per client. One malicious client moves one count by one, or by 1/(1−γ). A malicious relay can choose
// its dummies freely, as many as it states in its manifest.
//
// [MSE25]: https://arxiv.org/abs/2504.07362
package augmented

import (
	"strconv"
	"sync"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Name is the protocol's name in tasks.
const Name = "augmented"

// Rule is the only privacy rule of this protocol: [relaynoise.Curve].
const Rule = "dummies"

// maxK is the largest number k of levels above 0. A tilted law, which sums use, supports no more.
const maxK = 1<<10 - 1

// Protocol is the entry of this protocol in the table of package registry.
type Protocol struct{}

// ProtocolName returns [Name].
func (*Protocol) ProtocolName() string { return Name }

// Mechanism is this protocol with the parameters of one task.
type Mechanism struct {
	task *task.Task
	krr  protocols.KRR // Over the K cells. With Gamma 0 clients send their values unchanged.

	once  sync.Once
	known *relaynoise.Laws
	means []float64 // By cell: mean number of dummies that one relay adds to a batch.
	mean  float64   // For a tilted law: mean of Σ_j (j−z)·Z_j of one relay's dummies.

	lock      sync.Mutex
	dummyLaws dummyLaws
	shapes    map[*float64][2]float64 // Results of [Mechanism.moments].
}

// Capabilities returns the optional functions of the mechanism, for [protocols.CapabilitiesOf].
func (m *Mechanism) Capabilities() protocols.Capabilities {
	can := protocols.Capabilities{
		Dummies:       func(a protocols.Aggregate) protocols.DummyAggregate { return a.(*aggregate) },
		EpsilonHonest: m.honestEpsilon,
		Fast:          m.fast,
		Attack:        m.attack,
	}
	if m.task.Query == task.Histogram {
		can.Bins = func(a protocols.Aggregate) protocols.Bins { return a.(*aggregate) }
		can.Sum = newSums()
	}
	return can
}

// Open returns the mechanism of a task with query histogram, count, sum or mean. The task's noise must be of kind
// cells. For sums and means it must have a tilt whose weights are the levels. Parameters are k for sum and mean, and an
// optional gamma.
func (*Protocol) Open(t *task.Task) (protocols.Mechanism, error) {
	cells, err := cellsOf(t)
	if err != nil {
		return nil, err
	}
	m := &Mechanism{task: t, krr: protocols.KRR{K: cells, Gamma: randomizer.NewRational(0, 1)}}
	if _, ok := t.Param("gamma"); ok {
		if m.krr, err = protocols.NewKRR(t, cells); err != nil {
			return nil, err
		}
	}
	if err := checkParams(t); err != nil {
		return nil, err
	}
	if err := checkNoise(t, cells); err != nil {
		return nil, err
	}
	return m, protocols.CheckSlots(t, m.krr.Slots())
}

// cellsOf returns the number of cells (possible values of a message) of a task.
func cellsOf(t *task.Task) (uint64, error) {
	switch t.Query {
	case task.Histogram:
		return t.Input.Bins, nil
	case task.Count:
		return 2, nil
	case task.Sum, task.Mean:
		k, _ := t.Param("k")
		if k.Den != 1 || k.Num < 1 || k.Num > maxK {
			return 0, invalid.Field("params.k", k.String(), "a whole number from 1 to "+strconv.Itoa(maxK))
		}
		return uint64(k.Num) + 1, nil
	}
	return 0, invalid.Field("query", invalid.Quote(string(t.Query)), "histogram, count, sum or mean for protocol "+Name)
}

func checkParams(t *task.Task) error {
	for _, p := range t.Params {
		if p.Key != "gamma" && (p.Key != "k" || !summed(t)) {
			return invalid.Field("params."+p.Key, p.Value.String(),
				"no such parameter: k for sum and mean, optionally gamma")
		}
	}
	return nil
}

// summed reports whether the query is a sum or mean, whose answer adds up levels.
func summed(t *task.Task) bool { return t.Query == task.Sum || t.Query == task.Mean }

func checkNoise(t *task.Task, cells uint64) error {
	n := t.Noise
	switch {
	case n == nil || n.Kind != task.NoiseCells || n.Cells != cells:
		got := "none"
		if n != nil {
			got = n.Kind + " with " + strconv.FormatUint(n.Cells, 10) + " cells"
		}
		return invalid.Field("noise", got,
			"noise of kind cells, with "+strconv.FormatUint(cells, 10)+" cells for the bins or k")
	case t.Claim.Assumption != task.NoneHonest:
		return invalid.Field("claim.assumption", t.Claim.Assumption.String(), "none for protocol "+Name)
	case t.Rule != Rule:
		return invalid.Field("rule", invalid.Quote(t.Rule), Rule+" for protocol "+Name)
	case !summed(t) && n.Tilt != nil:
		return invalid.Field("noise.tilt", "present", "no tilt: only queries sum and mean have one")
	case !summed(t):
		return nil
	case n.Tilt == nil:
		return invalid.Field("noise.tilt", "missing", "a tilt, for query sum or mean")
	}
	if zero := n.Tilt.Zero; zero != 0 && 2*zero != cells-1 {
		return invalid.Field("noise.tilt.zero", strconv.FormatUint(zero, 10), "0, or half of an even k")
	}
	for j, weight := range n.Tilt.Weights {
		if weight != uint64(j) {
			return invalid.Field("noise.tilt.weights", strconv.FormatUint(weight, 10), strconv.Itoa(j)+
				", the number of the cell")
		}
	}
	return nil
}

// gamma returns γ, the probability of a uniform cell; 0 without local randomization.
func (m *Mechanism) gamma() float64 { return m.krr.Gamma.Float64() }
