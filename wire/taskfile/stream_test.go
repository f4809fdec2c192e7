package taskfile_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// newChain returns a stream of three tasks that a party signed, and the id of its first task.
func newChain(t *testing.T, owner string) ([]*taskfile.Bundle, task.ID) {
	t.Helper()
	s, lists := sample(t)
	s.Stream = &task.StreamPosition{Name: "site"}
	var chain []*taskfile.Bundle
	root := taskfile.ID(s)
	for position := range uint64(3) {
		b, err := taskfile.Sign(s, signKey(owner), lists)
		require.NoError(t, err)
		chain = append(chain, b)
		next := *s
		next.Stream = &task.StreamPosition{Name: "site", Position: position + 1, Before: taskfile.ID(s)}
		next.Epochs.Start = s.Epochs.Over()
		s = &next
	}
	return chain, root
}

// TestChain: a stream must come back complete after encoding and reading, with and without keys.
func TestChain(t *testing.T) {
	chain, root := newChain(t, "owner")
	chain[0] = chain[0].Bare()
	raw, err := (&taskfile.Chain{Tasks: chain}).Bytes()
	require.NoError(t, err)
	again, err := taskfile.ReadChain(bytes.NewReader(raw), root)
	require.NoError(t, err)
	tasks, _, err := again.Open(taskfile.Trust{Root: root, Owner: public(signKey("owner"))})
	require.NoError(t, err)
	require.Len(t, tasks, 3)
	for i, b := range chain {
		require.Equal(t, b.Bare(), again.Tasks[i])
	}
	require.Equal(t, uint64(2), tasks[2].Stream.Position)
	for _, bad := range [][]byte{{0x92, 0x90, 0x90}, {0x90}, {}, append(raw, 0)} {
		_, err := taskfile.ReadChain(bytes.NewReader(bad), root)
		require.Error(t, err)
	}
}

// TestChainRefused: a stream must be refused if it has a foreign, missing, repeated or misplaced task, another first
// task, or a signature of other bytes.
func TestChainRefused(t *testing.T) {
	owner := public(signKey("owner"))
	open := func(tasks []*taskfile.Bundle, root task.ID) ([]*taskfile.Open, taskfile.Authority, error) {
		return (&taskfile.Chain{Tasks: tasks}).Open(taskfile.Trust{Root: root, Owner: owner})
	}
	foreign, _ := newChain(t, "two")
	for name, change := range map[string]func([]*taskfile.Bundle) []*taskfile.Bundle{
		"forged": func(c []*taskfile.Bundle) []*taskfile.Bundle { c[1] = foreign[1]; return c },
		"unsigned": func(c []*taskfile.Bundle) []*taskfile.Bundle {
			b := *c[2]
			b.Signature = signing.Sign(signKey("owner"), signing.KeyList, b.Task)
			c[2] = &b
			return c
		},
		"left out":     func(c []*taskfile.Bundle) []*taskfile.Bundle { return append(c[:1], c[2]) },
		"twice":        func(c []*taskfile.Bundle) []*taskfile.Bundle { return append(c, c[2]) },
		"out of order": func(c []*taskfile.Bundle) []*taskfile.Bundle { c[1], c[2] = c[2], c[1]; return c },
		"headless":     func(c []*taskfile.Bundle) []*taskfile.Bundle { return c[1:] },
	} {
		chain, root := newChain(t, "owner")
		_, _, err := open(chain, root)
		require.NoError(t, err)
		_, _, err = open(change(chain), root)
		require.Error(t, err, name)
	}
	chain, root := newChain(t, "owner")
	root[0] ^= 1
	_, _, err := open(chain, root)
	require.ErrorContains(t, err, "the first task of a stream")
}
