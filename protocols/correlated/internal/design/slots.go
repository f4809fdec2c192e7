package design

import "math"

// Group is the noise of similar atoms in one client. It has count·r/n_min·e^{-sk}/k expected jumps of size k ≤ jump.
// Each jump is weight·k messages.
type Group struct {
	Weight int     // Messages of an atom.
	Mass   float64 // count·r/n_min; count is the number of such atoms.
	S      float64
	Jump   uint64 // Largest size of a jump; 0: no bound.
}

// tail is the distribution of the number N of one client's noise messages. N is a compound Poisson variable:
//
//	m·Pr[N=m] = Σ_groups weight·mass·Σ_k e^{-sk}·Pr[N = m - weight·k]              (S1)
//
// All terms are positive, so the far tail is as accurate as the bulk.
type tail struct {
	upTo []float64 // upTo[m] is Pr[N ≥ m].
}

// maxJumps is the largest number of jumps that a client may expect. Pr[N=0] = e^-650 is still a normal float64, and
// more jumps would not fit the slots anyway.
const maxJumps = 650

// NewTail computes the tail down to a probability of least. ok is false if that takes more than most messages, or if a
// client expects 650 jumps or more.
func NewTail(groups []Group, least float64, most int) (t tail, ok bool) {
	jumps := events(groups)
	if !(jumps < maxJumps) {
		return t, false
	}
	size := 256
	for rest(groups, size) > least/100 {
		if size *= 2; size > 2*most {
			return t, false
		}
	}
	p := make([]float64, size)
	p[0] = math.Exp(-jumps)
	states := make([]state, len(groups))
	for k, g := range groups {
		states[k] = newState(g, size)
	}
	for m := range p {
		if m > 0 {
			sum := 0.0
			for k := range states {
				sum += states[k].sum()
			}
			p[m] = sum / float64(m)
		}
		for k := range states {
			states[k].push(p[m])
		}
	}
	t.upTo = make([]float64, size+1)
	t.upTo[size] = rest(groups, size)
	for m := size - 1; m >= 0; m-- {
		t.upTo[m] = t.upTo[m+1] + p[m]
	}
	return t, true
}

// Above returns Pr[N > m], rounded up.
func (t tail) Above(m int) float64 {
	if m+1 >= len(t.upTo) {
		m = len(t.upTo) - 2
	}
	return t.upTo[m+1] * (1 + 1e-9)
}

// state computes one group of equal weights in the recursion (S1), which adds the groups one by one. The recursion sums
// over positions in steps of the weight, so state keeps one running sum for each remainder modulo the weight.
type state struct {
	rate    float64 // weight·mass
	at      int     // The next position modulo the weight.
	windows []window
	sums    []float64
}

// newState returns the state of a group before position 0, with memory for this many positions.
func newState(g Group, positions int) state {
	s := state{rate: float64(g.Weight) * g.Mass, windows: make([]window, g.Weight), sums: make([]float64, g.Weight)}
	for k := range s.windows {
		s.windows[k] = *newWindow(math.Exp(-g.S), int(g.Jump), positions/g.Weight+1)
	}
	return s
}

// sum returns the group's part of the sum at the next position.
func (s *state) sum() float64 { return s.sums[s.at] }

// push adds the probability at the next position.
func (s *state) push(p float64) {
	s.sums[s.at] = s.rate * s.windows[s.at].push(p)
	if s.at++; s.at == len(s.sums) {
		s.at = 0
	}
}

// events returns the expected number of one client's jumps, -ln Pr[N=0].
func events(groups []Group) (sum float64) {
	for _, g := range groups {
		if g.Jump == 0 {
			sum += g.Mass * -math.Log(-math.Expm1(-g.S))
			continue
		}
		for k := uint64(1); k <= g.Jump; k++ {
			sum += g.Mass * math.Exp(-g.S*float64(k)) / float64(k)
		}
	}
	return sum
}

// rest bounds Pr[N ≥ m] by (E[e^{ηN}]-1)/(e^{ηm}-1). It tries several η below the smallest decay rate of an unbounded
// group, and takes the least bound.
func rest(groups []Group, m int) float64 {
	most := math.Inf(1)
	for _, g := range groups {
		if g.Jump == 0 {
			most = min(most, g.S/float64(g.Weight))
		}
	}
	eta := most * max(1-1/(most*float64(m)), 0.5)
	best := 1.0
	for range 12 {
		if bound := math.Expm1(cumulant(groups, eta)) / math.Expm1(eta*float64(m)); bound < best {
			best = bound
		}
		eta *= 0.75
	}
	return best
}

// cumulant returns an upper bound of ln E[e^{ηN}] for the number N of one client's noise messages.
func cumulant(groups []Group, eta float64) (sum float64) {
	for _, g := range groups {
		step := eta * float64(g.Weight)
		if g.Jump == 0 {
			sum += g.Mass * (math.Log(-math.Expm1(-g.S)) - math.Log(-math.Expm1(step-g.S)))
			continue
		}
		for k := uint64(1); k <= g.Jump; { // Sum by blocks of sizes k, and bound each term by the largest in its block.
			end := min(k+max(k/16, 1), g.Jump+1)
			sum += g.Mass * math.Exp(-g.S*float64(k)) * math.Expm1(step*float64(end-1)) * float64(end-k) / float64(k)
			k = end
		}
	}
	return sum
}

// MostOnAverage returns a bound on the messages of n clients, divided by n. They exceed it with a probability of at
// most e^-rare, by Chernoff's bound. It tries several η below the smallest decay rate of an unbounded group, and takes
// the least bound.
func MostOnAverage(groups []Group, n, rare float64) float64 {
	eta, least := 1.0, math.Inf(1)
	for _, g := range groups {
		if g.Jump == 0 {
			eta = min(eta, 0.9*g.S/float64(g.Weight))
		}
	}
	for range 400 {
		if most := (cumulant(groups, eta) + rare/n) / eta; most < least {
			least = most
		}
		eta *= 0.95
	}
	return least
}

// LeastSlots returns the smallest number of slots B ≤ most with Pr[N > B-1] ≤ limit; one slot is for the value. ok is
// false if there is none.
func LeastSlots(groups []Group, limit float64, most int) (b int, ok bool) {
	t, ok := NewTail(groups, limit, most)
	if !ok {
		return 0, false
	}
	b = int(search(1, int64(len(t.upTo)), func(b int64) bool { return t.Above(int(b-1)) <= limit }))
	return b, b <= most
}
