package correlated

import "math"

// noise is the distribution of one atom's total over n_min clients: compound Poisson with
// r·e^{-sk}/k expected jumps of size k, k ≤ jump (no bound if 0). Without the bound it is the
// negative binomial NB(r, e^{-s}). For r ≥ 1 it is log-concave: the sequence 1, r·q, r·q², …, 0, …
// is, and E. A. Bender and E. R. Canfield (J. Combin. Theory A 74, 1996, Theorem 1; also B. G. Hansen,
// Ann. Probab. 16, 1988) carry that over to the coefficients of exp(Σ r·q^k·z^k/k).
type noise struct {
	r, s float64
	jump uint64
}

// mean returns the expected noise r·Σ_{k ≤ jump} e^{-sk}.
func (n noise) mean() float64 {
	if n.jump == 0 {
		return n.r / math.Expm1(n.s)
	}
	if n.s == 0 {
		return n.r * float64(n.jump)
	}
	return n.r * -math.Expm1(-n.s*float64(n.jump)) / math.Expm1(n.s)
}

// nearlyFree says whether the bound on jumps is so high that noise without one stands for the noise.
func (n noise) nearlyFree() bool { return n.s*float64(n.jump) >= 40 }

// excess returns a bound of the statistical distance to the noise without a bound on jumps, where that
// stands for it: the expected number of jumps beyond, r·Σ_{k > jump} e^{-sk}/k.
func (n noise) excess() float64 {
	if n.jump == 0 || !n.nearlyFree() {
		return 0
	}
	j := float64(n.jump)
	return n.r * math.Exp(-n.s*j) / (j * math.Expm1(n.s))
}

// law gives the probabilities of a log-concave distribution on the integers from 0 and its moments
// over a set T of them. T leaves out a rare upper tail where its losses have no bound (with a bound
// on jumps), and, where cut says so, a lower one.
type law interface {
	// logP returns ln P(z), z ≥ 0.
	logP(z int64) float64
	// moment returns an upper bound, tight to a few thousandths, of
	//
	//	ln Σ_{z ∈ T} P(z)·(P(z)/P(z+d))^θ                                     (M1)
	//
	// where a d < 0 needs cut. It is convex in d for every θ ≥ 0 and T: ln P(z+d) is concave in d,
	// so every term is log-convex in d, and sums of log-convex sequences are log-convex.
	moment(theta float64, d int64, cut bool) float64
	// missed returns an upper bound of P outside T.
	missed(cut bool) float64
}

// newLaw returns the law of n for shifts up to reach. T leaves out at most a mass of miss on either
// side, or what a shift of -reach makes necessary.
//
// Where the bound on jumps hardly matters, it is that of the noise without: see [noise.excess].
func newLaw(n noise, reach int64, miss float64) law {
	if n.jump == 0 || n.nearlyFree() {
		return newNegativeBinomial(n, reach, miss)
	}
	return newTable(n, reach, miss)
}

// negativeBinomial is the law without a bound on jumps.
type negativeBinomial struct {
	noise
	constant float64 // -ln Γ(r) + r·ln(1-p)
	from     int64   // T is z ≥ from where it is cut, else all z.
	low, to  int64   // Blocks are summed for low ≤ z < to.
	blocks   []block
}

func newNegativeBinomial(n noise, reach int64, miss float64) *negativeBinomial {
	lg, _ := math.Lgamma(n.r)
	b := &negativeBinomial{noise: n, constant: n.r*math.Log(-math.Expm1(-n.s)) - lg}
	mode := int64((n.r - 1) / math.Expm1(n.s)) // Pr[z+1] < Pr[z] from z = (r-1)/(e^s-1) on; at most one off.
	quantile := func(mass float64) int64 {
		return search(0, mode, func(z int64) bool { return b.below(z+1) > mass })
	}
	b.from = max(quantile(miss), reach)
	b.low = min(quantile(edge), b.from)
	hi := mode + 2
	for b.above(hi) > edge {
		hi *= 2
	}
	b.to = max(hi, b.from+1)
	for z := b.low; z < b.to; {
		end := min(z+max(int64(blockWidth*float64(z)), 1), b.to)
		if z < b.from {
			end = min(end, b.from)
		}
		mid := z + (end-z)/2
		b.blocks = append(b.blocks, block{z, mid, end, b.logP(mid), gammas(float64(mid), b.r), b.slope(mid)})
		z = end
	}
	return b
}

// block is a range of z, with what is needed of its middle.
type block struct {
	first, mid, end     int64
	logP, gammas, slope float64
}

// edge is the mass of either tail that is bounded as a whole.
const edge = 1e-12

