package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/clock"
)

type trustClockOutput struct {
	Clock string `json:"clock"` // the time of this machine's clock, RFC 3339, UTC
	File  string `json:"file"`  // the file from which the running program reads the confirmation
}

// TrustClock returns the command by which an operator confirms this machine's clock to a program. file returns the path
// of the clock file, given the configuration's path.
func TrustClock(program, example string, file func(config string) (string, error)) *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "trust-clock --config " + program + ".yaml",
		Short: "Confirm this machine's clock to a PROGRAM that doubts the time",
		Long: `Trust-clock makes the PROGRAM use this machine's clock, even if its peers' clocks differ. Use it if the
PROGRAM doubts the time and no peer can confirm it, for example after a week without power. First compare
the clock with another one: if it is ahead, the PROGRAM permanently erases the keys of epochs that have not
ended. The PROGRAM's log and metrics show how far the peers' clocks differ.

A running PROGRAM obeys within seconds. A stopped PROGRAM obeys if it starts within an hour.`,
		Example: example,
		Args:    NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := file(config)
			if err != nil {
				return err
			}
			now := time.Now()
			if err := clock.Trust(path, now); err != nil {
				return err
			}
			return Print(cmd, trustClockOutput{now.UTC().Format(time.RFC3339), path}, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "trusted this machine's clock, %s; wrote that to %s\n",
					now.UTC().Format(time.RFC3339), path)
				return err
			})
		},
	}
	cmd.Short = strings.ReplaceAll(cmd.Short, "PROGRAM", program)
	cmd.Long = strings.ReplaceAll(cmd.Long, "PROGRAM", program)
	cmd.Flags().StringVar(&config, "config", "", "configuration file ("+program+".yaml)")
	Require(cmd, "config")
	return cmd
}
