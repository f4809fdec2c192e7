package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// withdrawFlags are the flags of `doona task withdraw`.
type withdrawFlags struct{ sign, recovery, latest, ca string }

// withdrawResult is what `doona task withdraw` prints.
type withdrawResult struct {
	Task   string   `json:"task"`   // id of the task, or of the stream's first task
	Relays []string `json:"relays"` // URLs of the relays that have accepted it
}

func taskWithdrawCommand() *cobra.Command {
	var f withdrawFlags
	cmd := &cobra.Command{
		Use:   "withdraw BUNDLE --sign-key FILE",
		Short: "End a task at its relays now, and erase its keys",
		Long: `Withdraw ends the task in BUNDLE at all its relays. They must have the task from you, by 'task new --relay
URL,KEY'. From then on

  - they accept no more reports of it, and serve no page with it;
  - they erase its keys, also those of epochs that have not begun. The reports of an open batch are lost;
  - batches that they have made go on to the verifier;
  - the task's slot is free, and no relay ever serves the task again.

If the task is the first of a stream, all tasks of the stream end. It needs the key that signs the stream's
next task, or the stream's recovery key.

Nothing undoes it. Run the same command again after a relay could not be reached.`,
		Example: `  doona task withdraw june.bundle --sign-key owner.key`,
		Args:    func(cmd *cobra.Command, args []string) error { return cli.Usage(cobra.ExactArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := f.send(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return cli.Print(cmd, result, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "The task %s is withdrawn at %d relays. They take no more reports and erase its keys.\n",
					result.Task, len(result.Relays))
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.sign, "sign-key", "", "key file of the task's owner")
	flags.StringVar(&f.recovery, "recovery", "", "the stream's recovery key, ed25519:…, if it has one")
	flags.StringVar(&f.latest, "latest-task", "", latestTaskUsage)
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	cli.Require(cmd, "sign-key")
	return cmd
}

// send signs the withdrawal for each relay and sends it.
func (f *withdrawFlags) send(ctx context.Context, file string) (*withdrawResult, error) {
	root, err := taskfile.LoadBundle(file)
	if err != nil {
		return nil, err
	}
	key, err := cli.LoadSign(os.Stderr, f.sign)
	if err != nil {
		return nil, err
	}
	transport, err := handover.LoadTransport(f.ca)
	if err != nil {
		return nil, err
	}
	client := handover.NewRequester(key, transport)
	relays := root.Relays
	if root.Stream != nil {
		if relays, err = f.relays(ctx, client, file); err != nil {
			return nil, err
		}
	} else if by := task.SignKey(key.Public().(ed25519.PublicKey)); by != root.Owner {
		return nil, fmt.Errorf("couldn't withdraw the task: its owner is %s, and this key is %s",
			taskfile.FormatKey(root.Owner), taskfile.FormatKey(by))
	}
	result := &withdrawResult{Task: root.ID.String()}
	var failed error
	for _, relay := range relays { // continues after a refusal: other relays may accept
		if err := client.Withdraw(ctx, relay, root.ID); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		result.Relays = append(result.Relays, relay.URL)
	}
	if failed != nil {
		return nil, fmt.Errorf("%w (%d of %d relays have accepted it: run the command again)", failed, len(result.Relays),
			len(relays))
	}
	return result, nil
}

// relays returns the relays of a stream's newest task.
func (f *withdrawFlags) relays(ctx context.Context, client *handover.Requester, file string) ([]task.Party, error) {
	root, latest, trust, err := loadStream(file, f.latest, f.recovery)
	if err != nil {
		return nil, err
	}
	served, err := client.FetchMergedStream(ctx, root, latest, trust)
	if err != nil {
		return nil, err
	}
	return served.Tasks[len(served.Tasks)-1].Relays, nil
}
