// Package audit doubts the privacy claims: it attacks what is implemented, and bounds ε from below.
//
// An audit plays a batch many times, in two worlds that differ in the value of one client. An attacker who knows
// every other client's value looks at what one party sees ([View]) and says which world it is. With claim (ε, δ),
// any event that it may look for has
//
//	Pr[E | one] ≤ e^ε·Pr[E | other] + δ,
//
// so that ln((Pr[E | one] - δ)/Pr[E | other]) is at most ε. The probabilities are bounded by [ClopperPearson] from
// trials that had no part in choosing the events; the bounds hold together, for all events of a fixed grid in both
// directions, with the confidence that is said (a union bound). A bound above the claim refutes it.
package audit

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/doona-dp/doona/randomizer"
)

// Experiment draws what an attacker makes of one batch in a world, 0 or 1: a score, or a few numbers that are scored by
// how likely they were in the worlds of a pilot.
type Experiment func(src *randomizer.Source, world int) (view string, score float64, err error)

// Options of an audit.
type Options struct {
	Trials     int     // Of each world, besides half as many of the pilot.
	Confidence float64 // That the bound is below the truth.
	Workers    int     // At once; 0: as many as there are processors.
}

// Finding is what an audit found.
type Finding struct {
	Lower      float64 // Bound of ε from below at Delta, with the confidence asked for; never below 0.
	Delta      float64
	Trials     int     // Of each world, without the pilot.
	Event      string  // What was looked for.
	P0, P1     float64 // How often it was seen in the likelier world, and in the other.
	Power      float64 // Computed from the pilot, in advance: the probability to find at least what was aimed at.
	Confidence float64
}

// gridded is how many events are looked for: scores of at least so much, and below it.
const gridded = 24

// event is a score of at least a threshold, or below it.
type event struct {
	threshold float64
	below     bool
	seen      [2]int // In each world.
}

// Run bounds ε from below at δ. aim is what Power is computed for.
func Run(e Experiment, delta, aim float64, o Options) (*Finding, error) {
	pilot, err := sample(e, max(o.Trials/4, 2), o)
	if err != nil {
		return nil, err
	}
	second, err := sample(e, max(o.Trials/4, 2), o) // What scores and events were made of says too much of itself.
	if err != nil {
		return nil, err
	}
	score := pilot.scorer()
	events := pilot.grid(score)
	alpha := (1 - o.Confidence) / float64(4*len(events)) // Two worlds of each event, and either may be the likelier.
	power := 0.0
	for _, e := range events {
		p := second.frequency(e, score)
		power = max(power, powerOf(p[0], p[1], o.Trials, delta, aim, alpha),
			powerOf(p[1], p[0], o.Trials, delta, aim, alpha))
	}
	played, err := sample(e, o.Trials, o)
	if err != nil {
		return nil, err
	}
	f := &Finding{Delta: delta, Trials: o.Trials, Power: power, Confidence: o.Confidence}
	for _, e := range events {
		for world := range 2 {
			for key, n := range played.seen[world] {
				if e.holds(score(key)) {
					e.seen[world] += n
				}
			}
		}
		f.take(e.seen[0], e.seen[1], alpha)
		f.take(e.seen[1], e.seen[0], alpha)
	}
	return f, nil
}

// take keeps what an event shows, if it shows more.
func (f *Finding) take(likely, other int, alpha float64) {
	if lower := boundOf(likely, other, f.Trials, f.Delta, alpha); lower > f.Lower {
		f.Lower = lower
		f.P0, f.P1 = float64(likely)/float64(f.Trials), float64(other)/float64(f.Trials)
	}
}

// boundOf is the ε that an event proves, −∞ for none.
func boundOf(likely, other, trials int, delta, alpha float64) float64 {
	p0, _ := ClopperPearson(likely, trials, alpha)
	_, p1 := ClopperPearson(other, trials, alpha)
	if !(p0 > delta) {
		return math.Inf(-1)
	}
	return math.Log((p0 - delta) / p1)
}

