package correlated

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/correlated/internal/design"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// The values of [Options.Objective]: what calibration minimises.
const (
	Expected = "expected" // Fewest messages on average that fit the slots of a task.
	Slots    = "slots"    // Fewest slots per client, whatever the number of messages.
)

// Options are the choices of [CalibrateWith]. [Protocol.Calibrate] uses the zero value.
type Options struct {
	Share     float64 // ε*/ε, in (0, 1): the part of ε spent on the central noise. Default 0.9.
	Objective string  // Default: Slots under padding full, Expected under padding none.
}

// defaultShare is the part of ε that is spent on the central noise, as in the experiments of [GKMPS21]. The error is
// then about 1/0.9 times that of a trusted curator, before rounding.
//
// [GKMPS21]: https://arxiv.org/abs/2109.13158
const defaultShare = 0.9

// roundingShare is the most that rounding may add to the variance, as a fraction of the noise's variance. With ε* =
// 0.9·ε the standard error is then within 24 % of the central discrete Laplace mechanism's. A smaller roundingShare
// takes more messages: their number grows as Δ, and Δ as √(1/roundingShare).
const roundingShare = 0.3

// The limits on the slots B per client. Under padding none, calibration tries usualSlots first, then maxSlots. With two
// relays and X25519, a report is then below 16 MiB or below 32 MiB.
const (
	usualSlots = 120_000
	maxSlots   = 250_000
)

// Row implements [protocols.Protocol.Row].
func (*Protocol) Row() protocols.Row {
	return protocols.Row{
		NeedsFirst: true,
		Sparse:     true,
		Queries:    []task.Query{task.Count, task.Sum, task.Mean, task.Histogram, task.Vector},
		Rule:       RuleMoments,
		Costs: []protocols.Case{
			{Query: task.Sum, Hi: 16, Params: []task.Param{protocols.Whole("max", 16)}, Padding: task.PaddingNone},
			{Query: task.Sum, Hi: 16, Params: []task.Param{protocols.Whole("max", 16)}, Padding: task.PaddingFull},
		},
		CostParam: &protocols.CostParam{Key: "max", Best: true,
			Values: func(uint64) []uint64 { return protocols.Doublings(32) }},
		Trials: []protocols.Case{
			{Query: task.Count, Users: 100}, {Query: task.Sum, Hi: 4, Users: 100}, {Query: task.Mean, Users: 100},
			{Query: task.Histogram, Bins: 3, Users: 100}, {Query: task.Vector, Dim: 2, Users: 100},
		},
	}
}

// Calibrate sets the parameters and slots of a task whose query, input, claim, batch, rule and padding (default none)
// are set. It keeps a parameter max (Δ) that the task names.
func (*Protocol) Calibrate(t *task.Task) error { return CalibrateWith(t, Options{}) }

// CalibrateWith does what [Protocol.Calibrate] does, with options.
func CalibrateWith(t *task.Task, o Options) error {
	if t.Slots.Padding == "" {
		t.Slots.Padding = task.PaddingNone
	}
	if err := checkTask(t); err != nil {
		return err
	}
	eps, delta := t.Claim.Epsilon.Value(), t.Claim.Delta.Value()
	o, err := o.complete(t.Slots.Padding)
	if err != nil {
		return err
	}
	top, kept, err := firstTop(t, eps)
	if err != nil {
		return err
	}
	for {
		var err error
		for _, limit := range slotLimits(t) {
			var done *task.Task
			if done, err = newCalibration(t, top, eps, delta, o, limit).run(); err == nil {
				*t = *done
				return nil
			}
		}
		if kept || top < 4 {
			return err
		}
		top = top * 3 / 4 // Fewer levels mean more rounding, but fewer slots.
	}
}

// complete checks the options and fills in the defaults for the padding.
func (o Options) complete(padding task.Padding) (Options, error) {
	o.Share = cmp.Or(o.Share, defaultShare)
	if !(o.Share > 0 && o.Share < 1) {
		return o, invalid.Field("share", format(o.Share), "a number in (0, 1)")
	}
	if o.Objective == "" {
		o.Objective = Expected
		if padding == task.PaddingFull {
			o.Objective = Slots
		}
	}
	if o.Objective != Expected && o.Objective != Slots {
		return o, invalid.Field("objective", strconv.Quote(o.Objective), Expected+" or "+Slots)
	}
	return o, nil
}

