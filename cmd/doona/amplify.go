package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/display"
)

// amplifyResult is what `doona amplify` prints. value is the better of the bound and pure local privacy. raw is the
// bound alone, or null if the bound gives no finite number.
type amplifyResult struct {
	Value     float64  `json:"value"`
	Raw       *float64 `json:"raw"`
	Amplified bool     `json:"amplified"` // Whether the bound is better than pure local privacy.
	Mechanism string   `json:"mechanism"`
	Bound     string   `json:"bound"`
	Solve     string   `json:"solve"`
	Epsilon0  float64  `json:"eps0"`
	K         uint64   `json:"k"`
	Users     uint64   `json:"users"`
	Delta     float64  `json:"delta"`
	Epsilon   float64  `json:"epsilon"`
	Epochs    uint64   `json:"epochs"` // Number of releases; ε and δ cover all of them.
}

// gaussianResult is what `doona amplify --mechanism gaussian` prints.
type gaussianResult struct {
	Mechanism string  `json:"mechanism"`
	Sigma     float64 `json:"sigma"`
	Gamma     float64 `json:"gamma"` // blanket probability, rounded down
}

// amplifyFlags are the flags of `doona amplify`.
type amplifyFlags struct {
	mechanism, bound, solve, plot string
	eps0, epsilon, delta, sigma   float64
	k, users, epochs              uint64
}

func amplifyCommand() *cobra.Command {
	var f amplifyFlags
	cmd := &cobra.Command{
		Use:   "amplify --mechanism M --bound B --eps0 X --users N --delta D",
		Short: "Bound what shuffling adds to a local randomizer's privacy",
		Long: `Relate the local ε₀ of a randomizer to the (ε, δ) it has once the reports of N users have
been shuffled. N counts all users, the target among them; neighbours differ in one user's value.

Bounds for each mechanism, all proven (docs/accountant.md):
  generic   any ε₀-LDP randomizer: efmrtt19, hoeffding, bennett, theorem6, clones
  krr       k-ary randomized response: hoeffding, bennett, revealed, exact; others for K = 2
  laplace   x + Lap(1/ε₀) on [0,1]: hoeffding, bennett, exact
  gaussian  x + N(0,σ²) on [0,1]: only its blanket probability γ, from --sigma

Solve for eps (the default), delta, eps0 or users, and give all the others. eps, delta and users
are rounded up, eps0 down, by at most a relative 1e-9. "raw" is the bound alone; "value" falls
back to pure local privacy, which always holds.

With --epochs T, ε and δ are the totals of T releases, composed by their laws of privacy loss. This
works for krr with revealed, exact or others, and for laplace with exact, when solving for eps. The
releases must be fixed before the first, such as the epochs of a task. Their inputs may depend on
earlier results (docs/proofs/loss-laws.md, Theorem 3).

--plot FILE.svg writes a chart of ε against the number of users, for every bound that is valid for
the mechanism and for generic randomizers. With --epochs, it is a chart against the number of epochs.`,
		Example: `  # ε of 10-ary randomized response with ε₀ = 1 among 100 million users
  doona amplify --mechanism krr --bound exact --k 10 --eps0 1 --users 100000000 --delta 1e-6
  # how many users does Laplace noise with ε₀ = 1 need for (0.1, 1e-6)?
  doona amplify --mechanism laplace --bound exact --eps0 1 --epsilon 0.1 --delta 1e-6 --solve users
  # a year of days
  doona amplify --mechanism krr --bound exact --k 16 --eps0 5.53 --users 10000 --delta 3.65e-4 --epochs 365
  # compare the bounds
  doona amplify --mechanism krr --bound exact --k 10 --eps0 1 --users 1000000 --delta 1e-6 --plot eps.svg`,
		Args: func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.NoArgs(cmd, args)) },
		RunE: func(cmd *cobra.Command, _ []string) error { return runAmplify(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.mechanism, "mechanism", "", "generic, krr, laplace or gaussian (required)")
	flags.StringVar(&f.bound, "bound", "", "one valid for the mechanism, see above (required)")
	flags.StringVar(&f.solve, "solve", "eps", "what to solve for: eps, eps0, users or delta")
	flags.Float64Var(&f.eps0, "eps0", 0, "local ε₀, above 0")
	flags.Uint64Var(&f.k, "k", 0, "number of values, for krr, at least 2")
	flags.Uint64Var(&f.users, "users", 0, "users shuffled together, 1 to 1e9")
	flags.Float64Var(&f.delta, "delta", 0, "δ after shuffling, above 0 and below 1")
	flags.Float64Var(&f.epsilon, "epsilon", 0, "ε after shuffling, above 0")
	flags.Float64Var(&f.sigma, "sigma", 0, "standard deviation of the noise on [0,1], for gaussian, above 0")
	flags.Uint64Var(&f.epochs, "epochs", 1, "releases together, 1 to 65536")
	flags.StringVar(&f.plot, "plot", "", "write a chart of ε to this SVG file")
	return cmd
}

