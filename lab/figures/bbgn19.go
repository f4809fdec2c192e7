package figures

import (
	"math"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// bbgn19Figures returns the figures of [BBGN19] (the privacy blanket). The axes of Figure 3 are those of the authors'
// notebook.
//
// [BBGN19]: https://arxiv.org/abs/1903.02837
func bbgn19Figures() []Figure {
	return []Figure{
		{
			Name: "bbgn19-3i", Paper: "BBGN19", What: "Figure 3 (i)",
			Title: "What shuffling makes of a local guarantee of 0.5", X: "users n", Y: "ε after shuffling, δ = 10⁻⁶",
			Caption: "Each of n users randomizes its value with a local guarantee of ε₀ = 0.5. All reports are " +
				"shuffled. The ε against an observer of the shuffled reports falls like 1/√n. Four bounds hold " +
				"for any randomizer: the earlier EFMRTT'19, the paper's Hoeffding and Bennett bounds, the " +
				"latter corrected, and the clones bound. Ours are exact losses: of randomized response over 2 " +
				"and 10 values and of Laplace noise. They show how loose the general bounds are.",
			Slopes: []Slope{{Series: "Hoeffding, generic", From: 3000, Theory: -.5},
				{Series: "exact, 10 values", From: 3000, Theory: -.5}},
			compute: bbgn19Panel1,
		},
		{
			Name: "bbgn19-3ii", Paper: "BBGN19", What: "Figure 3 (ii)",
			Title: "How weak the local guarantee may be for ε = 0.1", X: "users n", Y: "largest ε₀, δ = 10⁻⁶",
			Caption: "How large may ε₀ be so that n shuffled reports have ε = 0.1? The larger it is, the less " +
				"noise each user adds. As in the paper, Hoeffding's bound is for any randomizer, for randomized " +
				"response (RR) over 2 and 100 values and for Laplace noise. Ours are the exact losses of these " +
				"three. With 100 values the exact line is far above the bound. The paper places 100 values " +
				"last; that is an artefact of Hoeffding's inequality.",
			Slow:    true,
			compute: bbgn19Panel2,
		},
		{
			Name: "bbgn19-3iii", Paper: "BBGN19", What: "Figure 3 (iii)",
			Title: "Hoeffding's and Bennett's inequality, and no inequality", X: "users n",
			Y: "largest ε₀ for ε = 0.1, δ = 10⁻⁶",
			Caption: "As before, for the three randomizers: by Hoeffding's inequality, by Bennett's (Lemma 11, " +
				"corrected), and exactly. For RR over 2 values the exact line also uses that the other users' " +
				"noise is unknown (rule others).",
			Slow:    true,
			compute: bbgn19Panel3,
		},
		{
			Name: "bbgn19-3iv", Paper: "BBGN19", What: "Figure 3 (iv)",
			Title: "Randomized response over n^⅓ values", X: "users n", Y: "largest ε₀ for ε = 0.1, δ = n⁻²",
			Caption: "The number of values grows with the users, k = ⌊n^⅓⌋, as in the paper's protocol for sums " +
				"of real numbers. δ = n⁻² falls. For the line \"exact\" only the target's own coin stays " +
				"hidden. For \"revealed\" no coin does.",
			compute: bbgn19Panel4,
		},
		{
			Name: "bbgn19-theorem1", Paper: "BBGN19", What: "Theorem 1",
			Title: "How many reports must be random: Theorem 1 and the truth", X: "users n",
			Y: "γ, share of random reports, for (0.5, 10⁻⁶)",
			Caption: "Randomized response replaces a report by a random one with probability γ. The authors " +
				"call Theorem 1's γ ad hoc. It is compared with the smallest γ with the same guarantee, for 10 " +
				"values and for 2. Above γ = 1 Theorem 1 says nothing, so its line begins below that.",
			Slopes: []Slope{{Series: "Theorem 1, 10 values", From: 1e5, Theory: -1},
				{Series: "exact, 10 values", From: 1e5, Theory: -1},
				{Series: "others, 2 values", From: 1e5, Theory: -1}},
			compute: bbgn19Theorem1,
		},
		{
			Name: "bbgn19-theorem2", Paper: "BBGN19", What: "Theorems 2 and 3",
			Title: "The error of one message: a sum of n numbers in [0, 1]", X: "users n",
			Y: "root mean square error for (1, 10⁻⁶)",
			Caption: "Every user sends one message about a number in [0, 1]. The paper's protocol has the " +
				"parameters of Theorem 2: γ of Theorem 1, k = (n/c)^⅓. Ours chooses k and the exact γ together. " +
				"Errors are predicted for the worst values, and measured in runs. A curator sees all values. " +
				"One message costs n^⅙, and no single message avoids that (Theorem 3). Exact calibration saves " +
				"a constant factor.",
			Slopes: []Slope{{Series: "paper's parameters", From: 1e5, Theory: 1. / 6},
				{Series: "ours", From: 1e4, Theory: 1. / 6},
				{Series: "ours, measured", From: 1e4, Theory: 1. / 6}},
			compute: bbgn19Theorem2,
		},
	}
}

// bound is a series of a figure: a mechanism, and an amplification bound for it.
type bound struct {
	name      string
	mechanism accountant.Mechanism
	k         uint64
	bound     accountant.Bound
}

func names(bounds []bound) (out []string) {
	for _, b := range bounds {
		out = append(out, b.name)
	}
	return out
}

func (b bound) at(eps0 float64, users uint64) accountant.Amplification {
	return accountant.Amplification{Mechanism: b.mechanism, Bound: b.bound, Epsilon0: eps0, K: b.k, Users: users}
}

// epsilon returns the ε that the bound proves for a local ε₀ of eps0. It is NaN if that ε is not below ε₀.
func (b bound) epsilon(eps0 float64, users uint64, delta float64) float64 {
	_, raw, err := b.at(eps0, users).Epsilon(delta)
	if err != nil || raw > eps0 {
		return math.NaN()
	}
	return raw
}

// eps0 returns the largest ε₀ for which the bound proves (eps, delta). It is NaN if there is none.
func (b bound) eps0(eps float64, users uint64, delta float64) float64 {
	value, _, err := b.at(0, users).SolveEpsilon0(eps, delta)
	if err != nil {
		return math.NaN()
	}
	return value
}

func bbgn19Panel1(quick bool) (*Table, error) {
	lines := []bound{
		{"EFMRTT'19, generic", accountant.Generic, 0, accountant.EFMRTT19},
		{"Hoeffding, generic", accountant.Generic, 0, accountant.Hoeffding},
		{"Bennett, generic", accountant.Generic, 0, accountant.Bennett},
		{"clones, generic", accountant.Generic, 0, accountant.Clones},
		{"exact, Laplace", accountant.Laplace, 0, accountant.ExactBits},
		{"exact, 10 values", accountant.KRR, 10, accountant.ExactBits},
		{"others, 2 values", accountant.KRR, 2, accountant.OthersBits},
	}
	const eps0, delta = 0.5 - 1e-9, 1e-6 // the bound of EFMRTT'19 holds only for ε₀ < ½
	t := newTable("users", names(lines)...)
	for _, n := range spread(1e3, 1e6, 25, quick) {
		var row []float64
		for _, l := range lines {
			row = append(row, l.epsilon(eps0, uint64(n), delta))
		}
		t.add(n, row...)
	}
	return t, nil
}

// eps0Table tabulates the largest ε₀ that each bound allows, by the number of users.
func eps0Table(lines []bound, quick bool) (*Table, error) {
	t := newTable("users", names(lines)...)
	for _, n := range spread(100, 1e5, 25, quick) {
		var row []float64
		for _, l := range lines {
			row = append(row, l.eps0(0.1, uint64(n), 1e-6))
		}
		t.add(n, row...)
	}
	return t, nil
}

func bbgn19Panel2(quick bool) (*Table, error) {
	return eps0Table([]bound{
		{"EFMRTT'19, generic", accountant.Generic, 0, accountant.EFMRTT19},
		{"Hoeffding, generic", accountant.Generic, 0, accountant.Hoeffding},
		{"Hoeffding, RR-2", accountant.KRR, 2, accountant.Hoeffding},
		{"Hoeffding, RR-100", accountant.KRR, 100, accountant.Hoeffding},
		{"Hoeffding, Laplace", accountant.Laplace, 0, accountant.Hoeffding},
		{"others, RR-2", accountant.KRR, 2, accountant.OthersBits},
		{"exact, RR-100", accountant.KRR, 100, accountant.ExactBits},
		{"exact, Laplace", accountant.Laplace, 0, accountant.ExactBits},
	}, quick)
}

func bbgn19Panel3(quick bool) (*Table, error) {
	return eps0Table([]bound{
		{"Hoeffding, RR-2", accountant.KRR, 2, accountant.Hoeffding},
		{"Hoeffding, RR-100", accountant.KRR, 100, accountant.Hoeffding},
		{"Hoeffding, Laplace", accountant.Laplace, 0, accountant.Hoeffding},
		{"Bennett, RR-2", accountant.KRR, 2, accountant.Bennett},
		{"Bennett, RR-100", accountant.KRR, 100, accountant.Bennett},
		{"Bennett, Laplace", accountant.Laplace, 0, accountant.Bennett},
		{"others, RR-2", accountant.KRR, 2, accountant.OthersBits},
		{"exact, RR-100", accountant.KRR, 100, accountant.ExactBits},
		{"exact, Laplace", accountant.Laplace, 0, accountant.ExactBits},
	}, quick)
}

func bbgn19Panel4(quick bool) (*Table, error) {
	t := newTable("users", "Hoeffding", "Bennett", "revealed", "exact")
	for _, n := range spread(100, 1e5, 25, quick) {
		var row []float64
		for _, b := range []accountant.Bound{accountant.Hoeffding, accountant.Bennett, accountant.RevealedBits,
			accountant.ExactBits} {
			k := uint64(math.Cbrt(n) + 1e-9)
			row = append(row, bound{"", accountant.KRR, k, b}.eps0(0.1, uint64(n), 1/(n*n)))
		}
		t.add(n, row...)
	}
	return t, nil
}

// gammaOf returns the smallest γ of k-ary randomized response that a rule proves to be (eps, delta)-private. It is NaN
// if there is none.
func gammaOf(rule accountant.Rule, k uint64, users, eps, delta float64) float64 {
	num, den, err := accountant.KRRGamma(rule, k, uint64(users), eps, delta)
	if err != nil {
		return math.NaN()
	}
	return float64(num) / float64(den)
}

func bbgn19Theorem1(quick bool) (*Table, error) {
	lines := []struct {
		name string
		rule accountant.Rule
		k    uint64
	}{
		{"Theorem 1, 10 values", accountant.Theorem1, 10}, {"revealed, 10 values", accountant.Revealed, 10},
		{"exact, 10 values", accountant.Exact, 10}, {"Theorem 1, 2 values", accountant.Theorem1, 2},
		{"exact, 2 values", accountant.Exact, 2}, {"others, 2 values", accountant.Others, 2},
	}
	t := newTable("users")
	for _, l := range lines {
		t.Series = append(t.Series, l.name)
	}
	for _, n := range spread(1e3, 1e8, 26, quick) {
		var row []float64
		for _, l := range lines {
			row = append(row, gammaOf(l.rule, l.k, n, .5, 1e-6))
		}
		t.add(n, row...)
	}
	return t, nil
}

// bbgn19PaperError returns the bound on the root mean square error of a sum in the proof of the paper's Theorem 2. It
// takes c from Theorem 1 for k+1 values, with k = (n/c)^⅓. It is NaN if γ is 1 or more.
func bbgn19PaperError(n, eps, delta float64) float64 {
	c := max(14*math.Log(2/delta)/(eps*eps), 27/eps)
	k := max(math.Floor(math.Cbrt(n/c)), 1)
	gamma := c * (k + 1) / (n - 1)
	if gamma >= 1 {
		return math.NaN()
	}
	return math.Sqrt(n*((1-gamma)/(4*k*k)+gamma/2)) / (1 - gamma)
}

func bbgn19Theorem2(quick bool) (*Table, error) {
	const eps, delta = 1, 1e-6
	t := newTable("users", "paper's parameters", "ours", "ours, measured", "curator")
	for _, n := range spread(1e3, 1e7, 9, quick) {
		_, m, err := draft(planner.Query{Query: task.Sum, Protocol: "realsum", Rule: string(accountant.Exact), Hi: 1,
			Batch: uint64(n), Honest: 1, Epsilon: eps, Delta: delta})
		if err != nil {
			return nil, err
		}
		measured := math.NaN()
		if n <= 1e6 {
			square, err := meanSquare("bbgn19-theorem2", m, same(m.Worst().Value, int(n)), few(2000, 100, quick))
			if err != nil {
				return nil, err
			}
			measured = math.Sqrt(square)
		}
		t.add(n, bbgn19PaperError(n, eps, delta), predicted(m, uint64(n)), measured, math.Sqrt(2)/eps)
	}
	return t, nil
}
