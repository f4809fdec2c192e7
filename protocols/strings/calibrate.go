package strings

import (
	"cmp"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Row implements [protocols.Protocol.Row].
func (p *Protocol) Row() protocols.Row {
	return protocols.Row{
		Queries:             []task.Query{task.Strings},
		Default:             []task.Query{task.Strings},
		ClientsToo:          true,
		CalibrateRelayNoise: p.CalibrateRelayNoise,
		Costs:               []protocols.Case{{Query: task.Strings, Length: 8}},
		Trials:              []protocols.Case{{Query: task.Strings, Length: 2, Users: 500}},
	}
}

// Calibrate sets the tables, noise and slots of a task whose query, input, claim and batch are set. Clients add the
// noise. It takes the largest tables for which γ is at most a third. That γ gives the least error, because the error of
// a count is proportional to 1/(γ(1−γ)²). It keeps levels, checks and b if the task names them.
func (*Protocol) Calibrate(t *task.Task) error {
	p, err := begin(t)
	if err != nil {
		return err
	}
	if p.b == 0 {
		t.Rule = cmp.Or(t.Rule, string(accountant.Exact))
		p.b = largestB(p.mostB(), func(b uint64) bool {
			krr, err := protocols.CalibrateKRR(t, b)
			return err == nil && krr.Gamma.Float64() <= 1./3
		})
	}
	krr, err := protocols.CalibrateKRR(t, p.b)
	if err != nil {
		return err
	}
	t.Rule, t.Noise = krr.Rule(t), nil
	p.set(t, task.Param{Key: "gamma", Value: krr.Gamma})
	return nil
}

// dummiesPerClient is the default number of dummies that a relay adds for each client of a full batch. Clients then add
// about half as much to the error as two relays do.
const dummiesPerClient = 0.7

// CalibrateRelayNoise implements [protocols.Row.CalibrateRelayNoise]. Unless the task names b, it takes the largest
// tables that the dummies protect.
func (*Protocol) CalibrateRelayNoise(t *task.Task, d protocols.NoiseOptions) error {
	if d.LocalEpsilon != 0 {
		return invalid.Field("local-epsilon", decimal.Format(d.LocalEpsilon, -1),
			"none: in protocol "+Name+" either clients or relays add noise, not both")
	}
	if !(d.MaxDummies >= 0 && d.MaxDummies <= 1<<32) {
		return invalid.Field("max-dummies", decimal.Format(d.MaxDummies, -1), "0 to 4294967296")
	}
	if t.Claim.Epsilon.Value() == 0 {
		return invalid.Field("claim.epsilon", "none", "the epsilon of one epoch for protocol "+Name)
	}
	p, err := begin(t)
	if err != nil {
		return err
	}
	most := cmp.Or(d.MaxDummies, dummiesPerClient*float64(t.Batch.Size))
	eps, delta := t.Claim.Epsilon.Value(), t.Claim.Delta.Value()
	if p.b == 0 {
		p.b = largestB(p.mostB(), func(b uint64) bool { return accountant.PoolSuffices(b, uint64(most), eps, delta) })
	}
	dummies, err := accountant.PoolDummies(p.b, eps, delta)
	if err != nil {
		return err
	}
	if d.MaxDummies > 0 && float64(dummies) > d.MaxDummies {
		return invalid.Field("max-dummies", decimal.Format(d.MaxDummies, -1), "at least "+
			decimal.Format(float64(dummies), -1)+", which the claim needs")
	}
	t.Rule, t.Claim.Assumption = RulePool, task.NoneHonest
	t.Noise = &task.Noise{Kind: task.NoisePool, Cells: p.cells(), Pool: dummies}
	p.set(t)
	return nil
}

// levelBits is how many bits each level hashes beyond the previous level, for texts of up to shortText bytes;
// levelBitsLong is for longer texts. With fewer bits, fewer prefixes fall in cells that are full because of other
// texts. But then there are more tables, so each says less about a text, if similar texts share much of it.
const (
	levelBits     = 3
	levelBitsLong = 4
	shortText     = 8
)

// begin returns the tables of a task, with defaults for levels and checks. b is 0 if the task does not name it.
func begin(t *task.Task) (p plan, err error) {
	if err := checkQuery(t); err != nil {
		return p, err
	}
	p.length = int(t.Input.Bins)
	each := levelBitsLong
	if p.length <= shortText {
		each = levelBits
	}
	levels := uint64(1 + (max(0, 8*p.length-firstBits)+each-1)/each)
	most := mostLevels(t.Input.Bins)
	if levels, err = kept(t, "levels", min(levels, most), 1, most); err != nil {
		return p, err
	}
	checks, err := kept(t, "checks", 5+(levels+4)/5, 1, maxChecks)
	if err != nil {
		return p, err
	}
	p.levels, p.checks = int(levels), int(checks)
	p.b, err = kept(t, "b", 0, leastB, p.mostB())
	return p, err
}

// kept returns the task's parameter with this key, or the value otherwise if the task does not name it.
func kept(t *task.Task, key string, otherwise, least, most uint64) (uint64, error) {
	if _, ok := t.Param(key); !ok {
		return otherwise, nil
	}
	return protocols.WholeParam(t, key, least, most)
}

// mostB returns the largest number b of cells per table for this number of tables.
func (p plan) mostB() uint64 { return maxCells / uint64(p.tables()) }

// largestB returns the largest b up to most for which holds is true, and leastB if there is none. holds must be true up
// to some b and false beyond it.
func largestB(most uint64, holds func(b uint64) bool) uint64 {
	lo, hi := uint64(leastB), most+1
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; holds(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// set writes the parameters and slots of the tables into a task. Parameters in between come after checks and before
// levels in the order of keys.
func (p plan) set(t *task.Task, between ...task.Param) {
	number := func(key string, n uint64) task.Param {
		return task.Param{Key: key, Value: randomizer.NewRational(int64(n), 1)}
	}
	t.Params = append([]task.Param{number("b", p.b), number("checks", uint64(p.checks))}, between...)
	t.Params = append(t.Params, number("levels", uint64(p.levels)))
	t.Slots = p.slots()
}

// CountVariance returns the variance of the estimated count of a listed text that this many clients of a full batch
// hold. It assumes that no other listed text shares the text's checks. With C checks, a client's message is in one of
// the text's check cells with probability w = C(1−γ)/T. Each message of the other clients, and each of the D′M dummies
// (D′ = relays), is there with probability C/(Tb):
//
//	(clients·w(1−w) + (n − clients + D′M)·C/(Tb)) / w²
func (m *Mechanism) CountVariance(clients float64, relays int) float64 {
	checks := float64(m.plan.checks)
	others := max(0, float64(m.task.Batch.Size)-clients)
	if m.task.Noise != nil {
		others += float64(relays) * float64(m.task.Noise.Pool)
	}
	w := checks / m.unit()
	return (clients*w*(1-w) + others*checks/float64(m.plan.cells())) / (w * w)
}

// Reach returns the most by which one malicious client moves the count of a text. It sends a message in one of the
// text's checks. An honest holder of the text sends there only with the probability w of [Mechanism.CountVariance], so
// the message counts for 1/w clients.
func (m *Mechanism) Reach() float64 { return m.unit() / float64(m.plan.checks) }
