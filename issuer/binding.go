package issuer

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/rollback"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
)

// storeBinding binds a task's keys to the counts in the store. With a store that has lost its counts, the keys would
// issue every token again. The binding has three copies. If some of them were restored, but not all, the issuer
// detects it:
//
//   - the store has Name, Commits and Next, which change in the transaction that counts;
//   - the mark beside the key file, FILE.mark, has all fields, as of the last answered group;
//   - the key file has Name, and Commits as the steps of its own mark (package rollback).
//
// The issuer writes them in the order of [rollback.Commit], the mark before the key file. So the store has as many
// commits as each of the others, or one more after a crash. If it has fewer, or still more, there was a state rollback.
type storeBinding struct {
	Name    string // random name of the task's counts
	Commits uint64 // groups with a counted request of the task
	Next    uint64 // the first epoch without a counted request
	Erased  uint64 // number of epochs, from the first on, whose keys are erased; in the mark only
}

// count returns the store's record of the two marks.
func (t *storeBinding) count() rollback.Count { return rollback.SingleProcessCount(t.Commits) }

// ErrStateRollback is returned by [New] and [Inspect] if the store or the keys are older than the last token, or lost.
var ErrStateRollback = errors.New("state rollback detected: the issued tokens are no longer known")

// remedy tells the operator what to do.
const remedy = "put back the newest copies of the store, the keys and their mark, if you have all three; otherwise " +
	"run 'issuer end-epochs'"

// bindingCopies are the copies of a task's binding. A missing copy is nil, "" or 0.
type bindingCopies struct {
	row, mark *storeBinding
	keys      string // the name in the key file
	signed    uint64 // the commits in the key file
}

// fresh reports whether the keys have issued nothing yet. Then the issuer may create the binding, or complete it after
// a crash: it writes the row first, then the mark, then the key file.
func (p *bindingCopies) fresh() bool {
	none := func(t *storeBinding) bool { return t == nil || t.Commits == 0 }
	return p.keys == "" && p.signed == 0 && none(p.row) && none(p.mark) &&
		(p.mark == nil || p.row != nil && p.mark.Name == p.row.Name)
}

// check returns [ErrStateRollback] unless the three copies agree.
func (p *bindingCopies) check() error {
	why := ""
	switch {
	case p.fresh():
		return nil
	case p.row == nil:
		why = "the store has no counts of this task: it is new, or another store"
	case p.mark == nil:
		why = "the mark beside the key file is missing"
	case p.row.Name != p.mark.Name || p.keys != "" && p.row.Name != p.keys:
		why = "the keys belong to another store"
	case p.keys == "":
		why = "the key file is an older copy, from before its first token"
	case p.row.count().StoreRolledBack(max(p.mark.Commits, p.signed)):
		why = fmt.Sprintf("the store is an older copy: it is at commit %d, but tokens were issued up to commit %d",
			p.row.Commits, max(p.mark.Commits, p.signed))
	case p.row.count().MarkRolledBack(min(p.mark.Commits, p.signed)):
		why = fmt.Sprintf("the keys are at commit %d, their mark at %d and the store at %d: one is an older copy",
			p.signed, p.mark.Commits, p.row.Commits)
	default:
		return nil
	}
	return fmt.Errorf("%w: %s; %s", ErrStateRollback, why, remedy)
}

// parseBinding reads the value of a mark.
func parseBinding(value []byte) (*storeBinding, error) {
	if value == nil {
		return nil, nil
	}
	t := &storeBinding{}
	return t, codec.Unmarshal(value, t)
}

// counter is the key of the task's entry in the key file's mark.
func (s *hostedTask) counter() rollback.EpochKey { return rollback.EpochKey{Task: [16]byte(s.ID[:16])} }

