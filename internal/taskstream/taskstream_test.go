package taskstream_test

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/taskstream"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestTwoProcesses: two processes share a folder and have both seen a free position. Only one may take it. Keys whose
// list a crash kept from the disk must be made again.
func TestTwoProcesses(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	root, err := os.ReadFile(filepath.Join(c.Dir, "task0.bundle"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "deep", "next")
	one, err := taskstream.Open(path, root, task.SignKey{})
	require.NoError(t, err)
	two, err := taskstream.Open(path, root, task.SignKey{})
	require.NoError(t, err)

	sign, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	now := c.Open.Epochs.Start
	list, err := one.NextKeys(1, 1, now, sign)
	require.NoError(t, err)
	same, err := two.NextKeys(1, 1, now, sign)
	require.NoError(t, err)
	require.Equal(t, list, same)
	require.NoError(t, os.Remove(filepath.Join(path, "1-1.keys.pub")))
	other, err := two.NextKeys(1, 1, now, sign)
	require.NoError(t, err)
	require.NotEqual(t, list, other)

	successor := func(gap uint64) []byte {
		next := *c.Open.Task
		next.Stream = &task.StreamPosition{Name: "site", Position: 1, Before: c.Open.ID}
		next.Epochs.Start = c.Open.Epochs.Over() + gap
		owner, _ := c.AsOwner(t)
		bundle, err := taskfile.Sign(&next, owner, c.Open.KeyLists)
		require.NoError(t, err)
		raw, err := bundle.Bytes()
		require.NoError(t, err)
		return raw
	}
	first, has, err := check(one, successor(0), now)
	require.NoError(t, err)
	require.False(t, has)
	second, has, err := check(two, successor(1), now)
	require.NoError(t, err)
	require.False(t, has)
	require.NoError(t, one.Take(first))
	require.NoError(t, one.Take(first), "taking a task again must be no error")
	require.ErrorIs(t, two.Take(second), taskstream.ErrTaken)
	_, err = two.NextKeys(1, 1, now, sign)
	require.ErrorIs(t, err, taskstream.ErrTaken)
	require.Equal(t, one.Tasks()[1].ID, two.Tasks()[1].ID)
	again, err := taskstream.Open(path, root, task.SignKey{})
	require.NoError(t, err)
	require.Len(t, again.Tasks(), 2)

	require.NoError(t, os.WriteFile(filepath.Join(path, "2.bundle"), successor(0), 0o600))
	require.ErrorContains(t, again.Refresh(), "2.bundle")
}

// TestOwnerCannotPileUp: only one successor may wait for its start. Keys are made for few epoch counts, and unused ones
// removed. A task that starts far ahead is refused.
func TestOwnerCannotPileUp(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	root, err := os.ReadFile(filepath.Join(c.Dir, "task0.bundle"))
	require.NoError(t, err)
	path := t.TempDir()
	f, err := taskstream.Open(path, root, task.SignKey{})
	require.NoError(t, err)
	sign, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	now := c.Open.Epochs.Start
	for count := range uint64(4) {
		_, err := f.NextKeys(1, count+1, now, sign)
		require.NoError(t, err)
	}
	_, err = f.NextKeys(1, 5, now, sign)
	require.ErrorContains(t, err, "epochs.count")
	_, err = f.NextKeys(1, 4, now, sign)
	require.NoError(t, err, "asking for the same keys again must succeed")

	successor := func(before *taskfile.Open, start uint64) []byte {
		next := *before.Task
		next.Stream = &task.StreamPosition{Name: "site", Position: before.Stream.Position + 1, Before: before.ID}
		next.Epochs.Start = start
		owner, _ := c.AsOwner(t)
		bundle, err := taskfile.Sign(&next, owner, c.Open.KeyLists)
		require.NoError(t, err)
		raw, err := bundle.Bytes()
		require.NoError(t, err)
		return raw
	}
	over, length := c.Open.Epochs.Over(), uint64(c.Open.Epochs.Length)
	_, _, err = check(f, successor(c.Open, over+length+1), now)
	require.ErrorContains(t, err, "epochs.start")
	_, _, err = check(f, successor(c.Open, over+2*length), over+length)
	require.NoError(t, err, "must be allowed after the stream was over for an epoch")
	next, _, err := check(f, successor(c.Open, over+length), now)
	require.NoError(t, err)
	require.NoError(t, f.Take(next))
	left, err := filepath.Glob(filepath.Join(path, "1-*"))
	require.NoError(t, err)
	require.Equal(t, []string{f.Keys(next.Task), f.Keys(next.Task) + ".pub"}, left)

	_, err = f.NextKeys(2, 1, over+length-1, sign)
	require.ErrorContains(t, err, "stream.position")
	_, _, err = check(f, successor(next.Open, next.Epochs.Over()), over+length-1)
	require.ErrorContains(t, err, "stream.position")
	_, _, err = check(f, successor(next.Open, next.Epochs.Over()), over+length)
	require.NoError(t, err)
	_, err = f.NextKeys(2, 1, over+length, sign)
	require.NoError(t, err)
}

// TestTasksWhileKeysAreMade: while many keys are made, readers of the stream must not wait.
func TestTasksWhileKeysAreMade(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	root, err := os.ReadFile(filepath.Join(c.Dir, "task0.bundle"))
	require.NoError(t, err)
	f, err := taskstream.Open(t.TempDir(), root, task.SignKey{})
	require.NoError(t, err)
	sign, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	made := make(chan error, 1)
	go func() {
		_, err := f.NextKeys(1, 5_000, c.Open.Epochs.Start, sign)
		made <- err
	}()
	for looks := 0; ; looks++ {
		select {
		case err := <-made:
			require.NoError(t, err)
			require.Greater(t, looks, 10, "want more than 10 reads while keys are made")
			return
		default:
		}
		require.Len(t, f.Tasks(), 1)
		require.NoError(t, f.Refresh())
		_, err := f.Chain(0, 0)
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
	}
}

// TestStatementFreesNumbers: a thief of the owner's key asks two parties for keys of other epoch counts, and so stops
// the stream. After a statement, both must make more keys. Existing keys must stay, because another party may have
// accepted a task with them. A task that was checked before the statement must get no position after it.
func TestStatementFreesNumbers(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	root, err := os.ReadFile(filepath.Join(c.Dir, "task0.bundle"))
	require.NoError(t, err)
	sign, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	owner, _ := c.AsOwner(t)
	public, rescue, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	trust, now := c.Open.Trust(task.SignKey(public)), c.Open.Epochs.Start
	one, err := taskfile.NewStatement(trust, taskfile.Authority{}, c.Open, c.Open.Owner, rescue)
	require.NoError(t, err)
	statement, err := codec.Marshal(one)
	require.NoError(t, err)
	successor := *c.Open.Task
	successor.Stream = &task.StreamPosition{Name: "site", Position: 1, Before: c.Open.ID}
	successor.Epochs.Start = c.Open.Epochs.Over()
	bundle, err := taskfile.Sign(&successor, owner, c.Open.KeyLists)
	require.NoError(t, err)
	raw, err := bundle.Bytes()
	require.NoError(t, err)

	for party := range uint64(2) {
		path := t.TempDir()
		f, err := taskstream.Open(path, root, trust.Recovery)
		require.NoError(t, err)
		for count := range uint64(4) {
			_, err := f.NextKeys(1, 4*party+count+1, now, sign)
			require.NoError(t, err)
		}
		_, err = f.NextKeys(1, 9, now, sign)
		require.ErrorContains(t, err, "epochs.count")
		_, err = f.TakeStatement([]byte("x"))
		require.Error(t, err)
		require.Len(t, keysIn(t, path), 8)
		next, _, err := check(f, raw, now)
		require.NoError(t, err)

		changed, err := f.TakeStatement(statement)
		require.NoError(t, err)
		require.True(t, changed)
		require.Len(t, keysIn(t, path), 8)
		require.ErrorContains(t, f.Take(next), "a statement about the stream came")
		_, err = f.NextKeys(1, 9, now, sign)
		require.NoError(t, err, "both parties must now make keys for one count")
		changed, err = f.TakeStatement(statement)
		require.NoError(t, err)
		require.False(t, changed)
		again, err := taskstream.Open(path, root, trust.Recovery)
		require.NoError(t, err)
		require.EqualValues(t, 1, again.Authority().Era)
		for count := range uint64(3) {
			_, err := f.NextKeys(1, 10+count, now, sign)
			require.NoError(t, err)
		}
		_, err = f.NextKeys(1, 13, now, sign)
		require.ErrorContains(t, err, "epochs.count", "an era must allow only four more counts")
	}
}

// TestStatementNamesATaskAhead: a recovery key's statement may name a task that the folder lacks, and then no other
// task may come. An owner's statement may not.
func TestStatementNamesATaskAhead(t *testing.T) {
	w := newWay(t)
	f, err := taskstream.Open(t.TempDir(), w.root, w.trust.Recovery)
	require.NoError(t, err)
	now := w.c.Open.Epochs.Start
	named, other := w.successor(t, w.owner, 0), w.successor(t, w.owner, 1)
	ahead := taskfile.Authority{Key: w.c.Open.Owner}
	_, err = f.TakeStatement(w.statement(t, ahead, open(t, named), w.owner))
	require.ErrorContains(t, err, "position")
	_, err = f.TakeStatement(w.statement(t, ahead, open(t, named), w.rescue))
	require.NoError(t, err)
	_, _, err = check(f, other, now)
	require.ErrorContains(t, err, "which the statements name")
	next, _, err := check(f, named, now)
	require.NoError(t, err)
	require.NoError(t, f.Take(next))
}

// TestFollowWritesNothingOfAnotherStream: Follow must write no statements of another stream, or of one that ends before
// a task in the folder: the folder could not be read again.
func TestFollowWritesNothingOfAnotherStream(t *testing.T) {
	w := newWay(t)
	here, there := t.TempDir(), t.TempDir()
	now := w.c.Open.Epochs.Start
	take := func(path string, raw []byte) *taskstream.Folder {
		f, err := taskstream.Open(path, w.root, w.trust.Recovery)
		require.NoError(t, err)
		next, _, err := check(f, raw, now)
		require.NoError(t, err)
		require.NoError(t, f.Take(next))
		return f
	}
	f := take(here, w.successor(t, w.owner, 0))
	other := take(there, w.successor(t, w.owner, 1))
	short, err := taskstream.Open(t.TempDir(), w.root, w.trust.Recovery)
	require.NoError(t, err)
	var chain []byte
	w.c.Listen(t, 0, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.Write(chain) }))
	for _, served := range []*taskstream.Folder{short, other} {
		last := served.Tasks()[len(served.Tasks())-1].Open
		_, err := served.TakeStatement(w.statement(t, taskfile.Authority{Key: w.c.Open.Owner}, last, w.rescue))
		require.NoError(t, err)
		chain, err = served.Chain(0, 0)
		require.NoError(t, err)
		require.ErrorIs(t, f.Follow(t.Context(), w.c.Verifier, now, nil), taskstream.ErrForked)
		require.Zero(t, f.Authority().Era)
		again, err := taskstream.Open(here, w.root, w.trust.Recovery)
		require.NoError(t, err)
		require.Len(t, again.Tasks(), 2)
	}
	foreign, err := os.ReadFile(filepath.Join(there, "statements"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(here, "statements"), foreign, 0o600))
	require.ErrorIs(t, f.Refresh(), taskstream.ErrFolder)
	require.Zero(t, f.Authority().Era)
}

