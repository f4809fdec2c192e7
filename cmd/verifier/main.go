// Command verifier checks shuffled batches, opens them, and computes estimates: as a server, or from files.
// docs/verifier.md is the operator's manual. Task owners find their commands in cmd/doona.
//
// Exit status: 0 success; 1 bad data, a failed check or a refused release; 2 a wrong flag or flag value. With --json
// the last line of standard output is one JSON object. Progress bars go to standard error.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/verifier/server"
)

func main() { os.Exit(cli.Run(root(), os.Args[1:])) }

// moved maps commands that moved to other programs to their replacements.
var moved = map[string]string{
	"amplify": "doona amplify", "compose": "doona compose", "gamma": "doona gamma", "init": "doona init",
	"plan": "doona plan", "simulate": "doona simulate", "task": "doona task",
	"audit": "make audit", "figures": "make figures' or 'make errata",
}

func root() *cobra.Command {
	return cli.Moved(cli.Root("verifier", "Check shuffled batches, open them, and estimate what clients have",
		`  doona init try && verifier serve --config try/verifier/verifier.yaml
  verifier analyze --task mean.bundle --keys verifier.keys batches/*.batch`,
		serveCommand(), checkCommand(),
		analyzeCommand(), mergeCommand(), askCommand(), queryCommand(),
		verifyCommand(),
		cli.Health("verifier", func(config string) (string, error) {
			c, err := server.LoadConfig(config)
			return c.Admin, err
		}),
		cli.Version("verifier"),
		cli.Keygen("verifier"),
		passwordCommand(),
	), moved)
}
