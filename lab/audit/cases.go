package audit

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// View is the data of an attacker, beside every other client's value.
type View string

// The attacked views. The relay that is not named is the honest one.
const (
	OfVerifier View = "the verifier"                 // Messages of a batch.
	OfLater    View = "later relays and verifier"    // Also the order in which they left the first relay.
	OfFirst    View = "the first relay"              // Number of slots that a client sent.
	OfEnds     View = "the first relay and verifier" // And which client sent which slot: it may send one again.
)

// Case is an audit of one task by one attack.
type Case struct {
	Protocol string
	Client   string // native or doona.wasm.
	Attack   string // Described in words.
	View     View
	Fault    string // The planted fault; empty: none.

	query  planner.Query
	pair   [2][]float64
	others []float64
	look   attack
	plant  func(*deployment) error
	twice  bool // Two batches of one draw.
	browse bool
	trials float64 // Multiple of the requested trials; 0 stands for 1.
}

// Result is the result of an audit of a case, with the claim.
type Result struct {
	Case
	Bound
	Claimed float64 // ε at Delta.
	Refuted bool    // The bound is above the claim.
}

// least is the share of the claimed ε that an audit of a shipped protocol must find.
const least = .5

// aim returns the ε for which the power of a case is computed: least of the claim, or more than the claim for a
// planted fault.
func (c *Case) aim() float64 {
	if c.Fault != "" {
		return c.query.Epsilon * (1 + 1e-9)
	}
	return least * c.query.Epsilon
}

// Enough reports whether an audit reached its goal: it found a planted fault, or confirmed a claim and most of it.
// Harmless attacks on a shipped protocol need find nothing.
func (r *Result) Enough() bool {
	if r.Fault != "" {
		return r.Refuted
	}
	return !r.Refuted && (r.View != OfVerifier || r.Attack == reconstruction || r.Lower >= least*r.Claimed)
}

// Run audits a case. browsers may be nil if the case does not need them.
func (c Case) Run(ctx context.Context, browsers *Browsers, o Options) (*Result, error) {
	t, err := planner.Draft(c.query)
	if err != nil {
		return nil, err
	}
	if c.browse {
		if t, err = signed(t); err != nil {
			return nil, err
		}
	}
	m, err := registry.Open(t)
	if err != nil {
		return nil, err
	}
	if err := m.CheckClaim(); err != nil {
		return nil, err
	}
	r := newDeployment(t, m)
	if t.Query.Info().Shape == task.PerText {
		if c.pair, err = r.apart(); err != nil {
			return nil, err
		}
	}
	if c.browse {
		client, err := browsers.Client(ctx, t, runtime.GOMAXPROCS(0))
		if err != nil {
			return nil, err
		}
		r.client = all(client)
	}
	if c.plant != nil {
		if err := c.plant(r); err != nil {
			return nil, err
		}
	}
	if c.trials > 0 {
		o.Trials = int(float64(o.Trials) * c.trials)
	}
	experiment := r.experiment(c.pair, c.others, int(c.query.Batch), c.look)
	if c.twice {
		experiment = r.byTwoBatches(c.pair, c.others, int(c.query.Batch))
	}
	f, err := Run(experiment, c.query.Delta, c.aim(), o)
	if err != nil {
		return nil, err
	}
	return &Result{Case: c, Bound: *f, Claimed: c.query.Epsilon, Refuted: f.Lower > c.query.Epsilon}, nil
}

// Descriptions of the attacks.
const (
	likelihood     = "likelihood ratio"
	reconstruction = "reconstruction"
	counted        = "number of slots"
	placed         = "place"
	repeated       = "copies"
)

func values(x ...float64) []float64 { return x }

// small is a task of a few clients at ε = 2, δ = .01, for which some ten thousand batches suffice.
func small(protocol string, query task.Query, change func(*planner.Query)) planner.Query {
	q := planner.Query{Name: "audit", Query: query, Protocol: protocol, Hi: 1, Batch: 3, Honest: 1, Epsilon: 2, Delta: .01}
	if change != nil {
		change(&q)
	}
	return q
}