// firstTop returns the Δ to try first. kept says that the task names it. Otherwise Δ is 1 for a count or histogram, and
// else the Δ for which rounding adds [roundingShare]. In units of a level, rounding has the variance 1/4 for each of n
// clients, and the noise about 2/s² with s = ε/Δ.
func firstTop(t *task.Task, eps float64) (top uint64, kept bool, err error) {
	if _, kept = t.Param("max"); kept {
		top, err = readTop(t)
		return top, kept, err
	}
	if unit(t) {
		return 1, false, nil
	}
	ideal := math.Ceil(eps * math.Sqrt(float64(t.Batch.Size)/(8*roundingShare)))
	return uint64(min(max(ideal, 1), maxTop)), false, nil
}

// slotLimits returns the limits on B to try, in order. Under padding full there is one, because every client sends all
// its slots.
func slotLimits(t *task.Task) []int {
	if t.Slots.Padding == task.PaddingNone {
		return []int{usualSlots, maxSlots}
	}
	return []int{int(min(1<<16-1, t.MostPerLane(1)))}
}

// The bounds to try on a burst, the messages of one jump. They are multiples of the slots that the central noise takes
// alone. 0 means no bound.
var (
	// For the fewest messages, long bursts come first, because they need fewer messages.
	burstsForMessages = []float64{4, 8, 16, 0, 2.5, 1.5, 1, 0.8, 0.5, 0.3}
	// For the fewest slots, bursts are shorter than those of the central noise.
	burstsForSlots = []float64{0.6, 0.25}
)

const (
	leastBurst   = 6     // Smallest bound on a burst: a jump of size 2 of an atom of three messages.
	longBurst    = 2.5   // Bounds above this multiple must be cheap, else they are skipped.
	cheap        = 1.1   // A cheap bound takes at most this many times the messages of unbounded bursts.
	worthwhile   = 0.97  // A shorter bound is kept only if it needs at most this fraction of the slots.
	roundingRoom = 0.999 // Fraction of δ that the search uses; the rest allows for rounding the parameters.
)

// calibration is a search for the noise with one Δ, the highest level of a value.
type calibration struct {
	task       task.Task // A copy whose parameters the search sets.
	top        uint64    // Δ, the highest level of a value.
	eps, delta float64
	central    randomizer.Rational // ε*/Δ, the exponent of the central noise.
	objective  string
	limit      int // Largest number of slots per client.
}

// newCalibration prepares the search for one Δ. In a 1-sparse vector, a substitution changes two coordinates, so each
// gets half of ε*.
func newCalibration(t *task.Task, top uint64, eps, delta float64, o Options, limit int) *calibration {
	share := o.Share
	if sparse(t) {
		share /= 2
	}
	return &calibration{*t, top, eps, delta, down(share * eps / float64(top)), o.Objective, limit}
}

// run searches, and returns the task with its parameters and slots.
func (c *calibration) run() (*task.Task, error) {
	if c.task.Rule == RuleTheorem2 {
		return c.finish([]task.Param{{Key: "central", Value: c.central}, protocols.Whole("max", c.top)})
	}
	least, err := c.centralSlots()
	if err != nil {
		return nil, err
	}
	if c.limit == usualSlots && 3*least > c.limit { // Bursts short enough for the remaining slots take many messages.
		return nil, c.orNoRoom(nil)
	}
	goal := design.Target{
		Top: c.top, Sparse: sparse(&c.task), Star: c.central.Float64(),
		Epsilon: c.eps, Delta: c.delta * (1 - overflowShare) * roundingRoom,
		Zero: c.task.Slots.Padding == task.PaddingNone && c.task.Query != task.Histogram,
	}
	free, err := c.unbounded(goal)
	if err != nil {
		return nil, err
	}
	goal.Near = free
	if c.objective == Slots {
		return c.fewestSlots(goal, least)
	}
	return c.fewestMessages(goal, least)
}

