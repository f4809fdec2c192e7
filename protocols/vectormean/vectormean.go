// Package vectormean adds up one vector of Euclidean norm at most 1 per client. Clients send many messages of one
// unit each, hidden by binomial noise. The accuracy is close to the central Gaussian mechanism's. The protocol
// extends [AFNNTZ24] (Algorithms 3 and 4).
//
// A client expresses the entries of its vector v in units: t_l = s·v_l. It rounds |t_l| at random to one of the two
// adjacent whole numbers, with expected value |t_l|, and calls the result, with t_l's sign, x_l. For every unit of x_l
// it sends one message (l, +) or (l, -), by its sign. To hide these messages, it also sends each of the 2d kinds of
// message Bin(m, q) more times. Messages of one kind are identical. So the verifier learns from n clients only how many
// there are of each kind: C_l+ and C_l-.
//
//	Σv_l ≈ (C_l+ - C_l-)/s                                                            (1)
//	Var  = (2m·q(1-q) + f_l(1-f_l))/s², one client, f_l the fractional part of |t_l|     (2)
//
// The roundings of one client's entries depend on each other: their total is the sum of |t_l| to within 1 ([S01]). So
// no vector takes more than A = ⌈s√d⌉ units. Each rounding by itself is unbiased and has the variance in (2). Under
// padding none the number of a client's messages must not depend on v. A cover for every unused unit would not help:
// the verifier can count covers, and so would learn the exact number of units. So the client fills up to A units with
// messages of one more kind, the null message. Null messages have noise Bin(m0, q0) of their own.
//
// Guarantee: (ε, δ)-DP by substitution of one client's vector, against a verifier who knows all other vectors, once the
// messages of n_min honest clients are shuffled together. A counter with v added is no easier to tell from the counter
// itself than N(vη, 1) from N(0, 1). The exact distribution function of Bin(n_min·m, q) gives η. So all counters
// together are no worse than the Gaussian mechanism, at the Euclidean distance between what two vectors add to the
// counters. Rounding changes that distance; its moment is bounded over all vectors (docs/proofs/vectormean.md).
// Participation is not protected. The guarantee needs an honest first relay. A first relay that puts a client's slots
// into different batches leaves each batch less noise (docs/proofs/slots.md, section 6). Under padding none the number
// of a client's messages shows the first relay that client's noise.
//
// Why one kind of message for each sign: two vectors x, x' shift the 2d counters by a vector of squared norm at most
// ‖x‖² + ‖x'‖². One counter for both signs would be shifted by up to (‖x‖+‖x'‖)². The second counter saves in privacy
// what it adds to the variance. Why units: bits of weight 2^i need fewer messages for large s. But two vectors can
// differ in all bits at once, which costs 2.2 times the error.
//
// Accuracy: 1.15 times the error of the central Gaussian mechanism. It is larger if the noise of few clients, or the
// units of many, do not fit into some slots per coordinate ([Protocol.Calibrate]).
//
// A lane per coefficient. If all slots are in one lane, a malicious client can put all B of its slots on one
// coordinate, and move that coordinate by B/s, about √d. So a task may ask for several lanes. Then the client does not
// send v but its Kashin representation: coefficients a with Uᵀa = v and |a_j| ≤ c = κ/√N, in a public frame (frame.go)
// of N ≥ 2d vectors. Each coefficient has a lane of its own, and relays enforce the lane's limit. A lane has one
// counter, for both signs. A unit is worth 2c/h. t_j = (a_j/c + 1)·h/2 units are rounded to a whole number from 0 to h,
// independently for each coefficient. The estimate subtracts the offset and the mean noise of n clients:
//
//	Σv  ≈ Uᵀ·(c/h)·(2C_j - n(h + 2mq))                                                (3)
//	Var = (2c/h)²·(m·q(1-q) + Σ_j f_j(1-f_j)/N), one client, every entry               (4)
//
// The variance is equal in every entry because every entry of U is ±1/√N. Under padding none, null messages fill each
// lane up to h. They count the units that were not sent, C_j0. Then 2C_j - nh is C_j - C_j0, which needs no offset and
// halves the noise.
//
// A malicious client moves each coefficient by what its lane's slots allow. Under padding full that is an error of norm
// at most κ(1 + 2m(1-q)/h). m grows with d/n. But the error stays below the noise of all clients until that noise is
// about as large as the sum itself can be (docs/proofs/vectormean.md, section 5). The price is accuracy: coefficients
// have norm κ, not 1. The client searches for a representation. It found one for every vector tried. If it finds none,
// it clips the best one, which costs accuracy and no privacy.
//
// Why one counter per coefficient: two counters, with h/2 units for each sign, have the same error and as many slots.
// But a malicious client could spend all units on one sign and move the coefficient twice as far, and h could not be 1.
//
// Limits: at most 65535 slots per lane, and claims of a δ of at least 2⁻⁵⁸ ([Protocol.Calibrate]). If every relay
// colludes with the verifier, no protection remains: one client's units show.
//
// [AFNNTZ24]: https://arxiv.org/abs/2404.10201
// [S01]: https://doi.org/10.1109/SFCS.2001.959935
package vectormean

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Name is the protocol's name in tasks.
const Name = "vectormean"

