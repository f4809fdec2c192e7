// Package audit tests privacy claims: it attacks the implementation and bounds ε from below.
//
// An audit runs a batch many times, in two worlds that differ in the value of one client. An attacker who knows every
// other client's value looks at what one party sees ([View]) and guesses the world. If the claim (ε, δ) is true,
// every event E satisfies
//
//	Pr[E | one] ≤ e^ε·Pr[E | other] + δ,
//
// so that ln((Pr[E | one] - δ)/Pr[E | other]) is at most ε. [ClopperPearson] bounds the probabilities from trials
// that were not used to choose the events. With the stated confidence the bounds hold for all events of a fixed grid at
// once, in both directions (a union bound). A lower bound of ε above the claim refutes the claim.
package audit

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/doona-dp/doona/randomizer"
)

// Experiment runs one batch in a world, 0 or 1, and returns the attacker's result: a score, or a view (a few numbers as
// text). A pilot run turns views into scores: the likelihood ratio of the two worlds.
type Experiment func(src *randomizer.Source, world int) (view string, score float64, err error)

// Options of an audit.
type Options struct {
	Trials     int     // Batches in each world; the pilot plays half as many in addition.
	Confidence float64 // Probability that the bound is not above the true ε, in (0, 1).
	Workers    int     // Parallel workers; 0: as many as GOMAXPROCS.
}

// Bound is what an audit proves about ε.
type Bound struct {
	Lower      float64 // Lower bound of ε at Delta, with probability Confidence; at least 0.
	Delta      float64
	Trials     int     // Batches in each world, without the pilot.
	P0, P1     float64 // Frequency of the event that proves Lower: in the likelier world, and in the other.
	Power      float64 // Probability that Lower is at least the aim of [Run], computed in advance from the pilot.
	Confidence float64
}

// gridded is the number of thresholds in the grid of events.
const gridded = 24

// event is the event that a score is at least the threshold or, if below is set, less than the threshold.
type event struct {
	threshold float64
	below     bool
	seen      [2]int // Occurrences in each world.
}

// Run bounds ε from below at δ. It also computes the power: the probability that the bound is at least aim.
func Run(e Experiment, delta, aim float64, o Options) (*Bound, error) {
	pilot, err := sample(e, max(o.Trials/4, 2), o)
	if err != nil {
		return nil, err
	}
	second, err := sample(e, max(o.Trials/4, 2), o) // New batches, because scores and events were fitted to the first.
	if err != nil {
		return nil, err
	}
	score := pilot.scorer()
	events := pilot.grid(score)
	alpha := (1 - o.Confidence) / float64(4*len(events)) // Each event needs two bounds in each of two directions.
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

// take computes the bound that an event proves, and keeps it if it is higher than the present bound.
func (f *Bound) take(likely, other int, alpha float64) {
	if lower := boundOf(likely, other, f.Trials, f.Delta, alpha); lower > f.Lower {
		f.Lower = lower
		f.P0, f.P1 = float64(likely)/float64(f.Trials), float64(other)/float64(f.Trials)
	}
}

// boundOf returns the lower bound of ε that an event proves, or −∞ if it proves nothing. likely and other are how many
// trials had the event in the likelier world and in the other world.
func boundOf(likely, other, trials int, delta, alpha float64) float64 {
	p0, _ := ClopperPearson(likely, trials, alpha)
	_, p1 := ClopperPearson(other, trials, alpha)
	if !(p0 > delta) {
		return math.Inf(-1)
	}
	return math.Log((p0 - delta) / p1)
}

// powerOf returns the probability that an event with probabilities p0 and p1 proves at least aim. It tries both counts
// at 21 quantiles of a normal approximation.
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

// key is the result of an attacker: a view (numbers as text), or a score if the view is empty.
type key struct {
	view  string
	score float64
}

// counts says how often each result occurred in each world.
type counts struct{ seen [2]map[key]int }

// sample runs that number of trials in each world, in parallel, and counts the results.
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

// scorer returns a function that scores a result: its own score or, if results have views, the logarithm of the ratio
// of the result's counts in the pilot's two worlds. It adds ½ to both counts, so that rare results have little weight.
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

// grid returns two events for each threshold. The thresholds are quantiles of the pilot's scores, denser in the tails,
// because events in the tails prove most.
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
		x := 12 * (float64(i) + .5 - gridded/2) / gridded // From −6 to 6: quantiles of about 1/400 to 399/400.
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

// frequency returns the relative frequency of an event in each of the two worlds.
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
