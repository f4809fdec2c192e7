// Command lab is the laboratory: it computes the figures of the papers that the protocols come from, shows errors in
// the papers, and attacks the shipped code. `make figures`, `make errata` and `make audit` run it. It is a separate
// module that no other module requires.
//
// Exit status: 0 success; 1 bad data or a failed check; 2 a wrong flag or flag value. With --json the last line of
// standard output is one JSON object; progress goes to standard error.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
)

func main() { os.Exit(cli.Run(root(), os.Args[1:])) }

func root() *cobra.Command {
	return cli.Root("lab", "Compute the papers' figures, show their errata, and audit what is shipped",
		`  lab errata lemma11
  lab audit --native-only`,
		figuresCommand(), errataCommand(), auditCommand())
}
