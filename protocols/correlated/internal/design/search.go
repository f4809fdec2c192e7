package design

import "math"

// Target is what a design must achieve: a claim for given inputs, within limits on bursts.
type Target struct {
	Top            uint64
	Sparse         bool
	Star           float64 // ε*/Δ, the exponent of the central noise.
	Epsilon, Delta float64
	Burst          uint64  // Most messages of one jump of zero-sum noise; 0 for no bound.
	Zero           bool    // The message 0 exists and has noise of its own.
	Near           *Solved // A design near which to begin the search; nil for the default start.
	coarse         bool    // Set during a search: designs are coarse.
}

// Solved is a design with the parameters Theta and Miss at which its certificate proves the target.
type Solved struct {
	Design
	Theta, Miss float64
	at          point
	x           float64
}

// Messages returns the expected number of zero-sum noise messages of all clients together.
func (d *Design) Messages() float64 {
	total := 2 * d.Pair.Mean()
	if d.Zero.R > 0 {
		total += d.Zero.Mean()
	}
	for l, n := range atomCounts(d.Top) {
		total += 3 * float64(n) * d.Levels[l].Mean()
	}
	return total
}

// The search. If the noise is wide against 1, the moment (M1) depends only on r, θ and x = s·shift, and every level
// costs alike. So all levels share r and x, with a shift by 2^ℓ at level ℓ. {-1,+1} has its own r and x, with a shift
// by Δ. A level whose jumps are bounded well below its scale 1/s takes s = 0 and the r with the same moment. The
// certificate of the whole design determines x. Coordinate descent finds the other unknowns, starting from their
// optimum at ε = 1, δ = 10⁻⁶.

// point is a position of the search. Its fields are logarithms.
type point struct {
	pairR, pairX, r, theta float64
	tilt                   float64 // Growth of ln x from one level to the next: 0 unless jumps are bounded.
}

// cut returns the probability that one atom may leave out of T. All atoms that two inputs touch together then leave out
// about a quarter of δ.
func (t *Target) cut() float64 { return t.Delta / float64(8*Levels(t.Top)+8) }

// margin is the relative reserve of δ that keeps claims true on platforms that round differently.
const margin = 2e-3

// The sizes of the steps of the search, in logarithms.
const (
	firstStep = 0.24
	nearStep  = 0.1  // First step if the search starts from a design that is close.
	lastStep  = 0.05 // Smaller steps change the number of messages by less than a hundredth.
	retryStep = 0.6  // Distance between the points that begin tries until one is private.
)

// start returns where the search starts: the optimum at ε = 1, δ = 10⁻⁶, Δ = 16, scaled with ln(1/δ) and with the
// part of ε that the central noise leaves. If no noise proves δ at that θ, it takes a larger θ: at least about
// c(θ)·e^{-θ·rest} is left of the bound (P2), even if the atoms have unlimited noise.
func start(delta, rest float64) (at point, x float64) {
	l := math.Log(1 / delta)
	theta := 0.75 * l / rest
	for logScale(theta)-theta*rest > -l-startRoom {
		theta *= 1.1
	}
	at = point{pairR: math.Log(1.5 * l), pairX: 0.5, r: math.Log(1.3 * l), theta: math.Log(theta)}
	return at, math.Log(0.35 * rest)
}

// startRoom is the least logarithm of what the start leaves of δ for the noise of atoms.
const startRoom = 0.5

// descent is the state of the search: the best design so far and its point.
type descent struct {
	target Target
	at     point
	x      float64
	best   Solved
	found  bool
}

// Solve returns the design of fewest messages that the bound (P2) proves private. ok is false if it found none.
func (t *Target) Solve() (best Solved, ok bool) {
	rest := t.Epsilon - t.Star*float64(t.Top)
	if t.Sparse {
		rest -= t.Star * float64(t.Top)
	}
	if !(rest > 0) {
		return best, false
	}
	s, step := descent{target: *t}, firstStep
	s.at, s.x = start(t.Delta, rest)
	if t.Near != nil {
		s.at, s.x, step = t.Near.at, t.Near.x, nearStep
	}
	s.target.coarse = t.Burst > 0
	s.begin()
	for ; s.found && step > lastStep; step /= 2 {
		s.sweep(step)
	}
	if s.found && s.target.coarse { // Solve the last point again, with full tables.
		s.best, s.best.x, s.found = t.at(s.at, s.x)
		s.best.at = s.at
	}
	return s.best, s.found
}

// try moves the search to a point if its design is private and has fewer messages.
func (s *descent) try(p point) bool {
	d, x, ok := s.target.at(p, s.x)
	if !ok || s.found && !(d.Messages() < s.best.Messages()) {
		return false
	}
	d.at, d.x = p, x
	s.best, s.found, s.at, s.x = d, true, p, x
	return true
}

// begin tries the first point. If the Gaussian limit is far, it also tries points with larger r and smaller θ, until
// one is private.
func (s *descent) begin() {
	for k := 0; k < 16 && !s.found; k++ {
		p := s.at
		p.theta -= retryStep * float64(k%4)
		p.r += retryStep * float64(k/4)
		p.pairR += retryStep * float64(k/4)
		s.try(p)
	}
}

