// Package taskstream keeps the tasks of a stream after its first, called successors, and the keys made for them, in a
// folder of a relay, issuer or verifier that serves the stream.
//
// Each position of a stream belongs to one task permanently: POSITION.bundle is written durably before anyone uses the
// task, and never replaced. An invalid task gets no position. Several processes of one operator may share the folder.
package taskstream

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// ErrTaken means that a task is not the next one of the stream: another task has its position, or the previous task is
// missing.
var ErrTaken = errors.New("not the next task of the stream")

// ErrFolder means that the folder cannot be used. The task owner's input is not at fault.
var ErrFolder = errors.New("couldn't use the folder of successors")

const (
	// maxCounts limits for how many numbers of epochs an owner may have keys made for one position. Each era (takeover
	// by the recovery key, counted up to maxEras) allows as many more, and each statement one more, because a thief of
	// the owner's key may have asked for other numbers. Keys stay until a task has the position, because another relay
	// or issuer may have accepted a task with them.
	maxCounts = 4
	maxEras   = 15
)

// StreamTask is one task of a stream.
type StreamTask struct {
	*taskfile.Open
	Bundle *taskfile.Bundle
	Raw    []byte // Bundle in msgpack

	authority taskfile.Authority // who decided about the stream when the task was checked
}

// Folder is a stream and the folder of its successors. It is safe for concurrent use.
type Folder struct {
	path     string
	changing sync.Mutex // held while the folder changes: making keys takes long

	trust taskfile.Trust

	mu         sync.Mutex    // guards the rest; not held during slow work
	tasks      []*StreamTask // by position
	canonical  int           // bytes of the tasks' canonical forms
	statements taskfile.Statements
	authority  taskfile.Authority
	chain      chain
	dropped    map[uint64]bool // by position, once known
}

// chain caches the result of Chain, with what it depends on: the number of tasks, the authority, and the bundles that
// have keys with their first epochs.
type chain struct {
	raw       []byte
	tasks     int
	firsts    []uint64
	authority taskfile.Authority
}

// Open reads a folder, which need not exist yet. root is the bundle of the stream's first task. recovery is the key
// that overrides the owner's; zero for none. If candidates are given, only they may replace a relay, and only if the
// first task allows replacing relays.
func Open(path string, root []byte, recovery task.SignKey, candidates ...task.SignKey) (*Folder, error) {
	first, err := parse(root)
	if err != nil {
		return nil, err
	}
	if first.Stream == nil || first.Stream.Position != 0 {
		return nil, invalid.Field("stream", "a task that is not the first of one",
			"the first task of a stream: successors come from its owner")
	}
	f := &Folder{path: path, tasks: []*StreamTask{first}, canonical: len(first.Bundle.Task),
		trust:     first.Trust(recovery),
		authority: taskfile.Authority{Key: first.Owner}, dropped: map[uint64]bool{}}
	if len(candidates) > 0 {
		f.trust.Candidates = candidates
		f.trust.Allow = slices.DeleteFunc(slices.Clone(f.trust.Allow), func(part string) bool {
			return part == "relays.signKey"
		})
	}
	return f, f.Refresh()
}

func parse(raw []byte) (*StreamTask, error) {
	bundle, err := taskfile.ParseBundle(raw)
	if err != nil {
		return nil, err
	}
	open, err := bundle.Open(nil)
	return &StreamTask{Open: open, Bundle: bundle, Raw: raw}, err
}

// Tasks returns the stream's tasks by position, including the first.
func (f *Folder) Tasks() []*StreamTask {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.tasks)
}

// Refresh reads tasks and statements that other processes have added.
func (f *Folder) Refresh() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.readStatements(); err != nil {
		return err
	}
	for {
		path := f.file(uint64(len(f.tasks)), ".bundle")
		raw, err := taskfile.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		var next *StreamTask
		if err == nil {
			next, err = parse(raw)
		}
		if err == nil {
			err = f.checkNext(next)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrFolder, path, err)
		}
		f.tasks, f.canonical = append(f.tasks, next), f.canonical+len(next.Bundle.Task)
	}
}

// checkNext returns an error unless a task may be the next one of the stream.
func (f *Folder) checkNext(next *StreamTask) error {
	root, last := f.tasks[0], f.tasks[len(f.tasks)-1]
	if err := root.CheckSuccessor(f.authority, last.Open, next.Open, f.trust); err != nil {
		return err
	}
	n := len(f.tasks)
	var recent []*task.Task
	for _, t := range append(f.tasks[max(0, n-2):n:n], next) {
		recent = append(recent, t.Task)
	}
	return taskfile.CheckGrownStream(n+1, f.canonical+len(next.Bundle.Task), recent)
}