func labels(bins uint64) func(*planner.Query) {
	return func(q *planner.Query) { q.Bins, q.Labels = bins, true }
}

// Native returns the cases of shipped code that need no doona.wasm.
func Native() []Case { return shipped(false) }

// Shipped returns an audit of every protocol, including those that run doona.wasm.
func Shipped() []Case { return shipped(true) }

func shipped(withBrowsers bool) []Case {
	ofRelays := small("", task.Histogram, func(q *planner.Query) {
		labels(2)(q)
		q.Batch, q.Relays = 2, &planner.RelayNoise{}
	})
	texts := small("strings", task.Strings, func(q *planner.Query) { q.Length, q.Batch = 1, 3 })
	pooled := texts
	pooled.Relays, pooled.Batch, pooled.Epsilon = &planner.RelayNoise{}, 1, .5
	out := []Case{
		{Protocol: "histogram", query: small("histogram", task.Histogram, labels(4)),
			pair: [2][]float64{{0}, {1}}, others: values(3), look: byCells(0, 1)},
		{Protocol: "realsum", query: small("realsum", task.Sum, nil), pair: [2][]float64{{1}, {0}}, others: values(0)},
		{Protocol: "splitmix", query: small("splitmix", task.Count, nil), pair: [2][]float64{{1}, {0}}, others: values(0)},
		{Protocol: "correlated", query: small("correlated", task.Count, nil), pair: [2][]float64{{1}, {0}},
			others: values(0), trials: .5},
		{Protocol: "rappor", query: small("rappor", task.Count, nil), pair: [2][]float64{{1}, {0}}, others: values(0)},
		{Protocol: "vectorsum", query: small("vectorsum", task.Vector, func(q *planner.Query) { q.Dim = 2 }),
			pair: [2][]float64{{1, 1}, {0, 0}}, others: values(0, 0)},
		{Protocol: "vectorgrid", query: small("vectorgrid", task.VectorMean, func(q *planner.Query) { q.Dim = 1 }),
			pair: [2][]float64{{1}, {-1}}, others: values(-1)},
		{Protocol: "vectormean", query: small("vectormean", task.VectorMean, func(q *planner.Query) {
			q.Batch, q.Dim, q.Epsilon, q.Delta, q.Params = 4, 1, 1, .05, planner.Params{"units": 3}
		}), pair: [2][]float64{{1}, {-1}}, others: values(-1), trials: .5},
		{Protocol: "augmented", query: ofRelays, pair: [2][]float64{{0}, {1}}, others: values(1), look: byCells(0, 1)},
		{Protocol: "strings", query: texts, others: values('C'), look: byTexts},
		{Protocol: "strings", query: pooled, others: values('C'), look: byTexts, trials: 3},
	}
	for i := range out {
		c := &out[i]
		c.Client, c.View, c.Attack = "native", OfVerifier, likelihood
		if c.look == nil {
			c.look = byAnswer
		}
	}
	if withBrowsers {
		for _, c := range out {
			c.Client, c.browse, c.trials = "doona.wasm", true, cmp.Or(c.trials, 1)*slower(c.Protocol)
			out = append(out, c)
		}
	}
	return append(out, harmless(out)...)
}

// slower returns how many batches browsers run for a protocol, relative to native clients.
func slower(protocol string) float64 {
	switch protocol {
	case "correlated":
		return .125
	case "vectormean":
		return .5
	}
	return .25
}

