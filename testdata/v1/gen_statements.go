//go:build ignore

package main

import (
	"fmt"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// stated is a stream of four tasks to which statements refer: the tasks' ids and who signed each.
type stated struct {
	trust  taskfile.Trust
	ids    []task.ID
	owners []string
}

func newStream(owners ...string) *stated {
	s := &stated{owners: owners}
	for i := range owners {
		s.ids = append(s.ids, task.ID(seed(fmt.Sprint("task ", i))))
	}
	s.trust = taskfile.Trust{Root: s.ids[0], Owner: signKey(sign("owner")), Recovery: signKey(sign("recovery"))}
	return s
}

// says adds a statement to all, by signer about a position. key names the next key; "" ends the stream.
func (s *stated) says(all taskfile.Statements, position int, key, signer string) taskfile.Statements {
	a, err := all.Authority(s.trust)
	check(err)
	var next task.SignKey
	if key != "" {
		next = signKey(sign(key))
	}
	last := &taskfile.Open{Task: &task.Task{Stream: &task.StreamPosition{Position: uint64(position)}},
		ID: s.ids[position]}
	one, err := taskfile.NewStatement(s.trust, a, last, next, sign(signer))
	check(err)
	all, err = all.With(one, s.trust)
	check(err)
	return all
}

func (s *stated) vector(all taskfile.Statements) object {
	tasks := []object{}
	for i, id := range s.ids {
		tasks = append(tasks, object{"id": hexOf(id[:]), "owner": hexOf(public(sign(s.owners[i])))})
	}
	raw := append(taskfile.Statements{}, all...)
	v := object{"root": hexOf(s.trust.Root[:]), "owner": hexOf(s.trust.Owner[:]), "recovery": "", "tasks": tasks,
		"statements": hexOf(marshal(&raw))}
	if s.trust.Recovery != (task.SignKey{}) {
		v["recovery"] = hexOf(s.trust.Recovery[:])
	}
	return v
}

// statements writes streams that owners transferred, recovered and stopped.
func statements() {
	var out []object
	add := func(s *stated, all taskfile.Statements) {
		a, err := all.Authority(s.trust)
		check(err)
		v := s.vector(all)
		v["era"], v["number"], v["position"], v["key"] = a.Era, a.Number, a.Position, hexOf(a.Key[:])
		if a.Stopped {
			v["key"] = ""
		}
		out = append(out, v)
	}
	s := newStream("owner", "owner", "two", "three")
	add(newStream("owner", "owner"), nil)
	on := s.says(s.says(nil, 1, "two", "owner"), 2, "three", "two")
	add(s, on)
	add(s, s.says(on, 3, "", "three"))
	add(newStream("owner", "thief", "one"), s.says(s.says(on, 2, "thief", "three"), 1, "one", "recovery"))
	add(s, s.says(s.says(s.says(on, 3, "", "recovery"), 3, "one", "recovery"), 3, "two", "one"))
	write("statement", out)
}

func badStatements(fault faultFunc) {
	s := newStream("owner", "owner", "two", "three")
	on := s.says(s.says(nil, 1, "two", "owner"), 2, "three", "two")
	rescued := s.says(on, 3, "one", "recovery")
	changed := func(by string, change func(*taskfile.Statement)) taskfile.Statements {
		var body taskfile.Statement
		check(codec.Unmarshal(on[1].Statement, &body))
		change(&body)
		raw := marshal(&body)
		return taskfile.Statements{on[0],
			{Statement: raw, Signature: signing.Sign(sign(by), signing.Statement, raw)}}
	}
	same := func(*taskfile.Statement) {}
	for _, c := range []struct {
		name, description string
		said              taskfile.Statements
	}{
		{"signer", "signed by the owner before", changed("owner", same)},
		{"purpose", "signed for another purpose", taskfile.Statements{on[0], {Statement: on[1].Statement,
			Signature: signing.Sign(sign("two"), signing.Task, on[1].Statement)}}},
		{"left_out", "number 2 without number 1", on[1:]},
		{"twice", "number 1 twice", taskfile.Statements{on[0], on[0]}},
		{"era_between", "a later era behind statements of the one before", taskfile.Statements{on[0], rescued[0]}},
		{"era_skipped", "era 1 without its statement 0", s.says(rescued, 3, "two", "one")[1:]},
		{"stream", "about another stream", changed("two", func(b *taskfile.Statement) { b.Root[0] ^= 1 })},
		{"version", "of version 2", changed("two", func(b *taskfile.Statement) { b.Version = 2 })},
		{"key", "for a key of 31 bytes", changed("two", func(b *taskfile.Statement) { b.Key = b.Key[1:] })},
		{"task", "about another task", changed("two", func(b *taskfile.Statement) { b.Task[0] ^= 1 })},
		{"position", "about a position before that of number 1", changed("two", func(b *taskfile.Statement) {
			b.Position, b.Task = 0, s.ids[0][:]
		})},
		{"no_task", "about a position that has no task",
			changed("two", func(b *taskfile.Statement) { b.Position = 4 })},
		{"owner", "a task behind the last position that another signed", s.says(on, 2, "one", "three")},
		{"behind_the_end", "a task behind the end", s.says(on, 2, "", "three")},
		{"nothing_said", "a task by another owner, and no statement", nil},
	} {
		fault("statement_"+c.name, "statements", "statement", c.description, s.vector(c.said))
	}
	end := s.says(nil, 3, "", "owner")
	var body taskfile.Statement
	check(codec.Unmarshal(end[0].Statement, &body))
	body.Number, body.Key = 2, public(sign("two"))
	raw := marshal(&body)
	fault("statement_after_the_end", "statements", "statement", "a statement of the same era behind the end",
		s.vector(append(end, &taskfile.SignedStatement{Statement: raw,
			Signature: signing.Sign(sign("owner"), signing.Statement, raw)})))
	s.trust.Recovery = task.SignKey{}
	fault("statement_no_recovery", "statements", "statement", "an era behind the first, where no recovery key is known",
		s.vector(rescued))
}
