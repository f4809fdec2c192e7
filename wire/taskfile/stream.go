package taskfile

import (
	"fmt"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// Trust returns what a party trusts of the stream of which o is the first task: its owner, a recovery key unless
// that is zero, and what o itself allows to change.
func (o *Open) Trust(recovery task.SignKey) Trust {
	return Trust{Root: o.ID, Owner: o.Owner, Recovery: recovery, Allow: o.Stream.Allow}
}

// CheckSuccessor is an error unless next may follow before in the stream of which o is the first task: who decides
// about the stream signed it, every key that was rolled over signed its roll, and [task.Task.CheckSuccessor] allows
// it. The trust is that of who checks.
func (o *Open) CheckSuccessor(a Authority, before, next *Open, trust Trust) error {
	if err := o.Task.CheckSuccessor(before.Task, before.ID, next.Task, trust.Allow, trust.Candidates); err != nil {
		return err
	}
	for _, roll := range next.Stream.Rolls[len(before.Stream.Rolls):] { // those before were checked with before
		if err := CheckRoll(o.ID, roll); err != nil {
			return err
		}
	}
	return a.Check(next.Stream.Position, next.ID, next.Owner)
}

// Chain is a stream as clients get it: the bundles of its tasks from the first on, and the statements about who
// signs them. Bundles of tasks that are over have no key lists. Its msgpack form is [[bundle …], [statement …]].
type Chain struct {
	Tasks      []*Bundle
	Statements Statements
}

// Bytes returns the msgpack form.
func (c *Chain) Bytes() ([]byte, error) {
	whole := Chain{append([]*Bundle{}, c.Tasks...), append(Statements{}, c.Statements...)}
	return codec.Marshal(&whole)
}

// ParseChain reads the msgpack form and nothing else.
func ParseChain(in []byte) (*Chain, error) {
	c := &Chain{}
	if err := codec.Unmarshal(in, c); err != nil {
		return nil, err
	}
	if len(c.Tasks) == 0 {
		return nil, fmt.Errorf("couldn't read the stream: no task")
	}
	return c, nil
}

// Open checks that the chain starts with the task that is trusted, that who decided about the stream signed every
// task, and that each may follow the one before. It returns the tasks by position. Those without key lists, whose
// keys nobody needs any more, have none either.
func (c *Chain) Open(trust Trust) ([]*Open, Authority, error) {
	a, err := c.Statements.Authority(trust)
	if err != nil {
		return nil, a, err
	}
	tasks := make([]*Open, len(c.Tasks))
	for i, b := range c.Tasks {
		open, err := b.open(nil, len(b.KeyLists) > 0)
		if err != nil {
			return nil, a, fmt.Errorf("position %d: %w", i, err)
		}
		tasks[i] = open
		switch {
		case i == 0 && (open.ID != trust.Root || open.Stream == nil || open.Stream.Position != 0):
			return nil, a, invalid.Field("stream", open.ID.String(), trust.Root.String()+", the first task of a stream")
		case i == 0:
			err = a.Check(0, open.ID, open.Owner)
		default:
			err = tasks[0].CheckSuccessor(a, tasks[i-1], open, trust)
		}
		if err != nil {
			return nil, a, fmt.Errorf("position %d: %w", i, err)
		}
	}
	if a.Position >= uint64(len(tasks)) {
		return nil, a, invalid.Field("stream", fmt.Sprint(len(tasks), " tasks"),
			fmt.Sprint("those up to position ", a.Position, ", which the statements name"))
	}
	return tasks, a, nil
}
