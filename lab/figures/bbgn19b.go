package figures

import (
	"fmt"
	"math"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// bbgn19bFigures returns our figures about [BBGN19b] (split-and-mix summation). The paper has no figures.
//
// [BBGN19b]: https://arxiv.org/abs/1906.09116
func bbgn19bFigures() []Figure {
	return []Figure{
		{
			Name: "bbgn19b-shares", Paper: "BBGN19b", What: "Lemma 2.1 and section 5.1",
			Title: "How many shares a number is split into", X: "users n", Y: "messages per user, for (1, 10⁻⁶)",
			Caption: "Split-and-mix adds a little noise to each user's number and splits it into random shares. " +
				"They are sent apart and shuffled with everybody's. Four bounds give the number of shares: the " +
				"paper's Lemma 2.1, its section 5.1, the later CCS'20 paper (average case, and one more for the " +
				"worst), and ours. Ours counts the components of a random graph. All are for the same " +
				"statistical distance.",
			compute: bbgn19bShares,
		},
		{
			Name: "bbgn19b-error", Paper: "BBGN19b", What: "Theorem 4.1",
			Title: "The error of split-and-mix does not grow with the users", X: "users n",
			Y: "root mean square error for (1, 10⁻⁶)",
			Caption: "A sum of n numbers in [0, 1]. The paper rounds to p = √n levels, which adds as much error " +
				"as half the noise. Our p is so large that rounding adds 2 % to the variance. Errors are " +
				"predicted for the worst values, and measured in runs. For comparison, a curator adds discrete " +
				"Laplace noise.",
			LinearY: true,
			Slopes: []Slope{{Series: "paper, p = √n", Theory: 0}, {Series: "ours", Theory: 0},
				{Series: "ours, measured", Theory: 0}},
			compute: bbgn19bError,
		},
	}
}

func bbgn19bShares(quick bool) (*Table, error) {
	t := newTable("users", "BBGN19b, Lemma 2.1", "BBGN19b, section 5.1", "BBGN CCS'20 and one", "ours")
	sigma := math.Log2((1 + math.E) / 1e-6)
	for _, n := range spread(100, 1e8, 13, quick) {
		p := math.Ceil(math.Sqrt(n))
		size := math.Ceil(math.Log2(2 * n * p))
		ours, _, err := draft(planner.Query{Query: task.Sum, Protocol: "splitmix", Hi: 1, Batch: uint64(n), Honest: 1,
			Epsilon: 1, Delta: 1e-6, Params: planner.Params{"p": uint64(p)}})
		if err != nil {
			return nil, err
		}
		m, _ := ours.Param("m")
		t.add(n, lemmaShares(n, size, sigma), rootShares(n, size, sigma), ccs20Shares(n, size, sigma), m.Float64())
	}
	return t, nil
}

func bbgn19bError(quick bool) (*Table, error) {
	t := newTable("users", "paper, p = √n", "ours", "ours, measured", "curator")
	for _, n := range spread(1e3, 1e7, 9, quick) {
		_, m, err := draft(planner.Query{Query: task.Sum, Protocol: "splitmix", Hi: 1, Batch: uint64(n), Honest: 1,
			Epsilon: 1, Delta: 1e-6})
		if err != nil {
			return nil, err
		}
		measured := math.NaN()
		if n <= 1e6 {
			square, err := meanSquare("bbgn19b-error", m, same(m.Worst().Value, int(n)), few(4000, 200, quick))
			if err != nil {
				return nil, err
			}
			measured = math.Sqrt(square)
		}
		p := math.Sqrt(n)
		t.add(n, math.Hypot(laplaceError(1/p)/p, math.Sqrt(n)/(2*p)), predicted(m, uint64(n)), measured, math.Sqrt2)
	}
	return t, nil
}

func bbgn19bErrata() []Erratum {
	return []Erratum{
		{
			Name: "shares-delta", Where: "BBGN19b, after Theorem 4.1",
			Claim: "k = 2 + 5⌈log q⌉ + 2⌈log(1/δ) + log(n−1)⌉ shares give (ε, δ)-DP.",
			Truth: "They give a statistical distance of δ. By the paper's Lemma 1.2 that is (ε, (1+e^ε)δ)-DP. σ " +
				"must be log₂((1+e^ε)/δ).",
			show: showSharesDelta,
		},
		{
			Name: "error-units", Where: "BBGN19b, after Theorem 4.1",
			Claim: "the mean squared error is 2α/(1−α)² + n/(4p²).",
			Truth: "The first term is in units of 1/p and must be divided by p². As printed it grows with n, " +
				"against the theorem's O(1).",
			show: showErrorUnits,
		},
		{
			Name: "loose-shares", Where: "BBGN19b, Lemma 2.1",
			Claim: "k = 2 + 5⌈log q⌉ + ⌈2σ + 2·log(n−1)⌉ shares make the shares of n users hide all but their sum.",
			Truth: "The lemma is true and loose. The number of components of a random graph bounds the " +
				"distance, and a twentieth to a fortieth of the shares is enough ([proof](proofs/splitmix.md)). " +
				"Its growth with n is an artefact, as its Remark 5.1 suspects: more users need fewer shares.",
			show: showLooseShares,
		},
	}
}

func showSharesDelta() (string, bool) {
	const n, eps, delta = 1e4, 1., 1e-6
	size := math.Ceil(math.Log2(2 * n * 100))
	printed := 2 + 5*size + 2*math.Ceil(math.Log2(1/delta)+math.Log2(n-1))
	needed := lemmaShares(n, size, math.Log2((1+math.Exp(eps))/delta))
	sigma := math.Floor(printed-2-5*size)/2 - math.Log2(n-1)
	derived := (1 + math.Exp(eps)) * math.Exp2(-sigma)
	return fmt.Sprintf("At n = 10⁴, (1, 10⁻⁶) and q of %.0f bits, %.0f shares are printed. Lemmas 2.1 and 1.2 "+
		"give δ = %.2g for these. They need %.0f.",
		size, printed, derived, needed), derived > delta && needed > printed
}

func showErrorUnits() (string, bool) {
	printed := func(n float64) float64 { s := laplaceError(1 / math.Sqrt(n)); return s*s + .25 }
	divided := func(n float64) float64 { s := laplaceError(1/math.Sqrt(n)) / math.Sqrt(n); return s*s + .25 }
	return fmt.Sprintf("At ε = 1 and p = √n, the printed error is %.3g at n = 100 and %.3g at 10⁶. Divided by "+
		"p² it is %.3f and %.3f.",
		printed(100), printed(1e6), divided(100), divided(1e6)), printed(1e6) > 1e5 && math.Abs(divided(1e6)-2.25) < .01
}

func showLooseShares() (string, bool) {
	shares := func(n uint64) float64 {
		t, _, err := draft(planner.Query{Query: task.Sum, Protocol: "splitmix", Hi: 1, Batch: n, Honest: 1, Epsilon: 1,
			Delta: 1e-6, Params: planner.Params{"p": 1000}})
		if err != nil {
			return math.NaN()
		}
		m, _ := t.Param("m")
		return m.Float64()
	}
	sigma := math.Log2((1 + math.E) / 1e-6)
	few, many := shares(1000), shares(1e6)
	lemmaFew, lemmaMany := lemmaShares(1000, 21, sigma), lemmaShares(1e6, 31, sigma)
	return fmt.Sprintf("Take 1,000 levels and (1, 10⁻⁶). At n = 1,000 the lemma has %.0f shares and the graph "+
		"%.0f. At n = 10⁶ they have %.0f and %.0f.",
		lemmaFew, few, lemmaMany, many), few < lemmaFew/10 && many < few && lemmaMany > lemmaFew
}

func bbgn19bItems() []Item {
	const p = "BBGN19b"
	return []Item{
		{Paper: p, What: "Lemma 1.1: rounding adds at most n/(4p²)", Status: Reproduced,
			Note: "the predicted error of every protocol that rounds, measured in [simulations.md](simulations.md)"},
		{Paper: p, What: "Lemma 1.2: δ + (1+e^ε)·μ", Status: Reproduced, Note: "how protocol splitmix derives δ"},
		{Paper: p, What: "Lemma 2.1: number of shares at n = 10⁶, p = 1000, (1, 10⁻⁶)", Status: Reproduced,
			value: printed(lemmaShares(1e6, 31, math.Log2((1+math.E)/1e-6)),
				func(d Data) float64 { return d["bbgn19b-shares"].At("ours", 1e6) }),
			Note: "ours is the least that is proven; the lemma is true and [loose](errata.md#loose-shares)"},
		{Paper: p, What: "Section 5.1: the improved number of shares", Status: Reproduced, exact: true,
			value: func(d Data) (float64, float64) {
				size := math.Ceil(math.Log2(2e9))
				return 2.5*size + math.Log2((1+math.E)/1e-6) + math.Log2(size*2.5)/4 + math.Log2(1e6),
					d["bbgn19b-shares"].At("BBGN19b, section 5.1", 1e6)
			}, Note: "the paper's asymptotic form against the root that it approximates, n = 10⁶"},
		{Paper: p, What: "Section 3: Pólya noise adds up to discrete Laplace", Status: Reproduced,
			Note: "sampler tests of package randomizer; measured below"},
		{Paper: p, What: "Lemma 4.1, Theorem 4.1: error O(1); mean squared error at p = √n, ε = 1, n = 10⁶",
			Status: Corrected,
			value: func(d Data) (float64, float64) {
				x := d["bbgn19b-error"].At("paper, p = √n", 1e6)
				return 2.25, x * x
			}, exact: true, Note: "2 + ¼, [with the first term divided by p²](errata.md#error-units); [δ is " +
				"(1+e^ε) times larger](errata.md#shares-delta)"},
		{Paper: p, What: "Lemmas 5.1 to 5.4: the leftover hash lemma, two parties", Status: OutOfScope,
			Note: "steps of a proof that ours replaces; rules paper and section5.1 of protocol splitmix use " +
				"their result"},
		{Paper: p, What: "Remark 5.1: is log(n−1) needed?", Status: Corrected, Note: "[no](errata.md#loose-shares)"},
		{Paper: p, What: "Algorithms 1, 2", Status: Reproduced, Note: "protocol splitmix, measured below 10⁶ users"},
	}
}