// way is a stream with a recovery key, and the keys that may sign its statements.
type way struct {
	c             *relaytest.Cascade
	root          []byte
	trust         taskfile.Trust
	owner, rescue ed25519.PrivateKey
}

func newWay(t *testing.T) *way {
	t.Helper()
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	root, err := os.ReadFile(filepath.Join(c.Dir, "task0.bundle"))
	require.NoError(t, err)
	owner, _ := c.AsOwner(t)
	public, rescue, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	return &way{c, root, c.Open.Trust(task.SignKey(public)), owner, rescue}
}

// successor returns a signed task at position 1, which begins gap seconds after the first task is over.
func (w *way) successor(t *testing.T, owner ed25519.PrivateKey, gap uint64) []byte {
	t.Helper()
	next := *w.c.Open.Task
	next.Stream = &task.StreamPosition{Name: "site", Position: 1, Before: w.c.Open.ID}
	next.Epochs.Start = w.c.Open.Epochs.Over() + gap
	bundle, err := taskfile.Sign(&next, owner, w.c.Open.KeyLists)
	require.NoError(t, err)
	raw, err := bundle.Bytes()
	require.NoError(t, err)
	return raw
}

// statement returns a signed statement that gives the stream to its owner.
func (w *way) statement(t *testing.T, a taskfile.Authority, last *taskfile.Open, signer ed25519.PrivateKey) []byte {
	t.Helper()
	one, err := taskfile.NewStatement(w.trust, a, last, w.c.Open.Owner, signer)
	require.NoError(t, err)
	raw, err := codec.Marshal(one)
	require.NoError(t, err)
	return raw
}

