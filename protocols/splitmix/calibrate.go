package splitmix

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// roundingShare is the most that rounding may add to the variance, as a fraction of the noise's variance.
const roundingShare = 0.02

// Row implements [protocols.Protocol.Row].
func (*Protocol) Row() protocols.Row {
	return protocols.Row{
		Queries: []task.Query{task.Count, task.Sum, task.Mean},
		Rule:    RuleComponents,
		Costs:   []protocols.Case{{Query: task.Sum}},
		CostParam: &protocols.CostParam{Key: "p", Best: true,
			Values: func(uint64) []uint64 { return protocols.Doublings(1 << 12) }},
		Trials: []protocols.Case{{Query: task.Count, Users: 100}, {Query: task.Sum, Users: 100},
			{Query: task.Mean, Hi: 4, Users: 100}},
	}
}

// Calibrate sets the parameters and slots of a task whose query, input, claim, batch and rule are set. It takes the p
// for which rounding adds at most 2 % to the variance, and s = ε/p. It takes the smallest q with which the noise wraps
// around with a probability of at most [MaxWrap]. It takes the smallest m that proves the claim by the rule. It keeps
// parameters p and m that the task names.
func (*Protocol) Calibrate(t *task.Task) error {
	if err := protocols.CheckNumber(t); err != nil {
		return err
	}
	if err := checkRule(t.Rule); err != nil {
		return err
	}
	target := newTarget(t)
	p := uint64(1)
	if t.Query != task.Count {
		p = uint64(min(max(math.Ceil(target.eps*math.Sqrt(float64(t.Batch.Size)/(8*roundingShare))), 1), maxP))
	}
	if _, ok := t.Param("p"); ok {
		var err error
		if p, err = protocols.WholeParam(t, "p", 1, maxP); err != nil {
			return err
		}
	}
	s, err := target.exponent(p)
	if err != nil {
		return err
	}
	mech := newMechanism(t, 0, p, 0, s)
	mech.q = mech.leastQ()
	if mech.q > maxQ {
		return invalid.Field("params.p", strconv.FormatUint(p, 10),
			"smaller: the modulus q, batch size times p plus room for noise, must stay below 2^56")
	}
	if _, ok := t.Param("m"); ok {
		mech.m, err = protocols.WholeParam(t, "m", 1, maxM)
	} else {
		mech.m, err = target.messages(t.Rule, mech.q)
	}
	if err != nil {
		return err
	}
	if limit := t.MostPerLane(1); mech.m > limit {
		return invalid.Field("batch.size", strconv.FormatUint(t.Batch.Size, 10),
			"fewer: each client needs "+strconv.FormatUint(mech.m, 10)+" messages by rule "+t.Rule+
				", and a batch of this size has room for "+strconv.FormatUint(limit, 10))
	}
	t.Params = []task.Param{protocols.Whole("m", mech.m), protocols.Whole("p", p), protocols.Whole("q", mech.q),
		{Key: "s", Value: s}}
	t.Slots = mech.slots()
	return nil
}

// target is the claim that the parameters must prove.
type target struct {
	eps, delta float64
	users      uint64 // n_min, the number of honest clients.
}

func newTarget(t *task.Task) target {
	eps, delta := t.Claim.Epsilon.Value(), t.Claim.Delta.Value()
	return target{eps, delta, t.Batch.Min}
}

// exponent returns the noise's exponent s = ε/p, rounded down to a rational: more noise.
func (g target) exponent(p uint64) (randomizer.Rational, error) {
	eps, _ := randomizer.RationalFromFloat(g.eps)
	for eps.Float64() > g.eps {
		eps.Num--
	}
	if eps.Num <= 0 || eps.Float64()/float64(p) < 2*randomizer.MinRate.Float64() {
		return randomizer.Rational{},
			invalid.Field("epsilon", decimal.Format(g.eps, -1), "at least p times 2^-39, with p = "+
				strconv.FormatUint(p, 10))
	}
	return randomizer.NewRational(eps.Num, eps.Den*p), nil
}

// messages returns the smallest number m of messages per client that proves the target by a rule, with modulus q.
func (g target) messages(rule string, q uint64) (uint64, error) {
	proves := func(m uint64) bool { return statisticalDistance(rule, g.users, m, q)*(1+math.Exp(g.eps)) <= g.delta }
	hi := uint64(1)
	for !proves(hi) {
		if hi *= 2; hi > maxM {
			return 0, invalid.Field("delta", decimal.Format(g.delta, -1),
				"a larger delta, or more honest users: "+strconv.Itoa(maxM)+" messages are too few by rule "+rule)
		}
	}
	lo := hi / 2 // 0, or a number of messages that is too small
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; proves(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi, nil
}
