// Command doona is the tool of task owners and page authors. It calibrates, signs and renews tasks, says what they
// cost and promise, and simulates them. It plays clients for a relay under test, and runs a deployment on one machine
// to try a page. npm delivers it as the package doona (www/npm/bin.mjs). It runs no party in production.
//
// Exit status: 0 success; 1 bad data, a failed check or a refused release; 2 a wrong flag or flag value. With --json
// the last line of standard output is one JSON object; progress goes to standard error.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
)

func main() { os.Exit(cli.Run(root(), os.Args[1:])) }

func root() *cobra.Command {
	return cli.Root("doona", "Calibrate, sign, simulate and try private statistics",
		`  doona task new --query mean --protocol splitmix --range 0,180 --batch 1000 --epsilon 1 \
      --delta 1e-6 --out t.json
  doona simulate --task t.json --repeat 100`,
		devCommand(),
		copyCommand(),
		initCommand(),
		keygenCommand(),
		taskCommand(),
		setCommand(),
		renewCommand(),
		planCommand(),
		simulateCommand(),
		gammaCommand(), amplifyCommand(), composeCommand(),
		loadCommand(),
		cli.Version("doona"),
	)
}
