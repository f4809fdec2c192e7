package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// setRenewFlags are the flags of `doona set renew`.
type setRenewFlags struct {
	owner, verifier, ca string
	issuer              string
	origins             []string
	days, quota         uint64
}

func setRenewCommand() *cobra.Command {
	var f setRenewFlags
	cmd := &cobra.Command{
		Use:   "renew FOLDER --owner-key FILE --verifier KEY,LIST…",
		Short: "Sign the next days of a set and hand them to its relays",
		Long: `Renew continues the set in FOLDER with further days. It asks all relays for new keys, signs the next task of
each table and the set, and sends them to the relays, which must have approved you. Pages need no change, and
a browser's budget goes on: tables, laws, caps and total stay as they are.

Each table takes one of your task slots at a relay, and while it is renewed each clock takes another.

The new days begin when the old ones are over, so run it before that. A week or month goes on with the first
one that begins then or later. So between the old and the new set some days may have no week or month.

FOLDER gets a folder with the number of the renewal. If the newest renewal has not begun, Renew signs nothing
and sends it again. So run the same command again after a relay could not be reached.`,
		Example: `  doona set renew site --owner-key owner.key --verifier ed25519:KEY,days2.keys.pub,months2.keys.pub`,
		Args:    oneFolder,
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.owner, "owner-key", "", "owner's signing key file")
	flags.StringVar(&f.verifier, "verifier", "", "ed25519:KEY,LIST… of the verifier, with a new key list for each clock")
	flags.StringVar(&f.issuer, "issuer-keys", "", "file of the issuer's next key list, for a set with tokens")
	flags.Uint64Var(&f.days, "days", 365, "number of days, 1 to 65536")
	flags.Uint64Var(&f.quota, "quota", 0, "new quota, 1 to 65535 (default: as before)")
	flags.StringArrayVar(&f.origins, "origin", nil, originUsage+" (default: as before)")
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	cli.Require(cmd, "owner-key", "verifier")
	return cmd
}

func (f *setRenewFlags) run(cmd *cobra.Command, path string) error {
	if f.days < 1 || f.days > task.MaxEpochs {
		return cli.Usagef("invalid days %d: want 1 to %d", f.days, task.MaxEpochs)
	}
	if f.quota > 65535 {
		return cli.Usagef("invalid quota %d: want 1 to 65535", f.quota)
	}
	all, err := readRenewals(path)
	if err != nil {
		return err
	}
	last, err := f.renew(cmd.Context(), all)
	if err != nil {
		return err
	}
	return printSetFolder(cmd, last)
}

// renew signs the next renewal of a set, unless the last one has not begun, and sends the last one to all relays.
func (f *setRenewFlags) renew(ctx context.Context, all []*setFolder) (*setFolder, error) {
	key, err := cli.LoadSign(os.Stderr, f.owner)
	if err != nil {
		return nil, err
	}
	first, last := all[0], all[len(all)-1]
	if withTokens := first.set.Tasks[0].Clients.Kind == task.ClientToken; withTokens != (f.issuer != "") ||
		withTokens && f.quota > 1 {
		return nil, cli.Usagef("invalid issuer-keys %q and quota %d: want the issuer's next list and no quota for a set with "+
			"tokens, and no list for others", f.issuer, f.quota)
	}
	if owner := task.SignKey(key.Public().(ed25519.PublicKey)); owner != first.set.Owner {
		return nil, fmt.Errorf("couldn't renew the set: its owner is %s, and this key is %s",
			taskfile.FormatKey(first.set.Owner), taskfile.FormatKey(owner))
	}
	if last == first || last.set.Tasks[0].Epochs.Start <= uint64(time.Now().Unix()) {
		if last, err = f.sign(ctx, first, last, key); err != nil {
			return nil, err
		}
	}
	return last, last.handOverToAll(ctx, key, f.ca)
}

