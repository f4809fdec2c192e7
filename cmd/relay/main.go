// Command relay runs a relay: it accepts clients' reports or pulls batches from its upstream relay, and serves
// permuted batches to the next hop. docs/relay.md is the operator's manual.
//
// Exit status: 0 success; 1 bad data, a bad configuration or a failed check; 2 a wrong flag or flag value. With
// --json the last line of standard output is one JSON object.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/relay"
)

func main() { os.Exit(cli.Run(root(), os.Args[1:])) }

// moved maps each command that is now part of another program to its new name.
var moved = map[string]string{"load": "doona load"}

func root() *cobra.Command {
	return cli.Moved(cli.Root("relay", "Carry private reports so that nobody can tell which client sent one",
		`  doona init try
  relay check-config --config try/relay1/relay.yaml`,
		serveCommand(),
		checkCommand(),
		statusCommand(),
		ownersCommand(),
		inviteCommand(),
		joinCommand(),
		checkAnswerCommand(),
		cli.Health("relay", func(config string) (string, error) {
			c, err := relay.LoadConfig(config)
			return c.Admin, err
		}),
		cli.Version("relay"),
		endEpochsCommand(),
		cli.TrustClock("relay", "  doona init try && relay trust-clock --config try/relay1/relay.yaml",
			func(config string) (string, error) {
				c, err := relay.LoadConfig(config)
				return c.ClockFile(), err
			}),
		cli.Keygen("relay"),
	), moved)
}
