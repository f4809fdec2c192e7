package protocols

import (
	"cmp"
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// KRR is k-ary randomized response, which several protocols share. A client reports its symbol with probability 1-γ.
// With probability γ it reports one of the K symbols, drawn uniformly.
type KRR struct {
	K     uint64              // Number of symbols, 2..2³²-1.
	Gamma randomizer.Rational // Blanket probability γ, in (0, 1).
}

// NewKRR returns the randomized response over k symbols with the task's parameter gamma. gamma's denominator must be a
// power of two of at most 2⁶², and its numerator below 2⁵³. A float64 then holds gamma exactly, so that the accountant
// and the randomizer use the same γ.
func NewKRR(t *task.Task, k uint64) (KRR, error) {
	gamma, ok := t.Param("gamma")
	if !ok {
		return KRR{}, invalid.Field("params.gamma", "missing", "a rational in (0, 1)")
	}
	if gamma.Num <= 0 || uint64(gamma.Num) >= gamma.Den || gamma.Num >= 1<<53 || gamma.Den&(gamma.Den-1) != 0 ||
		gamma.Den > 1<<62 {
		return KRR{}, invalid.Field("params.gamma", gamma.String(),
			"a rational in (0, 1), numerator below 2^53, denominator a power of two up to 2^62")
	}
	return KRR{k, gamma}, nil
}

// CalibrateKRR returns the randomized response over k symbols with the smallest γ that proves the task's claim for
// n_min clients by [KRR.Rule].
func CalibrateKRR(t *task.Task, k uint64) (KRR, error) {
	eps, delta := t.Claim.Epsilon.Value(), t.Claim.Delta.Value()
	num, den, err := accountant.KRRGamma(accountant.Rule(KRR{K: k}.Rule(t)), k, t.Batch.Min, eps, delta)
	if err != nil {
		return KRR{}, err
	}
	return KRR{k, randomizer.NewRational(int64(num), den)}, nil
}

// Rule returns the task's privacy rule or, if the task names no rule, the tightest rule for K symbols.
func (r KRR) Rule(t *task.Task) string { return cmp.Or(t.Rule, string(accountant.Tightest(r.K))) }

// BlanketVariance returns the variance of y/(K-1) for a symbol y drawn uniformly from 0..K-1.
func (r KRR) BlanketVariance() float64 { return blanketVariance(r.K - 1) }

// Epsilon0 returns ε₀ = ln(1 + K(1-γ)/γ), rounded up.
func (r KRR) Epsilon0() float64 { return accountant.KRREpsilon0(r.K, r.Gamma.Float64()) }

// CheckClaim implements [Mechanism.CheckClaim] for protocols that use randomized response.
func (r KRR) CheckClaim(t *task.Task) error {
	derived, err := accountant.KRRDelta(accountant.Rule(t.Rule), r.K, r.Gamma.Float64(), t.Batch.Min,
		t.Claim.Epsilon.Value())
	if err != nil {
		return err
	}
	if !(derived <= t.Claim.Delta.Value()) {
		return invalid.Field("claim.delta", t.Claim.Delta.String(),
			"at least "+decimal.Up(derived, 7)+", the delta that rule "+t.Rule+" derives at epsilon "+
				t.Claim.Epsilon.String())
	}
	return CheckTotal(t, func() (*compose.Law, error) { return r.Law(t) })
}

// Law implements [Mechanism.Law] for protocols that use randomized response.
func (r KRR) Law(t *task.Task) (*compose.Law, error) {
	return compose.KRRLaw(accountant.Rule(t.Rule), r.K, r.Gamma.Float64(), t.Batch.Min)
}

// Cell returns the distribution of the error when one estimates how many clients hold a symbol. n clients reported, and
// seen of the reports name the symbol. A client that holds it names it with probability 1-γ+γ/K, any other client with
// γ/K.
func (r KRR) Cell(seen, n uint64) Cell {
	gamma, k := r.Gamma.Float64(), float64(r.K)
	return Cell{Seen: seen, Users: n, Own: 1 - gamma*(k-1)/k, Other: gamma / k}
}

// WeightedVariance returns the variance that randomized response adds to the estimate of Σ a_x·c_x, for weights a and
// estimated counts c of n clients. A client with symbol x reports Y, which is x with probability 1-γ, else a uniform
// symbol. It adds
//
//	v_x = Var(a_Y)/(1-γ)²
//
// to the variance, which is Σ v_x·c_x. The sum is linear in the counts, so the result is unbiased with estimated
// counts. It is clamped to at least n times the least v_x and at most n times the largest. One report names one symbol,
// so the errors of two counts are correlated; v_x accounts for that.
func (r KRR) WeightedVariance(weights, counts []float64, n float64) float64 {
	gamma, k := r.Gamma.Float64(), float64(r.K)
	first, second := 0.0, 0.0 // First and second moment of the weight of a uniform symbol.
	for _, w := range weights {
		first, second = first+w/k, second+w*w/k
	}
	variance, least, most := 0.0, math.Inf(1), 0.0
	for x, c := range counts {
		w := weights[x]
		mean := (1-gamma)*w + gamma*first
		v := ((1-gamma)*w*w + gamma*second - mean*mean) / ((1 - gamma) * (1 - gamma))
		variance += v * c
		least, most = min(least, v), max(most, v)
	}
	return min(max(variance, n*least), n*most)
}

// CellsVariance returns [KRR.WeightedVariance] for weights that are 1 for some symbols and 0 for the rest. symbols is
// how many have weight 1; count and rest are the estimated numbers of clients with weight 1 and 0. The weight of a
// report is then a Bernoulli variable.
func (r KRR) CellsVariance(symbols, count, rest, n float64) float64 {
	gamma := r.Gamma.Float64()
	bernoulli := func(p float64) float64 { return p * (1 - p) / ((1 - gamma) * (1 - gamma)) }
	other := gamma * symbols / float64(r.K)
	in, out := bernoulli(1-gamma+other), bernoulli(other)
	return min(max(in*count+out*rest, n*min(in, out)), n*max(in, out))
}

// Slots returns the task's slots under randomized response: one message per client, in one lane.
func (r KRR) Slots() task.Slots {
	return task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1, MessageBytes: uint64(r.width())}
}

