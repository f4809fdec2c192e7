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
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// serveFlags are the flags of `verifier serve`.
type serveFlags struct {
	tasks, keys            []string
	sign, data, listen, ca string
	interval               time.Duration
}

func serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve --task BUNDLE --keys FILE [--task BUNDLE --keys FILE ...] --sign-key FILE --data DIR",
		Short: "Pull batches from the last relay and show the estimates",
		Long: `Serve asks the task's last relay for sealed batches, keeps each as a .batch file in the data
folder before it lets the relay delete it, adds it to the estimate, and serves a page with the
estimates over the epochs, their error bars, quantiles of a histogram, counts by hop, findings, the
guarantee and the ledger; the same as JSON at /api/report and as CSV at /api/report.csv.
Restarted, it reads the folder and goes on where it stopped. SIGTERM ends it.

--task and --keys may be given several times, in pairs: each task then has a folder of its own in the
data folder, named by its id, and its page at /tasks/ID/.`,
		Example: "  verifier serve --task t.bundle --keys verifier/t.keys --sign-key verifier/sign.key --data data " +
			"--listen 127.0.0.1:8090",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if err := cli.Refuse(cmd, "for serve: it has no result to print", "json"); err != nil {
				return err
			}
			return f.run(ctx, cmd)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.tasks, "task", nil, "signed task bundle; may be repeated")
	flags.StringArrayVar(&f.keys, "keys", nil, "the verifier's HPKE key file for the task; as often as --task")
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
	if len(f.keys) != len(f.tasks) {
		return cli.Usagef("invalid keys: want one for each of %d tasks, not %d", len(f.tasks), len(f.keys))
	}
	sign, err := keyfile.LoadSign(f.sign)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	transport, err := handover.LoadTransport(f.ca)
	if err != nil {
		return err
	}
	client := handover.NewClient(sign, transport)
	var verifiers []*verifier.Verifier
	var pullers []*verifier.Puller
	for i := range f.tasks {
		v, p, err := f.open(i, sign, client, log)
		if err != nil {
			return err
		}
		defer p.Close()
		verifiers, pullers = append(verifiers, v), append(pullers, p)
	}
	handler := verifiers[0].Handler()
	if len(verifiers) > 1 {
		handler = verifier.Handler(verifiers...)
	}
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("couldn't serve the page: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		WriteTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	log.Info("serving", "page", "http://"+l.Addr().String())
	var running sync.WaitGroup
	for _, p := range pullers {
		running.Go(func() { p.Run(ctx, f.interval) })
	}
	running.Wait()
	if err := server.Shutdown(context.Background()); err != nil {
		return fmt.Errorf("couldn't stop serving: %w", err)
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("couldn't serve the page: %w", err)
	}
	return nil
}

// open loads the task with a number and the batches it has.
func (f *serveFlags) open(i int, sign ed25519.PrivateKey, client *handover.Client,
	log *slog.Logger) (*verifier.Verifier, *verifier.Puller, error) {
	open, err := taskfile.LoadBundle(f.tasks[i])
	if err != nil {
		return nil, nil, err
	}
	keys, err := keyfile.LoadHPKE(f.keys[i])
	if err != nil {
		return nil, nil, err
	}
	if public := sign.Public().(ed25519.PublicKey); task.SignKey(public) != open.Verifier.SignKey {
		return nil, nil, fmt.Errorf("couldn't use %s: it is not the key of the task's verifier", f.sign)
	}
	v, err := verifier.New(open, keys)
	if err != nil {
		return nil, nil, err
	}
	data := f.data
	if len(f.tasks) > 1 {
		data = filepath.Join(data, open.ID.String())
	}
	p, err := verifier.NewPuller(v, client, data, log)
	return v, p, err
}
