package correlated

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Objectives of [Options].
const (
	Expected = "expected" // Fewest messages on average, in slots that a task can have.
	Slots    = "slots"    // Fewest slots per client.
)

// Options are choices of [CalibrateWith]. The zero value is what [Protocol.Calibrate] uses.
type Options struct {
	Share     float64 // ε*/ε, in (0, 1): how much of ε goes to the central noise. Default 0.9.
	Objective string  // Default: Slots under padding full, Expected under padding none.
}

// roundingShare is how much rounding may add to the variance of the noise. With ε* = 0.9·ε the
// standard error is then within 20 % of that of the central discrete Laplace mechanism.
const roundingShare = 0.16

// maxSlots is the largest B of a lane.
const maxSlots = 65535

// Row is [protocols.Protocol.Row].
func (*Protocol) Row() protocols.Row {
	return protocols.Row{
		Queries: []string{task.Count, task.Sum, task.Mean, task.Histogram, task.Vector},
		Rule:    RuleMoments,
		Costs: []protocols.Case{
			{Query: task.Sum, Hi: 16, Params: []task.Param{protocols.Whole("max", 16)}, Padding: task.PaddingNone},
			{Query: task.Sum, Hi: 16, Params: []task.Param{protocols.Whole("max", 16)}, Padding: task.PaddingFull},
		},
		Trials: []protocols.Case{{Query: task.Sum, Hi: 4, Users: 100}},
	}
}

// Calibrate sets the parameters and slots of a task whose query, input, claim, batch, rule and
// padding (default none) are set; a parameter max that it names is kept.
func (*Protocol) Calibrate(t *task.Task) error { return CalibrateWith(t, Options{}) }

// CalibrateWith is [Protocol.Calibrate] with choices.
func CalibrateWith(t *task.Task, o Options) error {
	if t.Slots.Padding == "" {
		t.Slots.Padding = task.PaddingNone
	}
	if err := checkTask(t); err != nil {
		return err
	}
	eps, delta, err := target2(t)
	if err != nil {
		return err
	}
	if o.Share == 0 {
		o.Share = 0.9
	}
	if !(o.Share > 0 && o.Share < 1) {
		return invalid.Field("share", format(o.Share), "a number in (0, 1)")
	}
	if o.Objective == "" {
		o.Objective = Expected
		if t.Slots.Padding == task.PaddingFull {
			o.Objective = Slots
		}
	}
	if o.Objective != Expected && o.Objective != Slots {
		return invalid.Field("objective", strconv.Quote(o.Objective), Expected+" or "+Slots)
	}
	top := uint64(1)
	_, kept := t.Param("max")
	if kept {
		if top, err = readTop(t); err != nil {
			return err
		}
	} else if !unit(t) {
		ideal := math.Ceil(eps * math.Sqrt(float64(t.Batch.Size)/(8*roundingShare)))
		top = uint64(min(max(ideal, 1), maxTop))
	}
	for {
		err = calibrateTop(*t, t, top, eps, delta, o)
		if err == nil || kept || top < 4 {
			return err
		}
		top = top * 3 / 4 // Fewer levels: more rounding, fewer slots.
	}
}

// slotLimit is the largest B a task can have.
func slotLimit(t *task.Task) int {
	return int(min(maxSlots, (1<<32-1)/t.Batch.Size))
}

