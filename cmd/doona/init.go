package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/task"
)

func initCommand() *cobra.Command {
	var epochs uint64
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Lay out a first deployment: keys, a task, two relays and a verifier on one machine",
		Long: `Init writes everything a first deployment needs into DIR, which must be empty or absent: the
owner's key, a signed task (the mean of a number from 0 to 100, 1,000 reports a batch, epsilon 1,
delta 1e-6, one epoch a day from today), two relays' keys and relay.yaml, and the verifier's keys and
verifier.yaml.
It prints the commands that start them, and one that simulates clients. In production, every party makes
its own keys on its own machine ('relay keygen', 'verifier keygen', 'doona keygen') and the owner signs a task with
'doona task new'.`,
		Example: "  doona init try && cat try/task.json",
		Args:    func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if epochs < 1 || epochs > 3650 {
				return cli.Usagef("invalid epochs %d: want 1 to 3650", epochs)
			}
			t, err := planner.Draft(planner.Query{Name: "first task", Query: task.Mean, Hi: 100, Clip: true,
				Batch: 1000, Honest: 0.9, Epsilon: 1, Delta: 1e-6})
			if err != nil {
				return err
			}
			today := time.Now().UTC().Truncate(24 * time.Hour)
			t.Epochs = task.Epochs{Start: uint64(today.Unix()), Length: 24 * 3600, Count: epochs}
			// The first relay trusts this machine's forwarding header, so that `doona load` can simulate many
			// networks.
			relays := []quickstart.Relay{
				{URL: "http://127.0.0.1:8081", Listen: "127.0.0.1:8081", Admin: "127.0.0.1:9081",
					TrustedProxies: []string{"127.0.0.0/8"}},
				{URL: "http://127.0.0.1:8082", Listen: "127.0.0.1:8082", Admin: "127.0.0.1:9082"},
			}
			d, err := quickstart.Write(filepath.Clean(args[0]), relays, []quickstart.Draft{{Name: "task", Task: t}})
			if err != nil {
				return err
			}
			config := filepath.Join(filepath.Dir(d.VerifierSign()), "verifier.yaml")
			if err := os.WriteFile(config, []byte(verifierConfig(d.Owner)), 0o600); err != nil {
				return fmt.Errorf("couldn't write the configuration: %w", err)
			}
			relay, url := beside("relay"), d.TaskURL(0)
			out := deployment{Dir: d.Dir, TaskURL: url, Owner: d.Owner, Commands: []string{
				relay + " serve --config " + d.RelayConfig(1),
				relay + " serve --config " + d.RelayConfig(2),
				beside("verifier") + " serve --config " + config,
			}, Load: fmt.Sprintf("%s load --task %s --owner %s --rate 0 --clients 2000", os.Args[0], url, d.Owner)}
			return cli.Print(cmd, out, out.print)
		},
	}
	cmd.Flags().Uint64Var(&epochs, "epochs", 30, "days the task runs, 1 to 3650")
	return cmd
}

func verifierConfig(owner string) string {
	return fmt.Sprintf("# Every field is documented in verifier/server/config.go; relative paths start here.\n"+
		"listen: %s\nadmin: 127.0.0.1:9090\nsign_key: sign.key\ndata: data\ntasks:\n"+
		"  - {file: ../task.bundle, owner: %q, hpke_keys: task.keys}\n", server.DefaultListen, owner)
}

// deployment is what `doona init --json` prints.
type deployment struct {
	Dir      string   `json:"dir"`
	TaskURL  string   `json:"task_url"`
	Owner    string   `json:"owner"`
	Commands []string `json:"commands"`
	Load     string   `json:"load"`
}

func (d deployment) print(w io.Writer) error {
	fmt.Fprintln(w, "Start each of these in its own terminal:")
	for _, c := range d.Commands {
		fmt.Fprintln(w, "  "+c)
	}
	_, err := fmt.Fprintf(w, "\nThen simulate 2,000 clients, enough for two batches:\n  %s\nor report from a page:\n  "+
		"connect({task: %q, owner: %q, …})\n", d.Load, d.TaskURL, d.Owner)
	return err
}

// beside returns the path of a program in the folder of this program, or its bare name if it is not there.
func beside(name string) string {
	folder, _ := filepath.Split(os.Args[0])
	if _, err := os.Stat(folder + name); err != nil {
		return name
	}
	return folder + name
}