// centralSlots returns the slots per client that the central noise takes alone.
func (c *calibration) centralSlots() (int, error) {
	mass := 2 * float64(dim(&c.task)) / float64(c.task.Batch.Min)
	alone := []design.Group{{Weight: 1, Mass: mass, S: c.central.Float64()}}
	least, ok := design.LeastSlots(alone, overflowLimit(&c.task, c.eps, c.delta), c.limit)
	if !ok {
		return 0, c.tooMany(alone)
	}
	return least, nil
}

// unbounded returns the design without a bound on bursts, which has the fewest messages. If these messages take more
// than half of the slots, no other design can help, and it returns an error.
func (c *calibration) unbounded(goal design.Target) (*design.Solved, error) {
	free, ok := goal.Solve()
	if !ok {
		return nil, c.invalidTop("less: no noise was found that proves the claim")
	}
	total := free.Messages() * float64(dim(&c.task))
	if total/float64(c.task.Batch.Min) > float64(c.limit)/2 {
		need := math.Ceil(2 * total / float64(c.limit) / c.task.Batch.Honest.Float64())
		return nil, invalid.Field("batch.size", strconv.FormatUint(c.task.Batch.Size, 10),
			"at least "+decimal.Format(need, 3)+
				": fewer clients send more messages of noise each than half of the slots that they can have, "+
				strconv.Itoa(c.limit))
	}
	return &free, nil
}

// bounded returns the design with bursts of at most multiple times the slots of the central noise. It returns nil
// without an error if the design would not fit the slots.
func (c *calibration) bounded(goal design.Target, least int, multiple float64) (*design.Solved, error) {
	if multiple == 0 {
		return goal.Near, nil
	}
	goal.Burst = max(uint64(float64(least)*multiple), leastBurst)
	clients := float64(c.task.Batch.Min) / float64(dim(&c.task))
	if goal.Burst >= uint64(c.limit) ||
		goal.Guess(clients, overflowLimit(&c.task, c.eps, c.delta), c.limit) > c.limit {
		return nil, nil
	}
	d, ok := goal.Solve()
	if !ok {
		return nil, c.invalidTop("less: no noise with bursts of up to " + strconv.FormatUint(goal.Burst, 10) +
			" messages was found that proves the claim")
	}
	return &d, nil
}

// fewestMessages returns the task with the first bound on bursts whose design fits the slots.
func (c *calibration) fewestMessages(goal design.Target, least int) (*task.Task, error) {
	var failed error
	for _, multiple := range burstsForMessages {
		d, err := c.bounded(goal, least, multiple)
		if d == nil || multiple > longBurst && d.Messages() > cheap*goal.Near.Messages() {
			failed = first(failed, err)
			continue
		}
		done, err := c.finish(params(d, c.central, c.top))
		if err == nil {
			return done, nil
		}
		failed = err
	}
	return nil, c.orNoRoom(failed)
}

// fewestSlots returns the task with the bound on bursts that needs the fewest slots. Shorter bursts need more messages,
// so it stops once a shorter bound hardly saves slots.
func (c *calibration) fewestSlots(goal design.Target, least int) (best *task.Task, failed error) {
	for _, multiple := range burstsForSlots {
		d, err := c.bounded(goal, least, multiple)
		if d == nil {
			failed = first(failed, err)
			continue
		}
		done, err := c.finish(params(d, c.central, c.top))
		if err != nil {
			failed = err
			continue
		}
		if best != nil && float64(done.Slots.PerLane) > worthwhile*float64(best.Slots.PerLane) {
			break
		}
		best = done
	}
	if best == nil {
		return nil, c.orNoRoom(failed)
	}
	return best, nil
}

// finish returns the task with the given parameters and with the slots that they need. It returns an error unless the
// task proves its claim.
func (c *calibration) finish(params []task.Param) (*task.Task, error) {
	done := c.task
	done.Params = params
	m, err := newMechanism(&done)
	if err != nil {
		return nil, err
	}
	b, ok := design.LeastSlots(m.groups(), overflowLimit(&done, c.eps, c.delta), c.limit)
	if !ok {
		return nil, c.tooMany(m.groups())
	}
	done.Slots = m.slots(uint64(max(b, 2)), 0)
	if done.Slots.Padding == task.PaddingNone {
		done.Slots.Average = average(m.groups(), &done)
	}
	if m, err = newMechanism(&done); err != nil {
		return nil, err
	}
	return &done, m.CheckClaim()
}