// harmless returns attacks on shipped protocols that should find nothing, or little: the attacks that find faults,
// and reconstruction.
func harmless(shipped []Case) (out []Case) {
	of := func(protocol string, view View, attack string, look attack) *Case {
		for _, c := range shipped {
			if c.Protocol == protocol {
				c.View, c.Attack, c.look = view, attack, look
				out = append(out, c)
				break
			}
		}
		return &out[len(out)-1]
	}
	many := func(c *Case) *Case {
		c.query.Batch = 20
		return c
	}
	many(of("histogram", OfLater, placed, byPosition))
	many(of("histogram", OfEnds, repeated, byCells(0, 1))).plant = func(r *deployment) error { r.copies = 3; return nil }
	of("splitmix", OfFirst, counted, bySize).trials = .1
	of("vectormean", OfFirst, counted, bySize).trials = .1
	of("realsum", OfVerifier, reconstruction, reconstructed)
	of("vectorgrid", OfVerifier, reconstruction, reconstructed)
	few := of("splitmix", OfVerifier, reconstruction, reconstructed)
	few.query.Batch, few.query.Delta, few.trials = 2, .8, .5
	return out
}

// Faulty returns audits of deliberate faults. The audit must find each.
func Faulty() []Case {
	histogram := Case{Protocol: "histogram", Client: "native", View: OfVerifier, Attack: likelihood,
		query: small("histogram", task.Histogram, labels(4)), pair: [2][]float64{{0}, {1}}, others: values(3),
		look: byCells(0, 1)}
	with := func(c Case, fault string, plant func(*deployment) error, change func(*Case)) Case {
		c.Fault, c.plant = fault, plant
		if change != nil {
			change(&c)
		}
		return c
	}
	count := func(protocol string) Case {
		return Case{Protocol: protocol, Client: "native", View: OfVerifier, Attack: likelihood,
			query: small(protocol, task.Count, nil), pair: [2][]float64{{1}, {0}}, others: values(0), look: byAnswer}
	}
	relays := Case{Protocol: "augmented", Client: "native", View: OfVerifier, Attack: likelihood,
		query: small("", task.Histogram, func(q *planner.Query) {
			labels(2)(q)
			q.Batch, q.Relays = 2, &planner.RelayNoise{}
		}), pair: [2][]float64{{0}, {1}}, others: values(1), look: byCells(0, 1)}
	last := func(c *Case) { c.pair, c.others, c.look = [2][]float64{{3}, {0}}, values(0), byCells(3, 0) }
	few := func(c *Case) { c.trials, c.query.Batch = .5, 4 }
	return []Case{
		with(histogram, "γ halved", halved, nil),
		with(histogram, "K off by one", offByOne, last),
		with(count("splitmix"), "half the noise missing", halfSilent, func(c *Case) { c.query.Batch = 4 }),
		with(count("correlated"), "half the noise missing", halfSilent, few),
		with(relays, "half the noise missing", thinned, nil),
		with(relays, "a draw used for two batches", nil, func(c *Case) { c.twice = true }),
		with(relays, "dummies of one cell missing", withoutCell, nil),
		with(histogram, "the first relay does not permute", unordered, func(c *Case) {
			c.query.Batch = 50
			c.View, c.Attack, c.look = OfLater, placed, byPosition
		}),
		with(histogram, "the last relay does not permute", unordered, func(c *Case) {
			c.query.Batch = 50
			c.View, c.Attack, c.look = OfEnds, placed, byPosition
		}),
		with(count("splitmix"), "clients without an event send one cover", silent, func(c *Case) {
			c.View, c.Attack, c.look = OfFirst, counted, bySize
		}),
		with(histogram, "a replayed slot is admitted", replayed, func(c *Case) {
			c.query.Batch = 50
			c.View, c.Attack = OfEnds, repeated
		}),
	}
}

// apart returns two letters that no table hashes to one cell, for the task's hash. For a fifth of all tasks with
// seven tables of three cells, no letter is so far from the letter a; so neither letter is fixed.
func (r *deployment) apart() (pair [2][]float64, err error) {
	var letters []map[int]bool // the cells of those up to b
	for b := 'a'; b <= 'z'; b++ {
		cells, err := r.cellsOf([]float64{float64(b)})
		if err != nil {
			return pair, err
		}
		for i, others := range letters {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(cells)), func(y int) bool { return others[y] }) {
				r.cells = [2]map[int]bool{others, cells}
				return [2][]float64{{float64('a' + i)}, {float64(b)}}, nil
			}
		}
		letters = append(letters, cells)
	}
	return pair, invalid.Field("strings", "26 letters", "two in no common cell")
}

