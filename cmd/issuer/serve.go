package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/issuer"
)

func serveCommand() *cobra.Command {
	var config string
	var log cli.LogFlags
	cmd := &cobra.Command{
		Use:   "serve --config issuer.yaml",
		Short: "Run the issuer until SIGTERM or an interrupt",
		Long: `Serve answers token requests on the public address. /healthz, /readyz, /metrics and /status are on the
admin address, which must stay private. The admin address answers only requests for an IP address,
localhost or a name in admin_hosts. The issuer may be killed at any moment: it counts each token before
it sends it, and a client may repeat a request without a further count. SIGTERM or an interrupt drains
the issuer: it refuses new requests and answers those that have begun.

An example of issuer.yaml:

  listen: 127.0.0.1:8085        # a proxy in front provides TLS
  admin: 127.0.0.1:9085
  store: sqlite:issuer.db
  clients: account              # or address: networks, without protection against Sybils
  api_keys: api.keys            # mode 0600; one key of a site's backend per line: openssl rand -base64 32
  tasks:
    - file: mean.bundle         # from the task's owner
      owner: "ed25519:…"        # the owner that you agreed with
      token_keys: mean.keys     # issuer keygen
      quota: 1                  # tokens per person and epoch

A backend posts the request that its page made, for a person who is logged in:

  POST /v1/tasks/ID/epochs/E/token-request
  Authorization: Bearer API-KEY
  Doona-Account: opaque-name-of-the-person
  Content-Type: application/private-token-request

'go doc github.com/doona-dp/doona/issuer.Config' explains every field; .TaskConfig explains the fields
of a task.`,
		Example: "  issuer serve --config /etc/doona/issuer.yaml",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.Serving()
			defer stop()
			if err := cli.Refuse(cmd, "for serve: it has no result to print", "json"); err != nil {
				return err
			}
			return serve(ctx, cmd, config, &log)
		},
	}
	log.Register(cmd)
	cmd.Flags().StringVar(&config, "config", "", "configuration file (issuer.yaml)")
	cli.Require(cmd, "config")
	return cmd
}

func serve(ctx context.Context, cmd *cobra.Command, path string, flags *cli.LogFlags) error {
	log, err := flags.Log(cmd)
	if err != nil {
		return err
	}
	config, err := issuer.LoadConfig(path)
	if err != nil {
		return err
	}
	config.Log = service.Coarse(log)
	i, err := issuer.New(config)
	if err != nil {
		return err
	}
	if err := i.Run(ctx); err != nil {
		return err
	}
	config.Log.Info("drained")
	return nil
}

func checkCommand() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "check-config --config issuer.yaml",
		Short: "Check a configuration, its keys and its tasks",
		Long: `Check-config makes all checks that 'issuer serve' makes before it listens. It reads the configuration,
the API keys, every task and its keys, and the store if it exists. It checks the owners, and that the
tasks name these keys, and prints the tasks. It changes nothing, except that it closes key files to
their group, as serve does.`,
		Example: "  issuer check-config --config issuer.yaml",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status, err := localStatus(cmd.Context(), config)
			if err != nil {
				return err
			}
			return cli.Print(cmd, status, func(w io.Writer) error {
				for _, t := range status.Tasks {
					fmt.Fprintf(w, "%s  %q, tokens for each %s and epoch: %d\n", t.ID, t.Name, status.Clients, t.Quota)
				}
				if status.Clients == "address" {
					fmt.Fprintln(w, "clients are networks: no protection against an attacker with many networks (Sybils)")
				}
				_, err := fmt.Fprintln(w, "the configuration is good")
				return err
			})
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file (issuer.yaml)")
	cli.Require(cmd, "config")
	return cmd
}

func statusCommand() *cobra.Command {
	var config, admin string
	cmd := &cobra.Command{
		Use:   "status --config issuer.yaml | --admin URL",
		Short: "Show how many tokens have been issued",
		Long: `Status prints how many tokens have been issued for every task and every epoch that is open or next.

--config reads the store, also while the issuer runs; --admin asks a running issuer.`,
		Example: `  issuer status --config issuer.yaml
  issuer status --admin http://127.0.0.1:9085 --json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (config == "") == (admin == "") {
				return cli.Usagef("missing flag: want either --config or --admin")
			}
			get := func() (*issuer.Status, error) { return localStatus(cmd.Context(), config) }
			if admin != "" {
				get = func() (*issuer.Status, error) { return remoteStatus(cmd.Context(), admin) }
			}
			status, err := get()
			if err != nil {
				return err
			}
			return cli.Print(cmd, status, func(w io.Writer) error {
				table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
				fmt.Fprintln(table, "TASK\tNAME\tQUOTA\tEPOCH\tISSUED")
				for _, t := range status.Tasks {
					for _, e := range t.Epochs {
						fmt.Fprintf(table, "%.8s\t%s\t%d\t%d\t%d\n", t.ID, t.Name, t.Quota, e.Epoch, e.Issued)
					}
					if len(t.Epochs) == 0 {
						fmt.Fprintf(table, "%.8s\t%s\t%d\t-\t0\n", t.ID, t.Name, t.Quota)
					}
				}
				return table.Flush()
			})
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file (issuer.yaml)")
	cmd.Flags().StringVar(&admin, "admin", "", "base URL of an issuer's admin address")
	return cmd
}

func localStatus(ctx context.Context, path string) (*issuer.Status, error) {
	config, err := issuer.LoadConfig(path)
	if err != nil {
		return nil, err
	}
	i, err := issuer.Inspect(config)
	if err != nil {
		return nil, err
	}
	defer i.Close()
	return i.Status(ctx)
}

func remoteStatus(ctx context.Context, admin string) (*issuer.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(admin, "/")+"/status", nil)
	if err != nil || req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Host == "" {
		return nil, cli.Usagef("invalid admin %q: want a URL such as http://127.0.0.1:9085", admin)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("couldn't ask the issuer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("couldn't ask the issuer: %s", cli.Answer(resp))
	}
	var status issuer.Status
	if err := json.NewDecoder(io.LimitReader(resp.Body, cli.MaxStatus)).Decode(&status); err != nil {
		return nil, fmt.Errorf("couldn't read the issuer's answer: %w", err)
	}
	return &status, nil
}
