package vectormean

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Row implements [protocols.Protocol.Row].
func (*Protocol) Row() protocols.Row {
	return protocols.Row{
		NeedsFirst: true,
		Queries:    []task.Query{task.VectorMean},
		Default:    []task.Query{task.VectorMean},
		Rule:       Rule,
		Costs: []protocols.Case{
			{Query: task.VectorMean, Dim: 16, Padding: task.PaddingNone},
			{Query: task.VectorMean, Dim: 16, Padding: task.PaddingFull},
		},
		CostParam: &protocols.CostParam{Key: "units", Best: true,
			Values: func(uint64) []uint64 { return protocols.Doublings(32) }},
		Trials: []protocols.Case{{Query: task.VectorMean, Dim: 2, Users: 100, Epsilon: 4},
			{Query: task.VectorMean, Dim: 2, Lanes: 4, Users: 100, Epsilon: 4}},
	}
}

// Calibrate sets the parameters and slots of a task whose query, input, claim, batch, and rule are set. It keeps
// parameters units, kashin and seed that the task names, its padding (full if empty) and its lanes (one if 0).
// Otherwise the frame is the first of a few with a small Kashin constant, and the units are those of [plan.choose]. The
// noise is the least that proves the claim.
func (*Protocol) Calibrate(t *task.Task) error {
	if err := checkQuery(t); err != nil {
		return err
	}
	eps, delta := t.Claim.Epsilon.Value(), t.Claim.Delta.Value()
	if t.Rule != Rule {
		return invalid.Field("rule", strconv.Quote(t.Rule), Rule+" for protocol vectormean")
	}
	if delta < leastDelta {
		return invalid.Field("claim.delta", t.Claim.Delta.String(), "at least 2^-58 for protocol vectormean")
	}
	chosen := *t
	chosen.Params = nil
	if t.Slots.Lanes > 1 {
		chosen.Params = chooseFrame(t)
	}
	p := newPlan(t, eps, delta)
	units, trials := p.choose()
	if given, ok := t.Param("units"); ok {
		units, trials = given, 0
	}
	frame := chosen.Params
	chosen.Params = append(frame[:len(frame):len(frame)], task.Param{Key: "units", Value: units})
	m, err := open(&chosen)
	if err != nil {
		return err
	}
	if trials == 0 || !m.fill(&units, trials, p.most(16, 256), eps, delta) {
		if err := m.calibrate(eps, delta); err != nil {
			return err
		}
	}
	if err := m.checkSlots(); err != nil {
		return err
	}
	t.Slots = m.slots()
	t.Params = m.params(append(frame, task.Param{Key: "units", Value: units}))
	return nil
}

// leastDelta is the least δ that a task may claim. No curve falls below twice 2⁻⁶⁰, once for counters of units and once
// for null messages. A claim slightly above that would take much noise ([quarters]).
const leastDelta = 0x1p-58

