package vectormean

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Row is [protocols.Protocol.Row].
func (*Protocol) Row() protocols.Row {
	return protocols.Row{
		First:   true,
		Queries: []task.Query{task.VectorMean},
		Default: []task.Query{task.VectorMean},
		Rule:    Rule,
		Costs: []protocols.Case{
			{Query: task.VectorMean, Dim: 16, Padding: task.PaddingNone},
			{Query: task.VectorMean, Dim: 16, Padding: task.PaddingFull},
		},
		Trials: []protocols.Case{{Query: task.VectorMean, Dim: 2, Users: 100, Epsilon: 4}},
	}
}

// Calibrate sets the parameters and slots of a task whose query, input, claim, batch and rule
// are set. Parameters bits, kashin and seed that the task already names are kept, as are the padding
// (full where empty) and the choice between one lane and one per coefficient (one where 0); else
// the frame is the first of a few whose constant is small, and b the least within 20 % of the best
// error. The noise is the least that proves the claim.
func (*Protocol) Calibrate(t *task.Task) error {
	if err := checkQuery(t); err != nil {
		return err
	}
	eps, err := t.Claim.EpsilonValue()
	if err != nil {
		return err
	}
	delta, err := t.Claim.DeltaValue()
	if err != nil {
		return err
	}
	if t.Rule != Rule {
		return invalid.Field("rule", strconv.Quote(t.Rule), Rule+" for protocol vectormean")
	}
	chosen := *t
	chosen.Params = chooseFrame(t)
	given, hasBits := t.Param("bits")
	if !hasBits {
		given = randomizer.NewRational(1, 1)
	}
	chosen.Params = append(chosen.Params, task.Param{Key: "bits", Value: given})
	m, _, err := open(&chosen)
	if err != nil {
		return err
	}
	single := math.NaN()
	if !hasBits {
		if single, err = m.calibrate(eps, delta, 1); err != nil {
			return err
		}
		given = randomizer.NewRational(bitsFor(float64(t.Batch.Min), single/float64(m.sides)), 1)
	}
	for {
		m.levels = 1<<given.Num - 1
		if _, err := m.calibrate(eps, delta, int(given.Num)); err != nil {
			return err
		}
		if err = m.checkSlots(); err == nil || hasBits || given.Num == 1 {
			break
		}
		given.Num-- // fewer bits take fewer slots
	}
	if err != nil {
		return err
	}
	t.Slots = m.slots()
	t.Params = []task.Param{{Key: "bits", Value: given}}
	kashin, _ := chosen.Param("kashin")
	seed, _ := chosen.Param("seed")
	t.Params = append(t.Params, task.Param{Key: "kashin", Value: kashin})
	for i, n := range m.noise {
		t.Params = append(t.Params, protocols.Whole("m"+strconv.Itoa(i), n.trials))
	}
	for i, n := range m.noise {
		t.Params = append(t.Params, task.Param{Key: "q" + strconv.Itoa(i), Value: n.chance})
	}
	t.Params = append(t.Params, task.Param{Key: "seed", Value: seed})
	return nil
}

// bitsFor returns the least b with which the root of noise and rounding is within 20 % of that of
// the noise alone. In units of one level of L = 1, n clients' noise has the given variance for any b
// and their rounding has n/(4L²): L² ≥ n/(4·0.44·variance).
func bitsFor(n, variance float64) int64 {
	bits := int64(1)
	for bits < maxBits && math.Pow(math.Ldexp(1, int(bits))-1, 2) < n/(4*0.44*variance) {
		bits++
	}
	return bits
}

// trialsPer is how many trials a client makes per unit of variance, m ≥ trialsPer·λ/n: 4 is the
// least, at q = ½, and has the fewest slots; 8 means q ≈ 0.15, and the fewer messages for the same
// variance where slots do not count.
func (m *Mechanism) trialsPer() float64 {
	if m.sides == 2 {
		return 8
	}
	return 4
}

