package relaynoise

import (
	"math"
	"slices"

	"github.com/doona-dp/doona/accountant/compose"
)

// gauss is the bound on a tilted law whose tables and factors are discrete Gaussians (docs/proofs/relay-noise.md,
// Theorem 3). With δ_μ the curve of the Gaussian pair N(0, 1), N(μ, 1), one epoch and T epochs cost
//
//	δ(ε) ≤ κ + C·δ_μ(ε − s₀),   δ_T(ε) ≤ T·κ + C^T·δ_{μ√T}(ε − T·s₀)                                  (8)
type gauss struct {
	square float64 // μ²
	kappa  float64 // κ: bound on the probability of outcomes that are impossible for the other cell.
	log    float64 // ln C
	shift  float64 // s₀
}

// Constants of the proof. smooth is ω, which determines the width η of the lattice kernel. Laws with a larger relative
// deviation from a Gaussian than mostRough get the bound of Theorem 2 instead.
//
// leastMarginal bounds how far two differences of the proof may cancel: a cell's variance under the tilt relative to
// that before, and s₁² relative to s². Beyond it, rounding could make the bound too small.
const (
	smooth        = 1e-8
	mostRough     = 1e-3
	leastMarginal = 1e-3
)

// newGauss returns the bound (8), or nil if the law has no such form: a table is not symmetric and Gaussian, the
// centre is not the sum of the tables' centres, or the noise is too narrow.
func newGauss(t *tilt) *gauss {
	fit, ok := fitGauss(t)
	if !ok {
		return nil
	}
	cells := float64(len(t.weights))
	eta := math.Log(4.1*cells/smooth) / (2 * math.Pi * math.Pi) // η²
	s1 := fit.square                                            // s₁² = s² − η²·Σ w²g
	for j, w := range t.weights {
		variance := fit.variance(j)
		if !(variance > eta*(1+1e-9) && fit.marginal(j) > leastMarginal*variance) {
			return nil
		}
		s1 -= eta * float64(w) * float64(w) * variance / (variance - eta)
	}
	if !(s1 > leastMarginal*fit.square) {
		return nil
	}
	g := &gauss{shift: 2*smooth + 2*fit.worst, square: fit.distance(eta, s1) * (1 + 1e-9)}
	outside := 2 * fit.beyond(float64(len(t.factors)))
	for j := range t.weights {
		outside += 2 * fit.tail(j)
	}
	if !(outside < .5) {
		return nil
	}
	g.log = 2*smooth + 2*fit.total - math.Log1p(-outside)
	g.kappa = fit.ends() * math.Exp(g.log) * (1 + 1e-9)
	return g
}

// gaussFit holds the Gaussians next to a tilted law's tables and factors.
type gaussFit struct {
	*tilt
	variances []float64 // By table: σ².
	square    float64   // s², of the factors.
	spread    float64   // S0 = Σ w²σ², the variance of the weighted sum before the tilt.
	total     float64   // Sum of ζ over all cells and the factors.
	worst     float64   // ζ_a + ζ_b + ζ_Φ for the two cells with the largest ζ.
}

// fitGauss fits a Gaussian to each table and to the factors, through the peak and the end. ζ is the largest difference
// of the logarithms.
func fitGauss(t *tilt) (*gaussFit, bool) {
	fit, rough := &gaussFit{tilt: t}, make([]float64, len(t.laws))
	for i, logs := range t.logs {
		c := len(logs) / 2
		if len(logs) != 2*c+1 || c == 0 || !(logs[0] < logs[c]) {
			return nil, false
		}
		square := float64(c) * float64(c) / (2 * (logs[c] - logs[0]))
		for z, log := range logs {
			d := float64(z - c)
			rough[i] = max(rough[i], math.Abs(log-logs[c]+d*d/(2*square)))
		}
		fit.variances = append(fit.variances, square)
	}
	last := len(t.factors) - 1
	if last < 1 || !(t.factors[last] < 1) {
		return nil, false
	}
	fit.square = float64(last) * float64(last) / (-2 * math.Log(t.factors[last]))
	roughest := 0.0
	for d, factor := range t.factors {
		roughest = max(roughest, math.Abs(math.Log(factor)+float64(d)*float64(d)/(2*fit.square)))
	}
	first, second, centre := 0.0, 0.0, 0
	for j, i := range t.table {
		w := float64(t.weights[j])
		fit.spread += w * w * fit.variances[i]
		fit.total += rough[i]
		first, second = max(first, rough[i]), max(second, min(first, rough[i]))
		centre += t.weights[j] * (len(t.laws[i]) / 2)
	}
	const rounding = 1e-12 // Exceeds the rounding errors of the logarithms.
	fit.total = (fit.total+roughest)*(1+1e-9) + rounding*float64(len(t.table)+1)
	fit.worst = (first+second+roughest)*(1+1e-9) + 3*rounding
	return fit, centre == t.centre && fit.total < mostRough
}

