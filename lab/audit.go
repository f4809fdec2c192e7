package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/lab/audit"
	"github.com/doona-dp/doona/wasm"
)

// auditRow is the result of auditing one case.
type auditRow struct {
	Protocol       string  `json:"protocol"`
	Client         string  `json:"client"` // "native" or "doona.wasm".
	Fault          string  `json:"fault,omitempty"`
	View           string  `json:"view"` // The party whose data the attacker sees.
	Attack         string  `json:"attack"`
	EpsilonLower   float64 `json:"epsilon_lower"`
	EpsilonClaimed float64 `json:"epsilon_claimed"`
	Delta          float64 `json:"delta"`
	Confidence     float64 `json:"confidence"`
	Trials         int     `json:"trials"` // Batches in each of the two worlds.
	Power          float64 `json:"power"`
	Refuted        bool    `json:"refuted"`
	Passed         bool    `json:"passed"`
}

// auditResult is what `lab audit` prints.
type auditResult struct {
	Passed bool       `json:"passed"`
	Rows   []auditRow `json:"rows"`
}

// auditFlags are the flags of `lab audit`.
type auditFlags struct {
	options audit.Options
	module  string
	native  bool
	out     string
}

func auditCommand() *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Attack what is implemented, and bound its ε from below",
		Long: `Audit plays small batches many times, in two worlds that differ in one client's value. An attacker who
knows every other client's value tries to tell the worlds apart from what one party sees. How well it
succeeds bounds ε from below: a bound above the claim refutes the claim.

It audits all protocols with the randomizers that clients run, natively and in doona.wasm, and with the
code by which relays draw dummies. Then it plants faults, and must find each of them.

found       the lower bound of ε at the claim's δ, right with probability --confidence: Clopper-Pearson
            intervals of a fixed grid of events in both directions, with a union bound
power       the probability that the bound reaches its aim: half of the claim or, with a planted fault,
            more than the claim. A pilot of half as many trials estimates it in advance

The exit status is 1 if a claim is refuted, a fault is not found, or less than half of a claim is found.
--module FILE audits that doona.wasm. Without it the command builds one, which needs Go and this
module's source. With --native-only it uses none.`,
		Example: `  lab audit --native-only
  lab audit --trials 100000 --module build/www/doona.wasm
  lab audit --out docs/audit.md`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.options.Trials, "trials", 40_000, "batches in each world, 100 to 100000000; a pilot plays half as "+
		"many in addition")
	flags.Float64Var(&f.options.Confidence, "confidence", .9999, "probability that a row's bound is right, in [0.5, 1)")
	flags.StringVar(&f.module, "module", "", "path of doona.wasm (default: build one)")
	flags.StringVar(&f.out, "out", "", "file to write the results to as Markdown, such as docs/audit.md")
	flags.BoolVar(&f.native, "native-only", false, "audit native clients only, without doona.wasm")
	return cmd
}

func (f *auditFlags) run(cmd *cobra.Command) error {
	o := f.options
	switch {
	case o.Trials < 100 || o.Trials > 1e8:
		return cli.Usagef("invalid trials %d: want 100 to 100000000", o.Trials)
	case !(o.Confidence >= .5 && o.Confidence < 1):
		return cli.Usagef("invalid confidence %v: want a number in [0.5, 1)", o.Confidence)
	case f.native && f.module != "":
		return cli.Usagef("invalid module %s: want no --module with --native-only", f.module)
	}
	var browsers *audit.Browsers
	if !f.native {
		code, err := f.code(cmd.Context())
		if err != nil {
			return err
		}
		if browsers, err = audit.NewBrowsers(cmd.Context(), code); err != nil {
			return err
		}
		defer browsers.Close(context.WithoutCancel(cmd.Context()))
	}
	cases := audit.Native()
	if browsers != nil {
		cases = audit.Shipped()
	}
	cases = append(cases, audit.Faulty()...)
	result := auditResult{Passed: true}
	bar := cli.Progress("attacking", len(cases))
	for _, c := range cases {
		r, err := c.Run(cmd.Context(), browsers, o)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Protocol, err)
		}
		bar.Add(1)
		row := auditRow{c.Protocol, c.Client, c.Fault, string(c.View), c.Attack, r.Lower, r.Claimed, r.Delta,
			r.Confidence, r.Trials, r.Power, r.Refuted, r.Enough()}
		result.Rows = append(result.Rows, row)
		result.Passed = result.Passed && row.Passed
	}
	if err := cli.Print(cmd, result, func(w io.Writer) error { return printAudit(w, result.Rows) }); err != nil {
		return err
	}
	if f.out != "" {
		if err := f.document(result.Rows); err != nil {
			return err
		}
	}
	if !result.Passed {
		return errors.New("an audit failed: see the rows that did not pass")
	}
	return nil
}

