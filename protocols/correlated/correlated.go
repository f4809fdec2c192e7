// Package correlated adds up one number per client, with nearly the error of a trusted curator and little more than one
// message per client: correlated noise in the shuffle model [GKMPS21].
//
// A client maps its value to x in [0, 1] and rounds xΔ stochastically to x̄ in {0, …, Δ}. It sends x̄ as one message,
// or nothing if x̄ is 0. It also draws noise from several sources. With r and q the parameters of a source, a client's
// noise from it is
//
//	compound Poisson with r/n_min · q^k/k expected jumps of size k;  n_min clients: NB(r, q)       (1)
//
// Sources are the central noise and the atoms. The central noise is a message +1 and a message -1, each with r = 1 and
// q = e^{-ε*/Δ}. Atoms are sets of messages whose sum is 0: {-1, +1}, {v, -⌈v/2⌉, -⌊v/2⌋} and its negative. Every jump
// of size k of a source sends k copies of its messages. The size of an atom's jumps may be bounded. With n reports the
// analyzer estimates
//
//	Σx ≈ (Σ messages) / Δ                                                        (2)
//	Var = Σ f(1-f)/Δ² + n/n_min · 2p/((1-p)²Δ²),  p = e^{-ε*/Δ}, f the fractional part of xΔ  (3)
//
// Queries count (Δ = 1), sum and mean take one number. Queries histogram and vector take 1-sparse vectors ([GKMPS21],
// Corollary 3): messages carry the coordinate, and every coordinate has noise of its own. A substitution may change two
// coordinates, and each gets half of ε*.
//
// Guarantee: (ε, δ)-DP by substitution of one client's value, against a verifier who knows all other values, once the
// messages of n_min honest clients are shuffled together. This needs an honest first relay: a later relay cannot know
// whether they are together (docs/proofs/slots.md, section 6). By rule [RuleMoments] the task's parameters contain the
// noise, and δ is derived from it, for every pair of values (internal/design, docs/proofs/correlated.md).
// [RuleTheorem2] is the paper's closed form. Participation is not protected.
//
// Padding full: exactly B slots. A client draws its noise again until it fits into B-1 slots. This adds (1+e^ε)·n·τ ≤
// δ/100 to δ, τ the probability that one client's noise does not fit. Padding none: as many slots as messages. There 0
// is a message too, with noise {0} of its own, because the verifier could count covers in its place, and so the zeros.
// The first relay sees each client's number of messages, which is 1 more than the number of noise messages. So the
// first relay must be honest.
//
// Accuracy: the estimate is unbiased. Its variance (3) is that of the central discrete Laplace mechanism at ε* < ε
// times n/n_min, plus rounding. [Protocol.Calibrate] takes ε* = 0.9·ε. Unless the task names Δ, it takes the Δ with
// which rounding adds 0.3 times the noise's variance, or a smaller Δ if the slots do not suffice.
//
// Limits: noise comes in bursts, so B is at least 17.5·Δ/ε* (δ = 10⁻⁶). If every relay colludes with the verifier,
// nothing protects a client: its messages contain its value (ε₀ = +Inf). If fewer than n_min clients are honest, the
// noise is less than the claim needs. One malicious client sends at most B messages between -⌈Δ/2⌉ and Δ, so it moves a
// sum by at most B times the range upwards and half of that downwards, undetectably.
//
// [GKMPS21]: https://arxiv.org/abs/2109.13158
package correlated

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/correlated/internal/design"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Name is the protocol's name in tasks.
const Name = "correlated"

// Protocol is the entry of this protocol in the table of package registry.
type Protocol struct{}

// ProtocolName returns [Name].
func (*Protocol) ProtocolName() string { return Name }

