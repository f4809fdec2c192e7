package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/keyfile"
	"github.com/doona-dp/doona/relay/handover"
	"github.com/doona-dp/doona/task/taskfile"
	"github.com/doona-dp/doona/verifier"
)

// serveFlags are the flags of `verifier serve`.
type serveFlags struct {
	task, keys, sign, data, listen, ca string
	interval                           time.Duration
}

func serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve --task BUNDLE --keys FILE --sign-key FILE --data DIR",
		Short: "Pull batches from the last relay and show the estimates",
		Long: `Serve asks the task's last relay for sealed batches, keeps each as a .batch file in the data
folder before it lets the relay delete it, adds it to the estimate, and serves a page with the
estimate, its error bars, the guarantee, the ledger and findings; the same as JSON at /api/report.
Restarted, it reads the folder and goes on where it stopped. SIGTERM ends it.`,
		Example: "  verifier serve --task t.bundle --keys verifier/t.keys --sign-key verifier/sign.key --data data --listen 127.0.0.1:8090",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.run(ctx, cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.task, "task", "", "signed task bundle")
	flags.StringVar(&f.keys, "keys", "", "the verifier's HPKE key file")
	flags.StringVar(&f.sign, "sign-key", "", "the verifier's signing key file")
	flags.StringVar(&f.data, "data", "", "folder for batches")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8090", "address of the page")
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	flags.DurationVar(&f.interval, "interval", 10*time.Second, "how often to ask for batches, 10ms or more")
	cli.Require(cmd, "task", "keys", "sign-key", "data")
	return cmd
}

func (f *serveFlags) run(ctx context.Context, cmd *cobra.Command) error {
	if f.interval < 10*time.Millisecond {
		return cli.Usagef("invalid interval %v: want 10ms or more", f.interval)
	}
	open, err := taskfile.LoadBundle(f.task)
	if err != nil {
		return err
	}
	keys, err := keyfile.LoadHPKE(f.keys)
	if err != nil {
		return err
	}
	sign, err := keyfile.LoadSign(f.sign)
	if err != nil {
		return err
	}
	if public := sign.Public().(ed25519.PublicKey); [32]byte(public) != open.Verifier.SignKey {
		return fmt.Errorf("couldn't use %s: it is not the key of the task's verifier", f.sign)
	}
	v, err := verifier.New(open, keys)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	transport, err := handover.LoadTransport(f.ca)
	if err != nil {
		return err
	}
	puller, err := verifier.NewPuller(v, handover.NewClient(sign, transport), f.data, log)
	if err != nil {
		return err
	}
	defer puller.Close()
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("couldn't serve the page: %w", err)
	}
	server := &http.Server{Handler: v.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	log.Info("serving", "page", "http://"+l.Addr().String())
	puller.Run(ctx, f.interval)
	if err := server.Shutdown(context.Background()); err != nil {
		return fmt.Errorf("couldn't stop serving: %w", err)
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("couldn't serve the page: %w", err)
	}
	return nil
}
