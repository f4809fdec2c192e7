package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/verifier/report"
)

func devCommand() *cobra.Command {
	var o devOptions
	var anew bool
	var hosts cli.HostsFlag
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run relays and a verifier for a page that you write",
		Long: `Dev runs two relays and a verifier on this machine, and makes a task for them. A page reports to it with
four lines:

  import { init } from 'doona';
  import task from '../.doona/task.json';
  const doona = init({ ...task, debug: true });
  doona.report(42);

The code of a real deployment randomizes, seals, relays and opens every report. A few seconds later, this terminal and
a page show the estimate. A browser reports once in an epoch: reload the page in the next one.

NOTHING IS PRIVATE. A batch is a single report, so no other report hides it; there is almost no noise; and all keys
are on this machine. For a task that protects people see 'doona plan' and 'doona init'.

Dev stores everything in the folder .doona, which git ignores. The next start continues with the same task and address.
The task lasts 12 hours. After that, or with --new, dev makes another task and writes it to .doona/task.json.`,
		Example: `  doona dev
  doona dev --new --query histogram --bins 5 --labels
  doona dev --new --batch 3 --epoch 60`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cli.Serves()
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if err := cmp.Or(o.validate(cmd), hosts.Check()); err != nil {
				return err
			}
			return dev(ctx, cmd, &o, hosts.Hosts(cmd, ""), anew)
		},
	}
	o.flags(cmd)
	hosts.Register(cmd)
	cmd.Flags().BoolVar(&anew, "new", false, "make another task, and delete the one in .doona")
	return cmd
}

// dev runs the deployment and its page until ctx ends.
func dev(ctx context.Context, cmd *cobra.Command, o *devOptions, hosts *display.Hosts, anew bool) error {
	kept, err := openFolder(cmd, o, anew)
	if err != nil {
		return err
	}
	listeners, err := listenAt(kept.Addresses)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	d, err := kept.deployment(o, listeners[1:])
	if err != nil {
		return err
	}
	box := quickstart.NewSandbox(ctx)
	defer box.Stop()
	if err := box.StartRelays(d, listeners[1:]); err != nil {
		return err
	}
	t, err := box.StartTask(d, 0, devName)
	if err != nil {
		return err
	}
	page := &http.Server{Handler: devHandler(hosts, t), ReadHeaderTimeout: 10 * time.Second}
	defer page.Close()
	go page.Serve(listeners[0])
	offer, err := kept.keep(d, listeners)
	if err != nil {
		return err
	}
	if err := cli.Print(cmd, offer, func(out io.Writer) error { return offer.print(out, o) }); err != nil {
		return err
	}
	return watch(ctx, cmd, t)
}

// devHandler serves the page that shows the estimate.
func devHandler(hosts *display.Hosts, t *quickstart.RunningTask) http.Handler {
	return display.Protect(display.Bare, hosts.Guard(report.Handler(t.Verifier)))
}

// listenAt opens the ports of the page and of the relays. If one port fails, it closes the others.
func listenAt(addresses []string) (listeners []net.Listener, err error) {
	for _, address := range addresses {
		l, err := net.Listen("tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%s is in use, perhaps by another 'doona dev': end it, or use other ports with --new "+
				"--port N", address)
		}
		if err != nil {
			closeAll(listeners)
			return nil, fmt.Errorf("couldn't listen: %w", err)
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}
