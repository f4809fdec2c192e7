package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// fileTask is a task with its file.
type fileTask struct {
	*taskfile.Open
	path string
}

// find returns the streams and sets of a folder. What cannot be read or cannot go on is a failed result.
func (f *renewAllFlags) find(folder string) (all []series, failed []renewResult, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, nil, fmt.Errorf("couldn't read the folder: %w", err)
	}
	var firsts []fileTask
	after := map[task.ID]fileTask{} // by the id of the task before
	add := func(name string, one *series, err error) {
		if err != nil {
			failed = append(failed, renewResult{Name: name, State: stateFailed, Error: err.Error()})
		} else if one != nil {
			all = append(all, *one)
		}
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if _, err := os.Stat(filepath.Join(path, setBundleFile)); err == nil {
			one, err := f.set(entry.Name(), path)
			add(entry.Name(), one, err)
			continue
		}
		name, ok := strings.CutSuffix(entry.Name(), bundleSuffix)
		if !ok || entry.IsDir() {
			continue
		}
		open, err := taskfile.LoadBundle(path)
		switch {
		case err != nil || open.Stream == nil:
			add(name, nil, f.single(open, err))
		case open.Stream.Position == 0:
			firsts = append(firsts, fileTask{open, path})
		default:
			after[open.Stream.Before] = fileTask{open, path}
		}
	}
	for _, root := range firsts {
		newest := root
		for next, ok := after[newest.ID]; ok; next, ok = after[newest.ID] {
			newest = next
		}
		all = append(all, f.stream(root, newest))
	}
	if len(all)+len(failed) == 0 {
		return nil, nil, fmt.Errorf("%s has no task and no set that could be renewed: want NAME.bundle of a stream's first "+
			"task, or a set's folder", folder)
	}
	return all, failed, nil
}

// single returns an error about a bundle that cannot be read, or about a task in no stream that ends soon.
func (f *renewAllFlags) single(open *taskfile.Open, err error) error {
	if err != nil {
		return err
	}
	now, over := uint64(time.Now().Unix()), open.Epochs.Over()
	if over <= now || over > now+uint64(f.within/time.Second) {
		return nil
	}
	return fmt.Errorf("the task is in no stream and ends on %s: sign a new one (doona task new --stream)", dayOf(over))
}

// stream returns the series of a stream.
func (f *renewAllFlags) stream(root, newest fileTask) series {
	name := strings.TrimSuffix(filepath.Base(root.path), bundleSuffix)
	work := func(path string) *renewFlags {
		return &renewFlags{out: path, owner: f.owner, ca: f.ca, recovery: f.recovery, count: newest.Epochs.Count}
	}
	return series{name: name, newest: newest.Epochs, position: newest.Stream.Position,
		send: func(ctx context.Context) error {
			_, err := work(newest.path).renew(ctx, root.Open)
			return err
		},
		check: func(ctx context.Context) error { return f.checkNewest(ctx, root.Open, newest.Open) },
		next: func(ctx context.Context) (e task.Epochs, err error) {
			at := keyPlace{root.ID, newest.Stream.Position + 1, newest.Epochs.Count}
			next := work(strings.TrimSuffix(root.path, bundleSuffix) + fmt.Sprint(".", at.position, bundleSuffix))
			if next.verifier, err = f.verifierList(at, newest.Task); err != nil {
				return e, err
			}
			next.issuer = f.issuerList(at, newest.Task)
			open, err := next.renew(ctx, root.Open)
			if err != nil {
				return e, err
			}
			return open.Epochs, nil
		}}
}

// set returns the series of a set.
func (f *renewAllFlags) set(name, path string) (*series, error) {
	renewed, err := readRenewals(path)
	if err != nil {
		return nil, err
	}
	first, last := renewed[0], renewed[len(renewed)-1]
	return &series{name: name, newest: last.set.Tasks[0].Epochs, position: last.set.Position,
		send: func(ctx context.Context) error {
			key, err := cli.LoadSign(os.Stderr, f.owner)
			if err != nil {
				return err
			}
			return last.handOverToAll(ctx, key, f.ca)
		},
		check: func(ctx context.Context) error {
			table := first.set.Tables[0].Name + bundleSuffix
			root, err := taskfile.LoadBundle(filepath.Join(first.path, table))
			if err != nil {
				return err
			}
			newest, err := taskfile.LoadBundle(filepath.Join(last.path, table))
			if err != nil {
				return err
			}
			return f.checkNewest(ctx, root, newest)
		},
		next: func(ctx context.Context) (e task.Epochs, err error) {
			newest := last.set.Tasks[0]
			work := setRenewFlags{owner: f.owner, ca: f.ca, days: newest.Epochs.Count}
			if work.verifier, err = f.setLists(&work, first, last); err != nil {
				return e, err
			}
			at := keyPlace{first.set.FirstTasks()[0], last.set.Position + 1, newest.Epochs.Count}
			work.issuer = f.issuerList(at, newest)
			next, err := work.renew(ctx, renewed)
			if err != nil {
				return e, err
			}
			return next.set.Tasks[0].Epochs, nil
		}}, nil
}

// checkNewest returns an error unless the relays' newest task of a stream is this one, and errEnded if its owner has
// ended the stream.
func (f *renewAllFlags) checkNewest(ctx context.Context, root, newest *taskfile.Open) error {
	recovery, err := taskfile.ParseRecovery(f.recovery)
	if err != nil {
		return err
	}
	owner, err := newOwner(f.owner, f.ca)
	if err != nil {
		return err
	}
	served, err := owner.FetchMergedStream(ctx, root, newest, root.Trust(recovery))
	if err != nil {
		return err
	}
	if served.Authority.Stopped {
		return errEnded
	}
	if last := served.Tasks[len(served.Tasks)-1]; last.ID != newest.ID {
		return fmt.Errorf("the relays' newest task has position %d, and the newest file has position %d: put the file of "+
			"that task into the folder", last.Stream.Position, newest.Stream.Position)
	}
	return nil
}
