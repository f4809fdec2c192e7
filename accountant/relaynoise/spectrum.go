package relaynoise

import (
	"math"
	"math/bits"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
)

// spectrum computes expectations of the tilt's factors Φ under the cells' laws before the tilt. With w_j the weight of
// cell j, and X the weighted sum minus the centre,
//
//	E[Φ(X mod N)] = 1/N · Σ_m Φ̂(m)·∏_j φ_j(m),   φ_j(m) = E[e^{2πi·m·w_j·Z_j/N}],                    (5)
//
// (5) is at least E[Φ(X)], and exceeds it by at most Pr[|X| ≥ N − F], where F is the largest distance with a factor.
// Except at some hundred low frequencies m, the products of characteristic functions are far below rounding. The
// spectrum computes only the low frequencies and bounds the others:
//
//	|φ_j(m)|² ≤ |ψ(θ)|² + |ϑ − θ|·E|Z − Z′|,   ϑ = 2πmw_j/N, ψ(θ) = E[e^{iθZ}],                      (6)
//
// because |ψ(θ)|² = E[cos(θ(Z−Z′))], with Z′ an independent copy of Z. So ψ is computed at a few θ only. If (6) leaves
// many frequencies, the spectrum drops more of them by one more term of Taylor's series; E[(Z−Z′)²] is 2·Var Z:
//
//	|φ_j(m)|² ≤ |ψ(θ)|² + |ϑ − θ|·|(|ψ|²)′(θ)| + (ϑ − θ)²·Var Z,   (|ψ|²)′ = 2·Re(ψ̄·ψ′)              (6a)
type spectrum struct {
	*tilt
	size  int       // N, a power of two.
	cos   []float64 // cos(2πi/N)
	kept  []int     // The computed frequencies m, from 0 to N/2.
	hat   []float64 // Φ̂(m)/N at them; doubled if it also stands for −m.
	slack float64   // Bound on the contribution of all other frequencies to (5), plus rounding.
	least float64   // Lower bound on E[Φ(X)].
	empty []float64 // By cell: upper bound on the probability of no dummies under the tilted law.

	before, after [][]complex128 // By kept frequency: products of φ over the cells before j, and from j on.
}

const (
	maxSize     = 1 << 18 // Size of a spectrum that a client can check.
	maxProducts = 1 << 25 // Largest number of characteristic functions to compute.
	maxStored   = 1 << 22 // Largest number of products to store.
	leastLikely = 1e-4    // Lower limit of E[Φ(X)]: a relay redraws its dummies about 1/E[Φ(X)] times.
	maxBins     = 128
	fineBins    = 1 << 12 // Largest number of bins of (6a).
	// The number of characteristic functions from which (6a) saves time.
	manyProducts = 1 << 20
	leastPart    = 1e-13 // Frequencies with smaller products are only bounded.
	leastTail    = 1e-12 // Largest probability that X wraps around modulo N.
)

func newSpectrum(t *tilt) (*spectrum, error) {
	s := &spectrum{tilt: t}
	need := max(float64(len(t.factors))+t.reach()+1, float64(2*len(t.factors)))
	if !(need <= maxSize) {
		return nil, s.tooLarge()
	}
	for s.size = 4; float64(s.size) < need; s.size *= 2 {
	}
	s.cos = cosines(s.size)
	s.keep()
	numbers := 0
	for j := range t.weights {
		numbers += len(t.law(j))
	}
	if len(s.kept)*numbers > maxProducts || len(s.kept)*len(t.weights) > maxStored {
		return nil, s.tooLarge()
	}
	if len(s.kept)*numbers > manyProducts {
		s.dropMore()
	}
	s.transformFactors()
	s.products()
	sum := 0.0
	for _, factor := range t.factors {
		sum += 2 * factor * factor
	}
	s.slack = leastPart * math.Sqrt(sum)
	errs := 0.0 // Bound on the rounding error of each product of characteristic functions.
	for j := range t.weights {
		errs += max(4e-15, transformError(len(t.law(j))))
	}
	for _, part := range s.hat {
		s.slack += math.Abs(part) * errs
	}
	if s.least = s.expect(-1, 0) - s.slack - leastTail; !(s.least > leastLikely) {
		return nil, invalid.Field("noise.tilt", "with a centre that next to no draw meets",
			"one that draws meet with a probability above 1e-4")
	}
	for b := range s.weights {
		s.empty = append(s.empty, s.mass(b, 0))
	}
	return s, nil
}

