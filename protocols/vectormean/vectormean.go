// Package vectormean adds up one vector of Euclidean norm at most 1 per client with many messages:
// Kashin's representation and one counter for each of its bits, after [AFNNTZ24] (Algorithms 3 and 4).
//
// A public frame (frame.go) of N ≥ 2d vectors gives a client's vector v coefficients a with
// Uᵀa = v and |a_j| ≤ c = κ/√N: spread so evenly that each is worth the same few bits. The client
// rounds (a_j/c+1)/2 stochastically to x_j/L, x_j an integer of b bits, L = 2^b-1, and for every bit i
// of every x_j that is 1 sends the message (j, i). To hide it, the client also sends, for every
// (j, i), the same message again Bin(m_i, q_i) times. Messages of one counter are all alike: what
// the verifier learns of n clients is the number C_ji of each, bit counts plus Bin(n·m_i, q_i).
//
//	X_j  = Σ_i 2^i·(C_ji - n·m_i·q_i)                                                 (1)
//	Σv   ≈ Uᵀ·c(2X/L - n)                                                             (2)
//	Var  = (2c/L)²·(Σ_i 4^i·m_i·q_i(1-q_i) + Σ_j f_j(1-f_j)/N), one client, every entry  (3)
//
// f_j being the fractional part that x_j's rounding decides on. (3) holds as every entry of U is
// ±1/√N.
//
// Under padding none a client must send the same number of messages for every v, and a cover for
// every 0 would tell the verifier, who can count covers, the exact number of zeros. So there a 0 is
// a message (j, i, 0), a 1 is (j, i, 1), and both kinds get noise Bin(m_i, q_i): then C_ji in (1) is
// (C_ji1 - C_ji0 + n)/2 and needs no correction, and (3) has half the noise's variance.
//
// Guarantee: (ε, δ)-DP by substitution of one client's vector, against a verifier who knows all other
// vectors, once the messages of n_min honest clients are shuffled together. A client moves each
// counter by at most 1, up or down, and noise is independent: the claim is the exact composition of
// all N·b (under padding none 2N·b) counters moving at once, in the worse direction each (package
// compose; docs/proofs/vectors.md). No closed form, no Gaussian approximation. Participation is not
// protected. The guarantee needs an honest first relay: one that puts a client's slots into different
// batches thins the noise of each (docs/proofs/slots.md, section 6), and under padding none the number of
// a client's messages shows it that client's noise.
//
// Why bits and one-sided noise, where the paper has [GKMPS21] per coordinate: its noise is discrete
// Laplace, which composed over many coordinates needs twice the variance of this binomial noise for
// the same (ε, δ), and its messages carry signed numbers, which takes zero-sum noise to hide and
// comes in bursts. Splitting x_j into bits costs no accuracy: noise variances proportional to 2^-i
// give the total of L² times that of a single bit, exactly what L levels cost in one counter; in
// return a client sends at most b messages per coordinate, none of which says anything but its
// counter, and its noise is bounded: slots never overflow.
//
// Accuracy: unbiased as long as representations within c are found; one that is not (none was, of
// those tried) is clipped, which costs accuracy and no privacy. [Protocol.Calibrate] takes the least b whose
// error is within 20 % of b = ∞.
//
// Limits: N·Σ(1+m_i) slots up to 65535 in a lane. If every relay colludes with the verifier, nothing
// remains: one client's bit counts show. One malicious client can put all its slots B on one counter
// of the highest bit and move one coefficient by about B·c: an error of norm about κ√N·(b+Σm_i). With
// one lane per coefficient, whose limit relays enforce, the same client moves each by at most its
// own limit times c: norm κ·(b+Σm_i), whatever d.
//
// [AFNNTZ24]: https://arxiv.org/abs/2404.10201
// [GKMPS21]: https://arxiv.org/abs/2109.13158
package vectormean

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Name is the protocol's name in tasks.
const Name = "vectormean"

// Protocol is the protocol's row in the table of all.
type Protocol struct{}

// ProtocolName is [Name].
func (*Protocol) ProtocolName() string { return Name }

// Bounds: bits so that parameter names stay one digit (1023 levels round away nothing that noise
// would not hide), trials and slots by what a lane holds.
const (
	maxBits    = 10
	maxTrials  = 1<<16 - 1
	maxPerLane = 1<<16 - 1
)

// Mechanism is the protocol with the parameters of one task.
type Mechanism struct {
	task   *task.Task
	frame  *frame
	bound  float64 // c.
	noise  []noise // Of bit 0, 1, …
	sides  uint64  // Kinds of message per bit: 1, or 2 under padding none.
	lanes  uint64  // 1, or N.
	levels uint64  // L.
}

