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

// storeBinding binds a task's keys to the counts of issued tokens in the store. If the store lost its counts, the
// issuer would give every client its tokens a second time. The binding has three copies. If an operator restores some
// of them from a backup, but not all, the issuer detects it:
//
//   - the store has Name, Commits and Next, which change in the transaction that counts;
//   - the mark beside the key file, FILE.mark, has all fields, as of the last requests that the issuer answered;
//   - the key file has Name, and Commits as the steps of its own mark (package rollback).
//
// The issuer writes them in the order of [rollback.Commit]: the store, the mark, the key file. So the store has as many
// commits as the mark and as the key file, or one more after a crash. If the store has fewer, or more than one more,
// some copy was rolled back.
type storeBinding struct {
	Name    string // random name of the task's counts; a new store gets a new name
	Commits uint64 // number of committed groups that counted a request of the task
	Next    uint64 // first epoch after the last one with a counted request
	Erased  uint64 // the keys of epochs 0 to Erased-1 are erased; only in the mark
}

// count returns the store's commits, to compare with the mark and with the key file's own mark.
func (t *storeBinding) count() rollback.Count { return rollback.SingleProcessCount(t.Commits) }

// ErrStateRollback is returned by [New] and [Inspect] if the store or the keys are older than the last token, or lost.
var ErrStateRollback = errors.New("state rollback detected: the issued tokens are no longer known")

// remedy is the end of every ErrStateRollback: it tells the operator what to do.
const remedy = "put back the newest copies of the store, the keys and their mark, if you have all three; otherwise " +
	"run 'issuer end-epochs'"

// bindingCopies are the copies of a task's binding. A missing copy is nil, "" or 0.
type bindingCopies struct {
	row, mark *storeBinding
	keys      string // the name in the key file
	signed    uint64 // the commits in the key file
}

// fresh reports whether the keys have issued no token yet. Then the issuer may create the binding, or complete it after
// a crash: it writes the store's row first, then the mark, then the key file.
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

// parseBinding decodes the content of a mark; nil stands for a missing mark.
func parseBinding(value []byte) (*storeBinding, error) {
	if value == nil {
		return nil, nil
	}
	t := &storeBinding{}
	return t, codec.Unmarshal(value, t)
}

// counter is the key of the task's entry in the key file's mark. An issuer counts per task, so the entry has no epoch.
func (s *hostedTask) counter() rollback.EpochKey { return rollback.EpochKey{Task: [16]byte(s.ID[:16])} }

// readBinding reads the three copies of a task's binding. Another process may write them meanwhile, so readBinding
// reads the mark before and after the store, and repeats until both reads are equal. Then the store and the mark are
// from the same moment; the key file may be newer.
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

// write writes the binding durably to the mark, then the number of commits to the key file.
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

// open opens the mark beside the task's key file, for this process alone.
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
	st.bindings[s.ID] = b // store.close closes it
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

// erased returns how many epochs of a task, counted from epoch 0, have ended permanently.
func (st *store) erased(id task.ID) uint64 {
	st.commitMu.Lock()
	defer st.commitMu.Unlock()
	return st.bindings[id].Erased
}

// setErased records that epochs 0 to erased-1 of a task have ended permanently. If an operator restores an older key
// file with their keys, the issuer erases these keys again.
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