// cosines returns cos(2πi/N) for all i below N, a multiple of 4.
func cosines(n int) []float64 {
	cos := make([]float64, n)
	for i := range n/4 + 1 {
		x := math.Cos(2 * math.Pi * float64(i) / float64(n))
		cos[i], cos[n/2-i], cos[n/2+i], cos[(n-i)%n] = x, -x, -x, x
	}
	cos[n/4], cos[3*n/4] = 0, 0
	return cos
}

func (s *spectrum) tooLarge() error {
	return invalid.Field("noise.tilt", "a sum of up to "+strconv.Itoa(s.size), "one that a client can check")
}

// reach returns a distance t with Pr[|X| ≥ t] ≤ leastTail. It takes the best of Chernoff's bounds at several rates.
func (t *tilt) reach() float64 {
	variance := 1.0
	for j, w := range t.weights {
		mean, square := 0.0, 0.0
		for z, p := range t.law(j) {
			mean, square = mean+p*float64(z), square+p*float64(z)*float64(z)
		}
		variance += float64(w) * float64(w) * (square - mean*mean)
	}
	best := math.Inf(1)
	for rate := 1.0; rate <= 9; rate++ {
		s := rate / math.Sqrt(variance)
		log := max(t.cumulant(s), t.cumulant(-s))
		best = min(best, (log-math.Log(leastTail/2))/s)
	}
	return best
}

// cumulant returns ln E[e^{sX}].
func (t *tilt) cumulant(s float64) float64 {
	log := -s * float64(t.centre)
	for j, w := range t.weights {
		turn, largest, sum := s*float64(w), math.Inf(-1), 0.0
		logs := t.logs[t.table[j]]
		if math.Abs(turn)*float64(len(logs)) < mostPower {
			log += math.Log(powers(t.law(j), math.Exp(turn)))
			continue
		}
		for z, log := range logs {
			largest = max(largest, turn*float64(z)+log)
		}
		for z, log := range logs {
			if part := turn*float64(z) + log - largest; part > -40 {
				sum += math.Exp(part)
			}
		}
		sum += 1e-17 * float64(len(logs)) // more than the omitted terms sum to
		log += math.Log(sum) + largest
	}
	return log
}

// mostPower bounds the logarithm of the powers in [powers], so that they neither overflow nor lose digits.
const mostPower = 600

// powers returns an upper bound on Σ law[z]·x^z. The power x^z has a relative error of at most (z+3)·2⁻⁵²; a sum of
// positive terms adds as much.
func powers(law []float64, x float64) (sum float64) {
	power := 1.0
	for _, p := range law {
		sum += p * power
		power *= x
	}
	return sum * (1 + float64(2*len(law)+8)*0x1p-52)
}

// keep sets kept to the frequencies at which the product over all cells but one may be above leastPart, for any omitted
// cell.
func (s *spectrum) keep() {
	bins := min(maxBins, s.size/4)
	bounds := make([][]float64, len(s.laws))
	for i, law := range s.laws {
		bounds[i] = s.envelope(law, bins)
	}
	largest := 1
	for _, w := range s.weights {
		largest = max(largest, w, -w)
	}
	step := 1 + s.size/2/bins/largest // So many frequencies turn no cell by more than one bin.
	for from := 0; from <= s.size/2; from += step {
		end := min(from+step, s.size/2+1)
		if s.small(from, end-1, bounds) {
			continue
		}
		for m := from; m < end; m++ {
			if !s.small(m, m, bounds) {
				s.kept = append(s.kept, m)
			}
		}
	}
}

