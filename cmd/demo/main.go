// Command demo runs a whole deployment on one machine. It starts relays and a verifier that store in a temporary
// folder. It plays clients with real data, over real HTTP and with real encryption. It prints the estimate next to the
// true answer. Then it serves a page on which you can add a report of your own. It exits with 1 for bad data and 2 for
// a wrong flag.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
)

func main() {
	code := cli.Run(root(), os.Args[1:])
	if code != cli.ExitOK {
		fmt.Fprintln(os.Stderr)
	}
	os.Exit(code)
}

func root() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Args: cli.NoArgs,
		Long: `Demo starts two relays and a verifier on loopback and plays one client per row of a CSV file:
each randomizes its value, seals it in onion layers and submits it. The relays count, peel and
shuffle. The verifier opens the batches and estimates. The demo knows every value, so it prints the
truth beside the estimate. Nobody in a deployment knows the truth.

By default 20,000 US flights report their delay. Rows outside the range are clipped to it (for a
count: counted as 0), and the share of them is printed. The page it then serves lets you add a report of your own.

A second page, /month/, shows a site owner's results after a month of five questions with one budget. --month prints
it: visits, pages, referrers, countries and loading times of simulated visitors. It shows each estimate beside its
interval and the truth, and what the questions cost.`,
		Example: `  make demo
  make demo ARGS="--headless --json --users 2000 --batch 2000"
  make demo ARGS="--query histogram --bins 12 --range -30,150 --epsilon 2"
  make demo ARGS="--task mean.json"
  make demo ARGS="--headless --month --seed 2"
  make demo ARGS="--headless --noise relays --query histogram --bins 12 --users 50"
  make demo ARGS="--headless --input cmd/demo/flights.csv.gz --column hour --range 0,24 --users 500 --batch 500"`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !o.headless {
				cli.Serves()
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if err := o.validate(cmd); err != nil {
				return err
			}
			if o.month {
				return printMonth(ctx, cmd, o.seed)
			}
			return run(ctx, cmd, &o)
		},
	}
	o.flags(cmd)
	return cli.Prepare("demo", "Private statistics from browsers, end to end on one machine", cmd)
}
