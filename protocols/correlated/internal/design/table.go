package design

import "math"

// table is the distribution of noise with a bound on jumps, computed by the recursion
//
//	z·P(z) = r·Σ_{1 ≤ k ≤ min(jump, z)} e^{-sk}·P(z-k),  P(0) = exp(-r·Σ_k e^{-sk}/k)       (M2)
//
// All terms are positive, so every P(z) has a relative error of at most 8z·2⁻⁵³. A wide distribution keeps only every
// width-th P(z), and the sums between. If ln P(z) is needed between kept ones, the chord is used, which is below it by
// log-concavity.
type table struct {
	Noise
	width  int64
	cells  []cell // Ranges of width values each, from 0 on.
	units  []unit // The units of the cells' numbers, ascending.
	blocks []tableBlock
	from   int64 // T is from ≤ z < to with cut, else z < to. Both are multiples of width.
	to     int64
	below  float64 // P(z < from).
	miss   float64 // Upper bound of P(z ≥ to).
	end    int64   // Number of values of z that cells cover.
}

// cell holds P(z) for the first z of a range, in the unit of this cell, and the range's probability, in the unit of the
// next cell. So a change of units within a range loses no digits of either.
type cell struct{ first, sum float64 }

// unit says that numbers from a cell on are multiples of e^log.
type unit struct {
	from int
	log  float64
}

// tableBlock is a range of z in which moment replaces the loss by its maximum.
type tableBlock struct {
	first, last       int64   // Ends at which the monotone loss is evaluated; last may be the next block's first.
	mass              float64 // ln of the block's probability.
	logFirst, logLast float64 // ln P(first), ln P(last).
}

const (
	upperShare  = 4       // T leaves out miss in the lower tail and miss/upperShare in the upper tail.
	maxTable    = 1 << 25 // Largest support. Calibration stays below it, and a task above it is refused.
	maxCells    = 1 << 16 // A distribution with a large mean gets about this many cells.
	tableBlocks = 1024
	rescaleAt   = 1e200
)

func newTable(n Noise, reach int64, miss float64) *table {
	t := &table{Noise: n, width: 1, miss: miss / upperShare}
	expected := t.Mean() + float64(reach)
	if expected > maxTable/2 {
		return t
	}
	for expected/float64(t.width) > maxCells/2 {
		t.width *= 2
	}
	if t.fill(reach, int(expected)) {
		t.divide(reach, miss)
	}
	return t
}

// fill computes the cells up to reach beyond the end of T, where the remaining probability is below miss. It returns
// false if they do not fit maxTable; then the table proves nothing. It allocates memory for about expected values at
// once, because in a page the memory of a slice that has grown is never free again.
func (t *table) fill(reach int64, expected int) bool {
	t.cells = make([]cell, 0, expected/int(t.width)*3/2+1024)
	q, log := math.Exp(-t.S), 0.0 // log is ln(P(z)/value).
	for k, power := uint64(1), q; k <= t.Jump; k, power = k+1, power*q {
		log -= t.R * power / float64(k)
	}
	t.units = append(t.units, unit{0, log})
	w := newWindow(q, int(t.Jump), 2*expected)
	value, rare := 1.0, math.Exp(-log)*t.miss
	for t.end = 0; t.to == 0 || t.end < t.to+reach+2*t.width; {
		first, sum := value, 0.0
		for range t.width {
			sum += value
			t.end++
			before := value
			value = w.push(value) * (t.R / float64(t.end))
			// By log-concavity the terms from t.end-1 on fall at least as fast as a geometric series.
			if t.to == 0 && t.end > reach && value < before && before <= rare*(1-value/before) {
				t.to = (max(t.end-1, reach+t.width) + t.width - 1) / t.width * t.width
			}
			if value > rescaleAt {
				w.rescale(1 / rescaleAt)
				value, sum = value/rescaleAt, sum/rescaleAt
				log += math.Log(rescaleAt)
				t.units = append(t.units, unit{len(t.cells) + 1, log})
				rare = math.Exp(-log) * t.miss
			}
		}
		t.cells = append(t.cells, cell{first, sum})
		if t.end > maxTable {
			return false
		}
	}
	return true
}