func open(t *testing.T, bundle []byte) *taskfile.Open {
	t.Helper()
	b, err := taskfile.ParseBundle(bundle)
	require.NoError(t, err)
	o, err := b.Open(nil)
	require.NoError(t, err)
	return o
}

func keysIn(t *testing.T, path string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(path, "*.keys*"))
	require.NoError(t, err)
	return files
}

// check parses a bundle and asks a folder whether its task may come next.
func check(f *taskstream.Folder, raw []byte, now uint64) (*taskstream.StreamTask, bool, error) {
	open, err := taskfile.ParseOpen(raw)
	if err != nil {
		return nil, false, err
	}
	return f.Check(raw, open, now)
}

// signedTasks returns the bundles of the first n tasks of a stream, each of this many epochs, after change modified
// them. The keys are arbitrary bytes.
func signedTasks(t *testing.T, n, epochs uint64, change func(*task.Task)) (tasks [][]byte, last task.Task) {
	t.Helper()
	c := relaytest.New(t, relaytest.Options{Hops: 2, Task: relaytest.InStream()})
	owner, _ := c.AsOwner(t)
	verifier, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	last = *c.Open.Task
	last.Epochs.Length, last.Epochs.Count, last.Relays = 120, epochs, slices.Clone(last.Relays)
	change(&last)
	b := &taskfile.Bundle{Owner: owner.Public().(ed25519.PublicKey)}
	for hop, sign := range []ed25519.PrivateKey{c.SignKey(t, 0), c.SignKey(t, 1), verifier} {
		list := anyKeys(t, sign, byte(hop), int(epochs))
		head, err := list.Head()
		require.NoError(t, err)
		b.KeyLists = append(b.KeyLists, head)
		b.Keys = append(b.Keys, taskfile.Keys{Keys: list.Keys, Path: list.Path})
		party := &last.Verifier
		if hop < 2 {
			party = &last.Relays[hop]
		}
		party.KeyList = list.Hash()
	}
	for position := range n {
		next := last
		next.Stream = &task.StreamPosition{Name: "site", Position: position}
		if position > 0 {
			next.Stream.Before, next.Epochs.Start = taskfile.ID(&last), last.Epochs.Over()
		}
		b.Task = next.Canonical()
		b.Signature = signing.Sign(owner, signing.Task, b.Task)
		raw, err := b.Bytes()
		require.NoError(t, err)
		tasks, last = append(tasks, raw), next
	}
	return tasks, last
}

