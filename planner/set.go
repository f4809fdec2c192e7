package planner

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/task"
)

// Set is several queries that the same visitors answer, under one total for all. Each goal has its own limits of cost,
// its own number of epochs, its own cap and its own limit on events. A goal must not set a claim, a total or a number
// of users, because the set has them.
type Set struct {
	Goals []Goal // Each with Epochs, 1 to 65536: how many of the query's epochs begin in the total's time.
	// Either Weights or Shares. Weights: per goal, its precision in one epoch relative to a goal of weight 1, in (0,
	// 1000]. Shares: per goal, its part of the total, in (0, 1000]; shares need not add up to 1.
	Weights, Shares []float64
	Users           uint64  // Reports in a batch of each query.
	Epsilon         float64 // Total over all queries and epochs, in (0, 100].
	Delta           float64 // Total over all queries and epochs, in (0, 1).
}

// SetPlan is a plan for all queries of a set.
type SetPlan struct {
	Ways    []Way   // For each goal, the best way with its part of the total.
	Others  [][]Way // For each goal, the other ways with nearly that part: possible ones by error, then the others.
	Epsilon float64 // ε of all reports to all queries composed, at the set's δ; at most the set's ε.
	Added   float64 // For comparison: ε if each query is composed by itself and the results are added.
}

const mostQueries = 64

// PlanSet splits a total of ε and δ among queries, with their own numbers of epochs and caps. The owner fixes all tasks
// before the first report, so the privacy-loss laws of all reports compose as one product ([compose.Delta];
// docs/proofs/loss-laws.md, Theorem 3).
//
// With Gaussian noise, the squares μ² of all reports add up. So each query gets a part of the μ² of the total, and is
// calibrated for all of its reports together. PlanSet then searches the largest sum of μ² for which the product of the
// laws keeps the total. A query with n reports, or n copies of its law with events, and the part p has an error of
// √(n/p) times the same constant. A weight w stands for the part w²·n.
//
// For few reports a Laplace table has less noise than the Gaussian table that meets the same target, but costs more in
// the product with other queries. So PlanSet tries both, and takes those with which the errors of all queries are least
// in the geometric mean.
func PlanSet(s Set, done func(of int)) (*SetPlan, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	ways, others, err := s.best(1, done)
	if err != nil {
		return nil, err
	}
	search := setSearch{Set: s, drafts: map[setDraft]Way{}}
	found, err := search.run(ways, 1)
	if err != nil {
		return nil, err
	}
	// At the scale found, another protocol may be best.
	if again, rest, err := s.best(found.scale, done); err == nil {
		if alike(found.ways, again) {
			others = rest
		} else if better, err := search.run(again, found.scale); err == nil && worse(found.ways, better.ways) {
			found, others = better, rest
		}
	}
	ways = search.tables(found).ways
	out := &SetPlan{Ways: ways, Others: others}
	return out, out.compose(s)
}

// alike reports whether two plans chose the same protocols, sides of the noise and paddings.
func alike(ways, others []Way) bool {
	return slices.EqualFunc(ways, others, func(a, b Way) bool {
		return a.Protocol == b.Protocol && a.Noise == b.Noise && a.Padding == b.Padding
	})
}

// worse reports whether the errors of ways exceed those of others, in the geometric mean.
func worse(ways, others []Way) bool {
	sum := 0.0
	for i := range ways {
		sum += math.Log(ways[i].RMSE / others[i].RMSE)
	}
	return sum > 0
}

