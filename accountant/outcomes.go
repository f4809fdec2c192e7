package accountant

import "math"

// lawExponent sets the probability that [KRROutcomes] omits: about e^-lawExponent.
const lawExponent = 55

// lawWidth is the relative amount by which [KRROutcomes] rounds down the number of reports in two cells.
const lawWidth = 0.001

// KRROutcomes visits, in one pass, the outcomes of a pair (P, Q) that dominates one release of shuffled k-ary
// randomized response under rule [Exact] or [Revealed]. It visits the outcomes with P > Q, whose probabilities are p
// and q. The pair is symmetric: each outcome has a mirror image with p and q exchanged, and the remaining probability
// is the same under P as under Q. infinite is the omitted probability. If callers count it as an infinite loss, no
// divergence of the pair is below the rule's. docs/proofs/loss-laws.md has the proofs. M counts the reports from
// blankets, S those of them in the cells x and x′, and N those of S in x. The outcome (M, S, N) of rule exact has the
// probabilities
//
//	P = β·(A·2N/S + B),   Q = β·(A·2(S−N)/S + B),   β = Pr[Bin(S, ½) = N],   B/A = 2pM/((1−γ)S)       (1)
//
// p = γ/K, and A summed over M is (1−γ)·Pr[Bin(n−1, 2p) = S−1]. Under rule revealed B is 0. Two steps reduce the number
// of outcomes without lowering any divergence. First, S is rounded down in β and N/S: fewer reports hide less. Second,
// each B/A is split between the two ends of an interval, which keeps the sums of A and of B: divergences are convex.
// Errors are of type [invalid.FieldError]. The other rules are an error: they have no such pair.
func KRROutcomes(rule Rule, k uint64, gamma float64, users uint64, visit func(p, q float64)) (infinite float64,
	err error) {
	if err := checkKRR(rule, k, users); err != nil {
		return 0, err
	}
	if err := checkGamma(gamma); err != nil {
		return 0, err
	}
	if rule != Exact && rule != Revealed {
		return 0, checkPairRule(rule)
	}
	if gamma == 1 {
		return 0, nil
	}
	p := gamma / float64(k)
	o := &krrOutcomes{n: float64(users), p: p, gamma: gamma, revealed: rule == Revealed, visit: visit}
	o.exponent = lawExponent + math.Log(o.n)
	if rest := gamma - 2*p; rest > 0 {
		o.rest, o.miss = rest/(rest+1-gamma), (1-gamma)/(rest+1-gamma)
	}
	o.run()
	return o.infinite, nil
}

type krrOutcomes struct {
	n, p, gamma float64
	rest, miss  float64 // Probability that a report not in S is from a blanket, and 1 minus it.
	exponent    float64 // Tails of mass e^-exponent of M−S are cut.
	revealed    bool
	visit       func(p, q float64)
	infinite    float64

	ratios []float64 // Ends of the intervals of B/A, ascending.
	weight []float64 // A's mass at each end.
}

// run visits the outcomes of all groups of S. In each group S is rounded down to the group's smallest value.
func (o *krrOutcomes) run() {
	others := o.n - 1
	d := spread(others*2*o.p*(1-2*o.p), lawExponent)
	low := math.Max(1, math.Floor(others*2*o.p-d))
	high := math.Min(o.n, math.Ceil(others*2*o.p+d)+2)
	o.infinite = 12 * math.Exp(-lawExponent)
	weights := binomialWalk{x: low - 1, n: others, p: 2 * o.p, q: 1 - 2*o.p}
	for s := low; s <= high; {
		last := math.Min(high, math.Max(s, math.Floor(s*(1+lawWidth))))
		o.split(s, last)
		for at := s; at <= last; at++ {
			o.add(at, (1-o.gamma)*weights.next())
		}
		o.emit(s)
		s = last + 1
	}
}

// ratio returns B/A for S = s and rest blanket reports in cells other than x and x′.
func (o *krrOutcomes) ratio(s, rest float64) float64 {
	if o.revealed {
		return 0
	}
	return 2 * o.p / (1 - o.gamma) * (1 + rest/s)
}

