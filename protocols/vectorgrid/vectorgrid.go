// Package vectorgrid adds up one vector of d numbers per client, for small d. Each client sends a single message by
// randomized response over a grid [AFNNTZ24] (Algorithms 5 and 6).
//
// A client maps its vector to u ∈ [0, 1]^d. For query vectormean, whose vectors v have Euclidean norm at most 1, u =
// (v+1)/2. It rounds every coordinate u_j·r stochastically to {0, …, r}. This gives a point w of a grid of K = (r+1)^d
// points. The client sends w with probability 1-γ, else a uniformly random point. With n reports the analyzer estimates
//
//	Σu_j ≈ (Σ w_j/r - nγ/2) / (1-γ)                                              (1)
//	Var  = v(u_j)/(1-γ)², one client's part of the variance                      (2)
//
// with v the variance of one w_j/r. It is that of [protocols.RoundedVariance], because every coordinate of a uniform
// grid point is uniform.
//
// The paper prints γ = c(r+1)/n, which is not private for d > 1: the blanket must cover K points, not r+1. A test
// breaks the privacy of the printed γ. The paper subtracts c(r+1)/2, which is nγ/2 for its γ; this package subtracts
// nγ/2 for the γ it uses.
//
// Guarantee: (ε, δ)-DP by substitution of one client's vector, against a verifier who knows all other vectors, once the
// messages of n_min honest clients are shuffled together. The task's rule (package accountant) calibrates γ for K
// symbols. Participation is not protected.
//
// Accuracy: the estimates are unbiased. [Protocol.Calibrate] takes the r and γ that together minimise the largest sum
// of (2) over the coordinates. The error grows as d·n^{d/(d+2)}, which is optimal for one message. Use this protocol
// for d from 1 to about 4. Package vectormean has nearly the error of central noise, but sends more messages.
//
// Limits: one message per client, and (r+1)^d below 2³². If every relay colludes with the verifier, ε₀-LDP remains, ε₀
// = ln(1+K(1-γ)/γ). One malicious client moves every coordinate of the sum by at most 1/(1-γ) of the range. For query
// vectormean that is 2√d/(1-γ) in norm, because a client may send any corner of the cube.
//
// [AFNNTZ24]: https://arxiv.org/abs/2404.10201
package vectorgrid

import (
	"math/bits"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Name is the protocol's name in tasks.
const Name = "vectorgrid"

// Protocol is the entry of this protocol in the table of package registry.
type Protocol struct{}

// ProtocolName returns [Name].
func (*Protocol) ProtocolName() string { return Name }

// maxR is the largest r, and maxPoints the largest number of points of a grid.
const (
	maxR      = 1 << 16
	maxPoints = 1<<32 - 1
)

// Mechanism is this protocol with the parameters of one task.
type Mechanism struct {
	task *task.Task
	d, r uint64 // d coordinates, each with r levels above 0.
	krr  protocols.KRR
}

// Capabilities returns the optional functions of the mechanism, for [protocols.CapabilitiesOf].
func (m *Mechanism) Capabilities() protocols.Capabilities {
	return protocols.Capabilities{Fast: m.fast, Attack: m.attack}
}

// Open returns the mechanism of a task with query vector or vectormean and parameters gamma and r. d is Input.Bins.
func (*Protocol) Open(t *task.Task) (protocols.Mechanism, error) {
	if err := checkQuery(t); err != nil {
		return nil, err
	}
	if len(t.Params) != 2 {
		return nil, invalid.Field("params", strconv.Itoa(len(t.Params))+" parameters", "gamma and r")
	}
	r, err := protocols.WholeParam(t, "r", 1, maxR)
	if err != nil {
		return nil, err
	}
	points, err := checkPoints(t.Input.Bins, r)
	if err != nil {
		return nil, err
	}
	krr, err := protocols.NewKRR(t, points)
	if err != nil {
		return nil, err
	}
	return &Mechanism{t, t.Input.Bins, r, krr}, protocols.CheckSlots(t, krr.Slots())
}

// points returns (r+1)^d and true if that is at most maxPoints, else 0 and false.
func points(d, r uint64) (uint64, bool) {
	n := uint64(1)
	for range min(d, 64) {
		hi, lo := bits.Mul64(n, r+1)
		if hi != 0 || lo > maxPoints {
			return 0, false
		}
		n = lo
	}
	return n, true
}

func checkPoints(d, r uint64) (uint64, error) {
	n, ok := points(d, r)
	if ok {
		return n, nil
	}
	most := mostLevels(d)
	want := "at most " + strconv.FormatUint(most, 10) + ": (r+1)^dim must be below 2^32"
	if most == 0 {
		return 0, invalid.Field("input.dim", strconv.FormatUint(d, 10),
			"1 to 31 for protocol vectorgrid: (r+1)^dim must be below 2^32; protocol vectormean has no such limit")
	}
	return 0, invalid.Field("params.r", strconv.FormatUint(r, 10), want)
}

func checkQuery(t *task.Task) error {
	if t.Query != task.Vector && t.Query != task.VectorMean {
		return invalid.Field("query", invalid.Quote(string(t.Query)), "vector or vectormean for protocol vectorgrid")
	}
	return nil
}