// sweep moves the point along every coordinate as long as the number of messages decreases, at most four steps each.
func (s *descent) sweep(step float64) {
	coordinates := []func(*point) *float64{
		func(p *point) *float64 { return &p.theta },
		func(p *point) *float64 { return &p.r },
		func(p *point) *float64 { return &p.pairX },
		func(p *point) *float64 { return &p.pairR },
	}
	if s.target.Burst > 0 {
		coordinates = append(coordinates, func(p *point) *float64 { return &p.tilt })
	}
	for _, k := range coordinates {
		if !s.move(k, step) {
			s.move(k, -step)
		}
	}
}

// move takes steps along a coordinate and reports whether it took any.
func (s *descent) move(k func(*point) *float64, by float64) (moved bool) {
	for range 4 {
		p := s.at
		*k(&p) += by
		if !s.try(p) {
			return moved
		}
		moved = true
	}
	return moved
}

// Guess estimates the least number of slots per client for a solution with bursts of at most t.Burst, or more than
// most. It takes the noise at which the search begins, near t.Near.
func (t *Target) Guess(clients, limit float64, most int) int {
	d := t.design(t.Near.at, t.Near.x)
	groups := []Group{{1, 2 / clients, t.Star, 0}, {2, d.Pair.R / clients, d.Pair.S, d.Pair.Jump}}
	for l, count := range atomCounts(t.Top) {
		n := d.Levels[l]
		groups = append(groups, Group{3, float64(count) * n.R / clients, n.S, n.Jump})
	}
	b, ok := LeastSlots(groups, limit, most)
	if !ok {
		return most + 1
	}
	return b
}

// at returns the private design of largest x at a point. A larger x means fewer messages. The search begins at x.
func (t *Target) at(p point, x float64) (best Solved, bestX float64, ok bool) {
	if p.r < 0 || p.pairR < 0 {
		return best, x, false
	}
	miss, near := t.cut(), 0.02
	if t.coarse {
		near = 0.05
	}
	theta := math.Exp(p.theta)
	lo, hi := math.Inf(-1), math.Inf(1)
	for range 16 {
		d := t.design(p, x)
		if !t.coarse && d.tabulated() > maxTabulated {
			return best, bestX, ok
		}
		excess := min(math.Log(d.Bound(t.Epsilon, theta, miss)/(t.Delta*(1-margin))), 50)
		if math.IsNaN(excess) {
			excess = 50
		}
		if excess <= 0 {
			best, bestX, ok, lo = Solved{Design: *d, Theta: theta, Miss: miss}, x, true, x
		} else {
			hi = x
		}
		if excess <= 0 && excess > -near || hi-lo < 1e-3 {
			break
		}
		next := x - 0.25*excess - 0.001*math.Copysign(1, excess) // ln of the bound rises 3 to 10 times as fast as x
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

// maxTabulated is the largest sum of the means of the distributions that a client must tabulate to check a claim.
const maxTabulated = 1 << 24

func (d *Design) tabulated() (sum float64) {
	for _, n := range append([]Noise{d.Pair, d.Zero}, d.Levels...) {
		if n.Jump > 0 {
			sum += n.Mean()
		}
	}
	return sum
}

// design returns the design for a point of the search and ln x.
func (t *Target) design(p point, x float64) *Design {
	d := &Design{Top: t.Top, Sparse: t.Sparse, Star: t.Star, coarse: t.coarse}
	theta, r := math.Exp(p.theta), math.Exp(p.r)
	d.Pair = t.noise(theta, math.Exp(p.pairR), math.Exp(x+p.pairX), t.Top, t.Burst/2)
	for l := range Levels(t.Top) {
		d.Levels = append(d.Levels, t.noise(theta, r, math.Exp(x+p.tilt*float64(l)), 1<<l, t.Burst/3))
	}
	if t.Zero {
		d.Zero = t.noise(theta, r, math.Exp(x), 1, t.Burst)
	}
	return d
}

// noise returns the noise with r and s = x/reach. If the bound on jumps is too low for that, it returns a similar
// noise: with at least the same variance, and at least the variance for which the Gaussian limit of the moment (M1) is
// the same.
func (t *Target) noise(theta, r, x float64, reach, jump uint64) Noise {
	n := Noise{R: r, S: x / float64(reach), Jump: jump}
	if jump == 0 || float64(jump)*n.S > 12 {
		return n
	}
	scale := uint64(1) // A wide noise is practically continuous, so a smaller one stands for it.
	for reach/scale > 16 {
		scale *= 2
	}
	small := int64(reach / scale)
	l := newLaw(Noise{R: r, S: x / float64(small)}, small, t.cut())
	kappa := (l.moment(theta, small, false) + l.moment(theta, -small, true)) / 2
	want := max(r/(n.S*n.S), theta*(theta+1)*float64(reach)*float64(reach)/(2*kappa))
	n.S = 0
	if n.variance() < want {
		n.R *= want / n.variance()
		return n
	}
	lo, hi := 0.0, x/float64(reach)
	for range 30 {
		if n.S = (lo + hi) / 2; n.variance() < want {
			hi = n.S
		} else {
			lo = n.S
		}
	}
	n.S = lo
	return n
}

// variance returns the variance of the noise, r·Σ_{k ≤ jump} k·e^{-sk}, if jumps are bounded.
func (n Noise) variance() float64 {
	j := float64(n.Jump)
	if n.S*j < 1e-4 {
		return n.R * j * (j + 1) / 2
	}
	q := math.Exp(-n.S)
	tail := math.Exp(-n.S * j)
	return n.R * (q*(1-tail)/(1-q) - j*tail*q) / (1 - q)
}