// calibrate sets the noise of b bits, with variances λ/2^i over the n_min honest clients and the least
// λ that proves the claim, to a relative 10⁻³, and returns λ. These proportions minimise the total
// Σ 4^i·λ_i for a given Σ 1/λ_i, which is what composition comes down to where there are many counters.
func (m *Mechanism) calibrate(eps, delta float64, bits int) (lambda float64, err error) {
	private := func(lambda float64) bool {
		return m.setNoise(lambda, bits) && m.delta(eps, delta) <= delta
	}
	hi := float64(m.frame.size) * float64(m.levels) * float64(m.sides) / (eps * eps)
	for !private(hi) {
		if hi *= 2; hi > compose.MaxVariance {
			return 0, invalid.Field("claim.epsilon", m.task.Claim.Epsilon, "a larger epsilon or delta, or a smaller dim")
		}
	}
	lo := hi / 2
	for private(lo) && lo > 1e-3 {
		lo, hi = lo/2, lo
	}
	for hi > lo*1.001 {
		if mid := math.Sqrt(lo * hi); private(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	private(hi)
	return hi, nil
}

// setNoise sets the noise of b bits to variances lambda/2^i, rounded up, over n_min clients.
func (m *Mechanism) setNoise(lambda float64, bits int) bool {
	m.noise = m.noise[:0]
	n := float64(m.task.Batch.Min)
	for i := range bits {
		variance := math.Ldexp(lambda, -i) / n
		trials := math.Ceil(m.trialsPer() * variance)
		q := (1 - math.Sqrt(math.Max(0, 1-4*variance/trials))) / 2
		num := min(max(int64(math.Ceil(q*0x1p32)), 1), 1<<31)
		m.noise = append(m.noise, noise{uint64(trials), randomizer.NewRational(num, 1<<32)})
	}
	return true
}

// checkSlots is an error where the trials do not fit a lane. It says how many clients would do.
func (m *Mechanism) checkSlots() error {
	most := min(maxPerLane, uint64(math.MaxUint32)/m.task.Batch.Size)
	if m.lanes > 1 {
		most = min(most, task.MaxSlots/m.lanes)
	}
	slots := m.slots()
	if slots.PerLane <= most {
		return nil
	}
	bits, total := float64(len(m.noise)), 0.0
	for _, n := range m.noise {
		total += n.variance() * m.trialsPer()
	}
	room := float64(most)*float64(m.lanes)/float64(m.frame.size) - bits - bits*float64(m.sides) // trials round up
	want := "at most " + strconv.FormatUint(most, 10) + ": a smaller dim or batch, or a lane per coefficient"
	if room > 0 && most >= maxPerLane/2 { // else it is a large batch that leaves no room
		enough := math.Ceil(total * float64(m.sides) * float64(m.task.Batch.Min) / room)
		return invalid.Field("users", strconv.FormatUint(m.task.Batch.Min, 10),
			"at least "+strconv.FormatFloat(enough, 'f', 0, 64)+" honest ones, for the noise of each to fit the slots of a lane, or a smaller dim")
	}
	return invalid.Field("slots.perLane", strconv.FormatUint(slots.PerLane, 10), want)
}

// defaultKashin is κ where frames of ratio 2 are random enough, for d above a few: every vector that
// was tried has a representation within it.
var defaultKashin = randomizer.NewRational(11, 5)

// chooseFrame returns parameters kashin and seed: those given, else of the first 16 seeds the first
// with which all of a family of vectors, among them the hardest known, have a representation within
// κ, which is 1, 3/2, 7/4, 2 for small d or else 11/5 and up.
func chooseFrame(t *task.Task) []task.Param {
	kashin, hasKashin := t.Param("kashin")
	seed, hasSeed := t.Param("seed")
	d := int(min(t.Input.Bins, maxPerLane/4))
	if !hasKashin {
		kashin = defaultKashin
		for _, k := range levels(d) {
			first, last := uint64(1), uint64(16)
			if hasSeed {
				first, last = uint64(seed.Num), uint64(seed.Num)
			}
			for s := first; s <= last; s++ {
				if newFrame(d, s).holds(k.Float64()) {
					return []task.Param{{Key: "kashin", Value: k}, protocols.Whole("seed", s)}
				}
			}
		}
	}
	if !hasSeed {
		seed = randomizer.NewRational(1, 1)
	}
	return []task.Param{{Key: "kashin", Value: kashin}, {Key: "seed", Value: seed}}
}

// levels returns the κ to try. Below 11/5 a family of vectors says too little about all of them
// unless d is small.
func levels(d int) (out []randomizer.Rational) {
	if d <= 8 {
		out = append(out, randomizer.NewRational(1, 1), randomizer.NewRational(3, 2), randomizer.NewRational(7, 4), randomizer.NewRational(2, 1))
	}
	return append(out, defaultKashin, randomizer.NewRational(12, 5), randomizer.NewRational(13, 5), randomizer.NewRational(3, 1), randomizer.NewRational(4, 1))
}

// holds says whether a family of vectors has representations within κ: the coordinate axes, Uᵀs for
// s with one to half of the coordinates ±1 (whose coefficients Ux stand out the most), vectors
// of signs, and sums of signs at random. All are drawn by a fixed generator.
func (f *frame) holds(kashin float64) bool {
	if kashin > math.Sqrt(float64(f.size)) {
		return false
	}
	bound, d, state := kashin/math.Sqrt(float64(f.size)), len(f.columns), uint64(0)
	next := func() uint64 {
		state += 0x9e3779b97f4a7c15
		return mix(state)
	}
	trials := 12 + min(32_000/d, 2000)
	for trial := range trials {
		x := make([]float64, d)
		switch trial % 4 {
		case 0:
			x[int(next()%uint64(d))] = 1
		case 1, 2:
			s := make([]float64, f.size)
			entries := 1 + trial/4%3
			if trial%4 == 2 {
				entries = 1 + int(next()%uint64(f.size/2))
			}
			for range entries {
				s[int(next()%uint64(f.size))] = 1 - 2*float64(next()>>63)
			}
			x = f.synthesize(s)
		case 3:
			for l := range x {
				for range 1 + trial/4%4 {
					x[l] += 1 - 2*float64(next()>>63)
				}
			}
		}
		norm := 0.0
		for _, v := range x {
			norm += v * v
		}
		if norm == 0 {
			continue
		}
		for l := range x {
			x[l] /= math.Sqrt(norm)
		}
		if a, _ := f.represent(x, bound); largest(a) > bound*(1+1e-12) {
			return false
		}
	}
	return true
}