// restRange returns the least and the greatest number of blanket reports in cells other than x and x′ that the sum
// over outcomes includes, for S = s blanket reports in x and x′. The tails beyond are bounded instead.
func (o *krrOutcomes) restRange(s float64) (low, high float64) {
	if o.revealed || o.rest == 0 {
		return 0, 0
	}
	left := o.n - s
	d := spread(left*o.rest*o.miss, o.exponent)
	return math.Max(0, math.Floor(left*o.rest-d)), math.Min(left, math.Ceil(left*o.rest+d))
}

// split sets the ends of B/A's intervals for a group of S from first to last. From one end to the next, no relevant
// loss changes by more than a fortieth. (B is part of the denominator of the loss.)
func (o *krrOutcomes) split(first, last float64) {
	least, _ := o.restRange(last)
	_, most := o.restRange(first)
	from, to := o.ratio(last, least), o.ratio(first, most)
	parts := 0
	if to > from {
		fewest := math.Max(0, first/2-6*math.Sqrt(first)) // Smallest relevant value of S−N.
		share := to / (2*fewest/first + to)
		parts = int(math.Min(256, math.Ceil(40*share*math.Log(to/from))))
	}
	o.ratios, o.weight = o.ratios[:0], o.weight[:0]
	for i := range parts + 1 {
		o.ratios = append(o.ratios, from+(to-from)*float64(i)/math.Max(1, float64(parts)))
		o.weight = append(o.weight, 0)
	}
}

// add splits the mass a of one S among the ends.
func (o *krrOutcomes) add(s, a float64) {
	switch len(o.ratios) {
	case 1:
		o.weight[0] += a
	case 2: // the split is linear in the number of reports in other cells, so its mean is enough
		o.share(a, o.ratio(s, (o.n-s)*o.rest))
	default:
		o.addParts(s, a)
	}
}

// addParts splits the mass a of one S among more than two ends. It replaces the values of B/A between two adjacent ends
// by their mean.
func (o *krrOutcomes) addParts(s, a float64) {
	low, high := o.restRange(s)
	walk := binomialWalk{x: low, n: o.n - s, p: o.rest, q: o.miss}
	part, r := 1, low
	for r <= high {
		for part < len(o.ratios)-1 && o.ratio(s, r) >= o.ratios[part] {
			part++
		}
		end := high
		if part < len(o.ratios)-1 {
			end = math.Min(high, math.Max(r, math.Ceil((o.ratios[part]/o.ratio(s, 0)-1)*s)-1))
		}
		sum, first := 0.0, 0.0
		for ; r <= end; r++ {
			pr := walk.next()
			sum, first = sum+pr, first+pr*r
		}
		if sum > 0 {
			o.share(a*sum, o.ratio(s, first/sum))
		}
	}
}

func (o *krrOutcomes) share(a, ratio float64) {
	last := len(o.ratios) - 1
	at := (ratio - o.ratios[0]) / (o.ratios[last] - o.ratios[0]) * float64(last)
	i := int(math.Min(math.Max(0, math.Floor(at)), float64(last-1)))
	part := math.Min(1, math.Max(0, at-float64(i)))
	o.weight[i] += a * (1 - part)
	o.weight[i+1] += a * part
}

// emit visits the outcomes of a group with more than half of s reports in the cell x.
func (o *krrOutcomes) emit(s float64) {
	all := 0.0 // upper bound on P/β
	for i, a := range o.weight {
		all += a * (2 + o.ratios[i])
	}
	first := math.Floor(s/2) + 1
	walk := binomialWalk{x: first, n: s, p: 0.5, q: 0.5}
	for x := first; x <= s; x++ {
		beta := walk.next()
		for i, a := range o.weight {
			if a > 0 {
				b := o.ratios[i]
				o.visit(beta*a*(2*x/s+b), beta*a*(2*(s-x)/s+b))
			}
		}
		if fall := (s - x) / (x + 1); fall < 1 && beta*fall <= 1e-26*(1-fall) {
			o.infinite += all * beta * fall / (1 - fall)
			return
		}
	}
}

// binomialWalk returns Pr[Bin(n, p) = x] for successive x, with q = 1−p.
type binomialWalk struct {
	x, n, p, q float64
	value      float64
	steps      int
}

// next returns the probability of x and advances to x+1.
func (w *binomialWalk) next() float64 {
	if w.steps%anchorEvery == 0 || w.value < underflow {
		w.value = binomial(w.x, w.n, w.p, w.q)
	} else {
		w.value *= (w.n - w.x + 1) * w.p / (w.x * w.q)
	}
	w.steps++
	w.x++
	return w.value
}
