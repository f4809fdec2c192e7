package figures

import (
	"math"

	"github.com/doona-dp/doona/accountant/relaynoise"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/correlated"
	"github.com/doona-dp/doona/wire/task"
)

// gkmps21Figures returns the figures of [GKMPS21], which adds up numbers with correlated noise. They are at ε = 1 and
// δ = 10⁻⁶, because the paper does not state its values.
//
// [GKMPS21]: https://arxiv.org/abs/2109.13158
func gkmps21Figures() []Figure {
	return []Figure{
		{
			Name: "gkmps21-1a", Paper: "GKMPS21", What: "Figure 1 (a)",
			Title: "The error of a sum of numbers 0 to Δ", X: "largest value Δ",
			Y: "root mean square error for (1, 10⁻⁶)",
			Caption: "Users hold whole numbers from 0 to Δ. A curator who sees them adds discrete Laplace " +
				"noise. Split-and-mix (IKOS) has the same error without a curator. Correlated noise costs a " +
				"ninth more, as 0.9·ε goes to its central noise. Fragmented RAPPOR sends each bit of a one-hot " +
				"code with noise. Its usual flip probability is not enough; the other line has a proven one. " +
				"Noise by two relays costs √2 and a little more. Runs had 10,000 users.",
			Slow: true,
			Slopes: []Slope{{Series: "curator, and IKOS", From: 2, Theory: 1},
				{Series: "correlated noise", From: 2, Theory: 1},
				{Series: "correlated, measured", Theory: 1}, {Series: "RAPPOR, proven f", From: 4, Theory: 1.5},
				{Series: "RAPPOR, measured", From: 4, Theory: 1.5}},
			compute: gkmps21Errors,
		},
		{
			Name: "gkmps21-1b", Paper: "GKMPS21", What: "Figure 1 (b)",
			Title: "Bits per user, numbers 0 to 16", X: "users n", Y: "bits per user on average, for (1, 10⁻⁶)",
			Caption: "Bits that a user sends, without encryption. Correlated noise has three lines: the paper's " +
				"closed form (Theorem 2), our search for the least proven noise, and that with 0 as a message. " +
				"Padding none needs the last, also measured. Split-and-mix (IKOS) has the shares of three " +
				"bounds. RAPPOR has the proven flips. With noise by two relays, a user sends one message and " +
				"bears a share of the dummies. As n grows, all but IKOS tend to one message.",
			Slow: true,
			compute: func(quick bool) (*Table, error) {
				return gkmps21Bits("users", spread(1e3, 1e8, 11, quick), quick,
					func(x float64) (float64, uint64) { return x, 16 })
			},
		},
		{
			Name: "gkmps21-1c", Paper: "GKMPS21", What: "Figure 1 (c)",
			Title: "Bits per user, one million users", X: "largest value Δ",
			Y: "bits per user on average, for (1, 10⁻⁶)",
			Caption: "The same against Δ. The paper's program did not find good parameters for large Δ, which " +
				"bent its line upwards. A search by levels of the halving tree finds them. It saves a factor of " +
				"15 over the closed form at Δ = 16, and of 300 at 512. Correlated noise stays below " +
				"split-and-mix (IKOS) throughout. RAPPOR and noise by relays send still fewer bits, with larger " +
				"errors: see (a).",
			Slow: true,
			compute: func(quick bool) (*Table, error) {
				deltas := []float64{2, 4, 8, 16, 32, 64, 128, 256, 512}
				if quick {
					deltas = []float64{2, 16}
				}
				return gkmps21Bits("largest value", deltas, quick,
					func(x float64) (float64, uint64) { return 1e6, uint64(x) })
			},
		},
	}
}

// laplaceError returns the standard deviation of discrete Laplace noise: Pr[k] ~ α^|k| with α = e^{−s}.
func laplaceError(s float64) float64 { return math.Sqrt(2*math.Exp(-s)) / -math.Expm1(-s) }

// rapporError returns the root mean square error of fragmented RAPPOR for a sum of n values from 0 to top, with flip
// probability f. The error does not depend on the values.
func rapporError(n, f, top float64) float64 {
	return math.Sqrt(n*f*(1-f)*top*(top+1)*(2*top+1)/6) / (1 - 2*f)
}

// share is ε*/ε, the part of ε that the paper's experiments give to the central noise.
const share = 0.9

// sumQuery returns a query for the sum of n clients' values, which are whole numbers from 0 to top. param is the
// protocol's parameter that is set to top.
func sumQuery(protocol, param string, top uint64, n float64) planner.Query {
	return planner.Query{Query: task.Sum, Protocol: protocol, Hi: float64(top), Batch: uint64(n), Honest: 1,
		Epsilon: 1, Delta: 1e-6, Params: planner.Params{param: top}}
}