// Protocol is the entry of this protocol in the table of package registry.
type Protocol struct{}

// ProtocolName returns [Name].
func (*Protocol) ProtocolName() string { return Name }

// Bounds of the parameters. maxTrials and maxPerLane are what a lane holds. maxDim bounds the dimension, because of the
// frame of a lane per coefficient. maxUnits bounds s and h, because each unit is a message.
const (
	maxTrials  = 1<<16 - 1
	maxPerLane = 1<<16 - 1
	maxDim     = 1 << 13
	maxUnits   = 1 << 12
)

// Mechanism is this protocol with the parameters of one task.
type Mechanism struct {
	task  *task.Task
	frame *frame  // The frame of the representation, with a lane per coefficient. nil with one lane.
	size  int     // Number of coefficients: d with one lane, N with a lane per coefficient.
	bound float64 // Largest absolute coefficient: 1 with one lane, c with a lane per coefficient.
	units float64 // With one lane s, the units per 1. Else h, the units of a coefficient's whole range.
	noise noise   // One client's noise on each counter of units.
	null  noise   // One client's noise on each counter of null messages; zero trials under padding full.
	lanes uint64  // 1, or N with a lane per coefficient.
}

// noise is the binomial noise Bin(trials, chance) that one client adds to a counter: Bin(m, q) in the package comment.
type noise struct {
	trials uint64
	chance randomizer.Rational
}

// mean returns the mean of one client's noise, mq.
func (n noise) mean() float64 { return float64(n.trials) * n.chance.Float64() }

// variance returns the variance of one client's noise, mq(1-q); 0 without trials.
func (n noise) variance() float64 {
	if n.trials == 0 {
		return 0
	}
	return n.mean() * (1 - n.chance.Float64())
}

// Capabilities returns the optional functions of the mechanism, for [protocols.CapabilitiesOf].
func (m *Mechanism) Capabilities() protocols.Capabilities {
	return protocols.Capabilities{Fast: m.fast, Attack: m.attack}
}

// Open returns the mechanism of a task with query vectormean. d is Input.Bins. Parameters are units (s, or h), and m
// and q for the noise of a counter. Under padding none there are also m0 and q0 for the null message. With a lane per
// coefficient there are also kashin (κ) and seed (of the frame).
func (*Protocol) Open(t *task.Task) (protocols.Mechanism, error) {
	m, err := open(t)
	if err != nil {
		return nil, err
	}
	want := "units, m and q"
	params := 3
	if m.noise, err = noiseParam(t, "m", "q"); err != nil {
		return nil, err
	}
	if t.Slots.Padding == task.PaddingNone {
		want, params = want+", m0 and q0", params+2
		if m.null, err = noiseParam(t, "m0", "q0"); err != nil {
			return nil, err
		}
	}
	if m.frame != nil {
		want, params = want+", kashin and seed", params+2
	}
	if len(t.Params) != params {
		return nil, invalid.Field("params", strconv.Itoa(len(t.Params))+" parameters", strconv.Itoa(params)+": "+want)
	}
	if t.Slots.Lanes != 1 && t.Slots.Lanes != m.lanes {
		return nil, invalid.Field("slots.lanes", strconv.FormatUint(t.Slots.Lanes, 10),
			"1 or "+strconv.FormatUint(m.lanes, 10))
	}
	return m, protocols.CheckSlots(t, m.slots())
}

