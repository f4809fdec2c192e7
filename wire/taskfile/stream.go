package taskfile

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// Trust returns what a party trusts about the stream whose first task is o: o's owner, a recovery key (zero for none),
// and the changes that o itself allows.
func (o *Open) Trust(recovery task.SignKey) Trust {
	return Trust{Root: o.ID, Owner: o.Owner, Recovery: recovery, Allow: o.Stream.Allow}
}

// CheckSuccessor returns an error unless next may follow the task before in the stream whose first task is o. Three
// things must hold. The owner's key that a names must have signed next. If next replaces a relay's key, the old key must
// have signed the replacement. And [task.Task.CheckSuccessor] must accept next. trust is what the checking party
// allows.
func (o *Open) CheckSuccessor(a Authority, before, next *Open, trust Trust) error {
	if err := o.Task.CheckSuccessor(before.Task, before.ID, next.Task, trust.Allow, trust.Candidates); err != nil {
		return err
	}
	// Earlier rotations were already checked in the task before.
	for _, rotation := range next.Stream.Rotations[len(before.Stream.Rotations):] {
		if err := CheckRotation(o.ID, rotation); err != nil {
			return err
		}
	}
	return a.Check(next.Stream.Position, next.ID, next.Owner)
}

// Chain is a stream in the form that clients fetch: the bundles of its tasks from the first on, and the statements
// about who signs them. Bundles of past tasks have no keys, the others have those of a block. Its msgpack form is
// [[bundle …], [statement …]].
type Chain struct {
	Tasks      []*Bundle
	Statements Statements

	parsed []*task.Task // tasks by position; only for a chain from ReadChain
}

// Bytes returns the chain in msgpack.
func (c *Chain) Bytes() ([]byte, error) {
	whole := Chain{Tasks: append([]*Bundle{}, c.Tasks...), Statements: append(Statements{}, c.Statements...)}
	return codec.Marshal(&whole)
}

// ReadChain parses a stream, without the keys that it has for pages. It checks only the form, and that the first task
// has the id root; see [Chain.Open] for the other checks.
func ReadChain(in io.Reader, root task.ID) (*Chain, error) {
	limited := &io.LimitedReader{R: in, N: MaxStream + 1}
	c, err := readChain(codec.NewReader(bufio.NewReader(limited)), root)
	if limited.N <= 0 {
		err = fmt.Errorf("more than %d bytes", MaxStream)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read the stream: %w", err)
	}
	return c, nil
}

func readChain(r *codec.Reader, root task.ID) (*Chain, error) {
	if err := r.ArrayOf(2); err != nil {
		return nil, err
	}
	n, err := r.ArrayUpTo(MaxTasks)
	if err == nil && n == 0 {
		err = errors.New("no task")
	}
	c := &Chain{}
	for ; err == nil && n > 0; n-- {
		err = c.readTask(r, root)
	}
	if err == nil {
		c.Statements, err = readStatements(r)
	}
	if err == nil {
		err = r.End()
	}
	return c, err
}

func (c *Chain) readTask(r *codec.Reader, root task.ID) error {
	b, err := readHead(r)
	if err != nil {
		return err
	}
	id := task.ID(sha256.Sum256(b.Task))
	if len(c.Tasks) == 0 && id != root { // anybody can make a stream with another first task
		return invalid.Field("stream", id.String(), root.String()+", the first task of a stream")
	}
	t, err := task.Parse(b.Task)
	if err != nil {
		return err
	}
	if err := checkSize(t, len(b.Task)); err != nil {
		return err
	}
	c.Tasks, c.parsed = append(c.Tasks, b), append(c.parsed, t)
	return skipKeys(r, t)
}

// skipKeys reads key lists, each of the length that the task implies, and the keys of a block, or none of both, and
// discards them. The signature of the task has not been checked yet.
func skipKeys(r *codec.Reader, t *task.Task) error {
	lists, err := r.ArrayUpTo(maxLists)
	sizes := listSizes(t)
	if err == nil && lists > 0 && lists != uint64(len(sizes)) {
		err = fmt.Errorf("couldn't accept the task: %d key lists, want %d", lists, len(sizes))
	}
	for i := 0; err == nil && i < int(lists); i++ {
		_, err = r.Exactly(uint64(sizes[i]))
	}
	if err == nil {
		_, err = r.Uint()
	}
	if err == nil {
		err = r.ArrayOf(lists)
	}
	for hop := 0; err == nil && hop < int(lists); hop++ {
		err = skipBlock(r, kemOf(t, hop))
	}
	return err
}

func skipBlock(r *codec.Reader, kem task.KEM) error {
	_, most, err := onion.KeySizes(kem, onion.BlockEpochs)
	if err == nil {
		err = r.ArrayOf(2)
	}
	if err == nil {
		_, err = r.Bytes(int64(most))
	}
	if err == nil {
		_, err = r.Bytes(maxPath)
	}
	return err
}

// Open checks that the chain starts with the trusted task, that the authority's key signed every task after the
// statements, and that each task may follow the previous one. It returns the tasks by position, without keys.
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
	return tasks, a, nil
}

// openTask checks a task of a chain. It compares the task with the previous ones first, which is cheap, and then checks
// its signature.
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

// taskAt returns the task at a position. It parses the task unless ReadChain has done so.
func (c *Chain) taskAt(i int) (*task.Task, error) {
	if i < len(c.parsed) {
		return c.parsed[i], nil
	}
	return task.Parse(c.Tasks[i].Task)
}
