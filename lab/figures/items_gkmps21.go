package figures

func gkmps21Items() []Item {
	const p = "GKMPS21"
	at := func(figure, series string, x float64) func(Data) float64 {
		return func(d Data) float64 { return d[figure].At(series, x) }
	}
	exponent := func(series string, theory float64) func(Data) (float64, float64) {
		return func(d Data) (float64, float64) {
			b, _ := d["gkmps21-1a"].Fit(Slope{Series: series, From: 8})
			return theory, b
		}
	}
	return []Item{
		{Paper: p, What: "Figure 1 (a): error against Δ; RAPPOR's grows as Δ^(3/2)", Status: Reproduced,
			value: exponent("RAPPOR, proven f", 1.5), exact: true,
			Note: "exponent fitted from Δ = 8; [picture](figures/gkmps21-1a.svg)"},
		{Paper: p, What: "Figure 1 (a): those of IKOS, discrete Laplace and correlated noise grow as Δ",
			Status: Reproduced,
			value:  exponent("correlated, measured", 1), exact: true, Note: "exponent of what was measured"},
		{Paper: p, What: "Section 5: RAPPOR's errors differ by less than 1 % for n = 10⁴, …, 10⁷", Status: Reproduced,
			value: func(Data) (float64, float64) {
				return rapporError(1e4, rapporUsual(1e4, 1, 1e-6), 16), rapporError(1e7, rapporUsual(1e7, 1, 1e-6), 16)
			}, exact: true, Note: "errors at 10⁴ and at 10⁷ by the usual calibration, which is [not " +
				"private](errata.md#rappor-calibration)"},
		{Paper: p, What: "Figure 1 (b): bits against n; all but IKOS tend to one message", Status: Reproduced,
			value: func(d Data) (float64, float64) { return 5, at("gkmps21-1b", "correlated, ours", 1e8)(d) },
			exact: true,
			Note:  "⌈log₂16⌉+1 bits against ours at n = 10⁸; [picture](figures/gkmps21-1b.svg)"},
		{Paper: p, What: "Figure 1 (c): bits against Δ, with a gap for large Δ", Status: Corrected,
			Note: "the gap was the parameter search's; ours finds parameters for Δ = 4096 in seconds; " +
				"[picture](figures/gkmps21-1c.svg)"},
		{Paper: p, What: "Theorem 1: real numbers, error of Laplace noise at (1−ζ)ε", Status: Reproduced,
			Note: "protocol correlated rounds to Δ levels; rounding may add 30 % to the variance"},
		{Paper: p, What: "Theorem 2: whole numbers", Status: Reproduced,
			Note: "rule theorem2 of protocol correlated, tested; ours needs some 100 times fewer messages"},
		{Paper: p, What: "Corollary 3: 1-sparse vectors", Status: Reproduced,
			Note: "queries histogram and vector of protocol correlated"},
		{Paper: p, What: "Observations 5 to 7: error, messages, the central algorithm", Status: Reproduced,
			Note: "measured in Figure 1; the noise of n users adds up to the central one (tests of package " +
				"randomizer)"},
		{Paper: p, What: "Theorem 8, Lemma 9: privacy from a right inverse", Status: Reproduced,
			Note: "[proof](proofs/correlated.md) of a tighter form, which composes over the columns instead"},
		{Paper: p, What: "Theorem 10, Corollary 11: the negative binomial mechanism", Status: Reproduced,
			Note: "true and [loose](errata.md#theorem10)"},
		{Paper: p, What: "Theorem 12: the right inverse and its dominating vector", Status: Reproduced,
			Note: "checked for Δ up to 512; [with base-2 logarithms only](errata.md#natural-logarithm)"},
		{Paper: p, What: "Algorithms 1, 2, 3", Status: Corrected,
			Note: "sending nothing for 0 is private only if nobody counts [covers](errata.md#counted-covers)"},
	}
}
