// Command issuer issues the anonymous tokens that limit how often a person can report. docs/issuer.md is the
// operator's manual.
//
// Exit status: 0 success; 1 bad data, a bad configuration or a failed check; 2 a wrong flag or flag value. With
// --json the last line of standard output is one JSON object.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/issuer"
)

func main() { os.Exit(cli.Run(root(), os.Args[1:])) }

func root() *cobra.Command {
	return cli.Root("issuer", "Give every person n anonymous tokens, each valid for one report",
		`  issuer keygen --kind sign --out issuer.sign
  issuer keygen --kind token --sign-key issuer.sign --epochs 2 --out mean.keys`,
		keygenCommand(),
		serveCommand(),
		checkCommand(),
		statusCommand(),
		cli.Health("issuer", func(config string) (string, error) {
			c, err := issuer.LoadConfig(config)
			return c.Admin, err
		}),
		cli.Version("issuer"),
		cli.TrustClock("issuer", "  issuer trust-clock --config issuer.yaml", func(config string) (string, error) {
			c, err := issuer.LoadConfig(config)
			return c.ClockFile(), err
		}),
		endCommand(),
	)
}