func (s Set) check() error {
	parts, field := s.Weights, "weight"
	if s.Shares != nil {
		parts, field = s.Shares, "share"
	}
	switch {
	case len(s.Goals) < 1 || len(s.Goals) > mostQueries:
		return invalid.Field("queries", strconv.Itoa(len(s.Goals)), "1 to "+strconv.Itoa(mostQueries))
	case len(parts) != len(s.Goals) || s.Weights != nil && s.Shares != nil:
		return invalid.Field(field+"s", strconv.Itoa(len(parts)), "one for each query, of weights or of shares")
	}
	for i, g := range s.Goals {
		switch {
		case !(parts[i] > 0 && parts[i] <= 1000):
			return invalid.Field(field, format(parts[i]), "a number in (0, 1000]")
		case g.Epochs < 1 || g.Epochs > task.MaxEpochs:
			return invalid.Field("epochs", strconv.FormatUint(g.Epochs, 10), "1 to "+strconv.Itoa(task.MaxEpochs))
		case cmp.Or(g.limits().CheckLimits(), g.Events.Check()) != nil:
			return cmp.Or(g.limits().CheckLimits(), g.Events.Check())
		case g.Epsilon != 0 || g.Delta != 0 || g.TotalEpsilon != 0 || g.TotalDelta != 0 || g.Batch != 0:
			return invalid.Field("queries", g.Name, "queries without users, epsilon and delta of their own")
		}
	}
	if err := checkClaim("total-", s.Epsilon, s.Delta); err != nil {
		return err
	}
	reports := uint64(0) // The most reports to one query.
	for i := range s.Goals {
		reports = max(reports, s.Reports(i))
	}
	least := 2.1 * leastDelta * float64(len(s.Goals)) * float64(reports) // [Set.goal] divides the total by this.
	if s.Delta < least {
		return invalid.Field("total-delta", format(s.Delta), "at least "+decimal.Up(least, 3)+
			", so that each report has a delta of 1e-38 or more")
	}
	return nil
}

// Reports returns the most reports of one browser to query i: its epochs, or fewer with a cap.
func (s Set) Reports(i int) uint64 {
	return task.Epochs{Cap: s.Goals[i].Cap}.MostReports(s.Goals[i].Epochs)
}

// Laws compares the kinds of noise by relays for query i of a plan, for all its reports together: it explains the
// choice. It returns nil for noise by clients, and for noise without one table for all cells. With a rest cell it adds
// the plan's own law, which takes fewer copies than the others.
func (s Set) Laws(p *SetPlan, i int) ([]relaynoise.Compared, error) {
	t := p.Ways[i].Task
	if n := t.Noise; n == nil || n.Kind != task.NoiseCells || n.Tilt != nil || len(n.Tables) != 1 {
		return nil, nil
	}
	total, plain := t.Claim.Total, task.Task{Epochs: t.Epochs}
	laws, err := relaynoise.Compare(t.Noise.Cells, relaynoise.Target{Epsilon: total.Epsilon.Value(),
		Delta: total.Delta.Value(), Epochs: plain.MostCopies(s.Goals[i].Epochs)})
	if err != nil || t.Noise.Rest == nil {
		return laws, err
	}
	own, err := relaynoise.NewLaws(t.Noise)
	if err != nil {
		return nil, err
	}
	other := own.Cells[(*t.Noise.Rest+1)%t.Noise.Cells]
	return append(laws, relaynoise.Compared{Law: "fixed total with a rest cell", Deviation: math.Sqrt(other.Variance()),
		Dummies: own.Dummies() / float64(t.Noise.Cells)}), nil
}

// copies returns how many copies of the law of one epoch the reports to query i take: as many as reports, or fewer with
// events.
func (s Set) copies(i int) uint64 {
	g := s.Goals[i]
	t := task.Task{Epochs: task.Epochs{Cap: g.Cap, Events: g.Events}}
	if g.Query.Query.Info().Shape == task.PerBin && g.Bins > 2 { // Its noise has a rest cell.
		t.Noise = &task.Noise{Rest: &g.Events.Default}
	}
	return t.MostCopies(g.Epochs)
}

// Part returns the part of the total's μ² that query i gets.
func (s Set) Part(i int) float64 {
	sum, own := 0.0, 0.0
	for j := range s.Goals {
		part := 0.0
		if s.Shares != nil {
			part = s.Shares[j]
		} else {
			part = s.Weights[j] * s.Weights[j] * float64(s.copies(j))
		}
		if sum += part; j == i {
			own = part
		}
	}
	return own / sum
}

