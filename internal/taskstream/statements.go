package taskstream

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Authority returns who decides about the stream now: the owner's key, or the key that took over from it.
func (f *Folder) Authority() taskfile.Authority {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.authority
}

// statementsFile returns the path of the file with the statements that count: those from the recovery key's last one
// on. It is always rewritten as a whole.
func (f *Folder) statementsFile() string { return filepath.Join(f.path, "statements") }

// readStatements reads statements that other processes have accepted. The caller holds f.mu.
func (f *Folder) readStatements() error {
	raw, err := os.ReadFile(f.statementsFile())
	if errors.Is(err, fs.ErrNotExist) && len(f.statements) == 0 {
		return nil
	}
	var all taskfile.Statements
	if err == nil {
		all, err = taskfile.ParseStatements(bytes.NewReader(raw))
	}
	if err == nil {
		err = f.setStatements(all)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrFolder, f.statementsFile(), err)
	}
	return nil
}

// setStatements replaces the statements in memory by statements that equal or extend them. It returns an error if a
// task in the folder does not comply with them, because the folder could not be read again. The caller holds f.mu.
func (f *Folder) setStatements(all taskfile.Statements) error {
	next, err := all.Authority(f.trust)
	if err != nil {
		return err
	}
	seen, err := taskfile.SeenStatement{}.Raise(f.statements, f.authority)
	if err == nil {
		_, err = seen.Raise(all, next)
	}
	for _, t := range f.tasks {
		if err == nil {
			err = next.Check(t.Stream.Position, t.ID, t.Owner)
		}
	}
	if err == nil {
		f.statements, f.authority = all, next
	}
	return err
}

// TakeStatement accepts a statement, signed by the owner or the recovery key, durably. The statement must follow those
// accepted so far and name the newest task in the folder. Only a recovery key's statement may name a later task: a
// thief of the owner's key may have given that task only to another relay, and then no other task can come here. The
// error says what is wrong, also if another statement has the same number. changed is false if the statement is the
// last one already.
func (f *Folder) TakeStatement(raw []byte) (changed bool, err error) {
	signed, err := taskfile.ParseSignedStatement(raw)
	if err != nil {
		return false, err
	}
	// Anyone may send statements. Reject invalid or unauthorized ones before waiting for a lock.
	if has, err := f.mayFollow(signed); has || err != nil {
		return false, err
	}
	return f.change(func() (taskfile.Statements, error) {
		if f.isLast(signed) {
			return f.statements, nil
		}
		all, err := f.statements.With(signed, f.trust)
		if err != nil {
			return nil, err
		}
		next, err := all.Authority(f.trust)
		if err == nil {
			err = f.checkPosition(next)
		}
		return all, err
	})
}

// checkPosition returns an error unless next names the newest task in the folder. A recovery key may name a later one.
// The caller holds f.mu.
func (f *Folder) checkPosition(next taskfile.Authority) error {
	last := f.tasks[len(f.tasks)-1]
	if next.Era > 0 && next.Number == 0 && next.Position > last.Stream.Position {
		return nil
	}
	if next.Position != last.Stream.Position || next.Task != last.ID {
		return invalid.Field("position", strconv.FormatUint(next.Position, 10),
			strconv.FormatUint(last.Stream.Position, 10)+", and the id of the newest task here, "+last.ID.String())
	}
	return nil
}

// mayFollow reports whether a statement is the last one accepted. It returns an error if the statement is neither that
// nor may follow it.
func (f *Folder) mayFollow(signed *taskfile.SignedStatement) (has bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isLast(signed) {
		return true, nil
	}
	_, err = f.authority.Next(signed, f.trust)
	return false, err
}

// isLast reports whether a statement is the last one accepted. The caller holds f.mu.
func (f *Folder) isLast(signed *taskfile.SignedStatement) bool {
	n := len(f.statements)
	return n > 0 && bytes.Equal(f.statements[n-1].Statement, signed.Statement)
}

// adopt accepts the statements of a completely checked stream.
func (f *Folder) adopt(all taskfile.Statements) error {
	_, err := f.change(func() (taskfile.Statements, error) { return all, nil })
	return err
}

// change durably replaces the statements by those that next returns. It reports whether they changed.
func (f *Folder) change(next func() (taskfile.Statements, error)) (changed bool, err error) {
	f.changing.Lock()
	defer f.changing.Unlock()
	unlock, err := f.lock()
	if err != nil {
		return false, err
	}
	defer unlock()
	if err := f.Refresh(); err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all, err := next()
	if err != nil {
		return false, err
	}
	statements, authority := f.statements, f.authority
	if err := f.setStatements(all); err != nil || f.authority == authority {
		return false, err
	}
	raw, err := codec.Marshal(&all)
	if err == nil {
		err = durable.WriteFile(f.statementsFile(), raw, 0o600)
	}
	if err != nil {
		f.statements, f.authority = statements, authority
		return false, fmt.Errorf("%w: %w", ErrFolder, err)
	}
	return true, nil
}

// MayWithdraw reports whether a key may withdraw the whole stream: the recovery key, and the key that signs the next
// task, or that has ended the stream.
func (f *Folder) MayWithdraw(key task.SignKey) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.authority
	if now.Stopped && now.Number > 0 { // number 0 of an era is the recovery key's
		now, _ = f.statements[:len(f.statements)-1].Authority(f.trust) // checked when it was accepted
	}
	return key != (task.SignKey{}) && (key == now.Key || key == f.trust.Recovery)
}
