package succession_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/internal/succession"
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
	one, err := succession.Open(path, root)
	require.NoError(t, err)
	two, err := succession.Open(path, root)
	require.NoError(t, err)

	sign, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	list, err := one.NextKeys(1, 1, sign)
	require.NoError(t, err)
	same, err := two.NextKeys(1, 1, sign)
	require.NoError(t, err)
	require.Equal(t, list, same)
	require.NoError(t, os.Remove(filepath.Join(path, "1-1.keys.pub")))
	other, err := two.NextKeys(1, 1, sign)
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
	first, has, err := one.Check(successor(0))
	require.NoError(t, err)
	require.False(t, has)
	second, has, err := two.Check(successor(1))
	require.NoError(t, err)
	require.False(t, has)
	require.NoError(t, one.Take(first))
	require.NoError(t, one.Take(first), "once more is no error")
	require.ErrorIs(t, two.Take(second), succession.ErrTaken)
	_, err = two.NextKeys(1, 1, sign)
	require.ErrorIs(t, err, succession.ErrTaken)
	require.Equal(t, one.Tasks()[1].ID, two.Tasks()[1].ID)
	again, err := succession.Open(path, root)
	require.NoError(t, err)
	require.Len(t, again.Tasks(), 2)

	require.NoError(t, os.WriteFile(filepath.Join(path, "2.bundle"), successor(0), 0o600))
	require.ErrorContains(t, again.Refresh(), "2.bundle")
}
