package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// renewFlags are the flags of `doona task renew`.
type renewFlags struct {
	out, owner, ca               string
	verifier, issuer, recovery   string
	newest                       string
	rotations, replaced, origins []string
	count                        uint64
}

func taskRenewCommand() *cobra.Command {
	var f renewFlags
	cmd := &cobra.Command{
		Use:   "renew FIRST --owner-key FILE --verifier-keys LIST --epochs N --out FILE",
		Short: "Sign the next task of a stream and send it to all relays",
		Long: `Renew continues the stream whose first task is in FIRST. It asks every relay for the stream and for
its keys of N further epochs. It finds the relays in FIRST and in the newest task that these relays serve.
If no relay of FIRST runs any more, give a later task as --latest-task FILE. Then Renew signs the next task
and writes it to FILE, with its JSON form beside it (FILE.json). It sends the task to every relay, and to the
first relay last, because clients find it there.

The epochs of the next task begin when those of the newest task are over, so there is no gap. Pages need no
change. Run it while the newest task still has epochs to come. If all are over, the next task begins with
the current epoch of the same rhythm.

A party with a new signing key gives you a file (task rotate-key): pass it as --rotation. --replace N=URL,KEY
replaces relay N. The first task must allow that (task new --allow relays.signKey), and pages must list KEY
among their candidates. The new relay must have FIRST and a folder of successors in its configuration. It gets
the earlier tasks from the other relays. The replaced relay gets the task too if it still runs, because clients
may ask it for the stream.

--origin changes which pages may report from this task on. The first task must allow that (task new --allow
clients.origins), and pages must, too.

If FILE already has a task of this stream, Renew signs nothing and sends FILE again. So run the same command
again after a relay could not be reached. Never sign two tasks of one position: an honest relay refuses the
second, and clients that have seen one of them refuse the other permanently.`,
		Example: `  verifier keygen --kind hpke --sign-key verifier.sign --epochs 30 --out june.keys
  doona task renew may.bundle --owner-key owner.key --verifier-keys june.keys.pub --epochs 30 --out june.bundle`,
		Args: func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.out, "out", "", "file to write")
	flags.StringVar(&f.owner, "owner-key", "", "owner's signing key file")
	flags.StringVar(&f.verifier, "verifier-keys", "", "file of the verifier's next key list, of as many epochs")
	flags.StringVar(&f.issuer, "issuer-keys", "", "file of the issuer's next key list, for a task with tokens")
	flags.StringVar(&f.recovery, "recovery", "", "the stream's recovery key, ed25519:…, if it has one")
	flags.StringVar(&f.newest, "latest-task", "", latestTaskUsage)
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	flags.StringArrayVar(&f.rotations, "rotation", nil,
		"file of a party with a new key ('task rotate-key'); may be repeated")
	flags.StringArrayVar(&f.replaced, "replace", nil,
		"N=URL,KEY: this relay replaces relay N; may be repeated")
	flags.StringArrayVar(&f.origins, "origin", nil, originUsage+" (default: as in FIRST)")
	flags.Uint64Var(&f.count, "epochs", 0, "number of epochs, 1 to 65536")
	cli.Require(cmd, "out", "owner-key", "verifier-keys", "epochs")
	return cmd
}

func (f *renewFlags) run(cmd *cobra.Command, first string) error {
	if f.count < 1 || f.count > 65536 {
		return cli.Usagef("invalid epochs %d: want 1 to 65536", f.count)
	}
	root, err := loadRoot(first)
	if err != nil {
		return err
	}
	next, err := f.renew(cmd.Context(), root)
	if err != nil {
		return err
	}
	return printTask(cmd, next.Task, taskfile.FormatKey(next.Owner), nil, nil, nil)
}

// renew signs the stream's next task, unless the file to write has it already, and sends it to all relays.
func (f *renewFlags) renew(ctx context.Context, root *taskfile.Open) (*taskfile.Open, error) {
	owner, err := newOwner(f.owner, f.ca)
	if err != nil {
		return nil, err
	}
	raw, err := taskfile.ReadFile(f.out)
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = f.sign(ctx, owner, root)
	}
	if err != nil {
		return nil, err
	}
	return f.handOver(ctx, owner, root, raw)
}

// newOwner returns a requester that signs with the owner's key in a file.
func newOwner(file, ca string) (*handover.Requester, error) {
	transport, err := handover.LoadTransport(ca)
	if err != nil {
		return nil, err
	}
	key, err := cli.LoadSign(os.Stderr, file)
	if err != nil {
		return nil, err
	}
	return handover.NewRequester(key, transport), nil
}

// change returns a function that sets the origins of the next task to those of --origin, or nil without --origin.
func (f *renewFlags) change() func(*task.Task) {
	if len(f.origins) == 0 {
		return nil
	}
	return func(t *task.Task) { t.Clients.Origins = sortedOrigins(f.origins) }
}

// loadRoot reads the first task of a stream. Any other task is an error.
func loadRoot(file string) (*taskfile.Open, error) {
	root, err := taskfile.LoadBundle(file)
	if err == nil && (root.Stream == nil || root.Stream.Position != 0) {
		err = fmt.Errorf("%s is not the first task of a stream: 'doona task new --stream NAME' makes one", file)
	}
	return root, err
}

const latestTaskUsage = "file of a later task of the stream, if no relay of FIRST runs any more"

