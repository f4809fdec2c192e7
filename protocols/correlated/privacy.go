package correlated

import (
	"math"
	"math/bits"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/correlated/internal/design"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// overflowShare is the part of δ that noise which does not fit the slots may cost.
const overflowShare = 0.01

// claimSlack raises a derived δ before it is compared with a claim, because machines round differently. New tasks leave
// a margin of a thousandth.
const claimSlack = 1 + 1e-6

// CheckClaim implements [protocols.Mechanism.CheckClaim]. Under rule moments it evaluates the bound (P2) of
// internal/design. Under rule theorem2 it checks that ε* is below the claimed ε, for which closedForm sets the noise.
// It also checks the cost of noise that does not fit the slots.
func (m *Mechanism) CheckClaim() error {
	eps, delta := m.task.Claim.Epsilon.Value(), m.task.Claim.Delta.Value()
	gain := (1 + math.Exp(eps)) * m.overflow() * claimSlack
	if !(gain <= overflowShare*delta) {
		return invalid.Field("slots.perLane", strconv.FormatUint(m.task.Slots.PerLane, 10),
			"more: noise that does not fit costs a delta of "+format(gain)+", above a hundredth of the claimed delta")
	}
	derived := delta * (1 - overflowShare)
	if m.task.Rule == RuleMoments {
		derived = m.moments(eps, delta-gain)
	} else if star := m.central.Float64() * float64(m.top); !(star < eps) {
		return invalid.Field("claim.epsilon", m.task.Claim.Epsilon.String(), "above central times max, "+
			"which is "+format(star))
	}
	if derived += gain; !(derived <= delta) {
		return invalid.Field("claim.delta", m.task.Claim.Delta.String(),
			"at least "+format(derived)+", the delta that rule "+m.task.Rule+" derives at epsilon "+
				m.task.Claim.Epsilon.String())
	}
	return protocols.CheckTotal(m.task, m.Law)
}

// orders are the multiples of the task's θ at which rule moments evaluates the bound (P2) of internal/design. The first
// suffices for the claim. Composition over epochs needs the smaller ones.
var orders = [...]float64{1, .6, .3}

// moments returns the least δ that the bound (P2) of internal/design gives at eps, over the orders. It stops at the
// first δ that is at most enough.
func (m *Mechanism) moments(eps, enough float64) float64 {
	least := 1.0
	for _, order := range orders {
		if least > enough {
			least = min(least, m.proof.Bound(eps, order*m.proof.Theta, m.proof.Miss)*claimSlack)
		}
	}
	return least
}

// Law implements [protocols.Mechanism.Law]. Under rule moments, δ at each ε is the least bound (P2) of internal/design
// over the orders; each falls by e^{−θε}, except for the missed probability. If no number of slots holds enough of the
// noise, δ is 1. Of the closed form only the claim is known, so the law is that of the worst mechanism that meets the
// claim ([KOV15]).
//
// [KOV15]: https://arxiv.org/abs/1311.0776
func (m *Mechanism) Law() (*compose.Law, error) {
	eps, delta := m.task.Claim.Epsilon.Value(), m.task.Claim.Delta.Value()
	overflow := m.overflow()
	if math.IsInf(overflow, 1) {
		return compose.LawOf(func(float64) float64 { return 1 }, eps), nil
	}
	if m.task.Rule != RuleMoments {
		return compose.LawOf(func(at float64) float64 {
			return delta + (1-delta)*max(0, math.Exp(eps)-math.Exp(at))/(1+math.Exp(eps))
		}, eps*(1+1e-12)), nil
	}
	var bounds []design.Chernoff
	for _, order := range orders {
		bounds = append(bounds, m.proof.Chernoff(order*m.proof.Theta, m.proof.Miss))
	}
	return compose.LawOf(func(at float64) float64 {
		least := 1.0
		for _, b := range bounds {
			least = min(least, b.Delta(at))
		}
		return least + (1+math.Exp(at))*overflow
	}, lawReach*eps), nil
}

// overflow returns n·τ, with τ the probability that one client's noise does not fit the slots. It bounds how far
// redrawing the noise moves the distribution of all clients' messages, in statistical distance.
func (m *Mechanism) overflow() float64 {
	claim := m.task.Claim
	t, ok := design.NewTail(m.groups(), overflowLimit(m.task, claim.Epsilon.Value(), claim.Delta.Value()), maxSlots)
	if !ok {
		return math.Inf(1)
	}
	return float64(m.task.Batch.Size) * t.Above(int(m.task.Slots.PerLane)-1)
}

// lawReach is the largest ε of the law, as a multiple of the claim's ε.
const lawReach = 2.5

// Epsilon0 implements [protocols.Mechanism.Epsilon0]. It is +Inf, because one client's messages contain its value in
// the clear.
func (m *Mechanism) Epsilon0() float64 { return math.Inf(1) }

func format(v float64) string { return decimal.Up(v, 7) }

// overflowLimit returns the largest allowed probability τ that one client's noise does not fit the slots. For n
// clients, (1+e^ε)·n·τ ≤ overflowShare·δ.
func overflowLimit(t *task.Task, eps, delta float64) float64 {
	return overflowShare * delta / ((1 + math.Exp(eps)) * float64(t.Batch.Size))
}

// closedForm sets the noise of [GKMPS21] (Theorem 2). With ε₁ = ε₂ = min(1, ε-ε*)/2, δ₁ = δ₂ = 0.99·δ/2, and the
// dominating vector t_v = ⌈Γ/v⌉, Γ = Δ·(⌈log₂ Δ⌉+1), the noise is
//
//	{-1,+1}: NB(3(1+ln(1/δ₁)), e^{-0.2·ε₁/Δ}) and as every atom of value v   NB(3(1+ln(|S|/δ₂)), e^{-0.2·ε₂/(2t_v)})
//
// S| = 2Δ-1 is the paper's, although this package leaves out atoms that no input needs. Γ needs the logarithm to base
// 2: with the natural logarithm, t does not dominate.
//
// [GKMPS21]: https://arxiv.org/abs/2109.13158
func (m *Mechanism) closedForm() error {
	eps, delta := m.task.Claim.Epsilon.Value(), m.task.Claim.Delta.Value()
	rest := min(eps-m.central.Float64()*float64(m.top), 1)
	if !(rest > 0) {
		return invalid.Field("params.central", m.central.String(), "below epsilon divided by max")
	}
	delta *= (1 - overflowShare) / 2
	top := float64(m.top)
	gamma := m.top * uint64(bits.Len64(m.top-1)+1)
	rate := func(share float64) uint64 { return uint64(math.Ceil(3 * (1 + math.Log(1/share)) * rateUnit)) }
	if least := 0.2 * rest / 2 / (2 * float64(gamma)); !(least >= 1.0/exponentUnit) { // the smallest exponent
		return invalid.Field("params.central", m.central.String(),
			"further below epsilon divided by max: noise with exponents below 2^-40 cannot be drawn")
	}
	tilde := rate(delta / (2*top - 1))
	add := func(a design.Atom, weight uint64, s float64) {
		m.sources = append(m.sources, source{Atom: a, weight: weight, s: down(s)})
	}
	add(design.PairAtom(), rate(delta), 0.2*rest/2/top)
	add(design.PairAtom(), tilde, 0.2*rest/2/(2*float64(gamma)))
	design.EachAtom(m.top, func(a design.Atom, v uint64, _ int) {
		add(a, tilde, 0.2*rest/2/(2*float64((gamma+v-1)/v)))
	})
	return nil
}

// down returns an exponent rounded down to the precision of a task's parameters: more noise.
func down(s float64) randomizer.Rational {
	return randomizer.NewRational(int64(s*exponentUnit), exponentUnit)
}

// Messages returns how many noise messages a client sends on average. zeroSum counts those of atoms, whose sum is 0,
// and central those of the central noise.
func (m *Mechanism) Messages() (zeroSum, central float64) {
	for _, g := range m.groups() {
		mean := float64(g.Weight) * design.Noise{R: g.Mass, S: g.S, Jump: g.Jump}.Mean()
		if g.Weight == 1 && g.Jump == 0 && g.S == m.central.Float64() {
			central += mean
		} else {
			zeroSum += mean
		}
	}
	return zeroSum, central
}