func noiseParam(t *task.Task, trials, chance string) (n noise, err error) {
	if n.trials, err = protocols.WholeParam(t, trials, 1, maxTrials); err != nil {
		return n, err
	}
	q, ok := t.Param(chance)
	if !ok || q.Num <= 0 || uint64(q.Num) >= q.Den || q.Num >= 1<<53 || q.Den&(q.Den-1) != 0 {
		return n, invalid.Field("params."+chance, q.String(),
			"a rational in (0, 1), numerator below 2^53, denominator a power of two")
	}
	n.chance = q
	return n, nil
}

// open returns the task's mechanism with its units and frame, but without noise.
func open(t *task.Task) (*Mechanism, error) {
	if err := checkQuery(t); err != nil {
		return nil, err
	}
	if t.Input.Bins < 1 || t.Input.Bins > maxDim {
		return nil, invalid.Field("input.dim", strconv.FormatUint(t.Input.Bins, 10),
			"1 to 8192 for protocol vectormean: a counter for each sign, with one slot for noise each, must fit a lane")
	}
	units, ok := t.Param("units")
	if s := units.Float64(); !ok || !(s >= 1 && s <= maxUnits) {
		return nil, invalid.Field("params.units", units.String(), "from 1 to "+strconv.Itoa(maxUnits))
	}
	m := &Mechanism{task: t, size: int(t.Input.Bins), bound: 1, units: units.Float64(), lanes: 1}
	if t.Slots.Lanes > 1 {
		return m, m.openFrame(units)
	}
	return m, nil
}

func checkQuery(t *task.Task) error {
	if t.Query != task.VectorMean {
		return invalid.Field("query", invalid.Quote(string(t.Query)), "vectormean for protocol vectormean")
	}
	return nil
}

// openFrame sets the frame and its bound, for a task with a lane per coefficient.
func (m *Mechanism) openFrame(units randomizer.Rational) error {
	seed, err := protocols.WholeParam(m.task, "seed", 0, math.MaxInt64)
	if err != nil {
		return err
	}
	m.frame = newFrame(m.size, seed)
	m.size, m.lanes = m.frame.size, uint64(m.frame.size)
	kashin, ok := m.task.Param("kashin")
	if most := math.Sqrt(float64(m.size)); !ok || !(kashin.Float64() >= 1 && kashin.Float64() <= most) {
		return invalid.Field("params.kashin", kashin.String(), "a rational from 1 to the root of the frame's size, "+
			decimal.Format(most, 5))
	}
	m.bound = kashin.Float64() / math.Sqrt(float64(m.size))
	if units.Den != 1 {
		return invalid.Field("params.units", units.String(), "a whole number, because each coefficient has a lane")
	}
	return nil
}

// most returns the largest number of units that a client can have in a lane: A, or h with a lane per coefficient. For A
// it rounds √d up by more than the rounding errors of vectors and their sums. With d = 1 the entry's units bound it
// directly.
func (m *Mechanism) most() uint64 {
	if m.frame != nil || m.size == 1 {
		return uint64(math.Ceil(m.units))
	}
	return uint64(m.units*math.Sqrt(float64(m.size))*(1+slack)) + 1
}

// counters returns the number of counters of units in a lane: one for each sign of each coordinate, or one with a lane
// per coefficient.
func (m *Mechanism) counters() uint64 {
	if m.frame != nil {
		return 1
	}
	return 2 * uint64(m.size)
}

// perLane returns the number of kinds of message in a lane. There is one for each counter of units and, under padding
// none, the null message as the last.
func (m *Mechanism) perLane() uint64 {
	kinds := m.counters()
	if m.null.trials > 0 {
		kinds++
	}
	return kinds
}

// kinds returns the number of different messages over all lanes. In one lane, message (l, +) has number 2l and (l, -)
// number 2l+1.
func (m *Mechanism) kinds() uint64 { return m.perLane() * m.lanes }

// slots returns the task's slots. A lane has one for each unit and each trial of noise, the most that a client can
// need.
func (m *Mechanism) slots() task.Slots {
	s := task.Slots{Padding: task.PaddingFull, Lanes: m.lanes}
	s.PerLane = m.most() + m.counters()*m.noise.trials + m.null.trials
	if m.null.trials > 0 {
		s.Padding = task.PaddingNone
	}
	s.MessageBytes = uint64(protocols.Indices(m.kinds()).Bytes())
	return s
}
