package rappor

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/task"
)

// aggregate is the sufficient statistic: the sum of the levels reported, and n.
type aggregate struct {
	m       *Mechanism
	sum     uint64
	reports uint64
}

// Aggregate is [protocols.Mechanism.Aggregate].
func (m *Mechanism) Aggregate() protocols.Aggregate { return &aggregate{m: m} }

func (a *aggregate) Add(lane int, message []byte) error {
	if lane != 0 {
		return invalid.Field("lane", strconv.Itoa(lane), "lane 0")
	}
	i, err := protocols.DecodeIndex(message, a.m.k)
	if err != nil {
		return err
	}
	a.sum += i + 1
	return nil
}

func (a *aggregate) AddUsers(n uint64) { a.reports += n }

func (a *aggregate) Merge(other protocols.Aggregate) error {
	o, ok := other.(*aggregate)
	if !ok || o.m.k != a.m.k || o.m.f != a.m.f {
		return protocols.ErrMerge
	}
	a.sum += o.sum
	a.reports += o.reports
	return nil
}

func (a *aggregate) Reports() uint64 { return a.reports }

// Total returns formula (1), moved from levels to the task's range.
func (a *aggregate) Total() []float64 {
	f, k, n := a.m.f.Float64(), float64(a.m.k), float64(a.reports)
	levels := (float64(a.sum) - n*f*k*(k+1)/2) / (1 - 2*f) // (1)
	return []float64{a.m.task.Input.Lo.Float64()*n + a.m.width()*levels/k}
}

// width is the length of the task's range.
func (m *Mechanism) width() float64 {
	return m.task.Input.Hi.Float64() - m.task.Input.Lo.Float64()
}

// Exact is [protocols.Mechanism.Exact]; the variance is one client's part of formula (2).
func (m *Mechanism) Exact(value []float64) (total, variance []float64, err error) {
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return nil, nil, err
	}
	_, part := math.Modf(x * float64(m.k))
	return []float64{m.task.Input.Lo.Float64() + m.width()*x}, []float64{m.variance(part)}, nil
}

// WorstVariance is [protocols.Mechanism.WorstVariance].
func (m *Mechanism) WorstVariance() float64 { return m.variance(m.worstPart()) }

// WorstValue is [protocols.Mechanism.WorstValue]: halfway between two levels.
func (m *Mechanism) WorstValue() []float64 {
	return []float64{m.task.Input.Lo.Float64() + m.width()*m.worstPart()/float64(m.k)}
}

// worstPart returns the fraction of a level at which rounding is worst; a count is not rounded.
func (m *Mechanism) worstPart() float64 {
	if m.task.Query == task.Count {
		return 0
	}
	return 0.5
}

// variance returns one client's part of formula (2) in the square of the query's units.
func (m *Mechanism) variance(part float64) float64 {
	f, k, scale := m.f.Float64(), float64(m.k), m.width()/float64(m.k)
	flips := f * (1 - f) / ((1 - 2*f) * (1 - 2*f)) * k * (k + 1) * (2*k + 1) / 6
	return (flips + part*(1-part)) * scale * scale // (2)
}

// Fast is [protocols.FastSimulator]: of the clients that hold level j all but a binomial number
// report j, and of the others a binomial number. It leaves out that flips are drawn to fit the
// slots, an event whose probability over all clients is below δ/100.
func (m *Mechanism) Fast(values [][]float64) (func(*randomizer.Source) (protocols.Aggregate, uint64), error) {
	groups, err := protocols.RoundingGroups(values, m.k, func(v []float64) (float64, error) { return protocols.Number(m.task, v) })
	if err != nil {
		return nil, err
	}
	n := uint64(len(values))
	return func(src *randomizer.Source) (protocols.Aggregate, uint64) {
		held := make([]uint64, m.k+2) // A group at the top has Up = 0.
		for _, g := range groups {
			up := src.Binomial(g.Clients, g.Up)
			held[g.Whole] += g.Clients - up
			held[g.Whole+1] += up
		}
		a, messages := &aggregate{m: m}, uint64(0)
		for j := uint64(1); j <= m.k; j++ {
			count := held[j] - src.Binomial(held[j], m.f) + src.Binomial(n-held[j], m.f)
			a.sum += j * count
			messages += count
		}
		return a, messages
	}, nil
}

// Attack is [protocols.Attacker]: with max, every slot holds level k, which nobody can tell from
// the level k of others; with drop-noise, the client's own level is all it sends.
func (m *Mechanism) Attack(src *randomizer.Source, attack string, _ int, value []float64) ([][][]byte, error) {
	x, err := protocols.Number(m.task, value)
	if err != nil {
		return nil, err
	}
	messages := [][]byte{}
	switch attack {
	case protocols.AttackMax:
		for range m.b {
			messages = append(messages, protocols.EncodeIndex(nil, m.k-1, m.k))
		}
	case protocols.AttackDropNoise:
		if level := src.Round(randomizer.Fixed(x), m.k); level > 0 {
			messages = append(messages, protocols.EncodeIndex(nil, level-1, m.k))
		}
	default:
		return nil, protocols.UnknownAttack(attack, "max or drop-noise")
	}
	return [][][]byte{messages}, nil
}