// fill sets the units to the largest number, up to limit, that a counter's noise of this many trials hides. It returns
// false if less noise than these trials at q = ½ suffices even for the limit, or if the trials are too few for any
// units.
func (m *Mechanism) fill(units *randomizer.Rational, trials uint64, limit, eps, delta float64) bool {
	half := noise{trials, randomizer.NewRational(1, 2)}
	private := func(k int64) bool {
		m.noise, m.units = half, float64(k)/fineness
		return m.curve().delta(eps) <= delta
	}
	lo, hi := int64(fineness), max(int64(limit*fineness), fineness)
	if enough := private(hi); enough || !private(lo) {
		m.units = units.Float64()
		if enough {
			*units, m.units = fine(limit), float64(hi)/fineness
		}
		return false
	}
	for hi > lo+1 {
		if mid := (lo + hi) / 2; private(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	m.noise, m.units, *units = half, float64(lo)/fineness, randomizer.NewRational(lo, fineness)
	return true
}

// params returns all parameters of a task in the order of their keys. others are the parameters that do not describe
// noise.
func (m *Mechanism) params(others []task.Param) (out []task.Param) {
	add := func(key string) {
		for _, p := range others {
			if p.Key == key {
				out = append(out, p)
			}
		}
	}
	add("kashin")
	out = append(out, protocols.Whole("m", m.noise.trials))
	if m.null.trials > 0 {
		out = append(out, protocols.Whole("m0", m.null.trials))
	}
	out = append(out, task.Param{Key: "q", Value: m.noise.chance})
	if m.null.trials > 0 {
		out = append(out, task.Param{Key: "q0", Value: m.null.chance})
	}
	add("seed")
	add("units")
	return out
}

// plan holds the numbers on which the choice of units depends. It computes with the Gaussian limit, because the
// calibrated noise comes close to it.
type plan struct {
	n, size float64 // n_min; and the number of coefficients, d or (with a lane per coefficient) N.
	square  float64 // μ² of the Gaussian mechanism that meets the claim.
	none    bool    // The task's padding is none.
	lanes   bool    // Each coefficient has a lane.
}

func newPlan(t *task.Task, eps, delta float64) plan {
	p := plan{n: float64(t.Batch.Min), size: float64(t.Input.Bins), none: t.Slots.Padding == task.PaddingNone}
	if t.Slots.Lanes > 1 {
		p.lanes, p.size = true, float64(frameSize(int(min(t.Input.Bins, maxDim))))
	}
	p.square = compose.GaussianSquare(eps, delta)
	return p
}

// Variances with one lane, relative to the central Gaussian mechanism's. aim is what rounding may add if that is cheap.
// enough is a total that is good enough: a standard error of 1.14 times the Gaussian mechanism's.
const (
	aim    = 0.26
	enough = 1.30
)

// coarse is the largest allowed ratio of the rounding's variance to the noise's, with a lane per coefficient. It gives
// 1.16 times the standard error of the noise.
const coarse = 0.35

// fewTrials is the largest number of noise messages per kind and client that is worth sending for a variance of
// [enough].
const fewTrials = 3

// choose returns the units, s or h. With one lane under padding full it also returns the trials of noise per counter
// that should suffice, else 0.
//
// With a lane per coefficient it takes the least h for which rounding adds at most [coarse] to the variance. A client's
// noise there is ∝ h², and a malicious client can move a coefficient by 1 + m/h, so fewer units are better for both.
// With one lane under padding none it takes the s that minimises the number of messages times the 5/2 power of the
// variance, with A ≤ max(7.75·d, 124). Under padding full, A ≤ max(16d, 256). For every m it takes the largest s that m
// trials at q = ½ hide. It returns the least m ≤ 3 whose variance is at most [enough], else the m that minimises slots
// times variance squared. For d = 1 see [plan.chooseWhole].
func (p plan) choose() (units randomizer.Rational, trials uint64) {
	if p.lanes {
		h := math.Sqrt(p.n * p.square / (4 * p.size * coarse))
		return randomizer.NewRational(int64(min(math.Ceil(max(h, 1)), 256)), 1), 0
	}
	if p.size == 1 {
		return randomizer.NewRational(int64(p.chooseWhole()), 1), 0
	}
	best, least := 1.0, math.Inf(1)
	if p.none {
		for s := p.most(7.75, 124); s >= 1; s /= 1.02 {
			if cost := p.messages(s) * math.Pow(p.variance(s), 2.5); cost < least {
				best, least = s, cost
			}
		}
		return fine(best), 0
	}
	for m := 1.0; m <= maxTrials && p.slots(m, 1) < least; m *= max((m+1)/m, 1.02) {
		s := p.hidden(math.Floor(m))
		if s < 1 {
			continue
		}
		v := p.variance(s)
		if m <= fewTrials && v <= enough {
			return fine(s), uint64(m)
		}
		if cost := p.slots(m, s) * v * v; cost < least {
			best, least, trials = s, cost, uint64(m)
		}
	}
	return fine(best), trials
}

// chooseWhole returns the units for d = 1, a whole number. Then ±1 is a whole number of units, and no rounding moves a
// client beyond s units. With s just above a whole number, rare roundings would cost half of ε. It takes the least s
// whose variance is at most [enough], or else the s of least cost, as in [plan.choose].
func (p plan) chooseWhole() (best float64) {
	most, least := 256.0, math.Inf(1)
	if p.none {
		most = 124
	}
	for s := 1.0; s <= max(1, p.most(1, most+1)); s++ {
		v, cost := p.variance(s), p.messages(s)
		if p.none {
			cost *= math.Pow(v, 2.5)
		} else {
			trials := math.Ceil(4 * p.noise(s) / p.n)
			if trials <= fewTrials && v <= enough {
				return s
			}
			cost = p.slots(trials, s) * v * v
		}
		if cost < least {
			best, least = s, cost
		}
	}
	return best
}

// fineness is the denominator of a chosen number s of units.
const fineness = 256

func fine(s float64) randomizer.Rational {
	return randomizer.NewRational(max(int64(s*fineness), fineness), fineness)
}

// most returns the largest s that is worth its messages, with A ≤ max(each·d, least).
func (p plan) most(each, least float64) float64 {
	return min((max(each*p.size, least)-1)/math.Sqrt(p.size), math.Sqrt((p.size/4+p.n*p.square/16)/aim), maxUnits)
}

// nullTimes is how many times as much noise variance the null message has, per coordinate, as a counter of units, with
// one lane. Null messages then add 1/(2·nullTimes) of the counters' part to the squared distance.
const nullTimes = 2

// variance returns the variance of the estimate with s units, relative to the central Gaussian mechanism's.
func (p plan) variance(s float64) float64 {
	return p.noise(s)*p.square/(2*s*s) + p.n*p.square/(16*s*s)
}

// noise returns the noise variance that a counter needs with s units, over all n_min clients together.
func (p plan) noise(s float64) float64 {
	square := 2 * (s*s + p.size/4)
	if p.size == 1 { // Whole units.
		square = 2 * s * s
	}
	if p.none {
		square *= 1 + 1.0/(2*nullTimes)
	}
	return square / p.square
}

// hidden returns the largest s that m trials of noise per counter hide, or the largest that is worth its messages if
// that is less.
func (p plan) hidden(m float64) float64 {
	square := p.n*m/4*p.square/2 - p.size/4
	return min(p.most(16, 256), math.Sqrt(max(square, 0)))
}

func (p plan) slots(m, s float64) float64 { return 2*p.size*m + s*math.Sqrt(p.size) }

func (p plan) messages(s float64) float64 {
	return s*math.Sqrt(p.size) + (2+nullTimes)*p.size*p.noise(s)/p.n
}

// calibrate sets the least noise that proves the claim, to a relative 10⁻³ of the variance. Under padding full, where
// slots count, it also tries one trial fewer at q = ½. That may suffice although more trials of the same variance would
// not, because the tails at q = ½ waste least.
func (m *Mechanism) calibrate(eps, delta float64) error {
	private := func(lambda float64) bool {
		return m.setNoise(lambda) && m.curve().delta(eps) <= delta
	}
	hi := m.units * m.units
	for !private(hi) {
		if hi *= 2; hi > compose.MaxVariance {
			return invalid.Field("claim.epsilon", m.task.Claim.Epsilon.String(),
				"a larger epsilon or delta, or a smaller dim")
		}
	}
	hi = lower(private, hi)
	private(hi)
	if trials := m.noise.trials; trials > 1 && m.null.trials == 0 {
		if fewer := float64(trials-1) / 4 * float64(m.task.Batch.Min) * (1 - slack); private(fewer) {
			hi = lower(private, fewer)
		}
		private(hi)
	}
	return nil
}

// lower returns a value at most hi for which goodEnough holds. It lies within a relative 10⁻³ above a value for which
// goodEnough fails, or near 10⁻³.
func lower(goodEnough func(float64) bool, hi float64) float64 {
	lo := hi / 2
	for goodEnough(lo) && lo > 1e-3 {
		lo, hi = lo/2, lo
	}
	for hi > lo*1.001 {
		if mid := math.Sqrt(lo * hi); goodEnough(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// setNoise sets noise of variance lambda for each counter, over n_min clients. The null message of padding none gets
// nullTimes·d times that, or with a lane per coefficient the same. setNoise returns false if that is more noise than
// the accountant can sum up. The fewest trials are 4·λ/n, at q = ½. Under padding none, where slots do not count, it
// takes twice as many, at q ≈ 0.15: fewer messages for the same variance.
func (m *Mechanism) setNoise(lambda float64) bool {
	none := m.task.Slots.Padding == task.PaddingNone
	per := 4.0
	if none {
		per = 8
	}
	m.noise = m.noiseFor(lambda, per)
	most := lambda
	if none {
		if m.frame == nil {
			most = max(lambda, min(nullTimes*float64(m.size)*lambda, 0.9*compose.MaxVariance))
		}
		m.null = m.noiseFor(most, per)
	}
	return most <= compose.MaxVariance
}

func (m *Mechanism) noiseFor(lambda, trialsPer float64) noise {
	variance := lambda / float64(m.task.Batch.Min)
	trials := math.Ceil(trialsPer * variance)
	q := (1 - math.Sqrt(math.Max(0, 1-4*variance/trials))) / 2
	num := min(max(int64(math.Ceil(q*0x1p32)), 1), 1<<31)
	return noise{uint64(trials), randomizer.NewRational(num, 1<<32)}
}

// checkSlots returns an error if units and noise do not fit a lane. If more clients would help, the error says how many
// suffice.
func (m *Mechanism) checkSlots() error {
	most := min(m.task.MostPerLane(m.lanes), maxPerLane)
	slots := m.slots()
	if slots.PerLane <= most && max(m.noise.trials, m.null.trials) <= maxTrials {
		return nil
	}
	kinds := float64(m.perLane())
	room := float64(most) - float64(m.most()) - kinds // less one per kind, because trials are rounded up
	if room > 0 && most >= maxPerLane/2 {             // otherwise the batch is so large that a lane has few slots
		enough := math.Ceil(float64(slots.PerLane-m.most()) * float64(m.task.Batch.Min) / room)
		return invalid.Field("users", strconv.FormatUint(m.task.Batch.Min, 10),
			"at least "+decimal.Format(enough, 17)+
				" honest clients, so that each one's noise fits the slots of a lane, or a smaller dim")
	}
	return invalid.Field("slots.perLane", strconv.FormatUint(slots.PerLane, 10),
		"at most "+strconv.FormatUint(most, 10)+": take a smaller dim or batch, or a lane per coefficient")
}
