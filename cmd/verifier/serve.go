package main

import (
	"context"
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
	log                           cli.LogFlags
}

func serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use: "serve --config verifier.yaml | --task BUNDLE --keys FILE [--task BUNDLE --keys FILE ...] " +
			"--sign-key FILE --data DIR",
		Short: "Pull batches from the last relay and show the estimates",
		Long: `Serve pulls sealed batches from the last relay of each task. It stores each as a .batch file in the task's
folder, DATA/ID, before the relay may delete it, and adds it to the estimate. It serves a list of the tasks,
and a page for each at /tasks/ID/. The page shows the estimates by epoch with their error bars, quantiles of
a histogram, counts by hop, findings, the guarantee and the ledger. /tasks/ID/api/report has the same as
JSON, and /tasks/ID/api/report.csv as CSV.

Before a page shows a result of an epoch, serve charges the epoch once to the ledger of the task's stream,
or of the task. --total-epsilon and --total-delta are a budget for all published epochs of each stream
together, composed exactly. Without them, a task in no stream has the total that it claims. Serve withholds
the results of epochs beyond the budget, and the page says so. For a later task of a stream whose first task
is not named too, only --new-ledger begins a ledger: results of the stream that were published elsewhere
would be missing in it.

After a restart, serve reads the folder and continues where it stopped. It moves a damaged file to
DATA/ID/quarantine, reports it as a finding, and pulls it again. One process at a time may use a folder.

/healthz, /readyz, /metrics and /status are on the admin address, which must stay private. Both addresses
answer requests for an IP address, for localhost, and for the names in hosts and admin_hosts. They refuse
other names, because a page of another site could make its own name resolve to this server (DNS rebinding).
SIGTERM or an interrupt ends it. It may be killed at any moment.

A file, verifier.yaml, can replace the flags:

  listen: 127.0.0.1:8090
  admin: 127.0.0.1:9090
  sign_key: verifier.sign       # verifier keygen --kind sign
  data: data
  tasks:
    - file: mean.bundle         # doona task new
      owner: "ed25519:…"        # the required signer; any, if absent
      hpke_keys: mean.keys      # verifier keygen --kind hpke

'go doc github.com/doona-dp/doona/verifier/server.Config' explains every field, and .TaskConfig
those of a task. docs/verifier.md is the manual.`,
		Example: "  verifier serve --config try/verifier/verifier.yaml\n" +
			"  verifier serve --task t.bundle --keys verifier/t.keys --sign-key verifier/sign.key --data data " +
			"--listen 127.0.0.1:8090",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.Serving()
			defer stop()
			if err := cli.Refuse(cmd, "for serve: it has no result to print", "json"); err != nil {
				return err
			}
			config, err := f.load(cmd)
			if err != nil {
				return err
			}
			return serve(ctx, config)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "configuration file (verifier.yaml), instead of the other flags")
	flags.StringArrayVar(&f.tasks, "task", nil, "signed task bundle; may be repeated")
	flags.StringArrayVar(&f.keys, "keys", nil, "the verifier's HPKE key file for the task; as often as --task")
	flags.StringVar(&f.sign, "sign-key", "", "the verifier's signing key file")
	flags.StringVar(&f.data, "data", "", "folder for batches")
	flags.StringVar(&f.listen, "listen", server.DefaultListen, "address of the pages")
	flags.StringVar(&f.admin, "admin", "", "address of health and metrics, host:port; none if absent")
	flags.StringSliceVar(&f.hosts, "hosts", nil,
		"host names in requests for the pages, besides localhost and IP addresses; comma-separated")
	flags.StringSliceVar(&f.adminHosts, "admin-hosts", nil,
		"host names in requests to the admin address, such as the one that Prometheus scrapes")
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	flags.DurationVar(&f.interval, "interval", 10*time.Second, "interval between two pulls, 10ms to 1h")
	flags.BoolVar(&f.showUnusable, "show-unusable", false, "show the estimates of unusable reports too")
	flags.StringVar(&f.ledger, "ledger", "", "folder of the ledgers; default: ledger in the folder --data")
	flags.BoolVar(&f.begin, "new-ledger", false,
		"begin the ledger of a stream's later task if there is none in the folder")
	f.budget.flags(cmd)
	f.log.Register(cmd)
	return cmd
}

// load returns the configuration, with the log that the flags ask for.
func (f *serveFlags) load(cmd *cobra.Command) (config server.Config, err error) {
	log, err := f.log.Log(cmd)
	if err == nil {
		config, err = f.read(cmd)
	}
	config.Log = log
	return config, err
}

// read returns the configuration from the file --config, or else from the other flags.
func (f *serveFlags) read(cmd *cobra.Command) (server.Config, error) {
	if f.config != "" {
		if err := cli.Refuse(cmd, "with --config: the file has this setting", "task", "keys", "sign-key", "data",
			"listen", "admin", "hosts", "admin-hosts", "ca", "interval", "show-unusable", "ledger", "new-ledger",
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
		return server.Config{}, cli.Usagef("invalid keys: want --keys once for each of %d tasks, not %d times",
			len(f.tasks), len(f.keys))
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

func serve(ctx context.Context, config server.Config) error {
	config.Log = service.Coarse(config.Log)
	s, err := server.New(config)
	if err != nil {
		return err
	}
	for _, t := range config.Tasks {
		if t.Owner == "" {
			config.Log.Warn("task without an owner: anyone may have signed it", "task", t.File,
				"do", "set the agreed owner: owner: in verifier.yaml")
		}
	}
	if err := s.Run(ctx); err != nil {
		return err
	}
	config.Log.Info("drained")
	return nil
}
