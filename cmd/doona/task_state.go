package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// stateFlags are the flags of `doona task state`.
type stateFlags struct {
	sign, to, out, recovery, newest, ca string
	stop                                bool
}

// stateResult is what `doona task state` prints.
type stateResult struct {
	Stream   string `json:"stream"` // id of the first task
	Era      uint64 `json:"era"`
	Number   uint64 `json:"number"`
	Position uint64 `json:"position"` // of the newest task
	Key      string `json:"key"`      // signs what follows; "" if the stream ends
	Stopped  bool   `json:"stopped"`
	// Files of tasks that a relay lacks, which must be sent to it before the stream continues.
	Missing []string `json:"missing,omitempty"`
}

func taskStateCommand() *cobra.Command {
	var f stateFlags
	cmd := &cobra.Command{
		Use:   "state FIRST --sign-key FILE (--to KEY | --stop) --out FILE",
		Short: "Hand a stream on to another key, or end it",
		Long: `State signs a statement about the stream whose first task is in FIRST, writes it to FILE, and hands it to
every relay: to the first one last, as clients find it there. Pages need no change. Relays that have given
up their place get it too, if they still run: clients may look there. The relays are those of the newest
task, which State finds by those of FIRST, or of --newest FILE where none of them runs any more.

--to hands the stream on: tasks that follow the newest one must be signed with that key (task renew
--owner-key). --stop ends it: no task follows, and clients report no more, from their next look at the
stream on. A statement holds for good.

--sign-key is the key that signs the stream's tasks now. Or it is the recovery key, which pages and relays
were told of beside the owner's: a statement by it voids all that was signed with owners' keys before, which
is how a stolen one is revoked, and a stream goes on that a thief has ended. Keep that key apart, on paper
for instance. Pass its public half as --recovery wherever a stream has one.

If FILE is there already nothing is signed: it is handed over again. So run the same command again after a
relay could not be reached. State asks every relay for the stream first. An owner's statement is signed only
where all have the same tasks; else it says which relay lacks one: run that task's 'task renew' again. The
recovery key's is signed in any case, as a thief may have handed a task to one relay only: it is written to
FILE.POSITION.bundle. Hand it over with 'task renew' and the new key before the stream goes on. Where relays
have taken different statements, sign once more, to another FILE, with the recovery key: each era voids
those before.`,
		Example: `  doona task state may.bundle --sign-key owner.key --to ed25519:… --out on.statement
  doona task state may.bundle --sign-key recovery.key --recovery ed25519:… --to ed25519:… --out back.statement
  doona task state may.bundle --sign-key owner.key --stop --out end.statement`,
		Args: func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.sign, "sign-key", "", "key file of the stream's owner, or the recovery key's")
	flags.StringVar(&f.to, "to", "", "key that signs the tasks that follow, ed25519:…")
	flags.BoolVar(&f.stop, "stop", false, "end the stream")
	flags.StringVar(&f.recovery, "recovery", "", "the stream's recovery key, ed25519:…, if it has one")
	flags.StringVar(&f.newest, "newest", "", newestUsage)
	flags.StringVar(&f.out, "out", "", "file to write")
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	cli.Require(cmd, "sign-key", "out")
	return cmd
}

func (f *stateFlags) run(cmd *cobra.Command, first string) error {
	if (f.to == "") != f.stop {
		return cli.Usagef("missing flag: want --to or --stop, one of them")
	}
	root, err := loadRoot(first)
	if err != nil {
		return err
	}
	newest, err := loadNewest(root, f.newest)
	if err != nil {
		return err
	}
	recovery, err := taskfile.ParseRecovery(f.recovery)
	if err != nil {
		return err
	}
	transport, err := handover.LoadTransport(f.ca)
	if err != nil {
		return err
	}
	client, trust := handover.NewClient(nil, transport), root.Trust(recovery)
	served, err := client.FetchMergedStream(cmd.Context(), root, newest, trust)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(f.out)
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = f.state(trust, served)
	}
	if err != nil {
		return err
	}
	if err := f.writeMissing(cmd.Context(), client, served); err != nil {
		return err
	}
	result, err := f.handOver(cmd.Context(), client, root, served, raw)
	if err != nil {
		return err
	}
	return cli.Print(cmd, result, func(w io.Writer) error { return result.print(w) })
}

