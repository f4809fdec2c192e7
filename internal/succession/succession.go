// Package succession keeps the tasks that follow the first of a stream, and the keys made for them, in a
// folder of a party that serves the stream.
//
// A position of a stream is taken once, for good: POSITION.bundle is written durably before anything
// is done with the task in it, and never replaced. What fails the rules takes no position. Several
// processes of one party share the folder.
package succession

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// ErrTaken is returned for a task that is not the next of the stream: another has its position, or
// the one before it has not come.
var ErrTaken = errors.New("not the next task of the stream")

// MaxBundle is the most bytes of a bundle that is taken.
const MaxBundle = 64 << 20

// Task is one task of a stream.
type Task struct {
	*taskfile.Open
	Bundle *taskfile.Bundle
	Raw    []byte // the bundle's msgpack form
}

// Folder is a stream and the folder of its successors. It is safe for concurrent use.
type Folder struct {
	path string

	mu    sync.Mutex // guards tasks
	tasks []*Task    // by position
}

// Open reads a folder, which need not exist yet. root is the bundle of the stream's first task.
func Open(path string, root []byte) (*Folder, error) {
	first, err := parse(root)
	if err != nil {
		return nil, err
	}
	if first.Stream == nil || first.Stream.Position != 0 {
		return nil, invalid.Field("stream", "a task that is not the first of one",
			"the first task of a stream: successors come from its owner")
	}
	f := &Folder{path: path, tasks: []*Task{first}}
	return f, f.Refresh()
}

func parse(raw []byte) (*Task, error) {
	bundle, err := taskfile.ParseBundle(raw)
	if err != nil {
		return nil, err
	}
	open, err := bundle.Open(nil)
	return &Task{open, bundle, raw}, err
}

// Tasks returns the tasks by position, the first included.
func (f *Folder) Tasks() []*Task {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.tasks)
}

// Refresh reads what other processes have added.
func (f *Folder) Refresh() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refresh()
}

func (f *Folder) refresh() error {
	for {
		path := f.file(uint64(len(f.tasks)), ".bundle")
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("couldn't read a successor: %w", err)
		}
		next, err := parse(raw)
		if err == nil {
			err = f.follows(next)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		f.tasks = append(f.tasks, next)
	}
}

// follows checks that a task may come next.
func (f *Folder) follows(next *Task) error {
	root, last := f.tasks[0], f.tasks[len(f.tasks)-1]
	return root.CheckSuccessor(last.Open, next.Open, root.Stream.Allow)
}

// Check returns the task in a bundle if it may come next, or has come. It is [ErrTaken] where another
// has its position, and else an error that names what breaks the rules.
func (f *Folder) Check(raw []byte) (next *Task, has bool, err error) {
	if next, err = parse(raw); err != nil {
		return nil, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.check(next)
}

func (f *Folder) check(next *Task) (_ *Task, has bool, err error) {
	if err := f.refresh(); err != nil {
		return nil, false, err
	}
	if s := next.Stream; s != nil && s.Position != uint64(len(f.tasks)) {
		if s.Position > 0 && s.Position < uint64(len(f.tasks)) && f.tasks[s.Position].ID == next.ID {
			return f.tasks[s.Position], true, nil
		}
		return nil, false, ErrTaken
	}
	return next, false, f.follows(next)
}

// Take gives a task that Check has returned its position, durably, unless another was faster.
func (f *Folder) Take(next *Task) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	unlock, err := f.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if _, has, err := f.check(next); has || err != nil {
		return err
	}
	if err := durable.WriteFile(f.file(next.Stream.Position, ".bundle"), next.Raw, 0o600); err != nil {
		return fmt.Errorf("couldn't keep a successor: %w", err)
	}
	f.tasks = append(f.tasks, next)
	return nil
}

// lock keeps other processes out until unlock, and makes the folder.
func (f *Folder) lock() (unlock func(), err error) {
	if err := durable.MakeFolder(f.path, 0o700); err != nil {
		return nil, fmt.Errorf("couldn't make the folder of successors: %w", err)
	}
	if unlock, err = durable.Lock(filepath.Join(f.path, "position")); err != nil {
		err = fmt.Errorf("couldn't lock the folder of successors: %w", err)
	}
	return unlock, err
}

// NextKeys returns the party's list of keys for the next position and a number of epochs, and makes it
// where it is asked for the first time. It is [ErrTaken] for any other position.
func (f *Folder) NextKeys(position, count uint64, sign ed25519.PrivateKey) ([]byte, error) {
	if count < 1 || count > 65536 {
		return nil, invalid.Field("epochs.count", strconv.FormatUint(count, 10), "1 to 65536")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	unlock, err := f.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := f.refresh(); err != nil {
		return nil, err
	}
	if position != uint64(len(f.tasks)) {
		return nil, ErrTaken
	}
	return f.nextKeys(f.keys(position, count), count, sign)
}

// nextKeys makes keys in a file and a list beside it. Keys without a list were made before a crash, and
// nobody has been told of them.
func (f *Folder) nextKeys(keys string, count uint64, sign ed25519.PrivateKey) ([]byte, error) {
	raw, err := os.ReadFile(keys + ".pub")
	if !errors.Is(err, fs.ErrNotExist) {
		return raw, err
	}
	if err := os.Remove(keys); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("couldn't make keys: %w", err)
	}
	list, err := keyfile.NewHPKE(keys, f.tasks[0].KEM, count, sign)
	if err != nil {
		return nil, err
	}
	if raw, err = list.Bytes(); err != nil {
		return nil, err
	}
	if err := durable.WriteFile(keys+".pub", raw, 0o600); err != nil {
		return nil, fmt.Errorf("couldn't keep a list of keys: %w", err)
	}
	return raw, nil
}

// Keys returns the file of the keys of a task behind the first.
func (f *Folder) Keys(t *task.Task) string { return f.keys(t.Stream.Position, t.Epochs.Count) }

func (f *Folder) keys(position, count uint64) string {
	return f.file(position, "-"+strconv.FormatUint(count, 10)+".keys")
}

func (f *Folder) file(position uint64, rest string) string {
	return filepath.Join(f.path, strconv.FormatUint(position, 10)+rest)
}

// Chain returns the stream as clients get it: without the key lists of tasks that were over by a Unix time.
func (f *Folder) Chain(over uint64) ([]byte, error) {
	var chain taskfile.Chain
	for _, t := range f.Tasks() {
		b := *t.Bundle
		if t.Epochs.Over() <= over {
			b.KeyLists = [][]byte{}
		}
		chain = append(chain, &b)
	}
	return chain.Bytes()
}
