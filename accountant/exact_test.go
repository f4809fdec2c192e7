package accountant_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/testing/stattest"
)

// exactBrute returns δ(ε) of rule exact by enumerating every outcome: the set of other users whose messages come from
// the blanket, and the histogram of these messages and the target's.
func exactBrute(k int, gamma float64, n int, eps float64) float64 {
	p, q := map[int]float64{}, map[int]float64{}
	blanketLaw(k, gamma, n-1, func(counts []int, pr float64) {
		for y := range k {
			key := counts[k] << (4 * k)
			for c := range k {
				key += counts[c] << (4 * c)
			}
			key += 1 << (4 * y)
			p[key] += pr * respond(k, gamma, 0, y)
			q[key] += pr * respond(k, gamma, 1, y)
		}
	})
	return hockeyStick(p, q, eps)
}

func respond(k int, gamma float64, x, y int) float64 {
	pr := gamma / float64(k)
	if x == y {
		pr += 1 - gamma
	}
	return pr
}

func TestExactMatchesEnumeration(t *testing.T) {
	for _, k := range []int{2, 3} {
		for n := 1; n <= 5; n++ {
			for _, gamma := range []float64{.05, .4, .9} {
				for _, eps := range []float64{0, .1, .5, 1.5} {
					want := exactBrute(k, gamma, n, eps)
					got, err := accountant.KRRDelta(accountant.Exact, uint64(k), gamma, uint64(n), eps)
					require.NoError(t, err)
					require.InDelta(t, want, got, 1e-12, "k=%d n=%d γ=%g ε=%g", k, n, gamma, eps)
					require.GreaterOrEqual(t, got, want-1e-15)
				}
			}
		}
	}
}

func TestExactIsNotBelowTheShuffledMechanism(t *testing.T) {
	for _, k := range []int{2, 3} {
		for n := 1; n <= 5; n++ {
			for _, gamma := range []float64{.1, .4, .8} {
				for _, eps := range []float64{0, .2, .7, 1.5} {
					got, err := accountant.KRRDelta(accountant.Exact, uint64(k), gamma, uint64(n), eps)
					require.NoError(t, err)
					require.GreaterOrEqual(t, got, worstCase(k, gamma, n, eps)-1e-15)
				}
			}
		}
	}
}

// δ must be at least a value computed by hand for three users: inputs (0,0,0) against (0,0,1), outcome "all report 0".
// The variation-ratio pair, another bound in the literature, is below that value.
func TestExactHandCheck(t *testing.T) {
	got, err := accountant.KRRDelta(accountant.Exact, 3, .4, 3, 1.5)
	require.NoError(t, err)
	require.GreaterOrEqual(t, got, 0.0730)
}

func TestExactKnownValue(t *testing.T) {
	got, err := accountant.KRRDelta(accountant.Exact, 2, .25, 1000, .5)
	require.NoError(t, err)
	require.InEpsilon(t, 2.8e-9, got, .02)
	revealed, err := accountant.KRRDelta(accountant.Revealed, 2, .25, 1000, .5)
	require.NoError(t, err)
	require.InEpsilon(t, 1.6e-6, revealed, .05)
}

const precision = 200 // bits of the mantissa in the reference computation

func bigOf(x float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(x) }

// bigExp returns e^x by its Taylor series.
func bigExp(x float64) *big.Float {
	sum, term := bigOf(1), bigOf(1)
	for i := 1; i < 120; i++ {
		term.Mul(term, bigOf(x)).Quo(term, bigOf(float64(i)))
		sum.Add(sum, term)
	}
	return sum
}