// loadNewest reads the file of --latest-task, a later task of the stream. It returns nil for an empty file name.
func loadNewest(root *taskfile.Open, file string) (*taskfile.Open, error) {
	if file == "" {
		return nil, nil
	}
	t, err := taskfile.LoadBundle(file)
	if err == nil && (t.Stream == nil || t.Stream.Name != root.Stream.Name) {
		err = fmt.Errorf("%s is no later task of this stream: --latest-task needs one", file)
	}
	return t, err
}

// loadStream reads the first task of a stream from a file, the one of --latest-task if any, and the recovery key.
func loadStream(file, newest, recovery string) (root, latest *taskfile.Open, trust taskfile.Trust, err error) {
	if root, err = loadRoot(file); err != nil {
		return nil, nil, trust, err
	}
	if latest, err = loadNewest(root, newest); err != nil {
		return nil, nil, trust, err
	}
	key, err := taskfile.ParseRecovery(recovery)
	return root, latest, root.Trust(key), err
}

// sign signs the next task, checks it as a client would, and writes it.
func (f *renewFlags) sign(ctx context.Context, owner *handover.Requester, root *taskfile.Open) ([]byte, error) {
	lists := map[string]*onion.SignedKeyList{}
	for _, path := range []string{f.verifier, f.issuer} {
		if path == "" {
			continue
		}
		raw, err := taskfile.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("couldn't read key list: %w", err)
		}
		if lists[path], err = onion.ParseKeyList(raw); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if (root.Clients.Kind == task.ClientToken) != (f.issuer != "") {
		return nil, cli.Usagef("invalid issuer-keys %q: want the issuer's next list for a task with tokens, and none "+
			"for others", f.issuer)
	}
	recovery, err := taskfile.ParseRecovery(f.recovery)
	if err != nil {
		return nil, err
	}
	rotations, err := loadRotations(root, f.rotations)
	if err != nil {
		return nil, err
	}
	replaced, err := parseReplaced(root, f.replaced)
	if err != nil {
		return nil, err
	}
	newest, err := loadNewest(root, f.newest)
	if err != nil {
		return nil, err
	}
	bundle, err := owner.Renew(ctx, root, handover.Renewal{Count: f.count, Now: time.Now(), Rotations: rotations,
		Replace: replaced, Verifier: lists[f.verifier], Issuer: lists[f.issuer], Recovery: recovery,
		Newest: newest, Change: f.change()})
	if err != nil {
		return nil, err
	}
	open, err := bundle.Open(nil)
	if err != nil {
		return nil, err
	}
	m, err := registry.Open(open.Task)
	if err != nil {
		return nil, err
	}
	if err := doubt(open.Task, m, 0).refuse(false); err != nil {
		return nil, err
	}
	raw, err := bundle.Bytes()
	if err != nil {
		return nil, err
	}
	if err := writeJSON(f.out+".json", open.Task); err != nil {
		return nil, err
	}
	// The file is on disk before any relay has the task: the owner must not sign this position again, and only from
	// this file can the task be sent again.
	if err := durable.WriteFile(f.out, raw, 0o644); err != nil {
		return nil, fmt.Errorf("couldn't write the task: %w", err)
	}
	return raw, nil
}

// handOver sends the task to every relay, the last one first.
func (f *renewFlags) handOver(ctx context.Context, owner *handover.Requester, root *taskfile.Open, raw []byte) (
	*taskfile.Open, error) {
	bundle, err := taskfile.ParseBundle(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.out, err)
	}
	next, err := bundle.Open(nil) // with any owner: the relays check whose key signs
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.out, err)
	}
	if next.Stream == nil || next.Stream.Position == 0 || next.Stream.Name != root.Stream.Name {
		return nil, fmt.Errorf("%s exists and holds no later task of the stream: give --out another file", f.out)
	}
	for hop := len(next.Relays) - 1; hop >= 0; hop-- {
		if err := owner.Succeed(ctx, root, next.Task, hop, raw); err != nil {
			return nil, fmt.Errorf("%w (%s has the signed task: run the command again to send it)", err, f.out)
		}
	}
	f.tellRetired(ctx, owner, root, next, raw)
	return next, nil
}

// tellRetired sends the task to those relays of the first task that were replaced, because clients may still ask them
// for the stream. If one refuses or cannot be reached, tellRetired only prints that.
func (f *renewFlags) tellRetired(ctx context.Context, owner *handover.Requester, root, next *taskfile.Open,
	raw []byte) {
	for hop, relay := range root.Relays {
		if next.Stream.Now(relay.SignKey) == next.Relays[hop].SignKey {
			continue
		}
		if err := owner.Succeed(ctx, root, root.Task, hop, raw); err != nil {
			fmt.Fprintf(display.Terminal(os.Stderr), "Replaced relay %s did not accept the task: %v\n", relay.URL,
				err)
		}
	}
}

// streamSummary describes a task's position in its stream.
type streamSummary struct {
	Name     string   `json:"name"`
	Position uint64   `json:"position"`
	Allow    []string `json:"allow"`
}

func streamOf(t *task.Task) *streamSummary {
	if t.Stream == nil {
		return nil
	}
	return &streamSummary{t.Stream.Name, t.Stream.Position, append([]string{}, t.Stream.Allow...)}
}

func (s *streamSummary) print(w io.Writer, t *task.Task) {
	if s == nil {
		return
	}
	fmt.Fprintf(w, "Position %d of stream %s, from %s to %s.\n", s.Position, s.Name,
		time.Unix(int64(t.Epochs.Start), 0).UTC().Format(time.RFC3339),
		time.Unix(int64(t.Epochs.Over()), 0).UTC().Format(time.RFC3339))
}
