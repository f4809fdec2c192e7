package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/lab/figures"
)

// figuresFlags are the flags of `lab figures`.
type figuresFlags struct {
	out   string
	quick bool
	only  []string
}

// figuresResult is what `lab figures` prints.
type figuresResult struct {
	Out     string   `json:"out"`
	Figures []string `json:"figures"`
	Errata  int      `json:"errata"` // Number of errata in errata.md; 0 with --only, which writes none.
	Quick   bool     `json:"quick"`
}

func figuresCommand() *cobra.Command {
	var f figuresFlags
	cmd := &cobra.Command{
		Use:   "figures --out DIR",
		Short: "Compute the papers' figures, and what is wrong in the papers",
		Long: `Compute the figures of the papers that the protocols come from, and our own. Write below DIR

  figures/NAME.csv   a figure's numbers
  figures/NAME.svg   its picture, drawn from the numbers
  reproduction.md    all pictures, and every figure, theorem and lemma of the papers: reproduced,
                     corrected, or out of scope and why
  errata.md          every claim in the papers that is wrong or loose, and what is true instead

Random draws have fixed seeds: every run on amd64 writes the same CSV files. A full run takes up to 20
minutes on two cores. With --quick it takes a minute or two, with fewer points and repetitions.
With --only the command computes only the named figures, and writes no documents.`,
		Example: `  lab figures --out docs
  # one figure, roughly
  lab figures --out try --quick --only bbgn19-3iv
  # one claim that does not hold as printed
  lab errata lemma11`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runFigures(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.out, "out", "", "folder to write to, such as docs (required)")
	flags.BoolVar(&f.quick, "quick", false, "fewer points and repetitions")
	flags.StringSliceVar(&f.only, "only", nil, "names of figures to compute (default: all, and the documents)")
	cli.Require(cmd, "out")
	return cmd
}

func runFigures(cmd *cobra.Command, f figuresFlags) error {
	chosen, err := figures.Named(f.only)
	if err != nil {
		return cli.FlagError(err)
	}
	result := figuresResult{Out: f.out, Quick: f.quick}
	steps := len(chosen)
	if len(f.only) == 0 {
		result.Errata = len(figures.Errata())
		steps += result.Errata
	}
	bar := cli.Progress("computing figures", steps)
	done := func() { bar.Add(1) }
	for _, figure := range chosen {
		compute := figure.Compute
		if f.quick {
			compute = figure.ComputeQuick
		}
		if err := compute(f.out); err != nil {
			return err
		}
		result.Figures = append(result.Figures, figure.Name)
		done()
	}
	if len(f.only) == 0 {
		if err := figures.WriteErrata(f.out, done); err != nil {
			return err
		}
		if err := figures.WriteReproduction(f.out); err != nil {
			return err
		}
	}
	return cli.Print(cmd, result, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%d figures in %s/%s\n", len(result.Figures), f.out, figures.Folder)
		return err
	})
}

// erratumResult is what `lab errata` prints for each erratum.
type erratumResult struct {
	Name     string `json:"name"`
	Where    string `json:"where"`
	Claim    string `json:"claim"`
	Truth    string `json:"truth"`
	Evidence string `json:"evidence"`
}

func errataCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "errata [NAME]...",
		Short: "Show that printed claims do not hold",
		Long: `Run the counter-examples of the named errata, or of all errata, and print what they find.

The exit status is 0 only if every counter-example still shows its claim to be as wrong as
docs/errata.md says. The names are the headings of docs/errata.md.`,
		Example: `  lab errata lemma11
  lab errata --json`,
		RunE: runErrata,
	}
}

func runErrata(cmd *cobra.Command, names []string) error {
	chosen, err := figures.FindErrata(names)
	if err != nil {
		return cli.Usage(err)
	}
	var results []erratumResult
	for _, e := range chosen {
		evidence, err := e.Show()
		if err != nil {
			return err
		}
		results = append(results, erratumResult{e.Name, e.Where, e.Claim, e.Truth, evidence})
	}
	return cli.Print(cmd, results, func(w io.Writer) error {
		var out strings.Builder
		for _, r := range results {
			fmt.Fprintf(&out, "%s (%s)\n  printed  %s\n  true     %s\n  shown    %s\n", r.Name, r.Where, r.Claim,
				r.Truth, r.Evidence)
		}
		_, err := io.WriteString(w, out.String())
		return err
	})
}