// exactBig evaluates formula (1) of exactDelta, the expectation that gives δ, with 200-bit numbers. It sums over S =
// N₁+N₂, then N₁ (symmetric binomial), then M−S, and omits only counts of probability below 1e-60.
func exactBig(k uint64, gamma float64, n int, eps float64) float64 {
	g := bigOf(gamma)
	p := new(big.Float).Quo(g, bigOf(float64(k)))
	twoP := new(big.Float).Mul(p, bigOf(2))
	e := bigExp(eps)
	notG := new(big.Float).Sub(bigOf(1), g)
	c := new(big.Float).Quo(p, notG) // γ/((1−γ)K)
	kappa := new(big.Float).Sub(e, bigOf(1))
	kappa.Mul(kappa, c)
	q := new(big.Float).Quo(new(big.Float).Sub(g, twoP), new(big.Float).Sub(bigOf(1), twoP))
	total := bigOf(0)
	bigBinomial(n, twoP, func(s int, prS *big.Float) {
		tail := newBigTail(s, e)
		bigBinomial(n-s, q, func(r int, prR *big.Float) {
			x := new(big.Float).Mul(kappa, bigOf(float64(s+r)))
			v := tail.above(x)
			total.Add(total, v.Mul(v, prR).Mul(v, prS))
		})
	})
	total.Mul(total, notG).Quo(total, p).Quo(total, bigOf(float64(n)))
	value, _ := total.Float64()
	return value
}

// bigBinomial calls f with every x whose probability pr = Pr[Bin(n, p) = x] is at least 1e-60.
func bigBinomial(n int, p *big.Float, f func(x int, pr *big.Float)) {
	if p.Cmp(bigOf(1e-40)) < 0 {
		f(0, bigOf(1))
		return
	}
	q := new(big.Float).Sub(bigOf(1), p)
	pr := bigOf(1)
	for range n {
		pr.Mul(pr, q)
	}
	odds := new(big.Float).Quo(p, q)
	for x := 0; x <= n; x++ {
		if pr.Cmp(bigOf(1e-60)) >= 0 {
			f(x, pr)
		}
		pr.Mul(pr, odds).Mul(pr, bigOf(float64(n-x))).Quo(pr, bigOf(float64(x+1)))
	}
}

// bigTail holds Pr[N₁ ≥ a] and E[N₁; N₁ ≥ a] of N₁ ~ Bin(s, ½).
type bigTail struct {
	s           int
	e           *big.Float
	mass, first []*big.Float
}

func newBigTail(s int, e *big.Float) *bigTail {
	t := &bigTail{s: s, e: e, mass: make([]*big.Float, s+2), first: make([]*big.Float, s+2)}
	t.mass[s+1], t.first[s+1] = bigOf(0), bigOf(0)
	b := new(big.Float).SetMantExp(bigOf(1), -s)
	for a := s; a >= 0; a-- {
		t.mass[a] = new(big.Float).Add(t.mass[a+1], b)
		t.first[a] = new(big.Float).Add(t.first[a+1], new(big.Float).Mul(b, bigOf(float64(a))))
		b.Mul(b, bigOf(float64(a))).Quo(b, bigOf(float64(s-a+1)))
	}
	return t
}

// above returns E[(N₁ − e(s−N₁) − x)₊] = (1+e)·E[(N₁ − (e·s+x)/(1+e))₊].
func (t *bigTail) above(x *big.Float) *big.Float {
	slope := new(big.Float).Add(bigOf(1), t.e)
	cut := new(big.Float).Mul(t.e, bigOf(float64(t.s)))
	cut.Add(cut, x).Quo(cut, slope)
	c, _ := cut.Float64()
	a := int(math.Floor(c)) + 1
	if a > t.s {
		return bigOf(0)
	}
	v := new(big.Float).Mul(cut, t.mass[a])
	v.Sub(t.first[a], v)
	return v.Mul(v, slope)
}

func TestExactMatchesBigFloat(t *testing.T) {
	type point struct {
		k     uint64
		n     int
		gamma float64
	}
	points := []point{
		{2, 100, .1}, {2, 100, .8}, {2, 1000, .1}, {2, 1000, .6},
		{3, 100, .3}, {3, 100, .9}, {3, 300, .2}, {10, 100, .2}, {10, 300, .5}, {10, 1000, .1},
		{100, 1000, .2}, {2, 200, .02},
	}
	count, least := 0, 32
	if stattest.Long {
		points, least = append(points, point{2, 3000, .3}, point{2, 10000, .05},
			point{100, 3000, .05}, point{10, 3000, .03}, point{100, 10000, .02}, point{1000, 10000, .03}), 50
	}
	for _, pt := range points {
		eps0 := accountant.KRREpsilon0(pt.k, pt.gamma)
		for _, f := range []float64{.02, .1, .25, .5} {
			want := exactBig(pt.k, pt.gamma, pt.n, f*eps0)
			got, err := accountant.KRRDelta(accountant.Exact, pt.k, pt.gamma, uint64(pt.n), f*eps0)
			require.NoError(t, err)
			if want < 1e-250 {
				continue
			}
			tolerance := 1e-9
			if want < 1e-65 {
				tolerance = 1e-6
			} else {
				count++
			}
			require.InEpsilon(t, want, got, tolerance, "%+v f=%g", pt, f)
			require.GreaterOrEqual(t, got, want*(1-1e-13), "%+v f=%g", pt, f)
		}
	}
	require.GreaterOrEqual(t, count, least)
}