// TestManyKeys: to check many valid keys must take little memory, and a page must fetch few of them.
func TestManyKeys(t *testing.T) {
	tasks, last := signedTasks(t, 2, 60_000, func(*task.Task) {})
	f, err := taskstream.Open(t.TempDir(), tasks[0], task.SignKey{})
	require.NoError(t, err)
	before := fixture.Allocated()
	next, _, err := check(f, tasks[1], last.Epochs.Start)
	require.NoError(t, err)
	require.LessOrEqual(t, fixture.Allocated()-before, uint64(100<<20), "bytes allocated to check 180,000 valid keys")
	require.NoError(t, f.Take(next))
	for _, now := range []uint64{0, last.Epochs.Start, last.Epochs.Over(), 1 << 50} {
		chain, err := f.Chain(now, time.Minute)
		require.NoError(t, err)
		require.Less(t, len(chain), 8<<10, "bytes that a page fetches of 360,000 keys")
	}
}

// TestStreamTooLarge: a successor that would make the stream too large for clients must get no position.
func TestStreamTooLarge(t *testing.T) {
	const most = 60
	tasks, last := signedTasks(t, most, 1, func(t *task.Task) {
		t.Params = nil
		for i := range 4096 {
			t.Params = append(t.Params, task.Param{Key: fmt.Sprintf("%064d", i), Value: randomizer.NewRational(1, 1<<62-1)})
		}
	})
	f, err := taskstream.Open(t.TempDir(), tasks[0], task.SignKey{})
	require.NoError(t, err)
	for _, raw := range tasks[1:] {
		var next *taskstream.StreamTask
		if next, _, err = check(f, raw, last.Epochs.Start); err != nil {
			break
		}
		require.NoError(t, f.Take(next))
	}
	require.ErrorContains(t, err, "at most 16777216")
	chain, err := f.Chain(last.Epochs.Over(), 0)
	require.NoError(t, err)
	require.LessOrEqual(t, len(chain), taskfile.MaxStream)
	require.Greater(t, len(chain)+len(tasks[0]), taskfile.MaxStream-8<<10)
}

