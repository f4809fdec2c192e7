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

// View names the parties whose data the attacker sees. The attacker also knows every other client's value.
type View string

// The attacked views. A relay that the view does not name is honest.
const (
	OfVerifier View = "the verifier"                 // The messages of a batch.
	OfLater    View = "later relays and verifier"    // The messages, and their order when they left the first relay.
	OfFirst    View = "the first relay"              // The number of slots that each client sent.
	OfEnds     View = "the first relay and verifier" // The messages, and who sent which slot; it may copy slots.
)

// Case is an audit of one task by one attack.
type Case struct {
	Protocol string
	Client   string // "native" or "doona.wasm".
	Attack   string // Description of the attack, such as "likelihood ratio".
	View     View
	Fault    string // The planted fault; empty: none.

	query  planner.Query
	pair   [2][]float64
	others []float64
	look   attack
	plant  func(*deployment) error
	twice  bool        // Run two batches that use the same dummies.
	over   *throughout // Attack all epochs together; nil: one batch.
	browse bool
	trials float64 // Factor on Options.Trials; 0 means 1.
}

// Result is the result of auditing a case, together with the claim.
type Result struct {
	Case
	Bound
	Claimed float64 // ε at Delta.
	Refuted bool    // The lower bound of ε is above the claim.
}

// least is the fraction of the claimed ε that an audit of a shipped protocol must find.
const least = .5

// Enough reports whether an audit reached its goal. With a planted fault, the audit must refute the claim. Without one
// it must not refute the claim, and must find at least half of the claimed ε. Reconstruction, and attacks on views
// other than the verifier's, need not find anything.
func (r *Result) Enough() bool {
	if r.Fault != "" {
		return r.Refuted
	}
	return !r.Refuted && (r.View != OfVerifier || r.Attack == reconstruction || r.Lower >= least*r.Claimed)
}

// Run audits a case. browsers may be nil for cases of native clients.
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
	if c.over != nil {
		experiment = r.allEpochs(&c)
	}
	eps, delta := c.claim()
	f, err := Run(experiment, delta, c.aim(), o)
	if err != nil {
		return nil, err
	}
	return &Result{Case: c, Bound: *f, Claimed: eps, Refuted: f.Lower > eps}, nil
}

// Descriptions of the attacks, as the audit prints them.
const (
	likelihood     = "likelihood ratio"
	reconstruction = "reconstruction"
	counted        = "number of slots"
	placed         = "place"
	repeated       = "copies"
	overEpochs     = "all epochs"
)

func values(x ...float64) []float64 { return x }

// small returns the query of a task with 3 clients, ε = 2 and δ = .01. An audit of such a task needs only some ten
// thousand batches. change, if not nil, changes the query.
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

// Native returns the cases without planted faults whose clients run natively.
func Native() []Case { return shipped(false) }

// Shipped returns all cases without planted faults: clients run natively, and in doona.wasm.
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
	return append(append(out, harmless(out)...), capped(1), capped(2), eventful(), moving())
}

// slower returns the factor on the number of batches for clients that run doona.wasm, which are slower than native
// clients. 0.25 means a quarter of the batches.
func slower(protocol string) float64 {
	switch protocol {
	case "correlated":
		return .125
	case "vectormean":
		return .5
	}
	return .25
}

// harmless returns attacks on shipped protocols that should find little or nothing: reconstruction, and the attacks
// that find planted faults in [Faulty].
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

// Faulty returns the cases with planted faults. The audit must refute the claim of each.
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
	return append([]Case{
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
	}, append(faultyDevices(), faultyAllowances()...)...)
}

// apart returns two letters that share no cell in any of the task's hash tables, and stores their cells in r.cells. It
// tries all pairs: for a fifth of all tasks with seven tables of three cells, every letter shares a cell with the
// letter a.
func (r *deployment) apart() (pair [2][]float64, err error) {
	var letters []map[int]bool // the cells of each letter before b
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

// cellsOf returns the cells into which a text is hashed. It randomizes the text 3,000 times and keeps the cells that
// occur often.
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
		cells[y] = n > draws/15 // A cell of the text has a ninth or more of the messages, any other cell a sixtieth.
	}
	maps.DeleteFunc(cells, func(_ int, mostly bool) bool { return !mostly })
	return cells, nil
}

// halved plants a fault: clients randomize with half of the task's γ.
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

// offByOne plants a fault: a client that replaces its value by a random one never picks the last value.
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

// halfSilent plants a fault: every second client sends its value without noise.
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

// thinned plants a fault: the relay drops each dummy with probability ½.
func thinned(r *deployment) error {
	return r.keepOnly(func(src *randomizer.Source, _ uint64) bool { return src.Below(2) == 0 })
}

// withoutCell plants a fault: the relay sends no dummies of cell 0.
func withoutCell(r *deployment) error {
	return r.keepOnly(func(_ *randomizer.Source, cell uint64) bool { return cell != 0 })
}

// keepOnly makes the relay send only the dummies for which keep returns true.
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

// silent plants a fault: clients whose value is 0 send no messages, and no covers in their place.
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