// average returns a bound on the average slots per client in a batch, rounded up. The clients' messages exceed it with
// a probability of at most 2^-40. It returns 0 if the bound is not below B.
func average(groups []design.Group, t *task.Task) uint64 {
	n := float64(t.Batch.Size)
	most := 1 + design.MostOnAverage(groups, n, 40*math.Ln2)
	if !(most < float64(t.Slots.PerLane)) {
		return 0
	}
	return uint64(math.Ceil(most))
}

// tooMany returns the error for noise that does not fit into a client's slots. It names about the smallest n at which
// the noise would fit. If no n helps, it asks for a smaller Δ.
func (c *calibration) tooMany(groups []design.Group) error {
	room := "the noise takes more than the slots of a client, from 2 to " + strconv.Itoa(c.limit)
	for n := 2 * c.task.Batch.Size; n < 1<<33; n *= 2 {
		more := c.task
		more.Batch.Size = n
		scaled := append([]design.Group{}, groups...)
		for k := range scaled {
			scaled[k].Mass *= float64(c.task.Batch.Size) / float64(n)
		}
		if _, ok := design.LeastSlots(scaled, overflowLimit(&more, c.eps, c.delta), slices.Max(slotLimits(&more))); ok {
			return invalid.Field("batch.size", strconv.FormatUint(c.task.Batch.Size, 10),
				"at least about "+strconv.FormatUint(n, 10)+": with fewer clients "+room)
		}
	}
	return c.invalidTop("less, or a larger epsilon: " + room)
}

func (c *calibration) orNoRoom(err error) error {
	return first(err, c.invalidTop("less: the noise takes more than the "+strconv.Itoa(c.limit)+" slots of a client"))
}

func (c *calibration) invalidTop(want string) error {
	return invalid.Field("params.max", strconv.FormatUint(c.top, 10), want)
}

// The denominators of the parameters theta and cut, which select the bound. Any θ and cut give a valid bound.
const (
	thetaUnit = 1 << 10
	cutUnit   = 1 << 60
)

// params returns the task parameters of a design, rounded toward more noise.
func params(d *design.Solved, central randomizer.Rational, top uint64) (out []task.Param) {
	add := func(key string, v randomizer.Rational) { out = append(out, task.Param{Key: key, Value: v}) }
	one := func(name string, n design.Noise) {
		if n.Jump > 0 {
			add(name+".jump", randomizer.NewRational(int64(n.Jump), 1))
		}
		add(name+".r", randomizer.NewRational(int64(math.Ceil(n.R*rateUnit)), rateUnit))
		add(name+".s", down(n.S))
	}
	add("central", central)
	add("cut", randomizer.NewRational(int64(d.Miss*cutUnit), cutUnit))
	for l, n := range d.Levels {
		one(levelName(l), n)
	}
	out = append(out, protocols.Whole("max", top))
	one("pair", d.Pair)
	add("theta", randomizer.NewRational(int64(d.Theta*thetaUnit), thetaUnit))
	if d.Zero.R > 0 {
		one("zero", d.Zero)
	}
	return out
}

// Search calibrates the noise for a sum of one number per client, from Δ, (ε, δ) and share = ε*/ε. It ignores a task's
// limits on slots. It returns the expected number of zero-sum messages of all clients together, and the δ that the
// certificate derives. ok is false if it found no noise.
func Search(top uint64, eps, delta, share float64) (messages, derived float64, ok bool) {
	if top < 1 || top > maxTop || !(eps > 0) || !(delta > 0 && delta < 1) || !(share > 0 && share < 1) {
		return 0, 1, false
	}
	goal := design.Target{Top: top, Star: share * eps / float64(top), Epsilon: eps, Delta: delta}
	d, ok := goal.Solve()
	if !ok {
		return 0, 1, false
	}
	return d.Messages(), d.Bound(eps, d.Theta, d.Miss), true
}
