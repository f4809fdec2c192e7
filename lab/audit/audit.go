// Package audit tests the privacy claims: it attacks the implementation, and bounds ε from below.
//
// An audit runs a batch many times, in two worlds that differ in the value of one client. An attacker who knows every
// other client's value looks at what one party sees ([View]) and decides which world it is. With claim (ε, δ), any
// event has
//
//	Pr[E | one] ≤ e^ε·Pr[E | other] + δ,
//
// so that ln((Pr[E | one] - δ)/Pr[E | other]) is at most ε. [ClopperPearson] bounds the probabilities from trials
// that had no part in choosing the events. The bounds hold together, for all events of a fixed grid in both
// directions, with the stated confidence (a union bound). A bound above the claim refutes the claim.
package audit

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/doona-dp/doona/randomizer"
)

// Experiment draws an attacker's result for one batch in a world, 0 or 1. The result is a score, or a view of a few
// numbers. A view is scored by its likelihood in the two worlds of a pilot.
type Experiment func(src *randomizer.Source, world int) (view string, score float64, err error)

// Options of an audit.
type Options struct {
	Trials     int     // Trials of each world; the pilot takes half as many more.
	Confidence float64 // Probability that the bound is below the truth.
	Workers    int     // Parallel workers; 0: one for each processor.
}

// Bound is what an audit proves about ε.
type Bound struct {
	Lower      float64 // Lower bound of ε at Delta, with the confidence asked for; never below 0.
	Delta      float64
	Trials     int     // Trials of each world, without the pilot.
	Event      string  // The event that proves most.
	P0, P1     float64 // How often it occurred in the likelier world, and in the other.
	Power      float64 // Computed from the pilot, in advance: the probability to find at least the aim.
	Confidence float64
}

// gridded is the number of thresholds. Events are scores of at least a threshold, and below it.
const gridded = 24

// event is a score of at least a threshold, or below it.
type event struct {
	threshold float64
	below     bool
	seen      [2]int // Occurrences in each world.
}

// Run bounds ε from below at δ. It computes Power for aim.
func Run(e Experiment, delta, aim float64, o Options) (*Bound, error) {
	pilot, err := sample(e, max(o.Trials/4, 2), o)
	if err != nil {
		return nil, err
	}
	second, err := sample(e, max(o.Trials/4, 2), o) // Fresh, because scores and events fit the pilot.
	if err != nil {
		return nil, err
	}
	score := pilot.scorer()
	events := pilot.grid(score)
	alpha := (1 - o.Confidence) / float64(4*len(events)) // Two worlds for each event; either may be the likelier.
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
	f := &Bound{Delta: delta, Trials: o.Trials, Power: power, Confidence: o.Confidence}
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

// take keeps the bound of an event if it is higher.
func (f *Bound) take(likely, other int, alpha float64) {
	if lower := boundOf(likely, other, f.Trials, f.Delta, alpha); lower > f.Lower {
		f.Lower = lower
		f.P0, f.P1 = float64(likely)/float64(f.Trials), float64(other)/float64(f.Trials)
	}
}

// boundOf returns the ε that an event proves, −∞ for none.
func boundOf(likely, other, trials int, delta, alpha float64) float64 {
	p0, _ := ClopperPearson(likely, trials, alpha)
	_, p1 := ClopperPearson(other, trials, alpha)
	if !(p0 > delta) {
		return math.Inf(-1)
	}
	return math.Log((p0 - delta) / p1)
}

// powerOf returns the probability that an event with these probabilities proves at least aim. It takes the counts at
// 21 quantiles of each of their laws, which are nearly normal.
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

// key is an attacker's result: numbers as text, or a score.
type key struct {
	view  string
	score float64
}

// counts are the numbers of occurrences of each result in each world.
type counts struct{ seen [2]map[key]int }

// sample runs both worlds.
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

// scorer returns the score of a result: its own score, or the logarithm of the ratio of the pilot's frequencies in
// the two worlds. It adds half an observation to both, so that rare results have little weight.
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

// grid returns the events: thresholds at quantiles of the pilot's scores, denser at the ends, which prove most.
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

// frequency returns how often an event occurred in the pilot's two worlds.
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
