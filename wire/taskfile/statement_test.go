package taskfile_test

import (
	"bytes"
	"crypto/ed25519"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// stated is a stream of three tasks, with statements about it. A new owner signed the last task.
type stated struct {
	trust taskfile.Trust
	open  []*taskfile.Open
	tasks []*taskfile.Bundle
}

func newStated(t *testing.T) *stated {
	t.Helper()
	tasks, root := newChain(t, "owner")
	s := &stated{tasks: tasks,
		trust: taskfile.Trust{Root: root, Owner: public(signKey("owner")), Recovery: public(signKey("recovery"))}}
	for _, b := range tasks {
		open, err := b.Open(nil)
		require.NoError(t, err)
		s.open = append(s.open, open)
	}
	s.resign(2, "new")
	return s
}

// resign makes another party the owner of the task at a position of the stream, and signs the task with its key.
func (s *stated) resign(position int, by string) {
	b := *s.tasks[position]
	b.Owner = signKey(by).Public().(ed25519.PublicKey)
	b.Signature = signing.Sign(signKey(by), signing.Task, b.Task)
	s.tasks[position] = &b
}

// says returns the statements with one more by signer, about the task at a position. The new statement names key as the
// next signer, or ends the stream if key is "".
func (s *stated) says(t *testing.T, all taskfile.Statements, position int, key, signer string) taskfile.Statements {
	t.Helper()
	a, err := all.Authority(s.trust)
	require.NoError(t, err)
	var next task.SignKey
	if key != "" {
		next = public(signKey(key))
	}
	one, err := taskfile.NewStatement(s.trust, a, s.open[position], next, signKey(signer))
	require.NoError(t, err)
	more, err := all.With(one, s.trust)
	require.NoError(t, err)
	return more
}

func (s *stated) check(all taskfile.Statements, tasks int) (taskfile.Authority, error) {
	_, a, err := (&taskfile.Chain{Tasks: s.tasks[:tasks], Statements: all}).Open(s.trust)
	return a, err
}

// TestStatements: an owner can pass a stream on to another key. A thief of the key must lose control to the recovery
// key, whatever the thief has signed. Either key may end the stream, but only the recovery key can continue it.
func TestStatements(t *testing.T) {
	s := newStated(t)
	_, err := s.check(nil, 3)
	require.ErrorContains(t, err, "invalid owner")
	_, err = s.check(nil, 2)
	require.NoError(t, err)

	on := s.says(t, nil, 1, "new", "owner")
	a, err := s.check(on, 3)
	require.NoError(t, err)
	require.Equal(t, taskfile.Authority{Number: 1, Position: 1, Task: s.open[1].ID, Key: public(signKey("new"))}, a)

	thief := s.says(t, nil, 0, "thief", "owner")
	back := s.says(t, s.says(t, thief, 1, "thief", "thief"), 1, "new", "recovery")
	require.Len(t, back, 1, "a new era must void earlier statements")
	_, err = s.check(back, 3)
	require.NoError(t, err)
	_, err = s.check(thief, 3)
	require.ErrorContains(t, err, "invalid owner")

	for _, signer := range []string{"new", "recovery"} {
		end := s.says(t, on, 1, "", signer)
		a, err := s.check(end, 2)
		require.NoError(t, err)
		require.True(t, a.Stopped)
		_, err = s.check(end, 3)
		require.ErrorContains(t, err, "the stream was stopped")
		_, err = taskfile.NewStatement(s.trust, a, s.open[1], public(signKey("new")), signKey("new"))
		require.ErrorContains(t, err, "sign-key")
		_, err = s.check(s.says(t, end, 1, "new", "recovery"), 3)
		require.NoError(t, err)
	}
	raw, err := (&taskfile.Chain{Tasks: s.tasks, Statements: on}).Bytes()
	require.NoError(t, err)
	again, err := taskfile.ReadChain(bytes.NewReader(raw), s.trust.Root)
	require.NoError(t, err)
	require.Equal(t, on, again.Statements)
}

// TestStatementsRefused: statements must be refused if they are forged, of another stream, out of order, missing,
// surplus, or about other tasks.
func TestStatementsRefused(t *testing.T) {
	s := newStated(t)
	good := s.says(t, s.says(t, nil, 0, "two", "owner"), 1, "new", "two")
	_, err := s.check(good, 3)
	require.NoError(t, err)
	change := func(one *taskfile.SignedStatement, signer string,
		change func(*taskfile.Statement)) *taskfile.SignedStatement {
		var body taskfile.Statement
		require.NoError(t, codec.Unmarshal(one.Statement, &body))
		change(&body)
		raw, err := codec.Marshal(&body)
		require.NoError(t, err)
		return &taskfile.SignedStatement{Statement: raw,
			Signature: signing.Sign(signKey(signer), signing.Statement, raw)}
	}
	second := func(c func(*taskfile.Statement)) taskfile.Statements {
		return taskfile.Statements{good[0], change(good[1], "two", c)}
	}
	forged := *good[1]
	forged.Signature = signing.Sign(signKey("two"), signing.Task, forged.Statement)
	recovered := s.says(t, good, 1, "new", "recovery")
	for name, bad := range map[string]taskfile.Statements{
		"forged":                 {good[0], &forged},
		"by a stranger":          {good[0], change(good[1], "stranger", func(*taskfile.Statement) {})},
		"by an owner before":     {good[0], change(good[1], "owner", func(*taskfile.Statement) {})},
		"left out":               good[1:],
		"twice":                  {good[0], good[0]},
		"out of order":           {good[1], good[0]},
		"behind a later era":     {recovered[0], good[0]},
		"a later era in between": {good[0], recovered[0]},
		"an era by an owner":     {change(recovered[0], "owner", func(*taskfile.Statement) {})},
		"of another stream":      second(func(b *taskfile.Statement) { b.Root[0] ^= 1 }),
		"of another version":     second(func(b *taskfile.Statement) { b.Version++ }),
		"of another kind":        second(func(b *taskfile.Statement) { b.Label = "doona-task" }),
		"about another task":     second(func(b *taskfile.Statement) { b.Task[0] ^= 1 }),
		"about an earlier task":  {change(good[0], "owner", func(b *taskfile.Statement) { b.Position = 2 }), good[1]},
		"about no task yet":      second(func(b *taskfile.Statement) { b.Position = 3 }),
		"for half a key":         second(func(b *taskfile.Statement) { b.Key = b.Key[:16] }),
	} {
		_, err := s.check(bad, 3)
		require.Error(t, err, name)
	}
	s.trust.Recovery = task.SignKey{}
	_, err = s.check(recovered, 3)
	require.ErrorContains(t, err, "invalid era", "no recovery key is known")

	s = newStated(t)
	many := taskfile.Statements{}
	for range taskfile.MaxStatements {
		many = s.says(t, many, 1, "owner", "owner")
	}
	a, err := many.Authority(s.trust)
	require.NoError(t, err)
	one, err := taskfile.NewStatement(s.trust, a, s.open[1], public(signKey("new")), signKey("owner"))
	require.NoError(t, err)
	_, err = many.With(one, s.trust)
	require.ErrorContains(t, err, "invalid statements")
}

// TestMark: a party that remembers the newest statement must refuse older or different ones, and accept later ones.
func TestMark(t *testing.T) {
	s := newStated(t)
	one := s.says(t, nil, 1, "new", "owner")
	two := s.says(t, one, 1, "", "new")
	other := s.says(t, nil, 1, "two", "owner")
	era := s.says(t, other, 1, "new", "recovery")
	raise := func(m taskfile.SeenStatement, to taskfile.Statements) (taskfile.SeenStatement, error) {
		a, err := to.Authority(s.trust)
		require.NoError(t, err)
		return m.Raise(to, a)
	}
	m, err := raise(taskfile.SeenStatement{}, nil)
	require.NoError(t, err)
	require.Equal(t, taskfile.SeenStatement{}, m)
	m, err = raise(m, one)
	require.NoError(t, err)
	for _, bad := range []taskfile.Statements{nil, other, s.says(t, other, 1, "new", "two")} {
		_, err := raise(m, bad)
		require.ErrorIs(t, err, taskfile.ErrStatements)
	}
	m, err = raise(m, two)
	require.NoError(t, err)
	_, err = raise(m, one)
	require.ErrorIs(t, err, taskfile.ErrStatements)
	m, err = raise(m, era)
	require.NoError(t, err)
	for _, bad := range []taskfile.Statements{two, s.says(t, nil, 1, "two", "recovery")} {
		_, err := raise(m, bad)
		require.ErrorIs(t, err, taskfile.ErrStatements)
	}
}