// calibrateTop sets the parameters of a task for one Δ, from a copy of it.
func calibrateTop(draft task.Task, t *task.Task, top uint64, eps, delta float64, o Options) error {
	if draft.Rule == RuleTheorem2 {
		central := down(o.Share * eps / float64(top))
		draft.Params = []task.Param{{Key: "central", Value: central}, protocols.Whole("max", top)}
		return finish(&draft, t, eps, delta)
	}
	goal := target{top: top, sparse: sparse(&draft), eps: eps, delta: delta * (1 - overflowShare) * 0.999}
	share := o.Share
	if goal.sparse {
		share /= 2
	}
	central := down(share * eps / float64(top))
	goal.star = central.Float64()
	goal.zero = draft.Slots.Padding == task.PaddingNone && draft.Query != task.Histogram
	limit := slotLimit(&draft)
	alone := []group{{weight: 1, mass: 2 * float64(dim(&draft)) / float64(draft.Batch.Min), s: goal.star}}
	least, ok := slots(alone, float64(draft.Batch.Size), eps, delta, limit)
	if !ok {
		return tooMany(alone, &draft, eps, delta, limit, top)
	}
	free, ok := goal.solve()
	if !ok {
		return invalid.Field("params.max", strconv.FormatUint(top, 10), "less: no noise was found that proves the claim")
	}
	// Without a bound on bursts messages are fewest.
	total := free.messages() * float64(dim(&draft))
	if total/float64(draft.Batch.Min) > float64(limit)/2 {
		need := math.Ceil(2 * total / float64(limit) / draft.Batch.Honest.Float64())
		return invalid.Field("batch.size", strconv.FormatUint(draft.Batch.Size, 10), "at least "+strconv.FormatFloat(need, 'g', 3, 64)+
			": fewer clients send more messages of noise each than half of the slots that they can have, "+strconv.Itoa(limit))
	}
	var err error
	parts := []float64{4, 8, 16, 0, 2.5, 1.5, 0.8, 0.5, 0.3}
	if o.Objective == Slots {
		parts = []float64{0.6, 0.25}
	}
	best := draft
	for _, part := range parts {
		burst := uint64(0)
		if part > 0 {
			burst = max(uint64(float64(least)*part), 6)
		}
		if burst >= uint64(limit) {
			continue
		}
		goal.burst, goal.near = burst, &free
		next := draft
		d, ok := free, true
		if burst > 0 {
			d, ok = goal.solve()
		}
		if !ok {
			err = first(err, invalid.Field("params.max", strconv.FormatUint(top, 10), "less: no noise with bursts of up to "+strconv.FormatUint(burst, 10)+" messages was found that proves the claim"))
			continue
		}
		if o.Objective == Expected && part > 2.5 && d.messages() > 1.1*free.messages() {
			continue // Rather longer bursts.
		}
		next.Params = d.params(central, top)
		done := next
		if e := finish(&next, &done, eps, delta); e != nil {
			err = e
			continue
		}
		if o.Objective == Expected {
			*t = done
			return nil
		}
		if best.Slots.PerLane > 0 && float64(done.Slots.PerLane) > 0.97*float64(best.Slots.PerLane) {
			break // Smaller bursts need more messages.
		}
		best = done
	}
	if best.Slots.PerLane == 0 {
		return first(err, invalid.Field("params.max", strconv.FormatUint(top, 10), "less: the noise takes more than the "+strconv.Itoa(limit)+" slots of a client"))
	}
	*t = best
	return nil
}

// finish sets the slots of a draft with parameters, checks its claim, and assigns it.
func finish(draft, t *task.Task, eps, delta float64) error {
	m, err := newMechanism(draft)
	if err != nil {
		return err
	}
	limit := slotLimit(draft)
	b, ok := slots(m.groups(), float64(draft.Batch.Size), eps, delta, limit)
	if !ok {
		return tooMany(m.groups(), draft, eps, delta, limit, m.top)
	}
	draft.Slots = m.slots(uint64(max(b, 2)))
	if m, err = newMechanism(draft); err != nil {
		return err
	}
	if err := m.CheckClaim(); err != nil {
		return err
	}
	*t = *draft
	return nil
}

// tooMany is the error for noise that does not fit into the slots of a task: it names the smallest n
// at which it would or, where that is not the reason, asks for a smaller Δ.
func tooMany(groups []group, t *task.Task, eps, delta float64, limit int, top uint64) error {
	const want = "slots of a client, from 2 to "
	range1 := want + strconv.Itoa(limit)
	for n := 2 * t.Batch.Size; n < 1<<33; n *= 2 {
		scaled := append([]group{}, groups...)
		for k := range scaled {
			scaled[k].mass *= float64(t.Batch.Size) / float64(n)
		}
		if b, ok := slots(scaled, float64(n), eps, delta, maxSlots); ok && uint64(b)*n < 1<<32 {
			return invalid.Field("batch.size", strconv.FormatUint(t.Batch.Size, 10), "at least about "+strconv.FormatUint(n, 10)+": with fewer clients the noise takes more than the "+range1)
		}
	}
	return invalid.Field("params.max", strconv.FormatUint(top, 10), "less, or a larger epsilon: the noise takes more than the "+range1)
}

// params returns the parameters of a solved design, rounded to the side of more noise.
func (d *solved) params(central randomizer.Rational, top uint64) (out []task.Param) {
	add := func(key string, v randomizer.Rational) { out = append(out, task.Param{Key: key, Value: v}) }
	one := func(name string, n noise) {
		if n.jump > 0 {
			add(name+".jump", randomizer.NewRational(int64(n.jump), 1))
		}
		add(name+".r", randomizer.NewRational(int64(math.Ceil(n.r*rateUnit)), rateUnit))
		add(name+".s", down(n.s))
	}
	add("central", central)
	add("cut", randomizer.NewRational(int64(d.miss*(1<<60)), 1<<60))
	for l, n := range d.levels {
		one(levelName(l), n)
	}
	out = append(out, protocols.Whole("max", top))
	one("pair", d.pair)
	add("theta", randomizer.NewRational(int64(d.theta*1024), 1024))
	if d.zero.r > 0 {
		one("zero", d.zero)
	}
	return out
}

