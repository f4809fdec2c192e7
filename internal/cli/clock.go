package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/clock"
)

// trustClockOutput is the output of trust-clock.
type trustClockOutput struct {
	Clock string `json:"clock"` // this machine's clock, RFC 3339, UTC
	File  string `json:"file"`  // the file that tells the process
}

// TrustClock returns the command by which an operator tells a program that this machine's clock is right. file returns
// the clock file of a configuration.
func TrustClock(program, example string, file func(config string) (string, error)) *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "trust-clock --config " + program + ".yaml",
		Short: "Say that this machine's clock is right, to a PROGRAM that is in doubt",
		Long: `Trust-clock has the PROGRAM go by this machine's clock, whatever its neighbours' clocks say. It is for
a PROGRAM in doubt, of which no neighbour can say what time it is, as after a week without power. Compare the
clock with another first: by a clock that is ahead, the keys of epochs that have not ended are erased, for
good. How far the neighbours' clocks are off, the PROGRAM's log says, and its metrics.

It takes effect within seconds where the PROGRAM runs, and else if it is started within the hour.`,
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
				_, err := fmt.Fprintf(w, "the time is %s, it says in %s\n", now.UTC().Format(time.RFC3339), path)
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
