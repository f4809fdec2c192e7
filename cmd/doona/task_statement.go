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
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// statementFlags are the flags of `doona task transfer`, `stop` and `recover`.
type statementFlags struct {
	sign, to, out, recovery, latest, ca string
	stop, recover                       bool
}

// statementResult is what `doona task transfer`, `stop` and `recover` print.
type statementResult struct {
	Stream   string `json:"stream"` // ID of the first task.
	Era      uint64 `json:"era"`
	Number   uint64 `json:"number"`
	Position uint64 `json:"position"` // Position of the newest task in the stream.
	Key      string `json:"key"`      // Signs the next tasks; "" if the stream ends.
	Stopped  bool   `json:"stopped"`
	// Files of tasks that a relay lacks. The owner must send them to it before the stream continues.
	Missing []string `json:"missing,omitempty"`
}

// aboutStatements is part of the help of `doona task transfer`, `stop` and `recover`.
const aboutStatements = `

The command writes a signed statement to FILE and sends it to every relay, to the first one last, because
clients read it there. Pages need no change. Relays that were replaced get it too if they still run. The
command finds the relays by those of FIRST. If none of them runs any more, pass a later task as --latest-task.

If FILE exists, the command signs nothing and sends FILE again. So run the same command again after a relay
could not be reached.`

func taskTransferCommand() *cobra.Command {
	var f statementFlags
	cmd := f.command("transfer FIRST --sign-key FILE --to KEY --out FILE", "Transfer a stream to another owner's key",
		`Transfer states that KEY signs the next tasks of the stream whose first task is in FIRST. Then renew the
stream with the new key (task renew --owner-key). A statement holds permanently.`+aboutStatements+`

The relays must have the same tasks. Otherwise the command says which relay lacks one: run that task's
'task renew' again.`,
		`  doona task transfer may.bundle --sign-key owner.key --to ed25519:… --out on.statement`)
	f.owner(cmd)
	cmd.Flags().StringVar(&f.to, "to", "", "key that signs the tasks that follow, ed25519:…")
	cli.Require(cmd, "sign-key", "to", "out")
	return cmd
}

func taskStopCommand() *cobra.Command {
	f := statementFlags{stop: true}
	cmd := f.command("stop FIRST --sign-key FILE --out FILE", "End a stream",
		`Stop states that no task follows in the stream whose first task is in FIRST. Clients stop reporting when they
next read the stream. Only the recovery key can continue it (task recover).`+aboutStatements,
		`  doona task stop may.bundle --sign-key owner.key --out end.statement`)
	f.owner(cmd)
	cli.Require(cmd, "sign-key", "out")
	return cmd
}

func taskRecoverCommand() *cobra.Command {
	f := statementFlags{recover: true}
	cmd := f.command("recover FIRST --sign-key FILE (--to KEY | --stop) --out FILE",
		"Revoke a stolen owner's key by the recovery key",
		`Recover signs with the recovery key, whose public half pages and relays have beside the owner's. Its statement
voids everything that owners' keys signed before, also the end of the stream. Keep the recovery key offline,
for example on paper. Pass its public half as --recovery to the other commands.`+aboutStatements+`

A thief of the owner's key may have sent a task to one relay only. The command writes such a task to
FILE.POSITION.bundle. Send it with 'task renew' and the new key before the stream continues. If relays have
accepted different statements, run the command once more with another FILE: each statement of the recovery
key voids the earlier ones.`,
		`  doona task recover may.bundle --sign-key recovery.key --to ed25519:… --out back.statement`)
	flags := cmd.Flags()
	flags.StringVar(&f.sign, "sign-key", "", "key file of the stream's recovery key")
	flags.StringVar(&f.to, "to", "", "key that signs the tasks that follow, ed25519:…")
	flags.BoolVar(&f.stop, "stop", false, "end the stream")
	cli.Require(cmd, "sign-key", "out")
	return cmd
}

// command returns a command with the flags that transfer, stop and recover have in common.
func (f *statementFlags) command(use, short, long, example string) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example,
		Args: func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.latest, "latest-task", "", latestTaskUsage)
	flags.StringVar(&f.out, "out", "", "file to write")
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	return cmd
}

// owner adds the flags of transfer and stop, which the owner's key signs.
func (f *statementFlags) owner(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.sign, "sign-key", "", "key file of the stream's owner")
	cmd.Flags().StringVar(&f.recovery, "recovery", "", "the stream's recovery key, ed25519:…, if it has one")
}