// target is what a design has to achieve.
type target struct {
	top        uint64
	sparse     bool
	star       float64 // ε*/Δ
	eps, delta float64
	burst      uint64  // Most messages of one jump of zero-sum noise; 0 for no bound.
	zero       bool    // 0 has noise of its own.
	near       *solved // Where to begin the search; nil for the default.
	coarse     bool    // While searching.
}

// solved is a design with what its certificate needs.
type solved struct {
	design
	theta, miss float64
	at          point
	x           float64
}

// messages returns the expected number of zero-sum noise messages of all clients together.
func (d *design) messages() float64 {
	total := 2 * d.pair.mean()
	if d.zero.r > 0 {
		total += d.zero.mean()
	}
	for l, n := range atomCounts(d.top) {
		total += 3 * float64(n) * d.levels[l].mean()
	}
	return total
}

// The search. Where the scale of the noise is large against 1, (M1) depends on r, θ and x = s·shift alone,
// and every level costs alike: so all levels share r and x, with a shift by 2^ℓ, and {-1,+1} has its own
// for a shift by Δ. A level whose jumps are bounded well below its scale 1/s takes s = 0 and the r
// with which (M1) is the same. x is found by the certificate of the whole design, the other
// unknowns by coordinate descent, from where they are optimal at ε = 1, δ = 10⁻⁶.

// point is where the search is: logarithms.
type point struct {
	pairR, pairX, r, theta float64
	tilt                   float64 // By how much ln x rises from one level to the next: 0 but for bounded jumps.
}

// cut returns how much an atom may leave out of T: all that two inputs touch together about a
// quarter of δ.
func (t *target) cut() float64 { return t.delta / float64(8*levels(t.top)+8) }

// margin keeps claims true where another platform rounds otherwise.
const margin = 2e-3

// solve returns the design of fewest messages that (P2) proves private; ok is false if none was found.
func (t *target) solve() (best solved, ok bool) {
	rest := t.eps - t.star*float64(t.top)
	if t.sparse {
		rest -= t.star * float64(t.top)
	}
	if !(rest > 0) {
		return best, false
	}
	l := math.Log(1 / t.delta)
	at := point{pairR: math.Log(1.5 * l), pairX: 0.5, r: math.Log(1.3 * l), theta: math.Log(0.75 * l / rest)}
	x := math.Log(0.35 * rest)
	step := 0.24
	if t.near != nil {
		at, x, step = t.near.at, t.near.x, 0.12
	}
	exact := *t
	if t.burst > 0 {
		coarse := *t
		coarse.coarse, t = true, &coarse
	}
	cost := math.Inf(1)
	try := func(p point) bool {
		d, lx, found := t.at(p, x)
		if !found || !(d.messages() < cost) {
			return false
		}
		d.at, d.x = p, lx
		best, ok, cost, at, x = d, true, d.messages(), p, lx
		return true
	}
	for k := 0; k < 16 && !ok; k++ { // Far from the Gaussian limit: more of r, a smaller θ.
		p := at
		p.theta -= 0.6 * float64(k%4)
		p.r += 0.6 * float64(k/4)
		p.pairR += 0.6 * float64(k/4)
		try(p)
	}
	for ; step > 0.05 && ok; step /= 2 {
		for _, k := range []func(*point) *float64{
			func(p *point) *float64 { return &p.theta },
			func(p *point) *float64 { return &p.r },
			func(p *point) *float64 { return &p.pairX },
			func(p *point) *float64 { return &p.pairR },
			func(p *point) *float64 { return &p.tilt },
		} {
			if t.burst == 0 && k(&at) == &at.tilt {
				continue
			}
			for _, by := range []float64{step, -step} {
				moved := false
				for range 4 {
					p := at
					*k(&p) += by
					if !try(p) {
						break
					}
					moved = true
				}
				if moved {
					break
				}
			}
		}
	}
	if t.coarse && ok {
		best, best.x, ok = exact.at(at, x)
		best.at = at
	}
	return best, ok
}