// noise is Bin(trials, chance) per client: m_i and q_i.
type noise struct {
	trials uint64
	chance randomizer.Rational
}

func (n noise) mean() float64     { return float64(n.trials) * n.chance.Float64() }
func (n noise) variance() float64 { return n.mean() * (1 - n.chance.Float64()) }

// Open returns the mechanism of a task: query vectormean, d = Input.Bins, parameters bits (b), kashin
// (κ), seed (of the frame), and m0, q0, m1, q1, … for the noise of every bit. The slots say whether
// there is one lane or N.
func (*Protocol) Open(t *task.Task) (protocols.Mechanism, error) {
	m, bits, err := open(t)
	if err != nil {
		return nil, err
	}
	if want := 3 + 2*int(bits); len(t.Params) != want {
		return nil, invalid.Field("params", strconv.Itoa(len(t.Params))+" parameters", strconv.Itoa(want)+": bits, kashin, seed, and an m and a q for every bit")
	}
	for i := range bits {
		trials, err := protocols.WholeParam(t, "m"+strconv.FormatUint(i, 10), 1, maxTrials)
		if err != nil {
			return nil, err
		}
		key := "q" + strconv.FormatUint(i, 10)
		q, ok := t.Param(key)
		if !ok || q.Num <= 0 || uint64(q.Num) >= q.Den || q.Num >= 1<<53 || q.Den&(q.Den-1) != 0 {
			return nil, invalid.Field("params."+key, q.String(), "a rational in (0, 1), numerator below 2^53, denominator a power of two")
		}
		m.noise = append(m.noise, noise{trials, q})
	}
	if t.Slots.Lanes != 1 && t.Slots.Lanes != m.lanes {
		return nil, invalid.Field("slots.lanes", strconv.FormatUint(t.Slots.Lanes, 10), "1 or "+strconv.Itoa(m.frame.size))
	}
	return m, protocols.CheckSlots(t, m.slots())
}

// open returns a mechanism without noise.
func open(t *task.Task) (*Mechanism, uint64, error) {
	if err := checkQuery(t); err != nil {
		return nil, 0, err
	}
	if most := uint64(maxPerLane / 2); uint64(frameSize(int(t.Input.Bins))) > most {
		return nil, 0, invalid.Field("input.dim", strconv.FormatUint(t.Input.Bins, 10), "1 to 8192 for protocol vectormean: 2·dim slots, rounded up to a power of two, with one for noise each, must fit a lane")
	}
	bits, err := protocols.WholeParam(t, "bits", 1, maxBits)
	if err != nil {
		return nil, 0, err
	}
	seed, err := protocols.WholeParam(t, "seed", 0, math.MaxInt64)
	if err != nil {
		return nil, 0, err
	}
	f := newFrame(int(t.Input.Bins), seed)
	kashin, ok := t.Param("kashin")
	if most := math.Sqrt(float64(f.size)); !ok || !(kashin.Float64() >= 1 && kashin.Float64() <= most) {
		return nil, 0, invalid.Field("params.kashin", kashin.String(), "a rational from 1 to the root of the frame's size, "+strconv.FormatFloat(most, 'g', 5, 64))
	}
	m := &Mechanism{task: t, frame: f, sides: 1, lanes: 1, levels: 1<<bits - 1}
	m.bound = kashin.Float64() / math.Sqrt(float64(f.size))
	if t.Slots.Padding == task.PaddingNone {
		m.sides = 2
	}
	if t.Slots.Lanes > 1 {
		m.lanes = uint64(f.size)
	}
	return m, bits, nil
}

func checkQuery(t *task.Task) error {
	if t.Query != task.VectorMean {
		return invalid.Field("query", strconv.Quote(string(t.Query)), "vectormean for protocol vectormean")
	}
	return nil
}

// kinds returns the number of different messages.
func (m *Mechanism) kinds() uint64 { return uint64(m.frame.size*len(m.noise)) * m.sides }

// slots returns how messages travel: at most one for the value of each bit and all its trials.
func (m *Mechanism) slots() task.Slots {
	perCoefficient := uint64(0)
	for _, n := range m.noise {
		perCoefficient += 1 + m.sides*n.trials
	}
	s := task.Slots{Padding: task.PaddingFull, Lanes: m.lanes, PerLane: perCoefficient * uint64(m.frame.size) / m.lanes}
	if m.sides == 2 {
		s.Padding = task.PaddingNone
	}
	s.MessageBytes = uint64(protocols.IndexBytes(m.kinds()))
	return s
}
