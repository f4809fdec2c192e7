package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

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
	var log cli.LogFlags
	cmd := &cobra.Command{
		Use:   "serve --config relay.yaml",
		Short: "Run the relay until SIGTERM or an interrupt",
		Long: `Serve runs a relay. Each task names the signing keys of its relays in order. The first relay accepts
reports from clients. A later relay pulls the batches of its upstream relay.

The relay answers clients and the next hop on the public address. /healthz, /readyz, /metrics and
/status are on the admin address, which must stay private. The admin address answers only requests for
an IP address, localhost or a name in admin_hosts. The relay may be killed at any moment: acknowledged
reports are on disk. SIGTERM or an interrupt drains it: it refuses new requests and answers those that
have begun. After SIGHUP it reads relay.yaml again and applies changes of owners. It refuses any other
change, and relay status says so until a reload succeeds.

An example of relay.yaml, for a relay behind a TLS proxy:

  listen: 127.0.0.1:8081
  admin: 127.0.0.1:9081
  sign_key: relay.sign          # relay keygen --kind sign
  store: sqlite:relay.db
  secret: relay.secret          # created if absent; not in backups
  trusted_proxies: [127.0.0.0/8]
  tasks:
    - file: mean.bundle         # from the task's owner
      owner: "ed25519:…"        # the owner that you agreed with
      hpke_keys: mean.keys      # relay keygen --kind hpke
  owners:                       # may add tasks without asking you
    - {owner: "ed25519:…", folder: shop, tasks: 20}

'go doc github.com/doona-dp/doona/relay.Config' explains every field; .TaskConfig, .OwnerConfig,
.TLSConfig and .AutocertConfig explain the nested ones.`,
		Example: "  relay serve --config try/relay1/relay.yaml",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.Serving()
			defer stop()
			if err := cli.Refuse(cmd, "for serve: it has no result to print", "json"); err != nil {
				return err
			}
			return serve(ctx, cmd, &f, &log)
		},
	}
	f.register(cmd)
	log.Register(cmd)
	cli.Require(cmd, "config")
	return cmd
}

func serve(ctx context.Context, cmd *cobra.Command, f *configFlags, flags *cli.LogFlags) error {
	log, err := flags.Log(cmd)
	if err != nil {
		return err
	}
	hangups := cli.Hangups()
	config, err := f.load()
	if err != nil {
		return err
	}
	config.Log = service.Coarse(log)
	r, err := relay.New(config)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	var reloading sync.WaitGroup
	reloading.Go(func() { reloadLoop(running, hangups, r, f) })
	err = r.Run(ctx)
	stop()
	reloading.Wait()
	if err != nil {
		return err
	}
	config.Log.Info("drained")
	return nil
}

// reloadLoop reads the configuration again after each SIGHUP. The relay logs what came of it.
func reloadLoop(ctx context.Context, hangups <-chan os.Signal, r *relay.Relay, f *configFlags) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			_ = r.Reload(f.load)
		}
	}
}

func checkCommand() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "check-config --config relay.yaml",
		Short: "Check a configuration, its keys and its tasks",
		Long: `Check-config makes all checks that 'relay serve' makes before it listens. It reads the configuration,
the keys, every task, and the store and the secret if they exist. It checks owners, key lists and this
relay's hop in each task. It also checks that it can create files in the relay's folders: run it as
the same user as the relay. It leaves no changes, but closes key files to their
group, as the relay does.

It prints the tasks, and estimates how much memory, disk and processor time a full batch of each task
needs here at most. It fails if the disk of an SQLite store is too small for that.`,
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

// checkedStatus is the output of check-config.
type checkedStatus struct {
	*relay.Status
	BatchNeeds []relay.TaskNeed `json:"batch_needs"`
}

// checked returns localStatus and what a full batch of each task needs. It fails if the relay could not serve with this
// configuration.
func checked(ctx context.Context, f *configFlags) (*checkedStatus, error) {
	var needs []relay.TaskNeed
	status, err := localStatus(ctx, f, func(i *relay.Inspected) (err error) {
		if err = i.CheckFolders(); err != nil {
			return err
		}
		if err = i.CheckServer(ctx); err != nil {
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