// amplifyInputs lists the flags that each solve target needs.
var amplifyInputs = map[string][]string{
	"eps":   {"eps0", "users", "delta"},
	"delta": {"eps0", "users", "epsilon"},
	"eps0":  {"users", "delta", "epsilon"},
	"users": {"eps0", "delta", "epsilon"},
}

func runAmplify(cmd *cobra.Command, f amplifyFlags) error {
	if f.mechanism == string(accountant.Gaussian) {
		return runGaussian(cmd, f)
	}
	if err := checkAmplify(cmd, f); err != nil {
		return err
	}
	a := accountant.Amplification{
		Mechanism: accountant.Mechanism(f.mechanism), Bound: accountant.Bound(f.bound),
		Epsilon0: f.eps0, K: f.k, Users: f.users,
	}
	if a.Mechanism != accountant.KRR {
		a.K = 0
	}
	solve, plot := solveAmplify, plotAmplify
	if f.epochs != 1 {
		solve, plot = composeAmplify, plotEpochs
	}
	result, err := solve(a, f)
	if err != nil {
		return cli.FlagError(err)
	}
	if f.plot != "" {
		if err := plot(f.plot, result); err != nil {
			return err
		}
	}
	return cli.Print(cmd, result, func(w io.Writer) error { return printAmplify(w, result) })
}

// checkAmplify refuses missing flags and flags that contradict the mechanism or what is solved for.
func checkAmplify(cmd *cobra.Command, f amplifyFlags) error {
	inputs, ok := amplifyInputs[f.solve]
	if !ok {
		return cli.Usagef("invalid solve %s: want eps, eps0, users or delta", f.solve)
	}
	given := cmd.Flags().Changed
	for _, name := range append([]string{"mechanism", "bound"}, inputs...) {
		if !given(name) {
			return cli.Usagef("missing --%s: solving for %s needs --%s", name, f.solve, strings.Join(inputs, ", --"))
		}
	}
	if f.mechanism == string(accountant.KRR) && !given("k") {
		return cli.Usagef("missing --k: mechanism krr needs the number of values")
	}
	if f.mechanism != string(accountant.KRR) {
		if err := cli.Refuse(cmd, "with --mechanism "+f.mechanism+": it is for krr", "k"); err != nil {
			return err
		}
	}
	target := f.solve
	if target == "eps" {
		target = "epsilon"
	}
	if err := cli.Refuse(cmd, "with --solve "+f.solve+": it is the result", target); err != nil {
		return err
	}
	return cli.Refuse(cmd, "with --mechanism "+f.mechanism+": it is for gaussian", "sigma")
}

func solveAmplify(a accountant.Amplification, f amplifyFlags) (amplifyResult, error) {
	r := amplifyResult{
		Mechanism: f.mechanism, Bound: f.bound, Solve: f.solve,
		Epsilon0: a.Epsilon0, K: a.K, Users: a.Users, Delta: f.delta, Epsilon: f.epsilon, Epochs: 1,
	}
	var raw float64
	var err error
	switch f.solve {
	case "delta":
		r.Value, raw, err = a.Delta(f.epsilon)
		r.Delta, r.Amplified = r.Value, f.epsilon < a.Epsilon0 && raw < 1
	case "eps0":
		r.Value, raw, err = a.SolveEpsilon0(f.epsilon, f.delta)
		r.Epsilon0, r.Amplified = r.Value, raw > f.epsilon
	case "users":
		var users, alone uint64
		users, alone, err = a.SolveUsers(f.epsilon, f.delta)
		r.Users, r.Value, raw, r.Amplified = users, float64(users), float64(alone), f.epsilon < a.Epsilon0
	default:
		r.Value, raw, err = a.Epsilon(f.delta)
		r.Epsilon, r.Amplified = r.Value, raw < a.Epsilon0
	}
	if !math.IsInf(raw, 1) {
		r.Raw = &raw
	}
	return r, err
}