// envelope divides the half circle of angles into bins and returns an upper bound on |φ|², the squared characteristic
// function of a law, for each bin: formula (6) of [spectrum].
func (s *spectrum) envelope(law []float64, bins int) []float64 {
	slope, below := 0.0, 0.0 // E|Z−Z′| = 2·Σ Pr[Z ≤ z]·Pr[Z > z]
	for _, p := range law {
		below += p
		slope += 2 * below * max(0, 1-below)
	}
	slack := (slope*(1+1e-12)+float64(len(law))*1e-12)*math.Pi/float64(2*bins) + 4*transformError(len(law))
	bounds := make([]float64, bins)
	for i := range bounds {
		phi := s.transform(law, (2*i+1)*(s.size/(4*bins)))
		bounds[i] = real(phi)*real(phi) + imag(phi)*imag(phi) + slack
	}
	return bounds
}

// dropMore drops kept frequencies whose product is below leastPart by (6a).
func (s *spectrum) dropMore() {
	most := 0.0 // The largest variance of a law.
	for _, law := range s.laws {
		most = max(most, newLaw(0, law).Variance())
	}
	// If every cell's square is at most this, the product of all cells but one is small enough.
	enough := math.Pow(leastPart, 2/float64(max(1, len(s.weights)-1)))
	bins := min(maxBins, s.size/4)
	for bins < min(fineBins, s.size/4) && most*math.Pow(math.Pi/float64(2*bins), 2) > enough/4 {
		bins *= 2
	}
	bounds := make([][]float64, len(s.laws))
	for i, law := range s.laws {
		bounds[i] = s.fineEnvelope(law, bins)
	}
	left := s.kept[:0]
	for _, m := range s.kept {
		if !s.small(m, m, bounds) {
			left = append(left, m)
		}
	}
	s.kept = left
}

// fineEnvelope is [spectrum.envelope] by (6a). It takes Z less its mean, which does not change |ψ|².
func (s *spectrum) fineEnvelope(law []float64, bins int) []float64 {
	mean, variance, moved := newLaw(0, law).Mean(), 0.0, make([]float64, len(law))
	for z, p := range law {
		d := float64(z) - mean
		moved[z] = d * p
		variance += d * d * p
	}
	half, deviation := math.Pi/float64(2*bins), math.Sqrt(variance)
	slack := half*half*variance*(1+1e-9) + 4*transformError(len(law))*(1+2*half*deviation)
	bounds := make([]float64, bins)
	for i := range bounds {
		at := (2*i + 1) * (s.size / (4 * bins))
		phi, change := s.transform(law, at), s.transform(moved, at) // ψ, and ψ′/i
		square := real(phi)*real(phi) + imag(phi)*imag(phi)
		slope := 2 * math.Abs(real(phi)*imag(change)-imag(phi)*real(change))
		bounds[i] = square + half*slope + slack
	}
	return bounds
}

// small reports whether the bounds of an envelope prove that the products at the frequencies first to last are below
// leastPart. Between them, no cell may turn by more than one bin: it is then in the bin of first or of last.
func (s *spectrum) small(first, last int, bounds [][]float64) bool {
	product, least, half := 1.0, 1.0, s.size/2
	shift := bits.Len(uint(half/len(bounds[0]))) - 1 // The half circle has a power of two of bins.
	for j := len(s.weights) - 1; j >= 0; j-- {
		bound, w := bounds[s.table[j]], s.weights[j]
		square := bound[s.bin(first*w, shift, len(bound))]
		if first < last {
			square = max(square, bound[s.bin(last*w, shift, len(bound))])
		}
		product, least = product*square, min(least, square)
		if product < least*leastPart*leastPart {
			return true
		}
	}
	return false
}