// readBinding reads the copies of a task's binding, also while another process writes them. The copies in the store and
// in the mark are from the same moment. The key file's copy may be from a later one.
func (s *hostedTask) readBinding(st *store) (p bindingCopies, err error) {
	p.keys = s.keys.Store()
	for range 100 {
		var before, after []byte
		if before, err = durable.ReadSlotFile(s.file); err != nil {
			break
		}
		if st != nil {
			if p.row, err = st.binding(s.ID); err != nil {
				return p, err
			}
		}
		var keys *rollback.MarkFile
		if keys, err = s.keys.Mark(); err != nil {
			return p, err
		}
		p.signed = keys.Entry(s.counter()).Steps
		if after, err = durable.ReadSlotFile(s.file); err != nil {
			break
		}
		if bytes.Equal(before, after) {
			p.mark, err = parseBinding(after)
			break
		}
		err = errors.New("another process keeps changing it")
	}
	if err != nil {
		return p, fmt.Errorf("couldn't read the mark beside %s: %w", s.file, err)
	}
	return p, nil
}

// openBinding is the binding of a served task, with its open marks. The store's commitMu guards it.
type openBinding struct {
	storeBinding
	mark    *durable.SlotFile
	keys    *rollback.MarkFile // in the key file
	counter rollback.EpochKey
}

// write writes the binding durably to the mark, then its commits to the key file.
func (b *openBinding) write() error {
	value, err := codec.Marshal(&b.storeBinding)
	if err != nil {
		return err
	}
	if err := b.mark.Write(value); err != nil {
		return fmt.Errorf("couldn't write the mark beside the key file: %w", err)
	}
	return b.keys.Raise(map[rollback.EpochKey]rollback.Entry{b.counter: {Steps: b.Commits}})
}

func (b *openBinding) close() error {
	b.keys.Close()
	return b.mark.Close()
}

// open opens a task's mark for this process.
func (s *hostedTask) open() (*durable.SlotFile, error) {
	mark, err := durable.OpenSlotFile(s.file)
	if errors.Is(err, durable.ErrClaimed) {
		return nil, fmt.Errorf("couldn't use %s: %w", s.file, err)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't open the mark beside %s: %w", s.file, err)
	}
	return mark, nil
}

// join binds a task's keys to the store, or returns [ErrStateRollback]. It completes a binding that a crash left
// incomplete. After an error the store does not know the task; other tasks are unaffected.
func (st *store) join(s *hostedTask) (err error) {
	st.commitMu.Lock()
	defer st.commitMu.Unlock()
	b := &openBinding{counter: s.counter()}
	if b.keys, err = s.keys.Mark(); err != nil {
		return err
	}
	if b.mark, err = s.open(); err != nil {
		b.keys.Close()
		return err
	}
	if err := st.bind(s, b); err != nil {
		return errors.Join(err, b.close())
	}
	st.bindings[s.ID] = b // closed with the store
	return nil
}

func (st *store) bind(s *hostedTask, b *openBinding) error {
	p, err := s.readBinding(st)
	if err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	if p.row == nil {
		p.row = &storeBinding{Name: rand.Text()}
		if err := st.replaceBinding(s.ID, p.row); err != nil {
			return err
		}
	}
	b.storeBinding = *p.row
	if p.mark != nil {
		b.Erased = p.mark.Erased
	}
	if p.mark == nil || *p.mark != b.storeBinding || p.signed != b.Commits {
		if err := b.write(); err != nil {
			return err
		}
	}
	if p.keys == "" {
		return s.keys.SetStore(b.Name)
	}
	return nil
}

// erased returns how many epochs of a task, from the first on, have ended permanently.
func (st *store) erased(id task.ID) uint64 {
	st.commitMu.Lock()
	defer st.commitMu.Unlock()
	return st.bindings[id].Erased
}

// setErased records that a task's first epochs, erased in number, have ended permanently: if a restored key file brings
// their keys back, the issuer erases them again.
func (st *store) setErased(id task.ID, erased uint64) error {
	st.commitMu.Lock()
	defer st.commitMu.Unlock()
	b := st.bindings[id]
	if b.Erased >= erased {
		return nil
	}
	before := b.Erased
	b.Erased = erased
	err := b.write()
	if err != nil {
		b.Erased = before
	}
	return err
}