// divide divides the set T of values into blocks, for moment.
func (t *table) divide(reach int64, miss float64) {
	last, scale := math.Inf(1), 0.0 // scale is e^last.
	for t.from < t.to-t.width {
		at := int(t.from / t.width)
		if log := t.unitAt(at + 1); log != last {
			last, scale = log, math.Exp(log)
		}
		with := t.below + t.cells[at].sum*scale
		if scale < 0x1p-1000 {
			with = t.below + math.Exp(math.Log(t.cells[at].sum)+last)
		}
		if t.from >= reach && with > miss {
			break
		}
		t.below = with
		t.from += t.width
	}
	cells := max((t.to-t.from)/t.width/tableBlocks, 1)
	t.blocks = make([]tableBlock, 0, t.to/(cells*t.width)+2)
	for first := int64(0); first < t.to; {
		end := min(first+cells*t.width, t.to)
		if first < t.from {
			end = min(end, t.from)
		}
		last := end
		if t.width == 1 {
			last--
		}
		t.blocks = append(t.blocks, tableBlock{first, last, t.mass(first, end), t.logP(first), t.logP(last)})
		first = end
	}
}

// unitAt returns the logarithm of the unit from a cell on.
func (t *table) unitAt(cell int) float64 {
	k := len(t.units) - 1
	for t.units[k].from > cell {
		k--
	}
	return t.units[k].log
}

// mass returns ln P(first ≤ z < end).
func (t *table) mass(first, end int64) float64 {
	at := int(first / t.width)
	cells, sum := t.cells[at:end/t.width], 0.0
	last := t.unitAt(at + len(cells))
	if t.unitAt(at+1) == last {
		for _, c := range cells {
			sum += c.sum
		}
	} else {
		for i, c := range cells {
			sum += c.sum * math.Exp(t.unitAt(at+i+1)-last)
		}
	}
	return math.Log(sum) + last
}

// logP returns ln P(z) at multiples of the width, and otherwise the chord between the two nearest.
func (t *table) logP(z int64) float64 {
	at, rest := int(z/t.width), z%t.width
	first := math.Log(t.cells[at].first) + t.unitAt(at)
	if rest == 0 {
		return first
	}
	next := math.Log(t.cells[at+1].first) + t.unitAt(at+1)
	return first + (next-first)*float64(rest)/float64(t.width)
}

func (t *table) missed(cut bool) float64 {
	switch {
	case t.blocks == nil:
		return 1
	case cut:
		return t.below*(1+1e-6) + t.miss
	}
	return t.miss
}

// moment bounds the moment (M1) of law by a sum over blocks. By log-concavity the loss is monotone in z, so it is
// largest at an end of the block.
func (t *table) moment(theta float64, d int64, cut bool) float64 {
	total := 0.0
	for _, b := range t.blocks {
		if cut && b.first < t.from {
			continue
		}
		loss := max(b.logFirst-t.logP(b.first+d), b.logLast-t.logP(b.last+d))
		total += math.Exp(theta*loss + b.mass)
	}
	if total == 0 { // The table is empty and proves nothing.
		return math.Inf(1)
	}
	return math.Log(total) + 1e-6 + theta*float64(t.end)*0x1p-49 // rounding errors of two ln P in every loss
}

// window is a queue of the last max values v₁, v₂, … (newest first). It yields Σ_k q^k·v_k with additions only. The
// newest values are one running sum; the older ones are stored as sums.
type window struct {
	q      float64
	max    int
	old    []float64 // old[j] is the discounted sum of the j+1 newest of the older values.
	fresh  []float64 // Values since the last call of turn, oldest first.
	recent float64   // Discounted sum Σ q^k·v_k over fresh.
	factor float64   // q^len(fresh)
}

// newWindow returns an empty window, with memory for this many values.
func newWindow(q float64, max, values int) *window {
	room := min(max, values)
	return &window{q: q, max: max, old: make([]float64, 0, room), fresh: make([]float64, 0, room)}
}

// push adds the newest value and returns the sum over the last max values.
func (w *window) push(v float64) float64 {
	if w.max == 0 { // No bound: the sum is over all values.
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

// turn makes the fresh values the older ones, and drops the previous older ones.
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
