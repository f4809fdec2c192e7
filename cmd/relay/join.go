package main

import (
	"crypto/ed25519"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// joinFlags are the flags of join.
type joinFlags struct {
	config, url, yes string
	tasks            int
}

func joinCommand() *cobra.Command {
	var f joinFlags
	cmd := &cobra.Command{
		Use:   "join CODE --config relay.yaml --url URL",
		Short: "Accept an invite: approve its owner, and print the answer",
		Long: `Join reads an invite, which 'relay invite' made. CODE is its text, a file, or - for standard input. Join shows
who asks for how many tasks, and the invite's fingerprint. Compare that with the inviter by telephone.

Once you confirm, Join adds the owner to relay.yaml: it writes relay.yaml.new beside it, checks it as
'relay check-config' does, and renames it. Run Join as the relay's user, or as a user who may read its keys. Then
send each of the relay's processes SIGHUP. Join prints the answer for the inviter. If relay.yaml has the owner
already, Join changes nothing and prints the answer.

Relays protect visitors only if different people run them. So Join refuses two relays of one registrable
domain, such as a.example.org and b.example.org. That finds a mistake, but no lie: look at who asks.`,
		Example: `  relay join invite.txt --config relay.yaml --url https://relay2.example >answer.txt`,
		Args:    func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "configuration file (relay.yaml)")
	flags.StringVar(&f.url, "url", "", "address of this relay, as tasks are to name it")
	flags.IntVar(&f.tasks, "tasks", 0, "number of tasks to allow, 1 to 1024 (default: as the invite wishes)")
	flags.StringVar(&f.yes, "yes", "", "the invite's fingerprint, as the inviter read it to you (default: ask)")
	cli.Require(cmd, "config", "url")
	return cmd
}

// joinOutput is the output of join --json.
type joinOutput struct {
	textOutput
	Owner string `json:"owner"`
	Tasks int    `json:"tasks"`
	Added bool   `json:"added"` // false: relay.yaml had the owner already
}

func (f *joinFlags) run(cmd *cobra.Command, code string) error {
	if code == "-" && f.yes == "" {
		return cli.Usagef("missing flag --yes: the invite comes from standard input, which cannot confirm it too")
	}
	text, err := readText(cmd, code)
	if err != nil {
		return err
	}
	i, err := parseInvite(text)
	if err != nil {
		return err
	}
	config, err := relay.LoadConfig(f.config)
	if err != nil {
		return err
	}
	owner, isNew, err := f.owner(cmd, i, config)
	if err != nil {
		return err
	}
	second, err := f.party(cmd, config)
	if err != nil {
		return err
	}
	if err := i.check(second); err != nil {
		return err
	}
	fingerprint := fingerprintOf(i.text())
	show(cmd, i, second, owner.Tasks)
	if err := confirm(cmd, fingerprint, f.yes); err != nil {
		return err
	}
	if isNew {
		if err := addOwner(cmd.Context(), f.config, config, owner); err != nil {
			return err
		}
	}
	reply := answer{digitsOf(fingerprint), second, owner.Tasks}
	out := joinOutput{textOutput{reply.text(), fingerprintOf(reply.text())}, owner.Owner, owner.Tasks, isNew}
	return cli.Print(cmd, out, func(w io.Writer) error {
		done := "Added the owner to " + f.config + ". Send each of the relay's processes SIGHUP (systemctl reload doona@relay)."
		if !out.Added {
			done = f.config + " has this owner already: nothing changed."
		}
		fmt.Fprintf(display.Terminal(cmd.ErrOrStderr()), "%s\nSend the answer to the inviter. Its fingerprint:\n  %s\n", done,
			out.Fingerprint)
		_, err := fmt.Fprintln(w, out.Text)
		return err
	})
}

// owner returns the owner as relay.yaml is to have it, and whether it is new there. If it is not, its limit stays.
func (f *joinFlags) owner(cmd *cobra.Command, i *invite, config relay.Config) (o relay.OwnerConfig, isNew bool,
	err error) {
	key, tasks := taskfile.FormatKey(i.owner), i.tasks
	if at := slices.IndexFunc(config.Owners, func(o relay.OwnerConfig) bool { return o.Owner == key }); at >= 0 {
		return config.Owners[at], false, nil
	}
	if cmd.Flags().Changed("tasks") {
		if tasks, err = parseTasks(strconv.Itoa(f.tasks)); err != nil {
			return o, false, cli.FlagError(err)
		}
	}
	// Beside the secret, because relay.yaml may be in a folder that the relay cannot write to.
	folder := filepath.Join(filepath.Dir(config.Secret), "owner-"+i.site)
	return relay.OwnerConfig{Owner: key, Folder: folder, Tasks: tasks}, true, nil
}

// party returns this relay, as tasks are to name it.
func (f *joinFlags) party(cmd *cobra.Command, config relay.Config) (p task.Party, err error) {
	p.URL = f.url
	if err := checkURL("url", p.URL); err != nil {
		return p, cli.FlagError(err)
	}
	key, err := cli.LoadSign(cmd.ErrOrStderr(), config.SignKey)
	if err != nil {
		return p, err
	}
	p.SignKey = task.SignKey(key.Public().(ed25519.PublicKey))
	return p, nil
}

// show prints who asks for what, and how many tasks the relay is to allow.
func show(cmd *cobra.Command, i *invite, second task.Party, tasks int) {
	fmt.Fprintf(display.Terminal(cmd.ErrOrStderr()), `%s asks you to run the second relay of up to %d tasks at a time.
  owner        %s
  first relay  %s
               %s
  your relay   %s
               %s
  you allow    %d tasks
  fingerprint  %s
The owner may then add such tasks without asking you. Each names relays and addresses that your relay contacts.
`, i.site, i.tasks, taskfile.FormatKey(i.owner), i.first.URL, taskfile.FormatKey(i.first.SignKey), second.URL,
		taskfile.FormatKey(second.SignKey), tasks, fingerprintOf(i.text()))
}
