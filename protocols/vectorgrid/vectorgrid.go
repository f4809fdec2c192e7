// Package vectorgrid adds up one vector of d numbers per client in a single message: randomized
// response over a grid [AFNNTZ24] (Algorithms 5 and 6), for small d.
//
// A client maps its vector to u ∈ [0, 1]^d (u = (v+1)/2 for query vectormean, whose vectors have
// Euclidean norm at most 1), rounds every coordinate stochastically to {0, …, r}, and sends the
// point w it gets of the grid of K = (r+1)^d points with probability 1-γ, else a uniform one. With
// n reports the analyzer estimates
//
//	Σu_j ≈ (Σ w_j/r - nγ/2) / (1-γ)                                              (1)
//	Var  = v(u_j)/(1-γ)², one client's part of the variance                      (2)
//
// with v the variance of one w_j/r ([protocols.RoundedVariance]: every coordinate of a uniform grid
// point is uniform).
//
// The paper prints γ = c(r+1)/n, which is not private for d > 1: the blanket must cover K points
// and not r+1 (a test breaks it). Its debiasing by c(r+1)/2 is nγ/2 for that γ; here it is nγ/2
// for the γ used.
//
// Guarantee: (ε, δ)-DP by substitution of one client's vector, against a verifier who knows all
// other vectors, once the messages of n_min honest clients are shuffled together; γ is calibrated
// for K by the task's rule (package accountant). Participation is not protected.
//
// Accuracy: unbiased. [Calibrate] takes the r and γ that together minimise the largest sum of (2)
// over the coordinates. The error grows as d·n^{d/(d+2)}, which is optimal for one message, so this
// is for d of 1 to about 4; vectormean has the error of central noise at more messages.
//
// Limits: one message per client; (r+1)^d below 2³². If every relay colludes with the verifier,
// ε₀-LDP remains, ε₀ = ln(1+K(1-γ)/γ). One malicious client moves every coordinate of the sum by at
// most 1/(1-γ) of the range: for query vectormean by 2√d/(1-γ) in norm, a corner of the cube being
// as good a message as any.
//
// [AFNNTZ24]: https://arxiv.org/abs/2404.10201
package vectorgrid

import (
	"math"
	"math/bits"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Name is the protocol's name in tasks.
const Name = "vectorgrid"

// Bounds of r, and of the points of a grid.
const (
	maxR      = 1 << 16
	maxPoints = 1<<32 - 1
)

// Mechanism is the protocol with the parameters of one task.
type Mechanism struct {
	task *task.Task
	d, r uint64 // Coordinates, levels above 0 of each.
	krr  protocols.KRR
}

// New returns the mechanism of a task: query vector or vectormean, parameters gamma and r,
// d = Input.Bins.
func New(t *task.Task) (protocols.Mechanism, error) {
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

// Calibrate sets the parameters and slots of a task whose query, input, claim, batch and rule
// are set. A parameter r that the task already names is kept; else r is chosen. γ is the smallest
// that proves the claim.
func Calibrate(t *task.Task) error {
	if err := checkQuery(t); err != nil {
		return err
	}
	lo, hi := uint64(1), mostLevels(t.Input.Bins)
	if _, ok := t.Param("r"); ok {
		r, err := protocols.WholeParam(t, "r", 1, maxR)
		if err != nil {
			return err
		}
		lo, hi = r, r
	}
	if _, err := checkPoints(t.Input.Bins, lo); err != nil {
		return err
	}
	m, err := search(t, lo, hi)
	if err != nil {
		return err
	}
	t.Params = []task.Param{{Key: "gamma", Value: m.krr.Gamma}, protocols.Whole("r", m.r)}
	t.Slots = m.krr.Slots()
	return nil
}

// search returns the mechanism of least cost with r in lo..hi. The cost falls and then rises in
// r: the search doubles r until it rises and then narrows by thirds. An r that no γ < 1 makes
// private counts as infinitely bad, unless it is the smallest.
func search(t *task.Task, lo, hi uint64) (*Mechanism, error) {
	first, err := candidate(t, lo)
	if err != nil {
		return nil, err
	}
	known := map[uint64]*Mechanism{lo: first}
	cost := func(r uint64) float64 {
		if _, ok := known[r]; !ok {
			known[r], _ = candidate(t, r)
		}
		if known[r] == nil {
			return math.Inf(1)
		}
		return known[r].cost()
	}
	top := lo
	for top < hi {
		next := min(2*top, hi)
		rises := cost(next) >= cost(top)
		if top = next; rises {
			break
		}
		lo = max(lo, top/4)
	}
	for top-lo > 2 {
		third := (top - lo) / 3
		if cost(lo+third) <= cost(top-third) {
			top -= third
		} else {
			lo += third
		}
	}
	best := lo
	for r := lo; r <= top; r++ {
		if cost(r) < cost(best) {
			best = r
		}
	}
	return known[best], nil
}

// candidate returns the mechanism with the given r and its smallest γ.
func candidate(t *task.Task, r uint64) (*Mechanism, error) {
	points, err := checkPoints(t.Input.Bins, r)
	if err != nil {
		return nil, err
	}
	krr, err := protocols.CalibrateKRR(t, points)
	if err != nil {
		return nil, err
	}
	return &Mechanism{t, t.Input.Bins, r, krr}, nil
}

// points returns (r+1)^d, and whether it is at most maxPoints.
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
		return 0, invalid.Field("input.dim", strconv.FormatUint(d, 10), "1 to 31 for protocol vectorgrid: (r+1)^dim must be below 2^32; protocol vectormean has no such limit")
	}
	return 0, invalid.Field("params.r", strconv.FormatUint(r, 10), want)
}

// mostLevels returns the largest r whose grid is not too large, 0 where none is.
func mostLevels(d uint64) uint64 {
	lo, hi := uint64(0), uint64(maxR+1)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; fits(d, mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

func fits(d, r uint64) bool {
	_, ok := points(d, r)
	return ok
}

func checkQuery(t *task.Task) error {
	if t.Query != task.Vector && t.Query != task.VectorMean {
		return invalid.Field("query", strconv.Quote(t.Query), "vector or vectormean for protocol vectorgrid")
	}
	return nil
}
