package figures

import (
	"math"

	"github.com/doona-dp/doona/accountant"
)

// notebook compares a number that the authors' notebook prints with this module's number, at n = 5000 and δ = 10⁻⁶. The
// number is ε₀ if solveEps0 is set, else ε.
func notebook(printed float64, b bound, solveEps0 bool) func(Data) (float64, float64) {
	return func(Data) (float64, float64) {
		if solveEps0 {
			return printed, b.eps0(.005, 5000, 1e-6)
		}
		return printed, b.epsilon(.4, 5000, 1e-6)
	}
}

func bbgn19Items() []Item {
	const p = "BBGN19"
	krr := func(k uint64, b accountant.Bound) bound { return bound{"", accountant.KRR, k, b} }
	laplace := func(b accountant.Bound) bound { return bound{"", accountant.Laplace, 0, b} }
	return []Item{
		{Paper: p, What: "Figure 1, the models; Figure 2, the blanket of Laplace noise", Status: OutOfScope,
			Note: "drawings; the blanket of Laplace noise is what the lines *exact, Laplace* are computed from"},
		{Paper: p, What: "Figure 3 (i): ε of EFMRTT'19 at ε₀ = 0.4, n = 5000", Status: Reproduced, exact: true,
			value: notebook(.2523130449483328, bound{"", accountant.Generic, 0, accountant.EFMRTT19}, false),
			Note:  "value of the authors' notebook; [picture](figures/bbgn19-3i.svg)"},
		{Paper: p, What: "Figure 3 (i): Hoeffding, any randomizer", Status: Corrected,
			value: notebook(.05746164784348143, bound{"", accountant.Generic, 0, accountant.Hoeffding}, false),
			Note: "the authors' code takes γ = e^−ε₀ in one place and γ = 1 in another; the supremum over one γ " +
				"is tighter"},
		{Paper: p, What: "Figure 3 (i): Bennett, any randomizer", Status: Corrected,
			value: notebook(.11301679081207759, bound{"", accountant.Generic, 0, accountant.Bennett}, false),
			Note:  "likewise: the larger γ in the second moment, the smaller outside"},
		{Paper: p, What: "Figure 3 (ii): Hoeffding, Laplace, ε at ε₀ = 0.4", Status: Reproduced, exact: true,
			value: notebook(.02423345457274603, laplace(accountant.Hoeffding), false),
			Note:  "[picture](figures/bbgn19-3ii.svg)"},
		{Paper: p, What: "Figure 3 (ii): Hoeffding, RR over 2 values", Status: Reproduced, exact: true,
			value: notebook(.02397882347116631, krr(2, accountant.Hoeffding), false), Note: ""},
		{Paper: p, What: "Figure 3 (ii): Hoeffding, RR over 100 values", Status: Reproduced, exact: true,
			value: notebook(.026881289729458715, krr(100, accountant.Hoeffding), false), Note: ""},
		{Paper: p, What: "Figure 3 (ii): Hoeffding, RR over 2 values, ε₀ at ε = 0.005", Status: Reproduced, exact: true,
			value: notebook(.09933108921716256, krr(2, accountant.Hoeffding), true), Note: ""},
		{Paper: p, What: "Figure 3 (iii): Bennett, Laplace, ε at ε₀ = 0.4", Status: Reproduced, exact: true,
			value: notebook(.022807535585468337, laplace(accountant.Bennett), false),
			Note:  "[picture](figures/bbgn19-3iii.svg); the code has Lemma 11 without the factor that is printed"},
		{Paper: p, What: "Figure 3 (iii): Bennett, RR over 2 values", Status: Reproduced, exact: true,
			value: notebook(.02428301504607527, krr(2, accountant.Bennett), false), Note: ""},
		{Paper: p, What: "Figure 3 (iii): Bennett, RR over 100 values", Status: Reproduced, exact: true,
			value: notebook(.0035207898339832183, krr(100, accountant.Bennett), false), Note: ""},
		{Paper: p, What: "Figure 3 (iv): k = n^⅓, δ = n⁻²", Status: Reproduced,
			Note: "[picture](figures/bbgn19-3iv.svg)"},
		{Paper: p, What: "Theorem 1: γ at n = 10⁶, k = 10, (0.5, 10⁻⁶)", Status: Reproduced,
			value: func(d Data) (float64, float64) {
				return 14 * 10 * math.Log(2e6) / (999_999 * .25), gammaOf(accountant.Exact, 10, 1e6, .5, 1e-6)
			},
			Note: "ours is the least γ (rule exact): the theorem is true and [loose](errata.md#theorem1)"},
		{Paper: p, What: "Theorem 2: mean squared error O(n^⅓)", Status: Reproduced,
			Note: "slopes of [bbgn19-theorem2](figures/bbgn19-theorem2.svg), whose root grows as n^⅙; the paper " +
				"has k for k+1 where γ is chosen"},
		{Paper: p, What: "Corollary 1: the same for means", Status: Reproduced, Note: "Theorem 2 divided by n"},
		{Paper: p, What: "Lemmas 1 to 5, Theorem 3: no single message does better than n^⅓", Status: OutOfScope,
			Note: "a lower bound for all protocols, without a constant to compute; our errors keep it"},
		{Paper: p, What: "Theorem 4 (EFMRTT'19)", Status: Reproduced, Note: "`doona amplify --bound efmrtt19`"},
		{Paper: p, What: "Theorem 5 (hockey-stick divergence)", Status: Reproduced,
			Note: "the measure of [accountant.md](accountant.md)"},
		{Paper: p, What: "Lemma 6: γ of RR, Laplace and Gaussian; Lemma 7: γ ≥ e^−ε₀", Status: Reproduced,
			Note: "tests of package accountant, by numerical integration"},
		{Paper: p, What: "Lemma 8: the bound by blankets", Status: Corrected,
			Note: "[1/γⁿ is a misprint](errata.md#lemma8)"},
		{Paper: p, What: "Lemmas 9, 12, 13: ranges and moments", Status: Reproduced,
			Note: "they give the lines of Figure 3 that agree above"},
		{Paper: p, What: "Lemma 10: Hoeffding", Status: Reproduced, Note: ""},
		{Paper: p, What: "Lemma 11: Bennett", Status: Corrected, Note: "[a factor 1/(am) too many](errata.md#lemma11)"},
		{Paper: p, What: "Theorem 6: closed form", Status: Reproduced, Note: "`doona amplify --bound theorem6`"},
		{Paper: p, What: "Corollary 2: ε = O((1∧ε₀)e^ε₀·√(ln(1/δ)/n))", Status: Reproduced,
			Note: "slopes of [bbgn19-3i](figures/bbgn19-3i.svg)"},
	}
}
