package compose

import (
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// maxSize is the largest number of grid points of a composition.
const maxSize = 1 << 22

// Composition is a number of independent releases of the same pair. Immutable.
type Composition struct {
	pair  *Pair
	times int
	size  int // length of the Fourier transforms: holds every sum of losses, so nothing wraps around
}

// Repeat returns the composition of independent releases dominated by pair. times is at least 1, and times·(grid
// points of the pair) at most 2^22: fewer steps allow more releases.
func Repeat(pair *Pair, times int) (*Composition, error) {
	if times < 1 || times > maxSize/len(pair.mass) {
		return nil, invalid.Field("releases", strconv.Itoa(times), "1 to "+strconv.Itoa(maxSize/len(pair.mass))+
			" with this grid")
	}
	size := 1
	for size < times*(len(pair.mass)-1)+1 {
		size *= 2
	}
	return &Composition{pair: pair, times: times, size: size}, nil
}

// Delta returns an upper bound on δ(ε) of the composition, at most 1. The convolution uses the law tilted by e^{θℓ},
// with θ such that the tilted sum has mean ε. So the transform's absolute error is small relative to the terms that
// matter. [accountant.Transform] bounds the norm of that error. Raising to the power times multiplies it by at most
// times, because all transforms are at most 1 in size. The result includes that error and the mass at infinity, 1 −
// (1−P(∞))^times. Rounding up stays below a relative 1e-6 down to δ = 1e-30, plus the mass at infinity.
func (c *Composition) Delta(eps float64) float64 {
	theta := c.tilt(eps)
	law, logM := c.convolve(theta)
	first := c.times * c.pair.first
	var sum, weight float64
	for i, m := range law {
		loss := float64(first+i) * c.pair.step
		if loss <= eps || m <= 0 || i > c.times*(len(c.pair.mass)-1) {
			continue
		}
		w := math.Exp(c.timesLog(logM)-theta*loss) * -math.Expm1(eps-loss)
		sum += w * m
		weight += w * w
	}
	noise := 16 * float64(c.times) * (math.Log2(float64(c.size)) + 4) * 0x1p-53 * math.Sqrt(weight)
	infinite := -math.Expm1(float64(c.times) * math.Log1p(-c.pair.infinity))
	delta := (sum*(1+1e-9) + noise + infinite) * (1 + 1e-12)
	if !(delta <= 1) { // also true for NaN, after an overflow
		return 1
	}
	return delta
}

func (c *Composition) timesLog(logM float64) float64 { return float64(c.times) * logM }

// tilt returns the θ ≥ 0 at which the tilted mean of one loss is eps/times, by bisection.
func (c *Composition) tilt(eps float64) float64 {
	target := eps / float64(c.times)
	high := 1 / c.pair.step
	if c.mean(0) >= target {
		return 0
	}
	low := 0.0
	for range 40 {
		if mid := (low + high) / 2; c.mean(mid) < target {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// mean returns the mean of one loss under the tilt e^{θℓ}.
func (c *Composition) mean(theta float64) float64 {
	var total, first float64
	top := float64(c.pair.first+len(c.pair.mass)-1) * c.pair.step
	for i, m := range c.pair.mass {
		loss := float64(c.pair.first+i) * c.pair.step
		w := m * math.Exp(theta*(loss-top))
		total, first = total+w, first+w*loss
	}
	return first / total
}

// convolve returns the tilted law of the sum, index 0 being times·first, and ln of the moment
// generating function of one loss at theta.
func (c *Composition) convolve(theta float64) (law []float64, logM float64) {
	x := make([]complex128, c.size)
	top := float64(c.pair.first+len(c.pair.mass)-1) * c.pair.step
	total := 0.0
	for i, m := range c.pair.mass {
		w := m * math.Exp(theta*(float64(c.pair.first+i)*c.pair.step-top))
		x[i] = complex(w, 0)
		total += w
	}
	for i := range x {
		x[i] /= complex(total, 0)
	}
	accountant.Transform(x)
	for i := range x {
		x[i] = power(x[i], uint64(c.times))
	}
	accountant.Transform(x)
	law = make([]float64, c.size)
	for i := range law {
		law[i] = real(x[(c.size-i)%c.size]) / float64(c.size)
	}
	return law, math.Log(total) + theta*top
}

// power returns zⁿ by squaring.
func power(z complex128, n uint64) complex128 {
	result := complex(1, 0)
	for ; n > 0; n /= 2 {
		if n%2 == 1 {
			result *= z
		}
		z *= z
	}
	return result
}

// Epsilon returns an ε ≥ 0 at which [Composition.Delta] is at most delta. It exceeds the smallest such ε by at most one
// part in 10⁶ of the largest loss. It is an error if the mass at infinity alone exceeds delta; in that case build the
// pair with a smaller tail.
func (c *Composition) Epsilon(delta float64) (float64, error) {
	low, high := 0.0, float64(c.times*(c.pair.first+len(c.pair.mass)-1))*c.pair.step
	if !(delta > 0 && delta < 1) || !(c.Delta(high) <= delta) {
		return 0, invalid.Field("delta", decimal.Format(delta, -1),
			"below 1 and above the mass beyond the grid, "+decimal.Format(c.Delta(high), 3))
	}
	if c.Delta(0) <= delta {
		return 0, nil
	}
	for high-low > 1e-6*high {
		if mid := (low + high) / 2; c.Delta(mid) <= delta {
			high = mid
		} else {
			low = mid
		}
	}
	return high, nil
}

// Basic returns the (ε, δ) of times releases of (eps, delta) each by basic composition:
// (times·ε, times·δ), rounded up.
func Basic(eps, delta float64, times int) (float64, float64) {
	t := float64(times)
	return t * eps * (1 + 1e-15), math.Min(1, t*delta*(1+1e-15))
}

// Advanced returns the (ε′, δ′) of times releases of (eps, delta) each by advanced composition
// [DR14] (Thm 3.20), slack > 0 being the δ spent on the theorem itself:
//
//	ε′ = ε·√(2T·ln(1/slack)) + T·ε·(e^ε−1),   δ′ = T·δ + slack
func Advanced(eps, delta, slack float64, times int) (float64, float64) {
	t := float64(times)
	total := eps*math.Sqrt(2*t*math.Log(1/slack)) + t*eps*math.Expm1(eps)
	return total * (1 + 1e-14), math.Min(1, (t*delta+slack)*(1+1e-15))
}
