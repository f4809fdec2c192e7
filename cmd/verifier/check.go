package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/verifier/server"
)

func checkCommand() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "check-config --config verifier.yaml",
		Short: "Check a configuration, its keys and its tasks",
		Long: `Check-config makes the checks of 'verifier serve' that need neither the folder of batches nor the ledger, so it
may run beside it. It reads the configuration, the keys, the password, the webhook's secret, and every task. It prints
the tasks, and warns of tasks without an owner, and of pages without a login at a public address. It changes nothing,
except that it closes key files to their group, as serve does.`,
		Example: "  doona init try && verifier check-config --config try/verifier/verifier.yaml",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := server.LoadConfig(config)
			if err != nil {
				return err
			}
			checked, err := server.Check(c)
			if err != nil {
				return err
			}
			return cli.Print(cmd, checked, func(w io.Writer) error {
				for _, t := range checked.Tasks {
					fmt.Fprintf(w, "%s  %q\n", t.ID, t.Name)
				}
				for _, warning := range checked.Warnings {
					fmt.Fprintln(w, "warning:", warning)
				}
				_, err := fmt.Fprintln(w, "the configuration is good")
				return err
			})
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file (verifier.yaml)")
	cli.Require(cmd, "config")
	return cmd
}