// width returns the size of an encoded symbol: 1, 2 or 4 bytes.
func (r KRR) width() int {
	switch {
	case r.K <= 1<<8:
		return 1
	case r.K <= 1<<16:
		return 2
	}
	return 4
}

// Report randomizes a symbol and encodes the result as a big-endian integer, in the shape that [Mechanism.Randomize]
// returns.
func (r KRR) Report(src *randomizer.Source, symbol uint64) Messages {
	return r.Certain(src.RandomizedResponse(symbol, r.K, r.Gamma))
}

// Certain encodes a symbol without randomizing it, in the same shape as [KRR.Report]. Simulations use it for malicious
// clients.
func (r KRR) Certain(y uint64) Messages {
	message := make([]byte, r.width())
	for i := range message {
		message[i] = byte(y >> (8 * (len(message) - 1 - i)))
	}
	return Messages{{message}}
}

// Symbol decodes a message. A wrong lane, a wrong size or a symbol of K or more is an error.
func (r KRR) Symbol(lane int, message []byte) (uint64, error) {
	if lane != 0 || len(message) != r.width() {
		return 0, invalid.Field("message", strconv.Itoa(len(message))+" bytes in lane "+strconv.Itoa(lane),
			strconv.Itoa(r.width())+" bytes in lane 0")
	}
	y := uint64(0)
	for _, b := range message {
		y = y<<8 | uint64(b)
	}
	if y >= r.K {
		return 0, invalid.Field("message", strconv.FormatUint(y, 10), "a symbol below "+strconv.FormatUint(r.K, 10))
	}
	return y, nil
}
