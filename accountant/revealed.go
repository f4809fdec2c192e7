package accountant

import "math"

// revealedDelta returns δ(ε) of rule [Revealed], rounded up by at most a relative 1e-9.
//
// Reveal everyone's blanket bit. If the target's says "blanket", its report is independent of its input. Else, with
// probability 1−γ, it reports x. Let A and B count the other users' blanket messages in the cells x and x′. Given
// everything else, the two worlds' likelihood ratio at a histogram is the ratio of the counts in the two cells (the
// proof of [BBGN19], Theorem 1), so
//
//	δ(ε) = (1−γ)·E[(1 − e^ε·B/(A+1))₊],   (A, B) multinomial(n−1; p, p),   p = γ/K.
//
// Given C = A+B ~ Bin(n−1, 2p), A is Bin(C, ½), and with t = C − ⌈(C+1)/(1+e^ε)⌉
//
//	G(C) = E[(1 − e^ε·B/(A+1))₊ | C] = Σ_{a>t} Pr[A=a]·(1 − e^ε·(C−a)/(a+1)).
//
// G is non-increasing and needs no sum except at the largest C: adding one blanket message, with b(C, a) = Pr[Bin(C,
// ½) = a],
//
//	G(C) = G(C+1) + ½·b(C, t)·(e^ε·(C−t)/(t+1) − 1)           if t(C+1) = t(C) = t
//	G(C) = G(C+1) + ½·b(C, t+1)·(1 − e^ε·(C−t−1)/(t+2))       if t(C+1) = t(C)+1, t = t(C)
//
// By the choice of t both corrections are ≥ 0 (the identities hold for any t). So δ is a sum of positive terms. The sum
// starts at the largest C and goes downward; each term takes constant time. If many messages fall into the two cells,
// there is a faster way. (A+1, B) has the distribution of (N₁, N₂), the counts of all n users, size-biased by N₁. So
// δ(ε) = (1−γ)/(np)·E[(N₁ − e^ε·N₂)₊], which is the expectation of a walk as in exactDelta.
//
// Cut tails. Above the first C, Pr[C′ > C] ≤ e^-60 by Bernstein's inequality, and G above is at most its mean over
// smaller C, so the omitted part is below a relative e^-59. Below the last C the binomial probabilities fall at least
// geometrically; their sum is added, because G is at most 1. Rounding. Terms are positive and carry a relative error
// below 1e-11; the result is raised by a relative 2e-10.
func revealedDelta(k uint64, gamma float64, users uint64, eps float64) float64 {
	if gamma == 1 {
		return 0
	}
	return math.Min(1, (1-gamma)*twoCells(gamma/float64(k), users, eps))
}

// twoCells returns E[(1 − e^ε·B/(A+1))₊] (see revealedDelta), rounded up by at most a relative 1e-9. p is the
// probability that a user's message falls into one cell from the blanket.
func twoCells(p float64, users uint64, eps float64) float64 {
	e1 := math.Expm1(eps) * (1 - 4*ulp)
	if n := float64(users); n*p > 1.5e5 && e1 > 0 {
		w := walk{n: n, p: p, rest: 1 - 2*p, up: 1, down: 1 + e1, scale: 1 / (n * p)}
		value, _ := w.expectation()
		return value
	}
	return newPairSum(float64(users-1), 2*p, e1).sum() * (1 + 2e-10)
}

// pairSum computes Σ Pr[C]·G(C) over C ~ Bin(n, p); revealedDelta defines G.
type pairSum struct {
	n, p, q float64    // C ~ Bin(n, p), q = 1−p
	e1      splitFloat // e^ε − 1, rounded down
	r       float64    // 1/(1+e^ε)
	c, t    float64    // the current C and its t
	weight  float64    // Pr[C]
	half    float64    // b(C, t)
	inner   float64    // G(C)
}

// anchorEvery is the number of steps after which the running probabilities are recomputed. It bounds their relative
// error by 256·4·ulp plus the error of binomial.
const anchorEvery = 256

// underflow is the probability below which the next probability is computed anew instead of from this one, which may
// have lost digits to underflow.
const underflow = 1e-280

