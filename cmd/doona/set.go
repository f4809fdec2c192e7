package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/taskfile"
)

func setCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "set", Short: "Make and check sets: many tables under one total",
		Example: `  doona set new site.yaml --owner-key owner.key --relay https://r1.example,ed25519:KEY \
      --relay https://r2.example,ed25519:KEY --verifier ed25519:KEY,day.pub,week.pub --out site
  doona set check site`}
	cmd.AddCommand(setNewCommand(), setRenewCommand(), setWithdrawCommand(), setCheckCommand(), setFilesCommand())
	return cmd
}

// The names of a set's files in its folder. Beside them each table has NAME.bundle and NAME.json.
const (
	setBundleFile = "set.bundle"
	bundleSuffix  = ".bundle"
)

// setFolder is a folder with a signed set. Its renewals are in folders below the first set's, named by their positions.
type setFolder struct {
	path   string
	raw    []byte // The set's bundle.
	set    *tableset.Open
	tables []*taskfile.Open // With all keys; nil unless readTables has read them.
	raws   [][]byte         // Their bundles.
}

// readSetFolder reads the set in a folder, or in a file.
func readSetFolder(path string) (*setFolder, error) {
	f := &setFolder{path: path}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		f.path = filepath.Dir(path)
	} else {
		path = filepath.Join(path, setBundleFile)
	}
	raw, err := taskfile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f.raw = raw
	bundle, err := tableset.ParseBundle(f.raw)
	if err == nil {
		f.set, err = bundle.Open(nil)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// readRenewals reads the first set in a folder and its renewals, in order. It checks that each may follow.
func readRenewals(path string) ([]*setFolder, error) {
	first, err := readSetFolder(path)
	if err != nil {
		return nil, err
	}
	all := []*setFolder{first}
	for {
		next, err := readSetFolder(first.renewal(len(all)))
		if errors.Is(err, fs.ErrNotExist) {
			return all, nil
		}
		if err == nil {
			err = first.set.CheckRenewal(all[len(all)-1].set, next.set)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", first.renewal(len(all)), err)
		}
		all = append(all, next)
	}
}

// renewal returns the folder of the renewal at a position.
func (f *setFolder) renewal(position int) string {
	return filepath.Join(f.path, strconv.Itoa(position))
}

// readTables reads the bundles of the set's tables from its folder.
func (f *setFolder) readTables() error {
	for _, table := range f.set.Tables {
		path := filepath.Join(f.path, table.Name+bundleSuffix)
		raw, err := taskfile.ReadFile(path)
		if err != nil {
			return err
		}
		open, err := taskfile.ParseOpen(raw)
		if err == nil && open.ID != table.Task {
			err = fmt.Errorf("it is task %s: want %s, the table's", open.ID, table.Task)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		f.tables, f.raws = append(f.tables, open), append(f.raws, raw)
	}
	return nil
}

// oneFolder is the argument of a command that reads a set.
func oneFolder(cmd *cobra.Command, args []string) error {
	return cli.Usage(cobra.ExactArgs(1)(cmd, args))
}

// dayOf returns a Unix time as a date in UTC, with the time of day unless that is midnight.
func dayOf(unix uint64) string {
	at := time.Unix(int64(unix), 0).UTC()
	if unix%86400 == 0 {
		return at.Format(time.DateOnly)
	}
	return at.Format(time.RFC3339)
}

// handOver sends the set to relays, to the first one last, because pages find it there.
func (f *setFolder) handOver(ctx context.Context, hops []int, key ed25519.PrivateKey, ca string) error {
	if len(hops) == 0 {
		return nil
	}
	if err := f.readTables(); err != nil {
		return err
	}
	transport, err := handover.LoadTransport(ca)
	if err != nil {
		return err
	}
	raw, err := (&tableset.Handed{Set: f.raw, Tables: f.raws}).Bytes()
	if err != nil {
		return err
	}
	owner, relays := handover.NewRequester(key, transport), f.set.Tasks[0].Relays
	for _, hop := range slices.Backward(hops) {
		if err := owner.BeginSet(ctx, relays[hop], raw); err != nil {
			return fmt.Errorf("%w (%s has the signed set: run the command again to send it)", err, f.path)
		}
	}
	return nil
}

// handOverToAll sends the set to all its relays.
func (f *setFolder) handOverToAll(ctx context.Context, key ed25519.PrivateKey, ca string) error {
	var hops []int
	for hop := range f.set.Tasks[0].Relays {
		hops = append(hops, hop)
	}
	return f.handOver(ctx, hops, key, ca)
}