// sign signs the renewal that follows last, and writes its folder. The set's bundle is written last.
func (f *setRenewFlags) sign(ctx context.Context, first, last *setFolder, key ed25519.PrivateKey) (*setFolder, error) {
	work := setNewFlags{verifier: f.verifier, out: first.renewal(int(last.set.Position) + 1), ca: f.ca}
	if clients := last.set.Tasks[0].Clients; clients.Kind == task.ClientToken {
		work.issuer = clients.Issuer.URL + "," + taskfile.FormatKey(clients.Issuer.SignKey) + "," + f.issuer
	}
	for _, p := range last.set.Tasks[0].Relays {
		work.relays = append(work.relays, p.URL+","+taskfile.FormatKey(p.SignKey))
	}
	set := *last.set.Set
	set.Position, set.Root, set.Before, set.Tables = last.set.Position+1, first.set.ID, last.set.ID, nil
	set.First = first.set.FirstTasks()
	drafts, err := f.drafts(last)
	if err != nil {
		return nil, err
	}
	tables, err := work.sign(ctx, &set, drafts, key)
	if err != nil {
		return nil, err
	}
	bundle, err := tableset.Sign(&set, key, tables)
	if err != nil {
		return nil, err
	}
	open, err := bundle.Open(nil)
	if err == nil {
		err = first.set.CheckRenewal(last.set, open)
	}
	if err != nil {
		return nil, err
	}
	if err := work.writeSet(bundle); err != nil {
		return nil, err
	}
	return readSetFolder(work.out)
}

// drafts returns the next task of each table, without parties.
func (f *setRenewFlags) drafts(last *setFolder) (out []tableDraft, err error) {
	days := last.set.Tasks[0].Epochs
	over := days.Length.Add(int64(days.Over()), int64(f.days))
	for i, table := range last.set.Tables {
		t := *last.set.Tasks[i]
		t.Stream = &task.StreamPosition{Name: t.Stream.Name, Position: last.set.Position + 1, Before: table.Task,
			Allow: t.Stream.Allow, Rotations: t.Stream.Rotations}
		start := int64(t.Epochs.Over()) // The first epoch that begins when the new days do, or later.
		for start < int64(days.Over()) {
			start = t.Epochs.Length.Add(start, 1)
		}
		t.Epochs.Start, t.Epochs.Count = uint64(start), uint64(max(0, t.Epochs.Length.Between(start, over)))
		if t.Epochs.Count == 0 {
			return nil, cli.Usagef("invalid days %d: no whole epoch of table %s lies within", f.days, table.Name)
		}
		t.Relays, t.Verifier = nil, task.Party{URL: t.Verifier.URL}
		if len(f.origins) > 0 {
			t.Clients.Origins = sortedOrigins(f.origins)
		}
		if f.quota > 0 {
			t.Clients.Quota = f.quota
		}
		table.Task = task.ID{}
		out = append(out, tableDraft{table, &t})
	}
	return out, nil
}

func setWithdrawCommand() *cobra.Command {
	f := statementFlags{stop: true}
	cmd := &cobra.Command{
		Use:   "withdraw FOLDER --owner-key FILE",
		Short: "End a set: relays take no more submissions",
		Long: `Withdraw states for each table of the set in FOLDER that its stream has ended, and sends that to all relays.
They take no more submissions of the set, and no renewal follows. What they have is finished as usual.

FOLDER gets the signed statements, NAME.stop. Run the same command again after a relay could not be reached.`,
		Example: `  doona set withdraw site --owner-key owner.key`,
		Args:    oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := readRenewals(args[0])
			if err != nil {
				return err
			}
			last := all[len(all)-1]
			var ended []*statementResult
			for _, table := range all[0].set.Tables {
				one := f
				one.out = filepath.Join(all[0].path, table.Name+".stop")
				if last != all[0] {
					one.latest = filepath.Join(last.path, table.Name+bundleSuffix)
				}
				r, err := one.send(cmd.Context(), filepath.Join(all[0].path, table.Name+bundleSuffix))
				if err != nil {
					return fmt.Errorf("table %s: %w", table.Name, err)
				}
				ended = append(ended, r)
			}
			return cli.Print(cmd, ended, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "The set %s has ended: relays take no more submissions.\n", all[0].set.RootID())
				return err
			})
		},
	}
	cmd.Flags().StringVar(&f.sign, "owner-key", "", "owner's signing key file")
	cmd.Flags().StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	cli.Require(cmd, "owner-key")
	return cmd
}