// intro is the beginning of docs/audit.md.
const intro = `# The audit

The audit is for readers who want evidence that Doona keeps its privacy claims. It attacks the code that is shipped, and reports how much ε the attacker finds. ` + "`make audit`" + ` writes this page.

Each row of the table plays equally many small batches in two worlds. The worlds differ in one client's value. The attacker knows every other client's value and sees what one party sees (*view of*). It tries to tell the worlds apart.

* *Found ε* bounds ε from below at the row's δ, with a confidence of %g for each row. It is computed from Clopper-Pearson bounds of a fixed grid of events, in both directions, with a union bound.
* *Power* is the probability that the attack finds at least half of the claimed ε. For a planted fault, it is the probability that the attack finds more than the claim. A pilot run estimates it before the batches that count.

What is attacked:

* The randomizers are those of Go clients (*native*) and of ` + "`doona.wasm`" + `. Dummies are drawn as relays draw them. Slots are permuted as relays must permute them.
* One relay is honest. The other colludes, so the audit leaves its work out.
* Nothing is encrypted: the audit does not test HPKE.
* ` + "`make test-full PART=audit`" + ` also attacks running relays ([audit_test.go](../relay/internal/adversary/audit_test.go)). It plants three faults: a relay that uses a draw twice, leaves a cell out, or accepts replays. ` + "`make test-full PART=order`" + ` attacks their permutation.

The attack *all epochs* plays several epochs of a task whose claim covers as many reports as its cap allows, or as many events as its allowance. The device decides by the Go client's ledger.

The attack *reconstruction* is [AFNNTZ24](https://arxiv.org/abs/2404.10201), Algorithms 1 and 2, for as many messages as a client sends. Some views show nothing about the value, so attacks on them find nothing. The same attacks find the planted faults below.

`

// document writes the results in the form of docs/audit.md to the file of --out.
func (f *auditFlags) document(rows []auditRow) error {
	var out strings.Builder
	fmt.Fprintf(&out, intro, f.options.Confidence)
	if err := printAudit(&out, rows); err != nil {
		return err
	}
	if err := os.WriteFile(f.out, []byte(out.String()), 0o644); err != nil {
		return fmt.Errorf("couldn't write the audit's document: %w", err)
	}
	return nil
}

// code returns the bytes of doona.wasm. It reads the file of --module, or builds one.
func (f *auditFlags) code(ctx context.Context) ([]byte, error) {
	file := f.module
	if file == "" {
		dir, err := os.MkdirTemp("", "doona-audit")
		if err != nil {
			return nil, fmt.Errorf("couldn't make a folder: %w", err)
		}
		defer os.RemoveAll(dir)
		file = filepath.Join(dir, wasm.Browser.File())
		if err := wasm.Build(ctx, wasm.Browser, file, wasm.Options{}); err != nil {
			return nil, err
		}
	}
	code, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("couldn't read doona.wasm: %w", err)
	}
	return code, nil
}

// printAudit prints the results as a Markdown table, as in docs/audit.md.
func printAudit(w io.Writer, rows []auditRow) error {
	header := []string{"protocol", "client", "planted fault", "view of", "attack", "found ε", "claimed ε", "δ", "batches",
		"power", "result"}
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	for _, r := range rows {
		fault, result := r.Fault, "holds"
		if fault == "" {
			fault = "–"
		}
		switch {
		case r.Refuted && r.Fault != "":
			result = "found"
		case r.Refuted:
			result = "**refuted**"
		case !r.Passed:
			result = "**too little**"
		}
		words := strings.Join([]string{r.Protocol, r.Client, fault, r.View, r.Attack}, " | ")
		if _, err := fmt.Fprintf(w, "| %s | %.3f | %g | %g | %d | %.2f | %s |\n", words,
			r.EpsilonLower, r.EpsilonClaimed, r.Delta, r.Trials, r.Power, result); err != nil {
			return err
		}
	}
	return nil
}