// exactLogSum evaluates formula (1) of exactDelta, the expectation that gives δ, as a plain double sum over (N₁, N₂)
// and M within 9 standard deviations. It takes probabilities from math.Lgamma.
func exactLogSum(k uint64, gamma float64, n int, eps float64) float64 {
	p, nf, e := gamma/float64(k), float64(n), math.Exp(eps)
	kappa := (e - 1) * p / (1 - gamma)
	q := (gamma - 2*p) / (1 - 2*p)
	total := 0.0
	eachWithin(nf, 2*p, func(s, prS float64) {
		mass, first := []float64{0}, []float64{0} // Pr[N₁ > s−i], E[N₁; N₁ > s−i]
		for a := s; a >= s/2-1 && a >= 0; a-- {
			b := math.Exp(logChoose(s, a) - s*math.Ln2)
			mass, first = append(mass, mass[len(mass)-1]+b), append(first, first[len(first)-1]+a*b)
		}
		eachWithin(nf-s, q, func(r, prR float64) {
			cut := (e*s + kappa*(s+r)) / (1 + e)
			if i := int(s - math.Floor(cut)); i > 0 && i < len(mass) {
				total += prS * prR * (1 + e) * (first[i] - cut*mass[i])
			}
		})
	})
	return total * (1 - gamma) / (p * nf)
}

func eachWithin(n, p float64, f func(x, pr float64)) {
	if p < 1e-15 {
		f(0, 1)
		return
	}
	d := 9 * math.Sqrt(n*p*(1-p))
	for x := math.Max(0, math.Floor(n*p-d)); x <= math.Min(n, n*p+d); x++ {
		f(x, math.Exp(logChoose(n, x)+x*math.Log(p)+(n-x)*math.Log1p(-p)))
	}
}

func logChoose(n, x float64) float64 {
	a, _ := math.Lgamma(n + 1)
	b, _ := math.Lgamma(x + 1)
	c, _ := math.Lgamma(n - x + 1)
	return a - b - c
}

func TestExactMatchesPlainLogSum(t *testing.T) {
	tests := []struct {
		k     uint64
		n     int
		gamma float64
		eps   float64
	}{
		{2, 100000, .05, .05}, {10, 100000, .02, .25}, {100, 100000, .1, .4},
		{100, 1000000, .02, .25}, {1000, 1000000, .05, .6},
		{1000000, 10000000, .5, .9}, // for most S, E[X₊ | S, R] is linear in R
	}
	for _, tt := range tests {
		want := exactLogSum(tt.k, tt.gamma, tt.n, tt.eps)
		got, err := accountant.KRRDelta(accountant.Exact, tt.k, tt.gamma, uint64(tt.n), tt.eps)
		require.NoError(t, err)
		require.InEpsilon(t, want, got, 1e-7, "%+v: want %g got %g", tt, want, got)
	}
}

