package taskfile

import (
	"fmt"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// CheckSuccessor is an error unless next may follow before in the stream of which o is the first task: o's
// owner signed it, and [task.Task.CheckSuccessor] allows it. The page's allow is that of who checks; a
// party that has none takes the first task's.
func (o *Open) CheckSuccessor(before, next *Open, page []string) error {
	if next.Owner != o.Owner {
		return invalid.Field("owner", FormatKey(next.Owner), "that of the stream's first task, "+FormatKey(o.Owner))
	}
	return o.Task.CheckSuccessor(before.Task, before.ID, next.Task, page)
}

// Chain is a stream as clients get it: the bundles of its tasks from the first on. Those of tasks that
// are over have no key lists. Its msgpack form is an array.
type Chain []*Bundle

// Bytes returns the msgpack form.
func (c Chain) Bytes() ([]byte, error) { return codec.Marshal(&c) }

// ParseChain reads the msgpack form and nothing else.
func ParseChain(in []byte) (c Chain, err error) {
	if err = codec.Unmarshal(in, &c); err == nil && len(c) == 0 {
		err = fmt.Errorf("couldn't read the stream: no task")
	}
	return c, err
}

// Open checks that the chain starts with the task of an id, that its owner signed every task, and that
// each may follow the one before. It returns the tasks by position. Those without key lists, whose keys nobody
// needs any more, have none either.
func (c Chain) Open(root task.ID, owner task.SignKey, page []string) ([]*Open, error) {
	tasks := make([]*Open, len(c))
	for i, b := range c {
		open, err := b.open(&owner, len(b.KeyLists) > 0)
		if err != nil {
			return nil, fmt.Errorf("position %d: %w", i, err)
		}
		tasks[i] = open
		switch {
		case i == 0 && (open.ID != root || open.Stream == nil || open.Stream.Position != 0):
			return nil, invalid.Field("stream", open.ID.String(), root.String()+", the first task of a stream")
		case i > 0:
			if err := tasks[0].CheckSuccessor(tasks[i-1], open, page); err != nil {
				return nil, fmt.Errorf("position %d: %w", i, err)
			}
		}
	}
	return tasks, nil
}