// relayNoise returns the total variance and the mean number of dummies of two relays' noise, for sums of values from 0
// to top. Both are NaN if top is over 256: the noise distribution is then too long for clients to check.
func relayNoise(top uint64) (variance, dummies float64, err error) {
	if top > 256 {
		return math.NaN(), math.NaN(), nil
	}
	noise, err := relaynoise.Levels(top, .8, relaynoise.Target{Epsilon: 1, Delta: 1e-6, Epochs: 1})
	if err != nil {
		return 0, 0, err
	}
	laws, err := relaynoise.NewLaws(noise)
	if err != nil {
		return 0, 0, err
	}
	return 2 * laws.Sum.Variance(), 2 * laws.Dummies(), nil
}

func gkmps21Errors(quick bool) (*Table, error) {
	t := newTable("largest value", "curator, and IKOS", "correlated noise", "correlated, measured", "RAPPOR, usual f",
		"RAPPOR, proven f", "RAPPOR, measured", "noise by two relays")
	const n = 1e4
	deltas := []uint64{1, 2, 4, 8, 16, 32, 64, 128, 256}
	if quick {
		deltas = []uint64{1, 4}
	}
	usual := rapporUsual(n, 1, 1e-6)
	for _, top := range deltas {
		task, rappor, err := draft(sumQuery("rappor", "k", top, n))
		if err != nil {
			return nil, err
		}
		f, _ := task.Param("f")
		variance, _, err := relayNoise(top)
		if err != nil {
			return nil, err
		}
		measured, noisy := math.NaN(), math.NaN()
		if top <= 64 {
			if measured, err = rootMeanSquare("rappor", rappor, n, quick); err != nil {
				return nil, err
			}
			_, m, err := draft(sumQuery("correlated", "max", top, n))
			if err != nil {
				return nil, err
			}
			if noisy, err = rootMeanSquare("correlated", m, n, quick); err != nil {
				return nil, err
			}
		}
		d := float64(top)
		t.add(d, laplaceError(1/d), laplaceError(share/d), noisy, rapporError(n, usual, d),
			rapporError(n, f.Float64(), d),
			measured, math.Sqrt(variance))
	}
	return t, nil
}

// rootMeanSquare measures the root mean square error of a sum if all n clients hold 1.
func rootMeanSquare(name string, m protocols.Mechanism, n int, quick bool) (float64, error) {
	square, err := meanSquare("gkmps21-1a "+name, m, same([]float64{1}, n), few(4000, 200, quick))
	return math.Sqrt(square), err
}

// closedFormMessages returns the mean number of noise messages of all users together, by the closed form in the proof
// of Theorem 2 (sums of whole numbers) of [GKMPS21].
func closedFormMessages(top, eps, delta float64) float64 {
	mean := func(r, s float64) float64 { return r / math.Expm1(s) } // of the negative binomial law NB(r, e^{−s})
	each, half := min(1, (1-share)*eps)/2, delta/2
	gamma := top * (math.Ceil(math.Log2(top)) + 1)
	r := 3 * (1 + math.Log((2*top-1)/half))
	sum := 2*mean(1, share*eps/top) + 2*mean(3*(1+math.Log(1/half)), .2*each/top) + 2*mean(r, .1*each/gamma)
	for v := 2.; v <= top; v++ {
		sum += 2 * 3 * mean(r, .1*each/math.Ceil(gamma/v))
	}
	return sum
}

// gkmps21Bits tabulates bits sent per user. For each x in values, at returns the number of users n and the largest
// value Δ.
func gkmps21Bits(x string, values []float64, quick bool, at func(x float64) (n float64, top uint64)) (*Table, error) {
	t := newTable(x, "correlated, closed form", "correlated, ours", "correlated, 0 is a message",
		"correlated, 0 sent, measured",
		"IKOS, BBGN19b section 5.1", "IKOS, BBGN CCS'20 and one", "IKOS, ours", "RAPPOR", "noise by two relays")
	for _, v := range values {
		n, top := at(v)
		d := float64(top)
		bits := math.Ceil(math.Log2(d))
		central := 2 / math.Expm1(share/d)
		zeroSum, _, _ := correlated.Search(top, 1, 1e-6, share)
		padded, counted, err := padded(n, top, quick)
		if err != nil {
			return nil, err
		}
		shares, err := ikosBits(n, top)
		if err != nil {
			return nil, err
		}
		task, _, err := draft(sumQuery("rappor", "k", top, n))
		if err != nil {
			return nil, err
		}
		f, _ := task.Param("f")
		_, dummies, err := relayNoise(top)
		if err != nil {
			return nil, err
		}
		t.add(v, (bits+1)*(1+closedFormMessages(d, 1, 1e-6)/n), (bits+1)*(1+(zeroSum+central)/n), (bits+1)*padded,
			(bits+1)*counted, shares[0], shares[1], shares[2], bits*(1+d*f.Float64()),
			math.Ceil(math.Log2(d+1))*(1+dummies/n))
	}
	return t, nil
}