// checkStart checks when a successor starts, by this machine's clock. Only one successor may wait for its start, so
// that an owner cannot queue up tasks. A start far ahead would leave a gap that nobody can close, because a position is
// permanent.
func (f *Folder) checkStart(start, now uint64) error {
	last := f.tasks[len(f.tasks)-1]
	if last.Stream.Position > 0 && now < last.Epochs.Start {
		return invalid.Field("stream.position", strconv.FormatUint(last.Stream.Position+1, 10),
			"none yet: the newest task of the stream has not begun")
	}
	over := int64(max(last.Epochs.Over(), now))
	if latest := uint64(last.Epochs.Length.Add(over, 1)); start > latest {
		return invalid.Field("epochs.start", strconv.FormatUint(start, 10), "at most "+
			strconv.FormatUint(latest, 10)+", an epoch after the newest task's end and after the time here")
	}
	return nil
}

// Check returns the task open, parsed from raw, if it may come next at Unix time now. has means that the stream has it
// already. If another task has its position, the error is [ErrTaken], else it names the broken rule.
func (f *Folder) Check(raw []byte, open *taskfile.Open, now uint64) (next *StreamTask, has bool, err error) {
	bundle, err := taskfile.ParseBundle(raw)
	if err != nil {
		return nil, false, err
	}
	if next, has, err = f.check(&StreamTask{Open: open, Bundle: bundle, Raw: raw}); has || err != nil {
		return next, has, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next.authority = f.authority
	return next, false, f.checkStart(next.Epochs.Start, now)
}

func (f *Folder) check(next *StreamTask) (_ *StreamTask, has bool, err error) {
	if err := f.Refresh(); err != nil {
		return nil, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := next.Stream; s != nil && s.Position != uint64(len(f.tasks)) {
		if s.Position > 0 && s.Position < uint64(len(f.tasks)) && f.tasks[s.Position].ID == next.ID {
			return f.tasks[s.Position], true, nil
		}
		return nil, false, ErrTaken
	}
	return next, false, f.checkNext(next)
}

// Take durably gives a task that Check returned its position, unless another task was faster. It removes keys that were
// made for the position with another number of epochs.
func (f *Folder) Take(next *StreamTask) error { return f.take(next, f.removeOthers) }

// take gives a task its position, then calls after while the folder is locked.
func (f *Folder) take(next *StreamTask, after func(*StreamTask) error) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if _, has, err := f.check(next); has || err != nil {
		return err
	}
	if f.Authority() != next.authority {
		return errors.New("a statement about the stream came while the task was checked: send the task again")
	}
	if err := durable.WriteFile(f.file(next.Stream.Position, ".bundle"), next.Raw, 0o600); err != nil {
		return fmt.Errorf("%w: %w", ErrFolder, err)
	}
	if err := f.Refresh(); err != nil {
		return err
	}
	return after(next)
}

func (f *Folder) removeOthers(next *StreamTask) error {
	kept := f.keys(next.Stream.Position, next.Epochs.Count)
	files, err := filepath.Glob(f.file(next.Stream.Position, "-*.keys*"))
	for _, file := range files {
		if !strings.HasPrefix(file, kept) {
			err = errors.Join(err, os.Remove(file))
		}
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrFolder, err)
	}
	return err
}

// Drop removes the keys of a successor that is no longer served. Its bundle stays: the position is permanent.
func (f *Folder) Drop(t *task.Task) error {
	position := t.Stream.Position
	if err := durable.WriteFile(f.file(position, ".dropped"), nil, 0o600); err != nil {
		return fmt.Errorf("%w: %w", ErrFolder, err)
	}
	return f.removeKeys(t)
}

func (f *Folder) removeKeys(t *task.Task) error {
	keys, err := filepath.Glob(f.keys(t.Stream.Position, t.Epochs.Count) + "*")
	for _, file := range keys {
		if gone := os.Remove(file); !errors.Is(gone, fs.ErrNotExist) { // another process was faster
			err = errors.Join(err, gone)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFolder, err)
	}
	return nil
}

// Clear removes keys of dropped tasks that remain after a crash.
func (f *Folder) Clear() (failed error) {
	for _, t := range f.Tasks()[1:] {
		if f.Dropped(t.Task) {
			failed = errors.Join(failed, f.removeKeys(t.Task))
		}
	}
	return failed
}

// Dropped reports whether any process on the folder has dropped a task.
func (f *Folder) Dropped(t *task.Task) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	position := t.Stream.Position
	if !f.dropped[position] {
		_, err := os.Stat(f.file(position, ".dropped"))
		f.dropped[position] = err == nil
	}
	return f.dropped[position]
}

