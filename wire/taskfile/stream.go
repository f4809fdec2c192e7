package taskfile

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/signing"
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

	parsed []*task.Task // of a chain that was read, by position
}

// Bytes returns the msgpack form.
func (c *Chain) Bytes() ([]byte, error) {
	whole := Chain{Tasks: append([]*Bundle{}, c.Tasks...), Statements: append(Statements{}, c.Statements...)}
	return codec.Marshal(&whole)
}

// ReadChain reads a stream and nothing else. Lists of keys are kept of those tasks alone for which keep says so: the
// others' are skipped by the lengths that each task implies, and are none of the chain that it returns. Nothing is
// checked but the form, and that the first task is the one of the trust: see [Chain.Open].
func ReadChain(in io.Reader, root task.ID, keep func(*task.Task) bool) (*Chain, error) {
	limited := &io.LimitedReader{R: in, N: MaxStream + 1}
	c, err := readChain(codec.NewReader(bufio.NewReader(limited)), root, keep)
	if limited.N <= 0 {
		err = fmt.Errorf("more than %d bytes", MaxStream)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read the stream: %w", err)
	}
	return c, nil
}

func readChain(r *codec.Reader, root task.ID, keep func(*task.Task) bool) (*Chain, error) {
	if err := r.ArrayOf(2); err != nil {
		return nil, err
	}
	n, err := r.ArrayUpTo(MaxTasks)
	if err == nil && n == 0 {
		err = errors.New("no task")
	}
	c := &Chain{}
	for ; err == nil && n > 0; n-- {
		err = c.readTask(r, root, keep)
	}
	if err == nil {
		c.Statements, err = readStatements(r)
	}
	if err == nil {
		err = r.End()
	}
	return c, err
}

// readTask reads the next bundle of a stream.
func (c *Chain) readTask(r *codec.Reader, root task.ID, keep func(*task.Task) bool) error {
	b, err := readHead(r)
	if err != nil {
		return err
	}
	id := task.ID(sha256.Sum256(b.Task))
	if len(c.Tasks) == 0 && id != root { // anybody can make others
		return invalid.Field("stream", id.String(), root.String()+", the first task of a stream")
	}
	t, err := task.Parse(b.Task)
	if err != nil {
		return err
	}
	lists, err := r.ArrayUpTo(maxLists)
	if err == nil && lists > 0 {
		err = b.readLists(r, t, lists, keep(t))
	}
	c.Tasks, c.parsed = append(c.Tasks, b), append(c.parsed, t)
	return err
}

// readLists reads so many lists of keys, each of the length that the task implies, and keeps them or not. Nobody has
// checked who signed the task.
func (b *Bundle) readLists(r *codec.Reader, t *task.Task, lists uint64, kept bool) error {
	if err := checkSize(t, len(b.Task)); err != nil {
		return err
	}
	sizes, err := listSizes(t)
	if err == nil && lists != uint64(len(sizes)) {
		err = fmt.Errorf("couldn't accept the task: %d key lists, want %d", lists, len(sizes))
	}
	for i := 0; err == nil && i < len(sizes); i++ {
		if !kept {
			err = r.Skip(sizes[i])
			continue
		}
		var list []byte
		list, err = r.Exactly(sizes[i])
		b.KeyLists = append(b.KeyLists, list)
	}
	return err
}

// Open checks that the chain starts with the task that is trusted, that who decided about the stream signed every
// task, and that each may follow the one before. Then it checks the lists of keys of the tasks that have any, and
// returns the tasks by position.
func (c *Chain) Open(trust Trust) ([]*Open, Authority, error) {
	a, err := c.Statements.Authority(trust)
	if err != nil {
		return nil, a, err
	}
	tasks := make([]*Open, len(c.Tasks))
	for i := range c.Tasks {
		if err := c.openTask(tasks, i, a, trust); err != nil {
			return nil, a, fmt.Errorf("position %d: %w", i, err)
		}
	}
	if a.Position >= uint64(len(tasks)) {
		return nil, a, invalid.Field("stream", fmt.Sprint(len(tasks), " tasks"),
			fmt.Sprint("those up to position ", a.Position, ", which the statements name"))
	}
	for i, b := range c.Tasks {
		if len(b.KeyLists) == 0 {
			continue
		}
		if err := b.openKeys(tasks[i]); err != nil {
			return nil, a, fmt.Errorf("position %d: %w", i, err)
		}
	}
	return tasks, a, nil
}

// openTask checks one task of a chain by those before it, which is cheap, and then its signature.
func (c *Chain) openTask(tasks []*Open, i int, a Authority, trust Trust) error {
	b := c.Tasks[i]
	if len(b.Owner) != len(task.SignKey{}) {
		return invalid.Field("owner", fmt.Sprintf("of %d bytes", len(b.Owner)), "32 bytes")
	}
	t, err := c.taskAt(i)
	if err != nil {
		return err
	}
	open, err := b.opened(t)
	if err != nil {
		return err
	}
	switch {
	case i == 0 && (open.ID != trust.Root || open.Stream == nil || open.Stream.Position != 0):
		return invalid.Field("stream", open.ID.String(), trust.Root.String()+", the first task of a stream")
	case i == 0:
		err = a.Check(0, open.ID, open.Owner)
	default:
		err = tasks[0].CheckSuccessor(a, tasks[i-1], open, trust)
	}
	if err != nil {
		return err
	}
	if !signing.Verify(b.Owner, signing.Task, b.Task, b.Signature) {
		return fmt.Errorf("couldn't accept the task: %w", signing.ErrSigner)
	}
	tasks[i] = open
	return nil
}

// taskAt returns the task at a position, which is parsed once.
func (c *Chain) taskAt(i int) (*task.Task, error) {
	if i < len(c.parsed) {
		return c.parsed[i], nil
	}
	return task.Parse(c.Tasks[i].Task)
}
