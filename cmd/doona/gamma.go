package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/decimal"
)

// gammaResult is what `doona gamma` prints: γ and ε₀, rounded up.
type gammaResult struct {
	Gamma      float64 `json:"gamma"`       // blanket probability γ
	GammaExact string  `json:"gamma_exact"` // γ as a fraction "a/b"
	Epsilon0   float64 `json:"eps0"`        // local ε₀: what remains if every relay colludes
	Rule       string  `json:"rule"`        // the bound from which γ was calculated
}

// gammaFlags are the flags of `doona gamma`.
type gammaFlags struct {
	k, users       uint64
	epsilon, delta float64
	rule           string
}

func gammaCommand() *cobra.Command {
	var f gammaFlags
	cmd := &cobra.Command{
		Use:   "gamma --k K --users N --epsilon E --delta D",
		Short: "Find the smallest blanket probability γ for a target (ε, δ)",
		Long: `Find the smallest blanket probability γ with which K-ary randomized response is
(ε, δ)-DP once the reports of N users have been shuffled.

Each user reports the true value with probability 1-γ and a uniform one of the K values
otherwise. The smaller γ, the more accurate the estimate. N is the smallest number of honest
users whose reports are ever released together, not the number you hope for.

Rules, each a proven bound:
  theorem1   closed form of Balle et al. 2019, Theorem 1; only for ε up to 1; loose
  revealed   exact, when the adversary sees who sent a blanket message; any ε
  exact      exact, when the target's own choice stays hidden; any ε
  others     K = 2 only: when everybody's choice stays hidden; any ε; the smallest γ

Default rule: others for K = 2, otherwise exact.

γ is rounded up by at most a relative 1e-9 and printed as a fraction too. eps0 is the local
privacy that remains if every relay colludes with the verifier.`,
		Example: `  # a histogram of 4 values over 10,000 users
  doona gamma --k 4 --users 10000 --epsilon 0.5 --delta 1e-6
  # the same under the paper's closed form, for comparison
  doona gamma --k 4 --users 10000 --epsilon 0.5 --delta 1e-6 --rule theorem1`,
		Args: func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.NoArgs(cmd, args)) },
		RunE: func(cmd *cobra.Command, _ []string) error { return runGamma(cmd, f) },
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.k, "k", 0, "number of values a report can take, at least 2 (required)")
	flags.Uint64Var(&f.users, "users", 0, "users shuffled together, 1 to 1e9 (required)")
	flags.Float64Var(&f.epsilon, "epsilon", 0, "target ε after shuffling, above 0 (required)")
	flags.Float64Var(&f.delta, "delta", 0, "target δ after shuffling, below 1 (required)")
	flags.StringVar(&f.rule, "rule", "", "theorem1, revealed, exact or, for K = 2, others (default: the tightest)")
	return cmd
}

func runGamma(cmd *cobra.Command, f gammaFlags) error {
	for _, name := range []string{"k", "users", "epsilon", "delta"} {
		if !cmd.Flags().Changed(name) {
			return cli.Usagef("missing --%s: gamma needs --k, --users, --epsilon and --delta", name)
		}
	}
	f.rule = cmp.Or(f.rule, string(accountant.Tightest(f.k)))
	num, den, err := accountant.KRRGamma(accountant.Rule(f.rule), f.k, f.users, f.epsilon, f.delta)
	if err != nil {
		return cli.FlagError(err)
	}
	gamma := float64(num) / float64(den)
	result := gammaResult{
		Gamma: gamma, GammaExact: fmt.Sprintf("%d/%d", num, den),
		Epsilon0: accountant.KRREpsilon0(f.k, gamma), Rule: f.rule,
	}
	return cli.Print(cmd, result, func(w io.Writer) error { return printGamma(w, f, result) })
}

func printGamma(w io.Writer, f gammaFlags, result gammaResult) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "blanket probability γ\t%.12g\n", result.Gamma)
	fmt.Fprintf(table, "as a fraction\t%s\n", result.GammaExact)
	fmt.Fprintf(table, "after shuffling %d users\tε = %g, δ = %s (rule %s)\n", f.users, f.epsilon,
		decimal.Format(f.delta, -1), f.rule)
	fmt.Fprintf(table, "if every relay colludes\tε₀ = %.12g\n", result.Epsilon0)
	return table.Flush()
}
