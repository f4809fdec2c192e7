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
// issue every token again. The binding is written in three places. Restoring some of them, but not all, is detected:
//
//   - the store has Name, Commits and Next, which change in the transaction that counts;
//   - the mark beside the key file, FILE.mark, has all fields, as of the last group that was answered;
//   - the key file has Name, and Commits as the steps of its own mark (package rollback).
//
// They are written in the order of [rollback.Commit], and the mark before the key file. So the store equals each of the
// other two, or is one commit ahead if a crash came between. If it is behind one, or further ahead, there was a state
// rollback.
type storeBinding struct {
	Name    string // random name of the task's counts
	Commits uint64 // groups with a counted request of the task
	Next    uint64 // the first epoch without a counted request
	Erased  uint64 // number of epochs, from the first on, without a key; in the mark only
}

// count is the store's record of the other two copies.
func (t *storeBinding) count() rollback.Count { return rollback.CountAlone(t.Commits) }

// ErrStateRollback is returned by [New] and [Inspect] if the keys and the store are not the ones that last ran
// together.
var ErrStateRollback = errors.New("what has been issued is not known any more")

// remedy says what an operator can do about it.
const remedy = "put back the newest copy of the store, the keys and their mark, if you have all three; else end " +
	"the epochs concerned with 'issuer end-epochs'"

// bindingCopies are the copies of a task's binding; nil, "" and 0 for those that do not exist.
type bindingCopies struct {
	row, mark *storeBinding
	keys      string // the name in the key file
	signed    uint64 // the commits in the key file
}

// fresh says that the keys have issued nothing yet. The binding may then be created, or completed after a crash: the
// row is written first, then the mark, then the key file.
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
		why = "the store has none of its counts: it was lost, or is another one"
	case p.mark == nil:
		why = "the mark beside its keys is gone"
	case p.row.Name != p.mark.Name || p.keys != "" && p.row.Name != p.keys:
		why = "its keys have been used with another store"
	case p.keys == "":
		why = "its key file is from before its first token: it was restored"
	case p.row.count().StoreBehind(max(p.mark.Commits, p.signed)):
		why = fmt.Sprintf("the store is at commit %d, and tokens were given out up to commit %d: it was restored",
			p.row.Commits, max(p.mark.Commits, p.signed))
	case p.row.count().MarkBehind(min(p.mark.Commits, p.signed)):
		why = fmt.Sprintf("its keys are at commit %d, their mark at %d, and the store at %d: one was restored",
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

// counter is the key of the task's commits in the key file's mark.
func (s *hostedTask) counter() rollback.Epoch { return rollback.Epoch{Task: [16]byte(s.ID[:16])} }

// readBinding reads the copies of a task's binding, also while another process writes them. The store's copy is from a
// moment at which the mark had the value returned; the key file's may be from a later moment.
func (s *hostedTask) readBinding(st *store) (p bindingCopies, err error) {
	p.keys = s.keys.Store()
	for range 100 {
		var before, after []byte
		if before, err = durable.ReadMark(s.file); err != nil {
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
		if after, err = durable.ReadMark(s.file); err != nil {
			break
		}
		if bytes.Equal(before, after) {
			p.mark, err = parseBinding(after)
			break
		}
		err = errors.New("it never stands still")
	}
	if err != nil {
		return p, fmt.Errorf("couldn't read the mark beside %s: %w", s.file, err)
	}
	return p, nil
}

// openBinding is the binding of a task that is served, with its marks. The store's commitMu guards it.
type openBinding struct {
	storeBinding
	mark    *durable.Mark
	keys    *rollback.MarkFile // in the key file
	counter rollback.Epoch
}

// write writes the binding durably to the mark, then its commits to the key file.
func (b *openBinding) write() error {
	value, err := codec.Marshal(&b.storeBinding)
	if err != nil {
		return err
	}
	if err := b.mark.Write(value); err != nil {
		return fmt.Errorf("couldn't write the mark: %w", err)
	}
	return b.keys.Raise(map[rollback.Epoch]rollback.Entry{b.counter: {Steps: b.Commits}})
}

func (b *openBinding) close() error {
	b.keys.Close()
	return b.mark.Close()
}

// open opens a task's mark for this process.
func (s *hostedTask) open() (*durable.Mark, error) {
	mark, err := durable.OpenMark(s.file)
	if errors.Is(err, durable.ErrClaimed) {
		return nil, fmt.Errorf("couldn't use %s: %w", s.file, err)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't open the mark beside %s: %w", s.file, err)
	}
	return mark, nil
}

// join binds a task's keys to the store, or returns [ErrStateRollback]. It completes a binding that a crash has cut
// short. After an error the store does not know the task; other tasks are unaffected.
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
		if err := st.begin(s.ID, p.row); err != nil {
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

// erased returns how many epochs of a task, from the first on, are permanently over.
func (st *store) erased(id task.ID) uint64 {
	st.commitMu.Lock()
	defer st.commitMu.Unlock()
	return st.bindings[id].Erased
}

// raise records that a task's first erased epochs are permanently over: if a restored key file brings their keys back,
// the issuer erases them again.
func (st *store) raise(id task.ID, erased uint64) error {
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