// powerOf returns the probability that an event of these probabilities proves at least so much. Counts are taken at 21
// quantiles each of their laws, nearly normal ones.
func powerOf(p0, p1 float64, trials int, delta, aim, alpha float64) float64 {
	if !(p0 > delta) || math.Log((p0-delta)/max(p1, 1/float64(trials))) < aim/2 {
		return 0
	}
	const steps = 21
	quantile := func(p float64, i int) int {
		z := math.Sqrt2 * math.Erfinv(2*(float64(i)+.5)/steps-1)
		n := float64(trials)
		return int(math.Round(min(max(n*p+z*math.Sqrt(n*p*(1-p)), 0), n)))
	}
	found := 0
	for i := range steps {
		for j := range steps {
			if boundOf(quantile(p0, i), quantile(p1, j), trials, delta, alpha) >= aim {
				found++
			}
		}
	}
	return float64(found) / (steps * steps)
}

// key is what was seen: numbers in words, or a score.
type key struct {
	view  string
	score float64
}

// counts are how often what was seen, in each world.
type counts struct{ seen [2]map[key]int }

// sample plays both worlds.
func sample(e Experiment, trials int, o Options) (*counts, error) {
	workers := o.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	parts, failed := make([]counts, workers), make([]error, workers)
	var wg sync.WaitGroup
	for w := range parts {
		parts[w].seen = [2]map[key]int{{}, {}}
		share := trials / workers
		if w < trials%workers {
			share++
		}
		wg.Go(func() { failed[w] = parts[w].play(e, share) })
	}
	wg.Wait()
	for w := range parts {
		if failed[w] != nil {
			return nil, failed[w]
		}
		for world, seen := range parts[w].seen {
			if w > 0 {
				for k, n := range seen {
					parts[0].seen[world][k] += n
				}
			}
		}
	}
	return &parts[0], nil
}

func (c *counts) play(e Experiment, trials int) error {
	src := randomizer.NewSource()
	for range trials {
		for world := range 2 {
			view, score, err := e(src, world)
			if err != nil {
				return err
			}
			c.seen[world][key{view, score}]++
		}
	}
	return nil
}

// scorer returns the score of what is seen: its own, or the logarithm of how much more often the pilot saw it in the
// first world. Half an observation is added to both, so that what is rare says little.
func (c *counts) scorer() func(key) float64 {
	if !slices.ContainsFunc(slices.Collect(mapKeys(c.seen[0])), func(k key) bool { return k.view != "" }) {
		return func(k key) float64 { return k.score }
	}
	return func(k key) float64 {
		return math.Log((float64(c.seen[0][k]) + .5) / (float64(c.seen[1][k]) + .5))
	}
}

func mapKeys(m map[key]int) func(func(key) bool) {
	return func(yield func(key) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// grid returns the events to look for: thresholds at quantiles of the pilot's scores, close to each other at the ends,
// where most is proved.
func (c *counts) grid(score func(key) float64) (events []*event) {
	type weighted struct {
		score float64
		n     int
	}
	var all []weighted
	total := 0
	for _, seen := range c.seen {
		for k, n := range seen {
			all = append(all, weighted{score(k), n})
			total += n
		}
	}
	slices.SortFunc(all, func(a, b weighted) int { return cmp.Compare(a.score, b.score) })
	at, below := 0, 0
	for i := range gridded {
		x := 12 * (float64(i) + .5 - gridded/2) / gridded // From −6 to 6: shares of 1/400 to 399/400.
		share := 1 / (1 + math.Exp(-x))
		for at < len(all)-1 && float64(below+all[at].n) <= share*float64(total) {
			below += all[at].n
			at++
		}
		threshold := all[at].score
		if n := len(events); n == 0 || events[n-1].threshold != threshold {
			events = append(events, &event{threshold: threshold}, &event{threshold: threshold, below: true})
		}
	}
	return events
}

func (e *event) holds(score float64) bool { return (score < e.threshold) == e.below }

// frequency returns how often the pilot saw an event in each world.
func (c *counts) frequency(e *event, score func(key) float64) (p [2]float64) {
	for world, seen := range c.seen {
		n, hits := 0, 0
		for k, m := range seen {
			n += m
			if e.holds(score(k)) {
				hits += m
			}
		}
		p[world] = float64(hits) / float64(n)
	}
	return p
}