// state signs the statement and writes it. The recovery key's statement is signed even if relays lack tasks or cannot
// be reached.
func (f *stateFlags) state(trust taskfile.Trust, served *handover.MergedStream) ([]byte, error) {
	signer, err := keyfile.LoadSign(f.sign)
	if err != nil {
		return nil, err
	}
	if task.SignKey(signer.Public().(ed25519.PublicKey)) != trust.Recovery {
		if err := served.Agreed(); err != nil {
			return nil, err
		}
	}
	var key task.SignKey
	if f.to != "" {
		if key, err = taskfile.ParseKey("to", f.to); err != nil {
			return nil, err
		}
	}
	last := served.Tasks[len(served.Tasks)-1]
	signed, err := taskfile.NewStatement(trust, served.Authority, last, key, signer)
	if err != nil {
		return nil, err
	}
	raw, err := codec.Marshal(signed)
	if err != nil {
		return nil, err
	}
	if err := durable.WriteFile(f.out, raw, 0o644); err != nil {
		return nil, fmt.Errorf("couldn't write the statement: %w", err)
	}
	return raw, nil
}

// writeMissing writes the tasks that some relay lacks beside the statement: FILE.POSITION.bundle.
func (f *stateFlags) writeMissing(ctx context.Context, client *handover.Client, served *handover.MergedStream) error {
	for _, t := range served.Tasks[served.Least:] {
		raw, _, err := client.Bundle(ctx, t.ID, served.From)
		if err == nil {
			err = durable.WriteFile(f.missing(t), raw, 0o644)
		}
		if err != nil {
			return fmt.Errorf("position %d, which a relay lacks: %w", t.Stream.Position, err)
		}
	}
	return nil
}

func (f *stateFlags) missing(t *taskfile.Open) string {
	return fmt.Sprintf("%s.%d.bundle", f.out, t.Stream.Position)
}

// handOver sends the statement to every relay, the last one first, and returns the result.
func (f *stateFlags) handOver(ctx context.Context, client *handover.Client, root *taskfile.Open,
	served *handover.MergedStream, raw []byte) (*stateResult, error) {
	last := served.Tasks[len(served.Tasks)-1].Task
	var failed error
	for hop := len(last.Relays) - 1; hop >= 0; hop-- { // also after a refusal: relays may differ
		failed = errors.Join(failed, client.State(ctx, root, last, hop, raw))
	}
	if failed != nil {
		return nil, fmt.Errorf("%w (it is signed, in %s: run this again to hand it over again)", failed, f.out)
	}
	for _, p := range served.Retired { // clients may ask it, and it may be down
		if err := client.State(ctx, root, p.Task, p.Hop, raw); err != nil {
			fmt.Fprintf(display.Terminal(os.Stderr), "Relay %s, which the newest task does not list, did not take the statement: %v\n",
				p.URL(), err)
		}
	}
	s, err := taskfile.ParseStatement(raw, root.ID)
	if err != nil {
		return nil, err
	}
	r := &stateResult{Stream: root.ID.String(), Era: s.Era, Number: s.Number, Position: s.Position,
		Stopped: len(s.Key) == 0}
	if !r.Stopped {
		r.Key = taskfile.FormatKey(task.SignKey(s.Key))
	}
	for _, t := range served.Tasks[served.Least:] {
		r.Missing = append(r.Missing, f.missing(t))
	}
	return r, nil
}

func (r *stateResult) print(w io.Writer) error {
	what := "ends there: nobody reports to it any more"
	if !r.Stopped {
		what = "goes on with tasks signed by " + r.Key
	}
	_, err := fmt.Fprintf(w, "Stream %s, position %d: it %s.\n", r.Stream, r.Position, what)
	for _, file := range r.Missing {
		_, err = fmt.Fprintf(w, "A relay lacks a task. Run 'task renew' with the new key and --out %s.\n", file)
	}
	return err
}