// variance returns σ² of a cell before the tilt; marginal returns the variance under the tilt, rounded up.
func (f *gaussFit) variance(cell int) float64 { return f.variances[f.table[cell]] }

func (f *gaussFit) marginal(cell int) float64 {
	w, v := float64(f.weights[cell]), f.variance(cell)
	return (v - w*w*v*v/(f.square+f.spread)) * (1 + 1e-9)
}

// distance returns the largest μ² of two cells a ≠ b,
//
//	1/(σ_a²−η²) + 1/(σ_b²−η²) + (w_a·g_a − w_b·g_b)²/s₁²,   g = σ²/(σ²−η²)
func (f *gaussFit) distance(eta, s1 float64) (most float64) {
	inverse, pull := make([]float64, len(f.weights)), make([]float64, len(f.weights))
	for j, w := range f.weights {
		inverse[j] = 1 / (f.variance(j) - eta)
		pull[j] = float64(w) * f.variance(j) * inverse[j]
	}
	for a := range inverse {
		for b := range a {
			d := pull[a] - pull[b]
			most = max(most, inverse[a]+inverse[b]+d*d/s1)
		}
	}
	return most
}

// tail bounds the probability, before truncation, that a cell is above its table's end. By symmetry, it also bounds the
// probability that the cell is below 0.
func (f *gaussFit) tail(cell int) float64 {
	c := float64(len(f.law(cell)) / 2)
	return math.Exp(-(c + 1) * (c + 1) / (2 * f.marginal(cell)))
}

// beyond bounds the probability, before truncation, that the weighted sum is at least t above the centre.
func (f *gaussFit) beyond(t float64) float64 {
	if t <= 0 {
		return 1
	}
	return math.Exp(-t * t / 2 * (1/f.spread + 1/f.square))
}

// ends returns a bound over all a ≠ b, before truncation, on
//
//	Pr[Z_a = M_a] + Pr[Z_b = 0] + Pr[|W − c| > F − |w_a − w_b|]
//
// It adds the largest of each term.
func (f *gaussFit) ends() float64 {
	first, second := 0.0, 0.0
	for j := range f.weights {
		c, v := float64(len(f.law(j))/2), f.marginal(j)
		end := math.Exp(-c*c/(2*v)) / math.Sqrt(2*math.Pi*v)
		first, second = max(first, end), max(second, min(first, end))
	}
	farthest := slices.Max(f.weights) - slices.Min(f.weights)
	return first + second + 2*f.beyond(float64(len(f.factors)-farthest))
}

// delta returns (8) for a number of epochs, at most 1.
func (g *gauss) delta(epochs uint64, eps float64) float64 {
	if epochs == 0 { // A draft has none yet.
		return 0
	}
	times := float64(epochs)
	eps -= times * g.shift * (1 + 1e-12)
	square, d := g.square*times, 0.0
	if eps >= 0 {
		d, _ = compose.GaussianDelta(square, eps)
	} else { // By the other direction, δ(−ε) = 1 − e^−ε + e^−ε·δ(ε).
		d, _ = compose.GaussianDelta(square, -eps)
		d = (d*math.Exp(eps) - math.Expm1(eps)) * (1 + 1e-12)
	}
	return min(1, times*g.kappa*(1+1e-12)+math.Exp(times*g.log)*d*(1+1e-12))
}

// observation returns what a verifier sees in a number of epochs.
func (g *gauss) observation(epochs uint64) compose.Observation {
	curve := func(eps float64) float64 { return g.delta(epochs, eps) }
	return compose.Observation{Delta: compose.Chords(curve, 512, 1e-15), Count: 1}
}