// lock creates the folder and excludes other processes until unlock.
func (f *Folder) lock() (unlock func(), err error) {
	if err := durable.MakeFolder(f.path, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFolder, err)
	}
	if unlock, err = durable.Lock(filepath.Join(f.path, "position")); err != nil {
		err = fmt.Errorf("%w: %w", ErrFolder, err)
	}
	return unlock, err
}

// NextKeys returns the list of public keys for the next position and count epochs, at Unix time now. The first call
// makes the keys, which takes about 0.1 ms per epoch. For any other position it returns [ErrTaken].
func (f *Folder) NextKeys(position, count, now uint64, sign ed25519.PrivateKey) ([]byte, error) {
	if count < 1 || count > task.MaxEpochs {
		return nil, invalid.Field("epochs.count", strconv.FormatUint(count, 10), "1 to 65536")
	}
	if err := taskfile.CheckListSize(f.Tasks()[0].KEM, count); err != nil {
		return nil, err
	}
	f.changing.Lock()
	defer f.changing.Unlock()
	unlock, err := f.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := f.Refresh(); err != nil {
		return nil, err
	}
	tasks := f.Tasks()
	if position != uint64(len(tasks)) {
		return nil, ErrTaken
	}
	if err := f.checkStart(0, now); err != nil {
		return nil, err
	}
	return f.nextKeys(position, count, tasks[0].KEM, sign)
}

// nextKeys makes a file of keys and, beside it, their public list. Keys without a list are from before a crash: nobody
// has seen them, so it replaces them.
func (f *Folder) nextKeys(position, count uint64, kem task.KEM, sign ed25519.PrivateKey) ([]byte, error) {
	keys := f.keys(position, count)
	raw, err := os.ReadFile(keys + ".pub")
	if err == nil {
		return signedAnew(raw, sign)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(keys)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrFolder, err)
	}
	if made, err := filepath.Glob(f.file(position, "-*.keys.pub")); err != nil || len(made) >= f.mostCounts() {
		return nil, errors.Join(err, invalid.Field("epochs.count", strconv.FormatUint(count, 10),
			"one for which there are keys: they were made for "+strconv.Itoa(len(made))+" other numbers"))
	}
	list, err := keyfile.NewHPKE(keys, kem, count, sign)
	if err == nil {
		raw, err = list.Bytes()
	}
	if err == nil {
		err = durable.WriteFile(keys+".pub", raw, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFolder, err)
	}
	return raw, nil
}

// signedAnew returns a key list, newly signed with sign.
func signedAnew(raw []byte, sign ed25519.PrivateKey) ([]byte, error) {
	list, err := onion.ParseKeyList(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFolder, err)
	}
	list.Signature = signing.Sign(sign, signing.KeyList, list.List)
	return list.Bytes()
}

// mostCounts returns for how many numbers of epochs a position may have keys: see maxCounts.
func (f *Folder) mostCounts() int {
	a := f.Authority()
	return maxCounts*int(1+min(a.Era, maxEras)) + int(a.Number)
}

// Keys returns the path of a successor's key file.
func (f *Folder) Keys(t *task.Task) string { return f.keys(t.Stream.Position, t.Epochs.Count) }

func (f *Folder) keys(position, count uint64) string {
	return f.file(position, "-"+strconv.FormatUint(count, 10)+".keys")
}

func (f *Folder) file(position uint64, rest string) string {
	return filepath.Join(f.path, strconv.FormatUint(position, 10)+rest)
}

// Chain returns the encoded stream for clients at Unix time now. It omits the keys of tasks that were over for as long
// as grace, and for the others has those of the block that is open.
func (f *Folder) Chain(now uint64, grace time.Duration) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	past := 0
	for past < len(f.tasks) && f.tasks[past].Epochs.Over()+uint64(grace.Seconds()) <= now {
		past++
	}
	var firsts []uint64
	for _, t := range f.tasks[past:] {
		firsts = append(firsts, t.EpochNear(now)/onion.BlockEpochs*onion.BlockEpochs)
	}
	if f.chain.tasks == len(f.tasks) && slices.Equal(f.chain.firsts, firsts) && f.chain.authority == f.authority {
		return f.chain.raw, nil
	}
	all := taskfile.Chain{Statements: f.statements}
	for i, t := range f.tasks {
		if i < past {
			all.Tasks = append(all.Tasks, t.Bundle.Bare())
		} else {
			all.Tasks = append(all.Tasks, t.Bundle.Block(t.Lists(), firsts[i-past]))
		}
	}
	raw, err := all.Bytes()
	if err == nil {
		f.chain = chain{raw, len(f.tasks), firsts, f.authority}
	}
	return raw, err
}