// bin returns the bin of an angle of 2π·at/N, folded to the half circle.
func (s *spectrum) bin(at, shift, bins int) int {
	at &= s.size - 1
	if at > s.size/2 {
		at = s.size - at
	}
	return min(at>>shift, bins-1)
}

// transformFactors sets hat, the transform of the tilt's factors, at the kept frequencies.
func (s *spectrum) transformFactors() {
	for _, m := range s.kept {
		sum := 2*real(s.transform(s.factors, m)) - s.factors[0]
		if m > 0 && m < s.size/2 {
			sum *= 2
		}
		s.hat = append(s.hat, sum/float64(s.size))
	}
}

// turn returns e^{2πi·at/N}.
func (s *spectrum) turn(at int) complex128 {
	return complex(s.cos[at&(s.size-1)], s.cos[(at-s.size/4)&(s.size-1)])
}

// transform returns Σ_z law[z]·e^{2πi·at·z/N}. It adds blocks of blockSize terms, with one table of turns for all
// blocks, and then the blocks.
func (s *spectrum) transform(law []float64, at int) (sum complex128) {
	var cos, sin [blockSize]float64
	for r := range cos {
		turn := s.turn(at * r)
		cos[r], sin[r] = real(turn), imag(turn)
	}
	z := 0
	for ; z+blockSize <= len(law); z += blockSize {
		block := (*[blockSize]float64)(law[z:])
		var re, im float64
		for r, p := range block {
			re += p * cos[r]
			im += p * sin[r]
		}
		sum += complex(re, im) * s.turn(at*z)
	}
	var re, im float64
	for r, p := range law[z:] {
		re += p * cos[r]
		im += p * sin[r]
	}
	return sum + complex(re, im)*s.turn(at*z)
}

const blockSize = 16

// transformError bounds the error of [spectrum.transform] for a law of some numbers that add up to 1, and of the step
// that multiplies it to a product. A term takes part in at most blockSize sums of its block and size/blockSize+1 sums
// of blocks. Two turns, three multiplications of complex numbers and the law's own rounding add less than 24 units.
func transformError(size int) float64 {
	return float64(blockSize+size/blockSize+24) * 0x1p-53 * math.Sqrt2
}

// products sets before and after, the products of characteristic functions over cells.
func (s *spectrum) products() {
	cells := len(s.weights)
	for _, m := range s.kept {
		phi := make([]complex128, cells)
		for j, w := range s.weights {
			phi[j] = s.transform(s.law(j), m*w)
		}
		before, after := make([]complex128, cells+1), make([]complex128, cells+1)
		before[0], after[cells] = s.turn(-m*s.centre), 1
		for j := range cells {
			before[j+1] = before[j] * phi[j]
			after[cells-1-j] = after[cells-j] * phi[cells-1-j]
		}
		s.before, s.after = append(s.before, before), append(s.after, after)
	}
}

// expect returns E[Φ(X)] by (5), without slack, given that the cell has z dummies. Cell −1 means no condition.
func (s *spectrum) expect(cell, z int) float64 {
	sum := 0.0
	for i, m := range s.kept {
		part := s.before[i][0] * s.after[i][0]
		if cell >= 0 {
			part = s.before[i][cell] * s.after[i][cell+1] * s.turn(m*s.weights[cell]*z)
		}
		sum += s.hat[i] * real(part)
	}
	return sum
}

// mass returns an upper bound on the probability, under the tilted law, that a cell has z dummies.
func (s *spectrum) mass(cell, z int) float64 {
	return s.law(cell)[z] * (s.expect(cell, z) + s.slack) / s.least
}

// beyond returns the bound on the probability that a message's change of the sum by d leaves the factors' range: the
// last term of (7) at [spectrum.ends].
func (s *spectrum) beyond(d int) float64 {
	if d < 0 {
		d = -d
	}
	switch {
	case d == 0 || s.farthest+d < len(s.factors):
		return 0
	case d > len(s.factors)-1:
		return 1
	}
	return s.factors[len(s.factors)-d] / s.least
}
