package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// keyPlace says for which task of a stream keys are. A folder of successors names files by it.
type keyPlace struct {
	root            task.ID
	position, count uint64
}

func (p keyPlace) keys(folder string) string {
	return filepath.Join(folder, p.root.String(), fmt.Sprintf("%d-%d.keys", p.position, p.count))
}

func (p keyPlace) list(folder string) string { return cli.PublicList(p.keys(folder)) }

// verifierList returns the file of the verifier's key list for the task after last. It makes the keys if they are
// missing and the verifier's signing key is at hand.
func (f *renewAllFlags) verifierList(at keyPlace, last *task.Task) (string, error) {
	list := at.list(f.verifier)
	_, err := os.Stat(list)
	if !errors.Is(err, fs.ErrNotExist) {
		return list, err
	}
	if f.sign == "" {
		return "", fmt.Errorf("the verifier's key list %s is missing: make it with verifier keygen, or give "+
			"--verifier-sign-key", list)
	}
	sign, err := cli.LoadSign(os.Stderr, f.sign)
	if err != nil {
		return "", err
	}
	if have, want := task.SignKey(sign.Public().(ed25519.PublicKey)), last.Verifier.SignKey; have != want {
		return "", fmt.Errorf("the verifier's key in %s is %s: want %s, as in the task", f.sign, taskfile.FormatKey(have),
			taskfile.FormatKey(want))
	}
	_, err = cli.MakeEpochKeys(at.keys(f.verifier), last.KEM, at.count, sign)
	return list, err
}

// issuerList returns the file of the issuer's key list for the task after last, or "" if there is none.
func (f *renewAllFlags) issuerList(at keyPlace, last *task.Task) string {
	if last.Clients.Kind != task.ClientToken || f.issuer == "" {
		return ""
	}
	return at.list(f.issuer)
}

// setLists returns the verifier's key and its key list for each clock of a set's next renewal, as `set renew --verifier`
// takes them. Each table has a key file in the folder of its own stream. Tables with one clock have the same keys.
func (f *renewAllFlags) setLists(work *setRenewFlags, first, last *setFolder) (string, error) {
	drafts, err := work.drafts(last)
	if err != nil {
		return "", err
	}
	out := []string{taskfile.FormatKey(last.set.Tasks[0].Verifier.SignKey)}
	clocks := map[task.Length]keyPlace{}
	for i, root := range first.set.FirstTasks() {
		at := keyPlace{root, last.set.Position + 1, drafts[i].Epochs.Count}
		made, known := clocks[drafts[i].Epochs.Length]
		if known {
			if err := f.copyKeys(made, at); err != nil {
				return "", err
			}
			continue
		}
		list, err := f.verifierList(at, last.set.Tasks[i])
		if err != nil {
			return "", err
		}
		clocks[drafts[i].Epochs.Length] = at
		out = append(out, list)
	}
	return strings.Join(out, ","), nil
}

// copyKeys copies a key file for another table, unless the verifier's operator does that.
func (f *renewAllFlags) copyKeys(from, to keyPlace) error {
	target := to.keys(f.verifier)
	if _, err := os.Stat(target); f.sign == "" || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := cli.CloseToGroup(os.Stderr, from.keys(f.verifier)); err != nil {
		return err
	}
	raw, err := durable.ReadPrivate(from.keys(f.verifier))
	if err != nil {
		return err
	}
	defer clear(raw)
	if err := durable.MakeFolder(filepath.Dir(target), 0o700); err != nil {
		return fmt.Errorf("couldn't make the keys' folder: %w", err)
	}
	return durable.WriteFile(target, raw, 0o600)
}
