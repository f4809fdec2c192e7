package compose

import (
	"math"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// Law is an upper bound on the privacy cost of one epoch of a task: a symmetric dominating pair, stored as the
// distribution of its privacy loss. [Law.Encode] encodes it in some hundred bytes, and laws compose without the code of
// their protocols. Immutable.
//
// With m_i the probability under P of the loss i·h, the pair (P, Q) has
//
//	P(ih) = m_i,  P(−ih) = m_i·e^{−ih},  i = 1, …, G,   P(∞) = m_∞,   P(0) the remainder to 1            (4)
//
// and Q has the mirror image. Raising any m_i keeps the law an upper bound. Raised mass is taken from P(0), an outcome
// that P and Q share; splitting a shared outcome raises every divergence. If P(0) is used up, the added mass also
// raises every divergence.
//
// A law stands for a number of independent copies of (4).
type Law struct {
	step     float64   // h, of 16 bits.
	masses   []float64 // m_1 to m_G, of 16 bits each.
	infinity float64   // m_∞, of 16 bits.
	copies   uint64    // 1 to maxCopies.
}

const (
	lawPoints    = 400   // G of new laws: a step is about a thirtieth of the standard deviation.
	lawTail      = 1e-20 // Largest probability beyond the grid's end. It counts as an infinite loss.
	lawMargin    = 1e-7  // Exceeds the relative error of every mass, and of P − Q for a small loss.
	lawMaxPoints = 1024  // G of decoded laws.
	maxCopies    = 1 << 20
)

// Copies returns the law of times independent copies of the law.
func (l *Law) Copies(times uint64) (*Law, error) {
	many := *l
	many.copies *= min(times, maxCopies) // min keeps the product below 2^64.
	if times < 1 || many.copies > maxCopies || times > maxCopies || !(many.excess() <= 1) {
		return nil, invalid.Field("copies", decimal.Format(float64(times), -1),
			"at least 1, and no more than a law has room for, which is rounded up")
	}
	return &many, nil
}

// Delta returns an upper bound on δ(eps), for any real eps; for several copies eps must be above 0.
func (l *Law) Delta(eps float64) float64 {
	switch {
	case l.copies > 1:
		return Delta([]Observation{l.Observation(1)}, eps, 1e-12)
	case eps < 0:
		return min(1, math.Exp(eps)*l.Delta(-eps)-math.Expm1(eps))
	}
	sum := l.infinity
	for i, m := range l.masses {
		if loss := float64(i+1) * l.step; loss > eps {
			sum -= m * math.Expm1(eps-loss)
		}
	}
	return min(1, sum)
}

// Below reports whether δ of this law is at most δ of other at every real ε. It compares single copies, so it may
// report false although the composed law is below. Comparing at the losses of other and at 0 suffices: between two
// losses of other, its δ is a chord in e^ε and this law's δ is convex. Beyond the last loss, other's δ is constant and
// this law's δ falls. For ε < 0 both curves follow from ε > 0.
func (l *Law) Below(other *Law) bool {
	if l.copies > other.copies {
		return false
	}
	one, bound := *l, *other
	one.copies, bound.copies = 1, 1
	for i := range len(bound.masses) + 1 {
		if eps := float64(i) * bound.step; !(one.Delta(eps) <= bound.Delta(eps)) {
			return false
		}
	}
	return true
}

// WithTail returns the law with the probability of an infinite loss raised by 2e-20, more than the cut at the end of
// any law's grid adds.
func (l *Law) WithTail() *Law {
	more := *l
	more.infinity = roundUp(more.infinity + 2*lawTail)
	return &more
}

// Observation returns what a verifier sees of a client in a number of epochs, for [Delta].
func (l *Law) Observation(epochs uint64) Observation {
	return Observation{Pair: l.pair(), Count: epochs * l.copies}
}

// pair returns the dominating pair of one copy.
func (l *Law) pair() *Pair {
	last := len(l.masses)
	p := &Pair{step: l.step, first: -last, mass: make([]float64, 2*last+1), infinity: l.infinity}
	left := 1 - l.infinity
	for i, m := range l.masses {
		mirrored := m * math.Exp(-float64(i+1)*l.step)
		p.mass[last+i+1], p.mass[last-i-1] = m, mirrored
		left -= m + mirrored
	}
	p.mass[last] = math.Max(0, left)
	return p
}

// newLaw returns the law of masses at 1, 2, … steps, all rounded up to encodable numbers. For invalid input, such as
// a NaN mass, it returns the law that dominates everything.
func newLaw(step float64, masses []float64, infinity float64) *Law {
	l := &Law{step: step, infinity: min(1, roundUp(infinity*(1+lawMargin))), copies: 1}
	if !(step > 0 && step <= 1 && l.infinity <= 1) {
		return infiniteLossLaw()
	}
	last := len(masses)
	for last > 0 && masses[last-1] == 0 {
		last--
	}
	for _, m := range masses[:last] {
		if m = roundUp(m * (1 + lawMargin)); !(m < 2) {
			return infiniteLossLaw()
		}
		l.masses = append(l.masses, m)
	}
	return l
}

// infiniteLossLaw returns the law that dominates everything: its loss is infinite.
func infiniteLossLaw() *Law { return &Law{step: roundUp(1e-9), infinity: 1, copies: 1} }

// KRRLaw returns the law of one release of shuffled k-ary randomized response under a rule. For rules revealed and
// exact it uses the pair of [accountant.KRROutcomes]. For rules others and theorem1 it samples the curve.
func KRRLaw(rule accountant.Rule, k uint64, gamma float64, users uint64) (*Law, error) {
	local := accountant.KRREpsilon0(k, gamma)
	switch rule {
	case accountant.Theorem1:
		_, err := accountant.KRRDelta(rule, k, gamma, users, 1)
		return LawOf(func(eps float64) float64 {
			delta, _ := accountant.KRRDelta(rule, k, gamma, users, min(1, eps))
			return min(delta, pure(local, eps))
		}, local), err
	case accountant.Others:
		return othersLaw(gamma, users, local)
	}
	seen := newTally()
	infinite, err := accountant.KRROutcomes(rule, k, gamma, users, seen.add)
	if err != nil {
		return nil, err
	}
	law := seen.law(infinite)
	if law.infinity < 1e3*lawTail && float64(len(law.masses))*law.step < 1.05*local {
		return law, nil
	}
	return LawOf(func(eps float64) float64 { return min(law.Delta(eps), pure(local, eps)) }, local), nil
}

// othersLaw is [KRRLaw] for rule others. It evaluates all points of the grid in one call.
func othersLaw(gamma float64, users uint64, local float64) (*Law, error) {
	end := min(local, top(func(eps float64) float64 { return accountant.OthersAtCorner(gamma, users, eps) }, lawTail))
	step, eps := lawStep(end), make([]float64, lawPoints+1)
	for i := range eps {
		eps[i] = float64(i) * step
	}
	curve, err := accountant.OthersCurve(gamma, users, eps)
	if err != nil {
		return nil, err
	}
	return LawOf(func(eps float64) float64 { return curve[int(math.Round(eps/step))] }, end), nil
}

// PoolLaw returns the law of one message in a pool of dummies ([accountant.PoolDelta]). For arguments out of range it
// returns the law of an infinite loss.
func PoolLaw(b, dummies uint64) *Law {
	seen := newTally()
	infinite, err := accountant.PoolOutcomes(b, dummies, seen.add)
	if err != nil {
		return infiniteLossLaw()
	}
	return seen.law(infinite)
}

// pure returns the largest δ(eps) of any (eps0, 0)-private mechanism ([KOV15]).
func pure(eps0, eps float64) float64 {
	return math.Expm1(max(0, eps0-eps)) * math.Exp(eps) / (1 + math.Exp(eps0)) * (1 + 1e-14)
}

// LawOf returns a law that dominates every mechanism whose divergences in both directions are at most
// delta(ε) for all ε ≥ 0, with its losses at points up to top. The values may be any upper bounds ([FromCurve]).
func LawOf(delta func(eps float64) float64, top float64) *Law { return lawOf(delta, top, 1) }

// LawOfSlow is [LawOf] for a curve that is slow to evaluate. It samples a quarter of the points, which raises ε by
// about 0.2 %.
func LawOfSlow(delta func(eps float64) float64, top float64) *Law { return lawOf(delta, top, 7) }

// lawStep returns the step of the grid from 0 to top. Losses above top count as infinite.
func lawStep(top float64) float64 { return roundUp(min(max(top, 1e-9), mostLoss) / lawPoints) }

func lawOf(delta func(eps float64) float64, top float64, every int) *Law {
	step := lawStep(top)
	raised := func(eps float64) float64 { return min(1, delta(eps)*(1+lawMargin)) }
	p := fromCorners(hull(raised, step, lawPoints, every), step)
	masses := make([]float64, lawPoints)
	copy(masses, p.mass[len(p.mass)/2+1:])
	return newLaw(step, masses, p.infinity)
}

// Top returns an ε beyond which a curve falls by a negligible amount. Use it as the top of [LawOf].
func Top(curve func(eps float64) float64) float64 { return top(curve, lawTail) }

// LawOfOutcomes returns the law of a symmetric pair. visit must call add for each outcome with P > Q.
func LawOfOutcomes(visit func(add func(p, q float64))) *Law {
	seen := newTally()
	visit(seen.add)
	return seen.law(0)
}

// tally collects the outcomes with P > Q of a symmetric pair in one pass, before the range of losses is known. It sorts
// outcomes into intervals of (P−Q)/Q, whose borders have 7 bits, and keeps the sums of P and of Q in each. From these
// sums it later splits an interval's mass between two grid points.
type tally struct {
	p, q     []float64
	infinite float64
}

// The borders are 0 and all float64 with exponents in this range and 7 more mantissa bits.
const (
	borderBits     = 7
	lowestBorder   = uint64(1023-40) << borderBits
	highestBorder  = uint64(1023+60) << borderBits
	mantissaBits   = 52
	droppedBits    = mantissaBits - borderBits
	numberOfLosses = int(highestBorder-lowestBorder) + 1
)

func newTally() *tally {
	return &tally{p: make([]float64, numberOfLosses), q: make([]float64, numberOfLosses)}
}

// border returns (P−Q)/Q at the lower end of interval i, which is also the upper end of interval i−1.
func border(i int) float64 {
	if i == 0 {
		return 0
	}
	return math.Float64frombits((lowestBorder + uint64(i) - 1) << droppedBits)
}

func (l *tally) add(p, q float64) {
	excess := (p - q) / q
	if !(excess < border(numberOfLosses)) { // Q is almost 0.
		l.infinite += p
		return
	}
	i := 0
	if bits := math.Float64bits(max(0, excess)) >> droppedBits; bits >= lowestBorder {
		i = int(bits-lowestBorder) + 1
	}
	l.p[i] += p
	l.q[i] += q
}

// law returns the law of the added outcomes, plus a given mass of an infinite loss.
func (l *tally) law(infinite float64) *Law {
	infinite += l.infinite
	last, tail := numberOfLosses-1, 0.0
	for ; last >= 0 && tail+l.p[last] <= lawTail; last-- {
		tail += l.p[last]
	}
	infinite += tail
	if last < 0 {
		return newLaw(roundUp(1e-9), nil, infinite)
	}
	step := roundUp(math.Log1p(border(last+1)) / lawPoints)
	masses := make([]float64, lawPoints+2)
	for i := range last + 1 {
		if l.p[i] == 0 {
			continue
		}
		low, high := border(i), border(i+1)
		upper := min(max(0, (l.p[i]-l.q[i]*(1+low))/(high-low)), l.q[i])
		splitMass(masses, step, math.Log1p(high), upper*(1+high))
		splitMass(masses, step, math.Log1p(low), (l.q[i]-upper)*(1+low))
	}
	return newLaw(step, masses[1:], infinite)
}

// splitMass splits the mass at a loss between the two adjacent points of the grid, keeping the sums of P and Q.
func splitMass(masses []float64, step, loss, mass float64) {
	i := min(int(loss/step), len(masses)-2)
	below := loss - float64(i)*step
	share := min(max(0, math.Expm1(below)/math.Expm1(step)), 1)
	masses[i+1] += mass * share * math.Exp(step-below)
	masses[i] += mass * (1 - share) * math.Exp(-below)
}
