package main

import (
	"crypto/ed25519"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// keyOf returns the key pair that it derives from a seed.
func keyOf(seed byte) (ed25519.PrivateKey, task.SignKey) {
	private := ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), seed))
	return private, task.SignKey(private.Public().(ed25519.PublicKey))
}

// addStatements adds variants with statements to r.variants. root and one are the stream's first two tasks. It returns
// the recovery key for the page's options.
func (r *relay) addStatements(root, one *fixture.SignedTask) (recovery string, err error) {
	rescue, rescueKey := keyOf(1)
	next, nextKey := keyOf(2)
	thief, thiefKey := keyOf(3)
	open, err := one.Bundle.Open(nil)
	if err != nil {
		return "", err
	}
	trust := taskfile.Trust{Root: root.ID, Owner: task.SignKey(root.Owner.Public().(ed25519.PublicKey)),
		Recovery: rescueKey}
	says := func(all taskfile.Statements, key task.SignKey, signer ed25519.PrivateKey) taskfile.Statements {
		var one *taskfile.SignedStatement
		a, failed := all.Authority(trust)
		if failed == nil {
			one, failed = taskfile.NewStatement(trust, a, open, key, signer)
		}
		if failed == nil {
			all, failed = all.With(one, trust)
		}
		if failed != nil {
			err = failed
		}
		return all
	}
	on := says(nil, nextKey, root.Owner)
	taken := says(nil, thiefKey, root.Owner)
	rescued := says(taken, nextKey, rescue)
	forged := *on[0]
	forged.Signature = append([]byte{forged.Signature[0] ^ 1}, forged.Signature[1:]...)
	same := func(*task.Task) {}
	byNext, byThief := one.Succeed(next, same), one.Succeed(thief, same)
	for name, c := range map[string]struct {
		said  taskfile.Statements
		tasks []*fixture.SignedTask
	}{
		"handed on":         {on, []*fixture.SignedTask{root, one, byNext}},
		"statement hidden":  {nil, []*fixture.SignedTask{root, one, byNext}},
		"statement forged":  {taskfile.Statements{&forged}, []*fixture.SignedTask{root, one, byNext}},
		"statement too far": {on, []*fixture.SignedTask{root}},
		"other statement":   {taken, []*fixture.SignedTask{root, one, byThief}},
		"old owner":         {on, []*fixture.SignedTask{root, one, one.Succeed(root.Owner, same)}},
		"rescued":           {rescued, []*fixture.SignedTask{root, one, byNext}},
		"thief goes on":     {rescued, []*fixture.SignedTask{root, one, byThief}},
		"stopped":           {says(on, task.SignKey{}, next), []*fixture.SignedTask{root, one}},
		"behind the end":    {says(on, task.SignKey{}, next), []*fixture.SignedTask{root, one, byNext}},
	} {
		chain := &taskfile.Chain{Statements: c.said}
		for _, t := range c.tasks {
			chain.Tasks = append(chain.Tasks, blockNow(t))
			r.tasks[t.Path()] = &scenario{SignedTask: t}
		}
		if r.variants[name], err = chain.Bytes(); err != nil {
			return "", err
		}
	}
	return taskfile.FormatKey(rescueKey), err
}