func newPairSum(n, p, e1 float64) *pairSum {
	s := &pairSum{n: n, p: p, q: 1 - p, e1: split(e1), r: 1 / (2 + e1), c: binomialTop(n, p)}
	s.t = s.threshold(s.c)
	s.inner = s.direct()
	s.anchor()
	return s
}

// binomialTop returns an x with Pr[Bin(n, p) > x] ≤ e^-60, by Bernstein's inequality:
// Pr[C ≥ np+d] ≤ exp(−d²/(2(npq+d/3))).
func binomialTop(n, p float64) float64 {
	const l = 60
	d := l/3.0 + math.Sqrt(l*l/9.0+2*l*n*p*(1-p))
	return math.Min(n, math.Ceil(n*p+d))
}

// splitFloat is a number as a sum of two, the first of at most 22 bits, so that its product
// with an integer below 2^31 is exact.
type splitFloat struct{ high, low float64 }

func split(x float64) splitFloat {
	high := float64(float32(x))
	high = math.Float64frombits(math.Float64bits(high) &^ (1<<31 - 1))
	return splitFloat{high, x - high}
}

// timesPlus returns e·x + y for integers x and y. If e·x and y nearly cancel, the result is rounded only once.
func (e splitFloat) timesPlus(x, y float64) float64 { return (e.high*x + y) + e.low*x }

// threshold returns t(C), at least −1.
func (s *pairSum) threshold(c float64) float64 { return c - math.Ceil((c+1)*s.r) }

// surplus returns a+1 − e^ε·(C−a), which is positive exactly for a > t(C).
func (s *pairSum) surplus(a float64) float64 {
	b := s.c - a
	return -s.e1.timesPlus(b, b-a-1)
}

func (s *pairSum) anchor() {
	s.weight = binomial(s.c, s.n, s.p, s.q)
	s.half = binomial(s.t, s.c, 0.5, 0.5)
}

// direct returns G(C) as the sum of its positive terms. From the mean on, b(C, a) falls at least geometrically. The
// sum stops when the remainder is below a relative 1e-18.
func (s *pairSum) direct() float64 {
	sum := 0.0
	b := binomial(s.t+1, s.c, 0.5, 0.5)
	for a := s.t + 1; a <= s.c; a++ {
		sum += b * math.Max(0, s.surplus(a)) / (a + 1)
		ratio := (s.c - a) / (a + 1)
		b *= ratio
		if ratio < 1 && b <= 1e-18*sum*(1-ratio) {
			break
		}
	}
	return sum
}

// sum adds up Pr[C]·G(C), C descending.
func (s *pairSum) sum() float64 {
	total := s.weight * s.inner
	for step := 1; s.c > 0; step++ {
		s.down()
		if step%anchorEvery == 0 || s.half < underflow || s.weight < underflow {
			s.anchor()
		}
		total += s.weight * s.inner
		if rest, ok := s.rest(); ok && rest <= 1e-13*total {
			return total + rest
		}
	}
	return total
}

// down moves from C to C−1, using b(C−1, a) = b(C, a)·2(C−a)/C and b(C−1, a−1) = b(C, a)·2a/C.
func (s *pairSum) down() {
	above, old := s.c, s.t
	s.c--
	s.weight *= above * s.q / ((s.n - s.c) * s.p)
	s.t = s.threshold(s.c)
	kept := s.half * 2 * (above - old) / above // b(C, old)
	if s.t == old {
		s.half = kept
		s.inner += 0.5 * kept * math.Max(0, -s.surplus(old)) / (old + 1)
		return
	}
	s.half *= 2 * old / above
	s.inner += 0.5 * kept * math.Max(0, s.surplus(old)) / (old + 1)
}

// rest bounds Pr[C′ < C] by the geometric sum of its first term. It returns false if C is above the mean, where the
// terms do not fall geometrically.
func (s *pairSum) rest() (float64, bool) {
	next := s.weight * s.c * s.q / ((s.n - s.c + 1) * s.p)
	ratio := (s.c - 1) * s.q / ((s.n - s.c + 2) * s.p)
	return next / (1 - ratio), ratio < 1
}