// exactNextToOne is exactBig for many users and γ close to 1. It sums over S and over U, the number of users outside
// the blanket, both of which are small.
func exactNextToOne(k uint64, gamma float64, n int, eps float64) float64 {
	notG := new(big.Float).Sub(bigOf(1), bigOf(gamma))
	p := new(big.Float).Quo(bigOf(gamma), bigOf(float64(k)))
	twoP := new(big.Float).Mul(p, bigOf(2))
	e := bigExp(eps)
	kappa := new(big.Float).Sub(e, bigOf(1))
	kappa.Mul(kappa, p).Quo(kappa, notG)
	outside := new(big.Float).Quo(notG, new(big.Float).Sub(bigOf(1), twoP))
	total := bigOf(0)
	rareBinomial(n, twoP, func(s int, prS *big.Float) {
		tail := newBigTail(s, e)
		rareBinomial(n-s, outside, func(u int, prU *big.Float) {
			v := tail.above(new(big.Float).Mul(kappa, bigOf(float64(n-u))))
			total.Add(total, v.Mul(v, prU).Mul(v, prS))
		})
	})
	total.Mul(total, notG).Quo(total, p).Quo(total, bigOf(float64(n)))
	value, _ := total.Float64()
	return value
}

// rareBinomial is bigBinomial for a large n and a small mean.
func rareBinomial(n int, p *big.Float, f func(x int, pr *big.Float)) {
	q := new(big.Float).Sub(bigOf(1), p)
	pr, power := bigOf(1), new(big.Float).Set(q)
	for left := n; left > 0; left /= 2 {
		if left%2 == 1 {
			pr.Mul(pr, power)
		}
		power.Mul(power, power)
	}
	odds := new(big.Float).Quo(p, q)
	mean, _ := new(big.Float).Mul(p, bigOf(float64(n))).Float64()
	for x := 0; x <= n && (float64(x) < mean || pr.Cmp(bigOf(1e-60)) >= 0); x++ {
		f(x, pr)
		pr.Mul(pr, odds).Mul(pr, bigOf(float64(n-x))).Quo(pr, bigOf(float64(x+1)))
	}
}

// Rule exact must keep its precision if γ is close to 1. There 1−γ, the probability of the truth, is so small that
// differences such as 1−2p−ρ lose its digits. The probabilities of most U, the number of users outside the blanket,
// underflow. The test chooses ε such that κ·(n−u) = 1 lies between two U, so that δ is about Pr[U > u] and an error
// shows.
func TestExactNextToOne(t *testing.T) {
	count := 0
	for _, k := range []uint64{1e6, 1e9, 1 << 40} {
		for _, truth := range []float64{1e-4, 1e-6, 3e-8, 1e-9, 7e-11, 1e-12, 3e-14} {
			for _, n := range []int{3, 40, 1000} {
				for _, u := range []float64{0, 1, 2} {
					gamma, kappa := 1-truth, 1/(float64(n)-u-.6)
					eps := math.Log1p(kappa * (1 - gamma) * float64(k) / gamma)
					want := exactNextToOne(k, gamma, n, eps)
					if want < 1e-60 {
						continue
					}
					count++
					got, err := accountant.KRRDelta(accountant.Exact, k, gamma, uint64(n), eps)
					require.NoError(t, err)
					require.GreaterOrEqual(t, got, want, "K=%d 1−γ=%g n=%d u=%g: %g", k, truth, n, u, got/want-1)
					require.LessOrEqual(t, got, want*(1+1e-9), "K=%d 1−γ=%g n=%d u=%g: %g", k, truth, n, u, got/want-1)
				}
			}
		}
	}
	require.Greater(t, count, 100)
}

// Rule exact must also keep its precision near γ = 1 for many users, at an ε where E[X₊ | S, R] is linear in R.
func TestExactNextToOneForManyUsers(t *testing.T) {
	for _, pt := range []struct {
		k     uint64
		n     int
		truth float64 // 1−γ
	}{{1e6, 1e7, 1e-6}, {1e7, 1e8, 1e-8}, {1 << 40, 1e9, 1e-12}} {
		for _, share := range []float64{.1, 1.5} {
			gamma := 1 - pt.truth
			want := exactNextToOne(pt.k, gamma, pt.n, share*pt.truth)
			got, err := accountant.KRRDelta(accountant.Exact, pt.k, gamma, uint64(pt.n), share*pt.truth)
			require.NoError(t, err)
			require.GreaterOrEqual(t, got, want, "%+v: %g", pt, got/want-1)
			require.LessOrEqual(t, got, want*(1+1e-9), "%+v: %g", pt, got/want-1)
		}
	}
}
