package design

import "math"

// table is the law with a bound on jumps, from
//
//	z·P(z) = r·Σ_{1 ≤ k ≤ min(jump, z)} e^{-sk}·P(z-k),  P(0) = exp(-r·Σ_k e^{-sk}/k)       (M2)
//
// All terms are positive, so every P(z) has a relative error of at most 8z·2⁻⁵³.
type table struct {
	Noise
	log      []float64 // ln P(z)
	upTo     []float64 // P(< z)
	beyond   []float64 // P(z ≤ · < to)
	from, to int64
	miss     float64
}

// upperShare is the ratio of the lower tail's mass to the upper tail's, both outside T.
const upperShare = 4

// maxTable bounds the tabulated support. Calibration stays below it, and a task above it is refused.
const maxTable = 1 << 22

func newTable(n Noise, reach int64, miss float64) *table {
	t := &table{Noise: n}
	t.fill(reach, miss)
	return t
}

// fill computes probabilities, in units of P(0), rescaled whenever they grow large. It stops once the remaining
// probability is below miss, and reach values later.
func (t *table) fill(reach int64, miss float64) {
	if t.Mean()+float64(reach) > maxTable {
		return
	}
	q := math.Exp(-t.S)
	logZero := 0.0
	for k, power := uint64(1), q; k <= t.Jump; k, power = k+1, power*q {
		logZero -= t.R * power / float64(k)
	}
	scale := logZero // ln of the unit of w.
	w := window{q: q, max: int(t.Jump)}
	value := 1.0
	t.log = append(t.log, scale)
	extra := int64(-1)
	for z := int64(1); z <= maxTable; z++ {
		value = t.R * w.push(value) / float64(z)
		if value > 1e200 {
			w.rescale(1e-200)
			value *= 1e-200
			scale += 200 * math.Ln10
		}
		lp := math.Log(value) + scale
		t.log = append(t.log, lp)
		if ratio := lp - t.log[z-1]; extra < 0 && z > reach && ratio < 0 &&
			math.Exp(t.log[z-1])/-math.Expm1(ratio) <= miss/upperShare {
			extra = z - 1 // T ends before z-1; shifts reach up to reach further.
		}
		if extra >= 0 && z >= extra+reach {
			break
		}
	}
	if extra < 0 || int64(len(t.log)) <= extra+reach { // Does not fit: proves nothing.
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

// tableBlocks is the number of blocks of T in which the maximum of the loss replaces it.
const tableBlocks = 1024

// moment sums (M1) by blocks. The loss is monotone in z, by log-concavity, so it is largest at an end of the block.
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

// mass returns P(z ≤ · < end), from the sums of the nearer tail. The other tail's sums are close to 1; their
// difference could be 0 for a block to which a large θ gives weight.
func (t *table) mass(z, end int64) float64 {
	if t.upTo[z] > 0.5 {
		return t.beyond[z] - t.beyond[end]
	}
	return t.upTo[end] - t.upTo[z]
}

// window is a queue of the last max values v₁, v₂, … (newest first). It yields Σ_k q^k·v_k with additions only: the
// newest values are one running sum, the older ones are sums of suffixes.
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

// turn turns the fresh values into older ones.
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
