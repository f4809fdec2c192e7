package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/issuer"
)

// endResult is what end-epochs prints.
type endResult struct {
	Tasks []issuer.Ended `json:"tasks"`
}

func endCommand() *cobra.Command {
	var config string
	var all bool
	cmd := &cobra.Command{
		Use:   "end-epochs --config issuer.yaml",
		Short: "End the epochs whose tokens cannot be counted any more",
		Long: `An issuer whose store or keys are not those of its last token is refused: its store may have
forgotten who has had tokens. Put back what is newest, if you have it. If not, end-epochs erases, for each
task that is refused, the keys of all epochs of which tokens may have been issued: those that have begun, the
one after them, and any that the store or the keys tell of. They give out no further token; tokens that
clients have stay good. Later epochs go on, with counts begun anew.

Where store and keys were both restored to one moment, as a snapshot of the machine does, nothing in
them tells. Say so with --all, which ends the epochs of every task that has issued tokens. The issuer must not
be running.`,
		Example: `  issuer end-epochs --config issuer.yaml
  issuer end-epochs --config issuer.yaml --all`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := issuer.LoadConfig(config)
			if err != nil {
				return err
			}
			end := issuer.EndEpochs
			if all {
				end = issuer.EndAllEpochs
			}
			ended, err := end(c)
			if err != nil {
				return err
			}
			return cli.Print(cmd, endResult{append([]issuer.Ended{}, ended...)}, func(w io.Writer) error {
				for _, e := range ended {
					fmt.Fprintf(w, "%s  %q: epochs before %d are ended, %d keys erased\n", e.ID, e.Name, e.Next, e.Ended)
				}
				if len(ended) == 0 {
					fmt.Fprintln(w, "nothing was set back, as far as store and keys tell: nothing is ended")
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file (issuer.yaml)")
	cmd.Flags().BoolVar(&all, "all", false, "end the epochs of all tasks: store and keys were restored together")
	cli.Require(cmd, "config")
	return cmd
}