// runGaussian prints the blanket probability of the Gaussian mechanism.
func runGaussian(cmd *cobra.Command, f amplifyFlags) error {
	if err := cli.Refuse(cmd, "with --mechanism gaussian: it has no pure local ε₀; give --sigma to get its γ", "bound",
		"eps0", "k", "users", "delta", "epsilon", "solve", "plot", "epochs"); err != nil {
		return err
	}
	gamma, err := accountant.GaussianGamma(f.sigma)
	if err != nil {
		return cli.FlagError(err)
	}
	result := gaussianResult{Mechanism: f.mechanism, Sigma: f.sigma, Gamma: gamma}
	return cli.Print(cmd, result, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "blanket probability γ = %s\n", decimal.Format(gamma, 12))
		return err
	})
}

func printAmplify(w io.Writer, r amplifyResult) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	name := r.Mechanism
	if r.K > 0 {
		name = fmt.Sprintf("%s, %d values", name, r.K)
	}
	raw := "no statement"
	if r.Raw != nil {
		raw = decimal.Format(*r.Raw, 12)
	}
	fmt.Fprintf(table, "mechanism\t%s\n", name)
	fmt.Fprintf(table, "local privacy\tε₀ = %s\n", decimal.Format(r.Epsilon0, 12))
	fmt.Fprintf(table, "after shuffling %d users\tε = %s, δ = %s\n", r.Users,
		decimal.Format(r.Epsilon, 12), decimal.Format(r.Delta, 12))
	if r.Epochs > 1 {
		fmt.Fprintf(table, "together\t%d releases, fixed beforehand (docs/proofs/loss-laws.md, Theorem 3)\n", r.Epochs)
	}
	fmt.Fprintf(table, "solved for %s by %s\t%s (the bound alone: %s)\n", r.Solve, r.Bound,
		decimal.Format(r.Value, 12), raw)
	if !r.Amplified {
		fmt.Fprintf(table, "note\tthe bound gives nothing beyond pure local privacy here\n")
	}
	return table.Flush()
}

// plotAmplify writes a chart to path: ε against numbers of users around r.Users, with a line for each bound.
func plotAmplify(path string, r amplifyResult) error {
	chart := display.Plot{LogX: true, LogY: true,
		Title: fmt.Sprintf("ε after shuffling: %s, ε₀ = %.4g, δ = %s", r.Mechanism, r.Epsilon0,
			decimal.Format(r.Delta, 4)),
		XLabel: "users", YLabel: "ε",
	}
	mechanisms := []accountant.Mechanism{accountant.Generic}
	if r.Mechanism != string(accountant.Generic) {
		mechanisms = append(mechanisms, accountant.Mechanism(r.Mechanism))
	}
	for _, m := range mechanisms {
		for _, b := range accountant.Bounds(m, r.K) {
			chart.Lines = append(chart.Lines, amplifyLine(m, b, r))
		}
	}
	var svg strings.Builder
	chart.SVG(&svg)
	if err := os.WriteFile(path, []byte(svg.String()), 0o644); err != nil {
		return fmt.Errorf("couldn't write the chart: %w", err)
	}
	return nil
}

// amplifyLine evaluates one bound at 25 numbers of users, from a hundredth to a hundred times r.Users.
func amplifyLine(m accountant.Mechanism, b accountant.Bound, r amplifyResult) display.Line {
	line := display.Line{Name: string(m) + " " + string(b)}
	for i := range 25 {
		users := math.Round(float64(r.Users) * math.Pow(10, float64(i-12)/6))
		if users < 1 || users > accountant.MaxUsers {
			continue
		}
		a := accountant.Amplification{Mechanism: m, Bound: b, Epsilon0: r.Epsilon0, K: r.K, Users: uint64(users)}
		if eps, _, err := a.Epsilon(r.Delta); err == nil && eps > 0 {
			line.Points = append(line.Points, [2]float64{users, eps})
		}
	}
	return line
}
