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
	"github.com/doona-dp/doona/wire/taskfile"
)

// Authority returns who decides about the stream.
func (f *Folder) Authority() taskfile.Authority {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.authority
}

// statementsFile has the statements of the newest era. It is replaced as a whole.
func (f *Folder) statementsFile() string { return filepath.Join(f.path, "statements") }

// readStatements reads what other processes have taken. f.mu is held.
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
		err = f.raise(all)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrFolder, f.statementsFile(), err)
	}
	return nil
}

// raise takes statements that are those that are here, or what followed them, and that the tasks here are as: who
// wrote others down could not read the folder again. f.mu is held.
func (f *Folder) raise(all taskfile.Statements) error {
	next, err := all.Authority(f.trust)
	if err != nil {
		return err
	}
	seen, err := taskfile.Mark{}.Raise(f.statements, f.authority)
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

// TakeStatement takes a statement, durably: one that follows those that are here and names the newest task that is
// here. A recovery key's may name a task ahead: a thief may have handed one to another relay only, and no task but
// that can then come here. An error names what is wrong; that another has its number is one, too. changed is false
// for the last one here.
func (f *Folder) TakeStatement(raw []byte) (changed bool, err error) {
	signed, err := taskfile.ParseSignedStatement(raw)
	if err != nil {
		return false, err
	}
	// Anyone may send anything: nobody waits for what is no statement of somebody who may say so.
	if has, err := f.mayFollow(signed); has || err != nil {
		return false, err
	}
	return f.change(func() (taskfile.Statements, error) {
		if f.has(signed) {
			return f.statements, nil
		}
		all, err := f.statements.With(signed, f.trust)
		if err != nil {
			return nil, err
		}
		next, err := all.Authority(f.trust)
		if err == nil {
			err = f.names(next)
		}
		return all, err
	})
}

// names is an error unless who decides next names the newest task here, or by the recovery key one ahead. f.mu is held.
func (f *Folder) names(next taskfile.Authority) error {
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

// mayFollow says whether a statement is the last one here, and is an error unless it may follow that.
func (f *Folder) mayFollow(signed *taskfile.SignedStatement) (has bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.has(signed) {
		return true, nil
	}
	_, err = f.authority.Next(signed, f.trust)
	return false, err
}

// has says whether a statement is the last one here. f.mu is held.
func (f *Folder) has(signed *taskfile.SignedStatement) bool {
	n := len(f.statements)
	return n > 0 && bytes.Equal(f.statements[n-1].Statement, signed.Statement)
}

// adopt takes the statements of a stream that was checked as a whole.
func (f *Folder) adopt(all taskfile.Statements) error {
	_, err := f.change(func() (taskfile.Statements, error) { return all, nil })
	return err
}

// change replaces the statements, durably, by what next returns, and says whether those are others.
func (f *Folder) change(next func() (taskfile.Statements, error)) (changed bool, err error) {
	f.making.Lock()
	defer f.making.Unlock()
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
	if err := f.raise(all); err != nil || f.authority == authority {
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