// cellsOf returns the cells of a text: those with most of its messages, or all if clients do not randomize.
func (r *deployment) cellsOf(text []float64) (map[int]bool, error) {
	const draws = 3000
	src, counts, cells := randomizer.NewSource(), map[int]int{}, map[int]bool{}
	for range draws {
		lanes, err := r.honest.Randomize(src, text)
		if err != nil {
			return nil, err
		}
		counts[number(lanes[0][0])]++
	}
	for y, n := range counts {
		cells[y] = n > draws/15 // A ninth or more in the text's cell of each of seven tables, a sixtieth in others.
	}
	maps.DeleteFunc(cells, func(_ int, mostly bool) bool { return !mostly })
	return cells, nil
}

// halved makes clients randomize with half of γ.
func halved(r *deployment) error {
	t := *r.task
	t.Params = append([]task.Param(nil), t.Params...)
	for i, p := range t.Params {
		if p.Key == "gamma" {
			t.Params[i].Value = randomizer.NewRational(p.Value.Num, 2*p.Value.Den)
		}
	}
	m, err := registry.Open(&t)
	if err != nil {
		return err
	}
	r.client = all(native(r.task, m.Randomize))
	return nil
}

// offByOne makes the blanket of clients omit the last value.
func offByOne(r *deployment) error {
	gamma, _ := r.task.Param("gamma")
	r.client = all(native(r.task, func(src *randomizer.Source, value []float64) (protocols.Messages, error) {
		cell := uint64(value[0])
		if src.Bernoulli(gamma) {
			cell = src.Below(r.task.Input.Bins - 1)
		}
		return protocols.Messages{{encode(cell, r.task.Slots.MessageBytes)}}, nil
	}))
	return nil
}

// halfSilent makes every second client send its value without noise.
func halfSilent(r *deployment) error {
	attack := protocols.CapabilitiesOf(r.honest).Attack
	if attack == nil {
		return invalid.Field("protocol", r.task.Protocol, "one with simulated attacks")
	}
	noisy := native(r.task, r.honest.Randomize)
	silent := native(r.task, func(src *randomizer.Source, value []float64) (protocols.Messages, error) {
		return attack(src, protocols.AttackDropNoise, 0, value)
	})
	r.client = func(i int) ClientFunc {
		if i%2 == 1 {
			return silent
		}
		return noisy
	}
	return nil
}

// thinned makes the relay keep every dummy with probability ½.
func thinned(r *deployment) error {
	return r.keepOnly(func(src *randomizer.Source, _ uint64) bool { return src.Below(2) == 0 })
}

// withoutCell makes the relay send no dummies of the first cell.
func withoutCell(r *deployment) error {
	return r.keepOnly(func(_ *randomizer.Source, cell uint64) bool { return cell != 0 })
}

// keepOnly makes the relay drop some of the dummies that it drew.
func (r *deployment) keepOnly(keep func(src *randomizer.Source, cell uint64) bool) error {
	whole := r.draw
	r.draw = func(src *randomizer.Source) ([]uint64, error) {
		cells, err := whole(src)
		return slices.DeleteFunc(cells, func(cell uint64) bool { return !keep(src, cell) }), err
	}
	return nil
}

func unordered(r *deployment) error {
	r.ordered = true
	return nil
}

func replayed(r *deployment) error {
	r.copies, r.admits = 3, true
	return nil
}

// silent makes clients with a 0 split nothing, and send no covers instead.
func silent(r *deployment) error {
	bare := *r.task
	bare.Slots.Padding = task.PaddingNone
	r.client = all(native(&bare, func(src *randomizer.Source, value []float64) (protocols.Messages, error) {
		if value[0] == 0 {
			return make(protocols.Messages, bare.Slots.Lanes), nil
		}
		return r.honest.Randomize(src, value)
	}))
	return nil
}