// recoveryKey returns the public half of the stream's recovery key: of --sign-key for recover, else --recovery.
func (f *statementFlags) recoveryKey() (task.SignKey, error) {
	if !f.recover {
		return taskfile.ParseRecovery(f.recovery)
	}
	signer, err := cli.LoadSign(os.Stderr, f.sign)
	if err != nil {
		return task.SignKey{}, err
	}
	return task.SignKey(signer.Public().(ed25519.PublicKey)), nil
}

func (f *statementFlags) run(cmd *cobra.Command, first string) error {
	result, err := f.send(cmd.Context(), first)
	if err != nil {
		return err
	}
	return cli.Print(cmd, result, func(w io.Writer) error { return result.print(w) })
}

// send signs the statement, unless its file exists, and sends it to all relays.
func (f *statementFlags) send(ctx context.Context, first string) (*statementResult, error) {
	if (f.to == "") != f.stop {
		return nil, cli.Usagef("missing flag: want one of --to and --stop")
	}
	root, err := loadRoot(first)
	if err != nil {
		return nil, err
	}
	latest, err := loadNewest(root, f.latest)
	if err != nil {
		return nil, err
	}
	recovery, err := f.recoveryKey()
	if err != nil {
		return nil, err
	}
	transport, err := handover.LoadTransport(f.ca)
	if err != nil {
		return nil, err
	}
	client, trust := handover.NewRequester(nil, transport), root.Trust(recovery)
	served, err := client.FetchMergedStream(ctx, root, latest, trust)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(f.out)
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = f.state(trust, served)
	}
	if err != nil {
		return nil, err
	}
	if err := f.writeMissing(ctx, client, served); err != nil {
		return nil, err
	}
	return f.handOver(ctx, client, root, served, raw)
}

// state signs the statement and writes it. Unlike a statement of the recovery key, an owner's statement needs all
// relays to answer and to have the same tasks.
func (f *statementFlags) state(trust taskfile.Trust, served *handover.MergedStream) ([]byte, error) {
	signer, err := cli.LoadSign(os.Stderr, f.sign)
	if err != nil {
		return nil, err
	}
	if !f.recover {
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

// writeMissing writes each task that some relay lacks to a file beside the statement, FILE.POSITION.bundle.
func (f *statementFlags) writeMissing(ctx context.Context, client *handover.Requester,
	served *handover.MergedStream) error {
	for _, t := range served.Tasks[served.Least:] {
		raw, _, err := client.Bundle(ctx, t.ID, served.From)
		if err == nil {
			err = durable.WriteFile(f.missing(t), raw, 0o644)
		}
		if err != nil {
			return fmt.Errorf("couldn't save the task at position %d, which a relay lacks: %w", t.Stream.Position, err)
		}
	}
	return nil
}

func (f *statementFlags) missing(t *taskfile.Open) string {
	return fmt.Sprintf("%s.%d.bundle", f.out, t.Stream.Position)
}

// handOver sends the statement to every relay, the last one first, and returns the result.
func (f *statementFlags) handOver(ctx context.Context, client *handover.Requester, root *taskfile.Open,
	served *handover.MergedStream, raw []byte) (*statementResult, error) {
	last := served.Tasks[len(served.Tasks)-1].Task
	var failed error
	for hop := len(last.Relays) - 1; hop >= 0; hop-- { // continues after a refusal: other relays may accept
		failed = errors.Join(failed, client.State(ctx, root, last, hop, raw))
	}
	if failed != nil {
		return nil, fmt.Errorf("%w (%s has the signed statement: run the command again to send it)", failed, f.out)
	}
	for _, p := range served.Retired { // clients may still ask them; they may be down
		if err := client.State(ctx, root, p.Task, p.Hop, raw); err != nil {
			fmt.Fprintf(display.Terminal(os.Stderr), "replaced relay %s did not accept the statement: %v\n",
				p.URL(), err)
		}
	}
	s, err := taskfile.ParseStatement(raw, root.ID)
	if err != nil {
		return nil, err
	}
	r := &statementResult{Stream: root.ID.String(), Era: s.Era, Number: s.Number, Position: s.Position,
		Stopped: len(s.Key) == 0}
	if !r.Stopped {
		r.Key = taskfile.FormatKey(task.SignKey(s.Key))
	}
	for _, t := range served.Tasks[served.Least:] {
		r.Missing = append(r.Missing, f.missing(t))
	}
	return r, nil
}

func (r *statementResult) print(w io.Writer) error {
	what := "has ended"
	if !r.Stopped {
		what = "continues with tasks signed by " + r.Key
	}
	_, err := fmt.Fprintf(w, "The stream %s %s after position %d.\n", r.Stream, what, r.Position)
	for _, file := range r.Missing {
		_, err = fmt.Fprintf(w, "A relay lacks a task. Run 'task renew' with the new key and --out %s.\n", file)
	}
	return err
}
