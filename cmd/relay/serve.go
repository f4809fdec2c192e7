package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay"
)

// configFlags are the flags of commands that read relay.yaml.
type configFlags struct{ config, store string }

func (f *configFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.config, "config", "", "configuration file (relay.yaml)")
	cmd.Flags().StringVar(&f.store, "store", "",
		"sqlite:PATH or postgres://USER@HOST/DATABASE; replaces the configuration's store")
}

// load reads the configuration. A path in a flag is relative to the working folder.
func (f *configFlags) load() (relay.Config, error) {
	if err := relay.CheckStore(f.store); f.store != "" && err != nil {
		return relay.Config{}, cli.Usagef("%v", err)
	}
	config, err := relay.LoadConfig(f.config)
	if f.store != "" {
		config.Store = f.store
	}
	return config, err
}

func serveCommand() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "serve --config relay.yaml",
		Short: "Run the relay until SIGTERM or an interrupt",
		Long: `Serve runs a relay. Whether it is the first of a task, and takes reports, or a later one, and
pulls the batches of the relay before it, follows from the task: it finds its signing key there.

It answers clients and the next hop on the public address; /healthz, /readyz, /metrics and
/status are on the admin address, which must stay private: it answers requests for an IP address, localhost
and the names of admin_hosts. It may be killed at any moment:
acknowledged reports are on disk. SIGTERM or an interrupt drains it: what is new is refused, what
has begun is answered.

relay.yaml, such as this one behind a TLS proxy:

  listen: 127.0.0.1:8081
  admin: 127.0.0.1:9081
  sign_key: relay.sign          # relay keygen --kind sign
  store: sqlite:relay.db
  secret: relay.secret          # created if absent; not in backups
  trusted_proxies: [127.0.0.0/8]
  tasks:
    - file: mean.bundle         # from the task's owner
      owner: "ed25519:…"        # whom you agreed with
      hpke_keys: mean.keys      # relay keygen --kind hpke
  owners:                       # who may hand tasks over by themselves
    - {owner: "ed25519:…", folder: shop, tasks: 20}

'go doc github.com/doona-dp/doona/relay.Config' explains every field, and likewise .TaskConfig,
.OwnerConfig, .TLSConfig and .AutocertConfig those inside it.`,
		Example: "  relay serve --config try/relay1/relay.yaml",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if err := cli.Refuse(cmd, "for serve: it has no result to print", "json"); err != nil {
				return err
			}
			return serve(ctx, cmd, &f)
		},
	}
	f.register(cmd)
	cli.Require(cmd, "config")
	return cmd
}

func serve(ctx context.Context, cmd *cobra.Command, f *configFlags) error {
	config, err := f.load()
	if err != nil {
		return err
	}
	config.Log = service.Coarse(slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
	r, err := relay.New(config)
	if err != nil {
		return err
	}
	if err := r.Run(ctx); err != nil {
		return err
	}
	config.Log.Info("drained")
	return nil
}

func checkCommand() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "check-config --config relay.yaml",
		Short: "Check a configuration, its keys and its tasks",
		Long: `Check-config does all that 'relay serve' does before it listens: it reads the configuration,
the keys and every task, checks owners, key lists and this relay's place in each task, and reads
the store and the secret where there are any, and tries whether it could make files where the relay does: run it as
the user whom the relay runs as. It changes nothing, and prints the tasks, and what a full batch of each takes here
at most, estimated. A SQLite store on a disk that is smaller is an error.`,
		Example: "  doona init try && relay check-config --config try/relay1/relay.yaml",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := checked(cmd.Context(), &f)
			if err != nil {
				return err
			}
			return cli.Print(cmd, status, func(w io.Writer) error {
				for _, t := range status.Tasks {
					fmt.Fprintf(w, "%s  %q, hop %d\n", t.ID, t.Name, t.Hop)
				}
				for _, n := range status.BatchNeeds {
					fmt.Fprintf(w, "%s  a full batch takes up to %s\n", n.Task, n)
				}
				for _, o := range status.Owners {
					fmt.Fprintln(w, o)
				}
				if status.StateRollback != "" {
					return fmt.Errorf("state rollback detected: %s: see relay end-epochs --help", status.StateRollback)
				}
				_, err := fmt.Fprintln(w, "the configuration is good")
				return err
			})
		},
	}
	f.register(cmd)
	cli.Require(cmd, "config")
	return cmd
}

// checkedStatus is what check-config prints.
type checkedStatus struct {
	*relay.Status
	BatchNeeds []relay.TaskNeed `json:"batch_needs"`
}

// checked is localStatus, and fails unless the relay could serve the configuration.
func checked(ctx context.Context, f *configFlags) (*checkedStatus, error) {
	var needs []relay.TaskNeed
	status, err := localStatus(ctx, f, func(i *relay.Inspected) (err error) {
		if err = i.CheckFolders(); err != nil {
			return err
		}
		if err = i.CheckSecret(ctx); err != nil {
			return err
		}
		needs, err = i.BatchNeeds()
		return err
	})
	return &checkedStatus{status, needs}, err
}
