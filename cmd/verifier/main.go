// Command verifier is the analyzer's and the task owner's tool: it calibrates and signs tasks,
// simulates protocols, accounts for privacy, and turns shuffled batches into estimates.
//
// Exit status: 0 success; 1 bad data, a failed check or a refused release; 2 a wrong flag or
// flag value. With --json the last line of standard output is one JSON object; progress goes
// to standard error.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/verifier/server"
)

func main() { os.Exit(cli.Run(root(), os.Args[1:])) }

func root() *cobra.Command {
	return cli.Root("verifier", "Calibrate, sign, simulate and analyze private statistics",
		`  verifier task new --query mean --protocol splitmix --range 0,180 --batch 1000 --epsilon 1 \
      --delta 1e-6 --out t.json
  verifier simulate --task t.json --repeat 100`,
		cli.Keygen("verifier"),
		taskCommand(),
		gammaCommand(),
		amplifyCommand(),
		planCommand(),
		composeCommand(),
		simulateCommand(),
		analyzeCommand(), mergeCommand(), askCommand(),
		verifyCommand(),
		serveCommand(),
		cli.Health("verifier", func(config string) (string, error) {
			c, err := server.LoadConfig(config)
			return c.Admin, err
		}),
		cli.Version("verifier"),
		initCommand(),
		cli.Moved("figures", "make figures"),
		cli.Moved("audit", "make audit"),
	)
}