// TestLongStreamIsReadOnce: opening a folder must take the same memory per successor, however many there are.
func TestLongStreamIsReadOnce(t *testing.T) {
	w := newWay(t)
	folder, short, long := t.TempDir(), 50, 200
	before := w.c.Open
	cost := map[int]uint64{}
	for position := 1; position <= long; position++ {
		next := *before.Task
		next.Stream = &task.StreamPosition{Name: "site", Position: uint64(position), Before: before.ID}
		next.Epochs.Start = before.Epochs.Over()
		bundle, err := taskfile.Sign(&next, w.owner, w.c.Open.KeyLists)
		require.NoError(t, err)
		raw, err := bundle.Bytes()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d.bundle", position)), raw, 0o600))
		before = open(t, raw)
		if position == short || position == long {
			asked := fixture.Allocated()
			f, err := taskstream.Open(folder, w.root, task.SignKey{})
			require.NoError(t, err)
			require.Len(t, f.Tasks(), position+1)
			cost[position] = fixture.Allocated() - asked
		}
	}
	require.Less(t, cost[long]/uint64(long), cost[short]/uint64(short)*5/4, "bytes allocated per successor")
}

func anyKeys(t *testing.T, sign ed25519.PrivateKey, hop byte, epochs int) *onion.SignedKeyList {
	t.Helper()
	keys := make([]byte, 32*epochs)
	for epoch := range epochs {
		binary.BigEndian.PutUint64(keys[32*epoch:], uint64(epoch))
		keys[32*epoch+31] = hop
	}
	list, err := onion.ListOf(task.KEMX25519, keys, sign)
	require.NoError(t, err)
	return list
}