// at returns the design of largest x that is private at a point, beginning the search at x.
func (t *target) at(p point, x float64) (best solved, bestX float64, ok bool) {
	if p.r < 0 || p.pairR < 0 {
		return best, x, false
	}
	miss := t.cut()
	theta := math.Exp(p.theta)
	lo, hi := math.Inf(-1), math.Inf(1)
	for range 16 {
		d := t.design(p, x)
		if d.tabulated() > maxTabulated {
			return best, bestX, ok
		}
		excess := min(math.Log(d.bound(t.eps, theta, miss)/(t.delta*(1-margin))), 50)
		if math.IsNaN(excess) {
			excess = 50
		}
		if excess <= 0 {
			best, bestX, ok, lo = solved{design: *d, theta: theta, miss: miss}, x, true, x
		} else {
			hi = x
		}
		if excess <= 0 && excess > -0.02 || hi-lo < 1e-3 {
			break
		}
		next := x - 0.25*excess - 0.001*math.Copysign(1, excess) // ln of the bound rises 3 to 10 times as fast as x.
		switch {
		case math.IsInf(hi, 1) || math.IsInf(lo, -1):
			next = min(max(next, x-1), x+0.5)
		case !(next > lo && next < hi):
			next = (lo + hi) / 2
		}
		x = next
	}
	return best, bestX, ok
}

// maxTabulated bounds the sum of the means of the laws that a client has to tabulate for its check.
const maxTabulated = 1 << 20

func (d *design) tabulated() (sum float64) {
	for _, n := range append([]noise{d.pair, d.zero}, d.levels...) {
		if n.jump > 0 {
			sum += n.mean()
		}
	}
	return sum
}

// design returns the design of a point and ln x.
func (t *target) design(p point, x float64) *design {
	d := &design{top: t.top, sparse: t.sparse, star: t.star, coarse: t.coarse}
	theta, r := math.Exp(p.theta), math.Exp(p.r)
	d.pair = t.noise(theta, math.Exp(p.pairR), math.Exp(x+p.pairX), t.top, t.burst/2)
	for l := range levels(t.top) {
		d.levels = append(d.levels, t.noise(theta, r, math.Exp(x+p.tilt*float64(l)), 1<<l, t.burst/3))
	}
	if t.zero {
		d.zero = t.noise(theta, r, math.Exp(x), 1, t.burst)
	}
	return d
}

// noise returns the noise with r and s = x/reach or, where jumps are bounded too low for that, one
// that is about as good: of the same variance, and of that which the Gaussian limit of (M1) asks for.
func (t *target) noise(theta, r, x float64, reach, jump uint64) noise {
	n := noise{r: r, s: x / float64(reach), jump: jump}
	if jump == 0 || float64(jump)*n.s > 12 {
		return n
	}
	scale := uint64(1) // Scale down what is continuous for all purposes.
	for reach/scale > 16 {
		scale *= 2
	}
	small := int64(reach / scale)
	l := newLaw(noise{r: r, s: x / float64(small)}, small, t.cut())
	kappa := (l.moment(theta, small, false) + l.moment(theta, -small, true)) / 2
	want := max(r/(n.s*n.s), theta*(theta+1)*float64(reach)*float64(reach)/(2*kappa))
	n.s = 0
	if n.variance() < want {
		n.r *= want / n.variance()
		return n
	}
	lo, hi := 0.0, x/float64(reach)
	for range 30 {
		if n.s = (lo + hi) / 2; n.variance() < want {
			hi = n.s
		} else {
			lo = n.s
		}
	}
	n.s = lo
	return n
}

// variance returns r·Σ_{k ≤ jump} k·e^{-sk}, for a bound on jumps.
func (n noise) variance() float64 {
	j := float64(n.jump)
	if n.s*j < 1e-4 {
		return n.r * j * (j + 1) / 2
	}
	q := math.Exp(-n.s)
	tail := math.Exp(-n.s * j)
	return n.r * (q*(1-tail)/(1-q) - j*tail*q) / (1 - q)
}

// Search calibrates the noise for values of one number without the limits of a task on slots: Δ,
// (ε, δ) and ε*/ε. It returns the expected number of zero-sum messages of all clients together and
// the δ that the certificate derives; ok is false where no noise was found.
func Search(top uint64, eps, delta, share float64) (messages, derived float64, ok bool) {
	if top < 1 || top > maxTop || !(eps > 0) || !(delta > 0 && delta < 1) || !(share > 0 && share < 1) {
		return 0, 1, false
	}
	t := target{top: top, star: share * eps / float64(top), eps: eps, delta: delta}
	d, ok := t.solve()
	if !ok {
		return 0, 1, false
	}
	return d.messages(), d.bound(eps, d.theta, d.miss), true
}