// The privacy rules: how a claim is proven.
const (
	// RuleMoments is the moment bound (P2) of internal/design/certificate.go, for the noise in the task's parameters.
	RuleMoments = "moments"
	// RuleTheorem2 is the closed form of [GKMPS21] (Theorem 2), which determines the noise from the claim.
	//
	// [GKMPS21]: https://arxiv.org/abs/2109.13158
	RuleTheorem2 = "theorem2"
)

// maxTop is the largest Δ. The time in which a client checks a claim is proportional to Δ.
const maxTop = 1 << 13

// maxTheta is the largest θ of the bound (P2). A larger θ proves nothing useful, and the rounding errors of sums would
// matter.
const maxTheta = 1e6

// maxDraws is the largest allowed expected number of a client's draws: candidates for jumps.
const maxDraws = 1 << 20

// The denominators of parameters: r is in 64ths, exponents are in units of 2⁻⁴⁰. A float64 holds both exactly.
const (
	rateUnit     = 64
	exponentUnit = 1 << 40
)

// source is a source of noise: an atom, or one of the two messages of the central noise. Over n_min clients its noise
// is compound Poisson, with weight/rateUnit·e^{-sk}/k expected jumps of size k ≤ jump.
type source struct {
	design.Atom
	weight uint64
	s      randomizer.Rational
	jump   uint64
}

// Mechanism is this protocol with the parameters of one task.
type Mechanism struct {
	task    *task.Task
	top     uint64 // Δ, the highest level of a value.
	dim     uint64 // Number of coordinates of a 1-sparse vector or bins of a histogram, else 1.
	central randomizer.Rational
	proof   design.Solved // The design from which [RuleMoments] proves the claim.
	sources []source
	noise   *randomizer.Superposition
}

// Capabilities returns the optional functions of the mechanism, for [protocols.CapabilitiesOf].
func (m *Mechanism) Capabilities() protocols.Capabilities {
	can := protocols.Capabilities{
		Messages: func() float64 {
			zeroSum, central := m.Messages()
			return 1 + zeroSum + central
		},
		Fast:   m.fast,
		Attack: m.attack,
	}
	if m.task.Query == task.Histogram {
		can.Bins = func(a protocols.Aggregate) protocols.Bins { return a.(*aggregate) }
	}
	return can
}

// Open returns the mechanism of a task with query count, sum, mean, histogram or vector. Parameters are max (Δ) and
// central (ε*/Δ). Rule moments adds theta and cut, which select the bound. For each noise it also adds NAME.r, NAME.s
// and, if jumps are bounded, NAME.jump. NAME is pair for {-1,+1}, zero for {0} under padding none, and level.00,
// level.01, … for the levels of the other atoms.
func (*Protocol) Open(t *task.Task) (protocols.Mechanism, error) {
	m, err := newMechanism(t)
	if err != nil {
		return nil, err
	}
	if b := t.Slots.PerLane; b < 2 {
		return nil, invalid.Field("slots.perLane", strconv.FormatUint(b, 10), "at least 2")
	}
	return m, protocols.CheckSlots(t, m.slots(t.Slots.PerLane, t.Slots.Average))
}