// padded returns the messages per user of protocol correlated without padding, where the value 0 is sent as a message
// with its own noise. mean is computed, counted is measured in runs. Both are NaN if drafting the task takes too long.
func padded(n float64, top uint64, quick bool) (mean, counted float64, err error) {
	if n < 1e4 || n > 1e6 || top > 64 || quick && top > 4 {
		return math.NaN(), math.NaN(), nil
	}
	_, m, err := draft(sumQuery("correlated", "max", top, n))
	if err != nil {
		return 0, 0, err
	}
	zeroSum, central := m.(*correlated.Mechanism).Messages()
	draw, err := protocols.CapabilitiesOf(m).Fast(same([]float64{1}, int(n)))
	if err != nil {
		return 0, 0, err
	}
	src, sum := source("gkmps21 messages"), 0.
	repeats := few(200, 10, quick)
	for range repeats {
		_, messages := draw(src)
		sum += float64(messages())
	}
	return 1 + zeroSum + central, sum / float64(repeats) / n, nil
}

// ikosBits returns the bits per user of split-and-mix for three choices of the number of shares: by section 5.1 of
// BBGN19b, by the average-case bound of BBGN CCS'20 plus one, and ours.
func ikosBits(n float64, top uint64) (bits [3]float64, err error) {
	t, _, err := draft(sumQuery("splitmix", "p", top, n))
	if err != nil {
		return bits, err
	}
	m, _ := t.Param("m")
	modulus, _ := t.Param("q")
	size := math.Ceil(math.Log2(modulus.Float64()))
	sigma := math.Log2((1 + math.E) / 1e-6)
	return [3]float64{rootShares(n, size, sigma) * size, ccs20Shares(n, size, sigma) * size, m.Float64() * size}, nil
}

// lemmaShares returns the number of shares per user by Lemma 2.1 of [BBGN19b], for n users, a modulus of size bits and
// a statistical distance of 2^−sigma.
//
// [BBGN19b]: https://arxiv.org/abs/1906.09116
func lemmaShares(n, size, sigma float64) float64 {
	return 2 + 5*size + math.Ceil(2*sigma+2*math.Log2(n-1))
}

// rootShares returns the number of shares per user by section 5.1 of BBGN19b. It solves m = 1 + σ + 5·size/2 +
// log₂(π(m+½))/4 and rounds m + log₂(n−1) up. size is in bits.
func rootShares(n, size, sigma float64) float64 {
	m := sigma
	for range 50 {
		m = 1 + sigma + 2.5*size + math.Log2(math.Pi*(m+.5))/4
	}
	return math.Ceil(m + math.Log2(n-1))
}

// ccs20Shares returns the number of shares per user by BBGN CCS'20: the paper's average-case bound, plus one share for
// the worst case.
func ccs20Shares(n, size, sigma float64) float64 {
	return math.Ceil((2*sigma+size)/(math.Log2(n)-math.Log2E)+1) + 1
}

// twoBits returns the hockey-stick divergence (δ at eps) of fragmented RAPPOR with flip probability f, if one client
// changes its value from x to x′, both above 0. The n−1 other clients all hold x if allHoldX is set. Else they all hold
// a value other than x and x′.
func twoBits(eps, n, f float64, allHoldX bool) (delta float64) {
	reach := int(n*f + 14*math.Sqrt(n*f) + 40)
	with, without := make([]float64, reach+1), make([]float64, reach+1) // laws of a count with the client's bit 1, or 0
	for i := range with {
		here, below := binomial(int(n)-1, i, f), binomial(int(n)-1, i-1, f)
		with[i], without[i] = f*here+(1-f)*below, (1-f)*here+f*below
	}
	first, second := with, without
	if allHoldX { // others' bits are 1, so the laws count flips to 0: a client's 1 is one flip less
		first, second = without, with
	}
	for a := range with {
		for b := range with {
			delta += math.Max(0, first[a]*without[b]-math.Exp(eps)*second[a]*with[b])
		}
	}
	return delta
}

// rapporUsual returns the least flip probability for (eps, delta) by the usual calibration, which assumes that all
// other clients hold other values.
func rapporUsual(n, eps, delta float64) float64 {
	lo, hi := 1/n, 1e3/n
	for range 40 {
		if mid := math.Sqrt(lo * hi); twoBits(eps, n, mid, false) > delta {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}
