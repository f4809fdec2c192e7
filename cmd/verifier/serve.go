package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/verifier/server"
)

type serveFlags struct {
	config                        string
	tasks, keys                   []string
	sign, data, listen, admin, ca string
	interval                      time.Duration
	showUnusable                  bool
	ledger                        string
	budget                        budgetFlags
	hosts, adminHosts             []string
	begin                         bool
}

func serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve --config verifier.yaml | --task BUNDLE --keys FILE [--task BUNDLE --keys FILE ...] " +
			"--sign-key FILE --data DIR",
		Short: "Pull batches from the last relay and show the estimates",
		Long: `Serve asks the last relay of each task for sealed batches, keeps each as a .batch file in the
task's folder, DATA/ID, before it lets the relay delete it, adds it to the estimate, and serves a list of
the tasks and for each, at /tasks/ID/, a page with the estimates over the epochs, their error bars,
quantiles of a histogram, counts by hop, findings, the guarantee and the ledger; the same as JSON at
/tasks/ID/api/report and as CSV at /tasks/ID/api/report.csv.

Before a page shows a result of an epoch, the epoch is charged to the ledger of the task's stream, or of
the task, once. --total-epsilon and --total-delta are a budget for all published epochs of each stream
together, composed exactly; without them, a task in no stream has the total that it claims. Results of
epochs that the budget does not suffice for are withheld, and the page says so. The ledger of a stream's
later task, where its first is not named too, is begun only with --new-ledger: else it would charge anew what
was published of the stream elsewhere.

Restarted, it reads the folder and goes on where it stopped. A kept file that is damaged is put aside in
DATA/ID/quarantine, named in the findings, and asked for again. A folder serves one process at a time.

/healthz, /readyz, /metrics and /status are on the admin address, which must stay private. Both addresses
answer requests for an IP address, localhost, and the names of hosts and admin_hosts: a page of another site
that has its own name resolve to them is refused (DNS rebinding). SIGTERM or an interrupt ends it. It may be killed at any moment.

All may stand in a file instead of flags, verifier.yaml, such as this one:

  listen: 127.0.0.1:8090
  admin: 127.0.0.1:9090
  sign_key: verifier.sign       # verifier keygen --kind sign
  data: data
  tasks:
    - file: mean.bundle         # doona task new
      owner: "ed25519:…"        # who must have signed it; anyone, if absent
      hpke_keys: mean.keys      # verifier keygen --kind hpke

'go doc github.com/doona-dp/doona/verifier/server.Config' explains every field, and likewise .TaskConfig
those of a task; docs/verifier.md is the manual.`,
		Example: "  verifier serve --config try/verifier/verifier.yaml\n" +
			"  verifier serve --task t.bundle --keys verifier/t.keys --sign-key verifier/sign.key --data data " +
			"--listen 127.0.0.1:8090",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if err := cli.Refuse(cmd, "for serve: it has no result to print", "json"); err != nil {
				return err
			}
			config, err := f.load(cmd)
			if err != nil {
				return err
			}
			return serve(ctx, cmd, config)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "configuration file (verifier.yaml), in place of the other flags")
	flags.StringArrayVar(&f.tasks, "task", nil, "signed task bundle; may be repeated")
	flags.StringArrayVar(&f.keys, "keys", nil, "the verifier's HPKE key file for the task; as often as --task")
	flags.StringVar(&f.sign, "sign-key", "", "the verifier's signing key file")
	flags.StringVar(&f.data, "data", "", "folder for batches")
	flags.StringVar(&f.listen, "listen", server.DefaultListen, "address of the pages")
	flags.StringVar(&f.admin, "admin", "", "address of health and metrics, host:port; none if absent")
	flags.StringSliceVar(&f.hosts, "hosts", nil,
		"names by which the pages may be asked for, besides localhost and IP addresses; comma-separated")
	flags.StringSliceVar(&f.adminHosts, "admin-hosts", nil,
		"names by which the admin address may be asked, such as the one that Prometheus scrapes")
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	flags.DurationVar(&f.interval, "interval", 10*time.Second, "how often to ask for batches, 10ms to 1h")
	flags.BoolVar(&f.showUnusable, "show-unusable", false, "show the estimates of unusable reports too")
	flags.StringVar(&f.ledger, "ledger", "", "folder of the ledgers; default: ledger in the folder --data")
	flags.BoolVar(&f.begin, "new-ledger", false,
		"begin the ledger of a stream's later task if there is none in the folder")
	f.budget.flags(cmd)
	return cmd
}

// load returns the configuration from the file that the flags name, or from the flags alone.
func (f *serveFlags) load(cmd *cobra.Command) (server.Config, error) {
	if f.config != "" {
		if err := cli.Refuse(cmd, "with --config: the file has it", "task", "keys", "sign-key", "data", "listen",
			"admin", "hosts", "admin-hosts", "ca", "interval", "show-unusable", "ledger", "new-ledger",
			"total-epsilon", "total-delta"); err != nil {
			return server.Config{}, err
		}
		return server.LoadConfig(f.config)
	}
	for _, name := range []string{"task", "keys", "sign-key", "data"} {
		if !cmd.Flags().Changed(name) {
			return server.Config{}, cli.Usagef("missing flag --%s", name)
		}
	}
	if f.interval < 10*time.Millisecond || f.interval > time.Hour {
		return server.Config{}, cli.Usagef("invalid interval %v: want 10ms to 1h", f.interval)
	}
	if len(f.keys) != len(f.tasks) {
		return server.Config{}, cli.Usagef("invalid keys: want one for each of %d tasks, not %d", len(f.tasks),
			len(f.keys))
	}
	budget, err := f.budget.get(cmd)
	if err != nil {
		return server.Config{}, err
	}
	c := server.Config{Listen: f.listen, Admin: f.admin, Hosts: f.hosts, AdminHosts: f.adminHosts,
		SignKey: f.sign, Data: f.data, CA: f.ca,
		PullInterval: f.interval, ShowUnusable: f.showUnusable, Ledger: f.ledger}
	for i, file := range f.tasks {
		t := server.TaskConfig{File: file, HPKEKeys: f.keys[i], NewLedger: f.begin}
		if budget != nil {
			t.TotalEpsilon, t.TotalDelta = budget.Epsilon, budget.Delta
		}
		c.Tasks = append(c.Tasks, t)
	}
	return c, nil
}

func serve(ctx context.Context, cmd *cobra.Command, config server.Config) error {
	config.Log = service.Coarse(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
	s, err := server.New(config)
	if err != nil {
		return err
	}
	for _, t := range config.Tasks {
		if t.Owner == "" {
			config.Log.Warn("no owner is named: a task that anyone has signed is served", "task", t.File,
				"do", "name whom you agreed with: owner: in verifier.yaml")
		}
	}
	if err := s.Run(ctx); err != nil {
		return err
	}
	config.Log.Info("drained")
	return nil
}