// search returns the least z in [lo, hi] for which f holds, f being monotone; hi if there is none
// below it. Where f is not monotone it is still some z.
func search(lo, hi int64, f func(int64) bool) int64 {
	for lo < hi {
		if mid := lo + (hi-lo)/2; f(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// gammas returns ln Γ(z+r) - ln Γ(z+1) for z ≥ 0: from z = 16 on by the difference of Stirling's
// series, without cancellation; what is left out is below 10⁻¹³.
func gammas(z, r float64) float64 {
	if z < 16 {
		hi, _ := math.Lgamma(z + r)
		lo, _ := math.Lgamma(z + 1)
		return hi - lo
	}
	a, b := z+1, z+r
	return (a-0.5)*math.Log1p((r-1)/a) + (r-1)*(math.Log(b)-1) + stirling(b) - stirling(a)
}

func stirling(x float64) float64 {
	v := 1 / (x * x)
	return (1.0/12 - (1.0/360-(1.0/1260-(1.0/1680-v/1188)*v)*v)*v) / x
}

func (b *negativeBinomial) logP(z int64) float64 {
	return gammas(float64(z), b.r) - b.s*float64(z) + b.constant
}

// slope returns ln P(z+1) - ln P(z).
func (b *negativeBinomial) slope(z int64) float64 {
	return math.Log1p((b.r-1)/float64(z+1)) - b.s
}

// below bounds P(< z), for z up to the mode, and above P(≥ z) beyond it: by log-concavity the
// terms fall at least as fast as a geometric series with the first ratio.
func (b *negativeBinomial) below(z int64) float64 {
	if z <= 0 {
		return 0
	}
	fall := 1.0
	if z >= 2 {
		fall = -math.Expm1(-b.slope(z - 2))
	}
	if !(fall > 0) {
		return 1
	}
	return math.Exp(b.logP(z-1)) / fall
}

func (b *negativeBinomial) above(z int64) float64 {
	fall := -math.Expm1(b.slope(z))
	if !(fall > 0) {
		return 1
	}
	return math.Exp(b.logP(z)) / fall
}

func (b *negativeBinomial) missed(cut bool) float64 {
	if !cut {
		return 0
	}
	return b.below(b.from)
}

// loss returns ln P(z)/P(z+d).
func (b *negativeBinomial) loss(z, d int64) float64 {
	return gammas(float64(z), b.r) - gammas(float64(z+d), b.r) + b.s*float64(d)
}

// blockWidth is the width of a block of (M1) over z. Within one, ln P lies below its tangent by
// (r-1)·(w/z)²/24 on average, 0.002 for r = 20.
const blockWidth = 0.05

// moment sums (M1) by blocks. In a block ln P is replaced by a line through its middle with a slope
// between the two differences there, which lies above it. The loss ln P(z)/P(z+d) has the derivative
// φ(z) - φ(z+d), φ(z) = ψ(z+r) - ψ(z+1) with the digamma function ψ, and φ is positive, falling and
// convex for r ≥ 1. So for d > 0 the loss rises up to d·s and is concave, and is replaced by a line
// through its middle too; for d < 0 it falls and is convex, and is replaced by its chord. What is left
// is a geometric series. The tails are bounded by their mass and largest loss.
func (b *negativeBinomial) moment(theta float64, d int64, cut bool) float64 {
	from, total := b.low, 0.0
	if cut {
		from = b.from
	} else {
		total = b.below(b.low) * math.Exp(theta*max(b.loss(b.low, d), 0))
	}
	total += b.above(b.to) * math.Exp(theta*max(b.s*float64(d), b.loss(b.to, d)))
	for _, k := range b.blocks {
		if k.first < from {
			continue
		}
		width := float64(k.end - k.first)
		var at, slope float64 // The line that stands for the loss: its value at mid and its slope.
		switch {
		case d >= 0 || width == 1:
			at = k.gammas - gammas(float64(k.mid+d), b.r) + b.s*float64(d)
			slope = k.slope - b.slope(k.mid+d)
		default:
			first, last := b.loss(k.first, d), b.loss(k.end-1, d)
			slope = (last - first) / (width - 1)
			at = first + slope*float64(k.mid-k.first)
		}
		rate := theta*slope + k.slope
		total += math.Exp(theta*at+k.logP+rate*float64(k.first-k.mid)) * geometric(rate, width)
	}
	return math.Log(total)
}

// geometric returns Σ_{0 ≤ l < w} e^{rate·l}.
func geometric(rate, w float64) float64 {
	if math.Abs(rate*w) < 1e-9 {
		return w * (1 + math.Abs(rate*w))
	}
	return math.Expm1(rate*w) / math.Expm1(rate)
}

// table is the law with a bound on jumps, from
//
//	z·P(z) = r·Σ_{1 ≤ k ≤ min(jump, z)} e^{-sk}·P(z-k),  P(0) = exp(-r·Σ_k e^{-sk}/k)       (M2)
//
// whose terms are all positive, so that every P(z) has a relative error of at most 8z·2⁻⁵³.
type table struct {
	noise
	log      []float64 // ln P(z)
	upTo     []float64 // P(< z)
	beyond   []float64 // P(z ≤ · < to)
	from, to int64
	miss     float64
}

// upperShare is how much rarer the upper tail is that T leaves out than the lower one.
const upperShare = 4

// maxTable bounds the support that is tabulated; calibration keeps below it, and a task with
// more is refused.
const maxTable = 1 << 22

func newTable(n noise, reach int64, miss float64) *table {
	t := &table{noise: n}
	t.fill(reach, miss)
	return t
}

// fill computes probabilities, in units of P(0) rescaled whenever they grow large, until what is
// left is below miss, and reach more.
func (t *table) fill(reach int64, miss float64) {
	if t.mean()+float64(reach) > maxTable {
		return
	}
	q := math.Exp(-t.s)
	logZero := 0.0
	for k, power := uint64(1), q; k <= t.jump; k, power = k+1, power*q {
		logZero -= t.r * power / float64(k)
	}
	scale := logZero // ln of the unit of w.
	w := window{q: q, max: int(t.jump)}
	value := 1.0
	t.log = append(t.log, scale)
	extra := int64(-1)
	for z := int64(1); z <= maxTable; z++ {
		value = t.r * w.push(value) / float64(z)
		if value > 1e200 {
			w.rescale(1e-200)
			value *= 1e-200
			scale += 200 * math.Ln10
		}
		lp := math.Log(value) + scale
		t.log = append(t.log, lp)
		if ratio := lp - t.log[z-1]; extra < 0 && z > reach && ratio < 0 && math.Exp(t.log[z-1])/-math.Expm1(ratio) <= miss/upperShare {
			extra = z - 1 // T ends before z-1; shifts reach up to reach further.
		}
		if extra >= 0 && z >= extra+reach {
			break
		}
	}
	if extra < 0 || int64(len(t.log)) <= extra+reach { // Does not fit: nothing is proven.
		t.log = nil
		return
	}
	t.to = extra
	t.upTo = make([]float64, t.to+1)
	for z := range t.to {
		t.upTo[z+1] = t.upTo[z] + math.Exp(t.log[z])
	}
	t.beyond = make([]float64, t.to+1)
	for z := t.to - 1; z >= 0; z-- {
		t.beyond[z] = t.beyond[z+1] + math.Exp(t.log[z])
	}
	t.from = max(reach, search(0, t.to-1, func(z int64) bool { return t.upTo[z+1] > miss }))
	t.to = max(t.to, t.from)
	t.miss = miss / upperShare
}

func (t *table) logP(z int64) float64 { return t.log[z] }

func (t *table) missed(cut bool) float64 {
	switch {
	case t.log == nil:
		return 1
	case cut:
		return t.upTo[t.from]*(1+1e-6) + t.miss
	}
	return t.miss
}

// tableBlocks is the number of blocks of T in which the loss is replaced by its maximum.
const tableBlocks = 1024

// moment sums (M1) by blocks; the loss is monotone in z, by log-concavity, and so is largest at an
// end of the block.
func (t *table) moment(theta float64, d int64, cut bool) float64 {
	if t.log == nil || t.from >= t.to {
		return math.Inf(1)
	}
	from, total := int64(0), 0.0
	if cut {
		from = t.from
	}
	width := max((t.to-from)/tableBlocks, 1)
	for z := from; z < t.to; z += width {
		end := min(z+width, t.to)
		loss := max(t.log[z]-t.log[z+d], t.log[end-1]-t.log[end-1+d])
		total += t.mass(z, end) * math.Exp(theta*loss)
	}
	return math.Log(total) + 1e-6
}

// mass returns P(z ≤ · < end), from the sums of the nearer tail: those of the other are close to 1,
// and their difference could be 0 for a block that a large θ weighs.
func (t *table) mass(z, end int64) float64 {
	if t.upTo[z] > 0.5 {
		return t.beyond[z] - t.beyond[end]
	}
	return t.upTo[end] - t.upTo[z]
}

// window is a queue of the last max values v₁, v₂, … (newest first) that yields Σ_k q^k·v_k with
// additions alone: the newest values are kept as one running sum, the older ones as sums of suffixes.
type window struct {
	q      float64
	max    int
	old    []float64 // old[j] = Σ of the j+1 newest of the older values, discounted within.
	fresh  []float64 // Newest values since the last turn, oldest first.
	recent float64   // Σ q^k over fresh.
	factor float64   // q^len(fresh)
}

// push adds the newest value and returns the sum over the last max values.
func (w *window) push(v float64) float64 {
	if w.max == 0 { // No bound: all values.
		w.recent = w.q * (w.recent + v)
		return w.recent
	}
	if len(w.fresh) == 0 {
		w.factor = 1
	}
	w.fresh = append(w.fresh, v)
	w.recent = w.q * (w.recent + v)
	w.factor *= w.q
	sum := w.recent
	if older := w.max - len(w.fresh); older > 0 && len(w.old) > 0 {
		sum += w.factor * w.old[min(older, len(w.old))-1]
	}
	if len(w.fresh) == w.max {
		w.turn()
	}
	return sum
}

// turn makes the fresh values the older ones.
func (w *window) turn() {
	w.old = w.old[:0]
	sum, power := 0.0, w.q
	for j := len(w.fresh) - 1; j >= 0; j-- {
		sum += power * w.fresh[j]
		power *= w.q
		w.old = append(w.old, sum)
	}
	w.fresh, w.recent = w.fresh[:0], 0
}

func (w *window) rescale(by float64) {
	for i := range w.old {
		w.old[i] *= by
	}
	for i := range w.fresh {
		w.fresh[i] *= by
	}
	w.recent *= by
}
