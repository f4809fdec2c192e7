package succession_test

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/internal/succession"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestTwoProcesses: of two who share a folder and have each seen that a position is free, one takes it. Keys
// whose list a crash kept out are made anew.
func TestTwoProcesses(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	root, err := os.ReadFile(filepath.Join(c.Dir, "task0.bundle"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "deep", "next")
	one, err := succession.Open(path, root, task.SignKey{})
	require.NoError(t, err)
	two, err := succession.Open(path, root, task.SignKey{})
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
		next.Stream = &task.Stream{Name: "site", Position: 1, Before: c.Open.ID}
		next.Epochs.Start = c.Open.Epochs.Over() + gap
		owner, _ := c.AsOwner(t)
		bundle, err := taskfile.Sign(&next, owner, c.Open.KeyLists)
		require.NoError(t, err)
		raw, err := bundle.Bytes()
		require.NoError(t, err)
		return raw
	}
	first, has, err := one.Check(successor(0), now)
	require.NoError(t, err)
	require.False(t, has)
	second, has, err := two.Check(successor(1), now)
	require.NoError(t, err)
	require.False(t, has)
	require.NoError(t, one.Take(first))
	require.NoError(t, one.Take(first), "once more is no error")
	require.ErrorIs(t, two.Take(second), succession.ErrTaken)
	_, err = two.NextKeys(1, 1, now, sign)
	require.ErrorIs(t, err, succession.ErrTaken)
	require.Equal(t, one.Tasks()[1].ID, two.Tasks()[1].ID)
	again, err := succession.Open(path, root, task.SignKey{})
	require.NoError(t, err)
	require.Len(t, again.Tasks(), 2)

	require.NoError(t, os.WriteFile(filepath.Join(path, "2.bundle"), successor(0), 0o600))
	require.ErrorContains(t, again.Refresh(), "2.bundle")
}

// TestOwnerCannotPileUp: one successor may wait for its time, keys are made for few numbers of epochs, those
// that were not taken go, and no start far ahead is taken.
func TestOwnerCannotPileUp(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	root, err := os.ReadFile(filepath.Join(c.Dir, "task0.bundle"))
	require.NoError(t, err)
	path := t.TempDir()
	f, err := succession.Open(path, root, task.SignKey{})
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
	require.NoError(t, err, "asked again")

	successor := func(before *taskfile.Open, start uint64) []byte {
		next := *before.Task
		next.Stream = &task.Stream{Name: "site", Position: before.Stream.Position + 1, Before: before.ID}
		next.Epochs.Start = start
		owner, _ := c.AsOwner(t)
		bundle, err := taskfile.Sign(&next, owner, c.Open.KeyLists)
		require.NoError(t, err)
		raw, err := bundle.Bytes()
		require.NoError(t, err)
		return raw
	}
	over, length := c.Open.Epochs.Over(), c.Open.Epochs.Length
	_, _, err = f.Check(successor(c.Open, over+length+1), now)
	require.ErrorContains(t, err, "epochs.start")
	_, _, err = f.Check(successor(c.Open, over+2*length), over+length)
	require.NoError(t, err, "the stream was over for an epoch")
	next, _, err := f.Check(successor(c.Open, over+length), now)
	require.NoError(t, err)
	require.NoError(t, f.Take(next))
	left, err := filepath.Glob(filepath.Join(path, "1-*"))
	require.NoError(t, err)
	require.Equal(t, []string{f.Keys(next.Task), f.Keys(next.Task) + ".pub"}, left)

	_, err = f.NextKeys(2, 1, over+length-1, sign)
	require.ErrorContains(t, err, "stream.position")
	_, _, err = f.Check(successor(next.Open, next.Epochs.Over()), over+length-1)
	require.ErrorContains(t, err, "stream.position")
	_, _, err = f.Check(successor(next.Open, next.Epochs.Over()), over+length)
	require.NoError(t, err)
	_, err = f.NextKeys(2, 1, over+length, sign)
	require.NoError(t, err)
}

// TestTasksWhileKeysAreMade: who asks for many keys keeps nobody from the stream.
func TestTasksWhileKeysAreMade(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	root, err := os.ReadFile(filepath.Join(c.Dir, "task0.bundle"))
	require.NoError(t, err)
	f, err := succession.Open(t.TempDir(), root, task.SignKey{})
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
			require.Greater(t, looks, 10, "looks while keys were made")
			return
		default:
		}
		require.Len(t, f.Tasks(), 1)
		require.NoError(t, f.Refresh())
		_, err := f.Chain(0)
		require.NoError(t, err)
		time.Sleep(time.Millisecond)
	}
}

// TestStatementFreesKeys: a thief of the owner's key who asks two parties for the keys of other numbers of epochs has
// stopped the stream until a statement is taken. Other statements, and the same again, leave keys as they are. What
// was checked before takes no position after: its keys are gone.
func TestStatementFreesKeys(t *testing.T) {
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
	successor.Stream = &task.Stream{Name: "site", Position: 1, Before: c.Open.ID}
	successor.Epochs.Start = c.Open.Epochs.Over()
	bundle, err := taskfile.Sign(&successor, owner, c.Open.KeyLists)
	require.NoError(t, err)
	raw, err := bundle.Bytes()
	require.NoError(t, err)

	for party := range uint64(2) {
		path := t.TempDir()
		f, err := succession.Open(path, root, trust.Recovery)
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
		next, _, err := f.Check(raw, now)
		require.NoError(t, err)

		changed, err := f.TakeStatement(statement)
		require.NoError(t, err)
		require.True(t, changed)
		require.Empty(t, keysIn(t, path))
		require.ErrorContains(t, f.Take(next), "a statement about the stream came")
		_, err = f.NextKeys(1, 9, now, sign)
		require.NoError(t, err, "a number that all can have")
		changed, err = f.TakeStatement(statement)
		require.NoError(t, err)
		require.False(t, changed)
		again, err := succession.Open(path, root, trust.Recovery)
		require.NoError(t, err)
		require.EqualValues(t, 1, again.Authority().Era)
		require.Len(t, keysIn(t, path), 2, "keys made since stay")
	}
}

func keysIn(t *testing.T, path string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(path, "*.keys*"))
	require.NoError(t, err)
	return files
}