func newMechanism(t *task.Task) (*Mechanism, error) {
	if err := checkTask(t); err != nil {
		return nil, err
	}
	m := &Mechanism{task: t, dim: dim(t)}
	var err error
	if m.top, err = readTop(t); err != nil {
		return nil, err
	}
	r := reader{task: t, used: 1}
	m.central = r.exponent("central", false)
	switch t.Rule {
	case RuleMoments:
		m.readMoments(&r)
	case RuleTheorem2:
		r.err = first(r.err, m.closedForm())
	}
	if r.err == nil && r.used != len(t.Params) {
		r.err = invalid.Field("params", strconv.Itoa(len(t.Params))+" parameters",
			strconv.Itoa(r.used)+" parameters, by the rule and max")
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, m.superpose()
}

func first(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func checkTask(t *task.Task) error {
	switch t.Query {
	case task.Count, task.Sum, task.Mean, task.Histogram:
	case task.Vector:
		if t.Input.Lo.Num != 0 {
			return invalid.Field("input.range", t.Input.Lo.String()+","+t.Input.Hi.String(),
				"0 and a positive number, for vectors with at most one coordinate that is not 0")
		}
	default:
		return invalid.Field("query", invalid.Quote(string(t.Query)),
			"count, sum, mean, histogram or vector for protocol "+Name)
	}
	if t.Rule != RuleMoments && t.Rule != RuleTheorem2 {
		return invalid.Field("rule", invalid.Quote(t.Rule), RuleMoments+" or "+RuleTheorem2)
	}
	if t.Rule == RuleTheorem2 && (sparse(t) || t.Slots.Padding == task.PaddingNone) {
		return invalid.Field("rule", invalid.Quote(t.Rule),
			RuleMoments+" for vectors, histograms and padding none: the theorem does not cover them")
	}
	return nil
}

// unit reports whether Δ must be 1, because every value is 0 or 1.
func unit(t *task.Task) bool { return t.Query == task.Count || t.Query == task.Histogram }

func sparse(t *task.Task) bool { return t.Query == task.Histogram || t.Query == task.Vector }

func dim(t *task.Task) uint64 {
	if sparse(t) {
		return t.Input.Bins
	}
	return 1
}

// readTop returns Δ, the task's parameter max.
func readTop(t *task.Task) (uint64, error) {
	if unit(t) {
		return protocols.WholeParam(t, "max", 1, 1)
	}
	return protocols.WholeParam(t, "max", 1, maxTop)
}

// reader reads the task's parameters, counts them, and keeps the first error.
type reader struct {
	task *task.Task
	used int
	err  error
}

func (r *reader) get(key, want string, ok func(randomizer.Rational) bool) randomizer.Rational {
	p, found := r.task.Param(key)
	r.used++
	if r.err == nil && (!found || !ok(p)) {
		got := "missing"
		if found {
			got = p.String()
		}
		r.err = invalid.Field("params."+key, got, want)
	}
	return p
}

func dyadic(p randomizer.Rational, den uint64) bool { return p.Den&(p.Den-1) == 0 && p.Den <= den }

func (r *reader) exponent(key string, zero bool) randomizer.Rational {
	return r.get(key, "a rational in (0, 16], denominator a power of two up to 2^40", func(p randomizer.Rational) bool {
		return (p.Num > 0 || zero && p.Num == 0) && p.Num <= 16*exponentUnit && p.Float64() <= 16 &&
			dyadic(p, exponentUnit)
	})
}

// noise reads the parameters of the noise with this name.
func (r *reader) noise(name string) (design.Noise, source) {
	s := source{}
	if _, bounded := r.task.Param(name + ".jump"); bounded {
		j := r.get(name+".jump", "a whole number from 1 to 262144",
			func(p randomizer.Rational) bool { return p.Den == 1 && p.Num >= 1 && p.Num <= 1<<18 })
		s.jump = uint64(j.Num)
	}
	rate := r.get(name+".r", "a rational from 1 to 10^9, denominator a power of two up to 64",
		func(p randomizer.Rational) bool {
			return dyadic(p, rateUnit) && p.Float64() >= 1 && p.Float64() <= 1e9
		})
	if rate.Den > 0 {
		s.weight = uint64(rate.Num) * (rateUnit / rate.Den)
	}
	s.s = r.exponent(name+".s", s.jump > 0)
	return design.Noise{R: rate.Float64(), S: s.s.Float64(), Jump: s.jump}, s
}

func levelName(l int) string { return "level." + string([]byte{'0' + byte(l/10), '0' + byte(l%10)}) }

// readMoments reads the parameters of rule moments.
func (m *Mechanism) readMoments(r *reader) {
	d := &m.proof.Design
	d.Top, d.Sparse, d.Star = m.top, m.dim > 1, m.central.Float64()
	positive := func(p randomizer.Rational) bool { return p.Num > 0 }
	m.proof.Theta = r.get("theta", "a positive rational up to 10^6",
		func(p randomizer.Rational) bool { return positive(p) && p.Float64() <= maxTheta }).Float64()
	m.proof.Miss = r.get("cut", "a positive rational", positive).Float64()
	var s source
	d.Pair, s = r.noise("pair")
	s.Atom = design.PairAtom()
	m.sources = append(m.sources, s)
	if m.needsZero() {
		d.Zero, s = r.noise("zero")
		s.Atom = design.Atom{Size: 1}
		m.sources = append(m.sources, s)
	}
	byLevel := make([]source, design.Levels(m.top))
	for l := range byLevel {
		var n design.Noise
		n, byLevel[l] = r.noise(levelName(l))
		d.Levels = append(d.Levels, n)
	}
	design.EachAtom(m.top, func(a design.Atom, _ uint64, l int) {
		s := byLevel[l]
		s.Atom = a
		m.sources = append(m.sources, s)
	})
}

// needsZero reports whether 0 is a message, with noise of its own. Under padding none it is, so that a client sends one
// message for any value. A histogram has no 0.
func (m *Mechanism) needsZero() bool {
	return m.task.Slots.Padding == task.PaddingNone && m.task.Query != task.Histogram
}

// superpose builds the noise of one client. Every coordinate has all noise of its own, except that of the message 0.
func (m *Mechanism) superpose() error {
	for _, v := range []int64{1, -1} {
		m.sources = append(m.sources,
			source{Atom: design.Atom{Messages: [3]int64{v}, Size: 1}, weight: rateUnit, s: m.central})
	}
	atoms := make([]randomizer.Atom, len(m.sources))
	total := 0.0
	for i, s := range m.sources {
		atoms[i] = randomizer.Atom{Weight: s.weight, Jumps: randomizer.NewJumps(s.s, s.jump)}
		if s.Messages != [3]int64{} {
			atoms[i].Weight *= m.dim
		}
		total += float64(s.weight) * float64(m.dim) * float64(atoms[i].Jumps.Candidates())
	}
	if draws := total / rateUnit / float64(m.task.Batch.Min); total > 1<<62 || draws > maxDraws {
		return invalid.Field("batch.min", strconv.FormatUint(m.task.Batch.Min, 10),
			"more clients, or less noise: each client may make at most "+strconv.Itoa(maxDraws)+" draws, not "+
				format(draws))
	}
	m.noise = randomizer.NewSuperposition(atoms, rateUnit*m.task.Batch.Min)
	return nil
}

// values returns the number of possible values of a message: from -⌈Δ/2⌉ to Δ.
func (m *Mechanism) values() uint64 { return m.top + m.offset() + 1 }

func (m *Mechanism) offset() uint64 { return (m.top + 1) / 2 }

func (m *Mechanism) slots(b, average uint64) task.Slots {
	padding := m.task.Slots.Padding
	if padding == "" {
		padding = task.PaddingNone
	}
	return task.Slots{Padding: padding, Lanes: 1, PerLane: b, Average: average,
		MessageBytes: uint64(protocols.Indices(m.values() * m.dim).Bytes())}
}

// groups returns one client's noise, grouped by what determines its number of messages.
func (m *Mechanism) groups() (out []design.Group) {
	type kind struct {
		size int
		s    randomizer.Rational
		jump uint64
	}
	at := map[kind]int{}
	for _, s := range m.sources {
		k := kind{s.Size, s.s, s.jump}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, design.Group{Weight: s.Size, S: s.s.Float64(), Jump: s.jump})
		}
		count := float64(m.dim)
		if s.Messages == [3]int64{} {
			count = 1
		}
		out[i].Mass += count * float64(s.weight) / rateUnit / float64(m.task.Batch.Min)
	}
	return out
}