// goal returns goal i with its part of the total, for noise by clients or by relays. scale is the sum of all μ²,
// relative to that of Gaussian noise with nine tenths of δ. Relays' noise is calibrated for all reports together.
// Clients' noise is calibrated for one report, which is fast: its law depends little on δ.
func (s Set) goal(i int, scale float64, noise Noise) Goal {
	g := s.Goals[i]
	g.Batch, g.Noise = s.Users, noise
	delta, reports := s.Delta/float64(len(s.Goals)), float64(s.copies(i))
	square := scale * compose.GaussianSquare(s.Epsilon, .9*s.Delta) * s.Part(i)
	if noise == NoiseRelays {
		g.TotalDelta = down(delta)
		g.TotalEpsilon = down(min(gaussianEpsilon(square, g.TotalDelta), s.Epsilon))
		return g
	}
	g.Delta = down(delta / reports / 2)
	g.Epsilon = down(min(gaussianEpsilon(square/reports, g.Delta), s.Epsilon))
	return g
}

// gaussianEpsilon returns the ε of Gaussian noise with μ² = square at a δ.
func gaussianEpsilon(square, delta float64) float64 {
	lo, hi := 1e-9, 200.0
	for hi > lo*(1+1e-6) {
		mid := math.Sqrt(lo * hi)
		if found, _ := compose.GaussianDelta(square, mid); found > delta {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// best returns the best way for each query, and the other ways.
func (s Set) best(scale float64, done func(of int)) (ways []Way, others [][]Way, err error) {
	for i := range s.Goals {
		all, err := s.waysOf(i, scale)
		if err != nil {
			return nil, nil, err
		}
		ways, others = append(ways, all[0]), append(others, all[1:])
		if done != nil {
			done(len(s.Goals))
		}
	}
	return ways, others, nil
}

// waysOf returns the ways for query i as [Plan] orders them, over both sides of the noise that the goal allows. The
// first is possible.
func (s Set) waysOf(i int, scale float64) ([]Way, error) {
	var of []Way
	var failed error
	for _, noise := range []Noise{NoiseRelays, NoiseClients} {
		if allowed := s.Goals[i].Noise; allowed != noise && allowed != NoiseAny {
			continue
		}
		if noise == NoiseClients && !s.Goals[i].Events.IsZero() {
			failed = cmp.Or(failed, Query{Events: s.Goals[i].Events}.checkEvents())
			continue
		}
		ways, err := Plan(s.goal(i, scale, noise), nil)
		failed = cmp.Or(failed, err)
		of = append(of, ways...)
	}
	slices.SortStableFunc(of, compareWays)
	recommend(of)
	switch {
	case len(of) == 0:
		return nil, failed
	case of[0].Why != nil:
		return nil, invalid.Field("query "+s.Goals[i].Name, "with its part of the total",
			"a larger total-epsilon or weight, fewer epochs, or more users: "+of[0].Why.Error())
	}
	return of, nil
}

// keeps reports whether all epochs of all ways together keep the total.
func (s Set) keeps(ways []Way) (bool, error) {
	seen, err := s.observations(ways)
	if err != nil {
		return false, err
	}
	return compose.Delta(seen, s.Epsilon, s.Delta) <= s.Delta, nil
}

// observations returns the privacy-loss observations of all epochs of all ways.
func (s Set) observations(ways []Way) (seen []compose.Observation, err error) {
	for i, w := range ways {
		law, err := w.Mechanism.Law()
		if err != nil {
			return nil, err
		}
		seen = append(seen, law.Observation(w.Task.MostCopies(s.Goals[i].Epochs)))
	}
	return seen, nil
}

func (p *SetPlan) compose(s Set) error {
	seen, err := s.observations(p.Ways)
	if err != nil {
		return err
	}
	if p.Epsilon, err = compose.Epsilon(seen, s.Delta); err != nil {
		return err
	}
	p.Epsilon = min(p.Epsilon, s.Epsilon) // Epsilon may be 10⁻⁵ above the least; keeps has checked this bound.
	for i := range seen {
		one, err := compose.Epsilon(seen[i:i+1], s.Delta/float64(len(seen)))
		if err != nil {
			return err
		}
		p.Added += one
	}
	return nil
}
