package store

import (
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/doona-dp/doona/internal/rollback"
	"github.com/doona-dp/doona/wire/task"
)

// The kinds of rollback marks, by the file that holds them.
const (
	kindSecret = iota
	kindKeys
)

// guard is a rollback mark that the store is compared with.
type guard struct {
	*rollback.MarkFile
	kind int
	task [16]byte    // kindKeys: the first half of the task's ID
	gone atomic.Bool // Unwatch was called; the file may be removed
}

// of reports whether the rollback mark covers an epoch: the secret's mark covers all tasks.
func (g *guard) of(key rollback.EpochKey) bool { return g.kind == kindSecret || g.task == key.Task }

// state returns the content of the rollback mark, empty if the file has none yet.
func (g *guard) state() *rollback.Mark {
	if s := g.Known(); s != nil {
		return s
	}
	return &rollback.Mark{}
}

// half returns the name by which the secret's rollback mark refers to the HPKE keys of this task.
func (g *guard) half() string { return hex.EncodeToString(g.task[:]) }

// storeRolledBack returns the cause to report if the store is older than this file, and fileRolledBack if the file is
// older than the store.
func (g *guard) storeRolledBack() Cause {
	return [...]Cause{storeOlderThanSecret, storeOlderThanKeys}[g.kind]
}
func (g *guard) fileRolledBack() Cause {
	return [...]Cause{secretOlderThanStore, keysOlderThanStore}[g.kind]
}

// markFiles holds the rollback marks that the store is compared with: one in the secret file, and one in each task's
// HPKE key file. It uses no SQL.
type markFiles struct {
	secret *rollback.MarkFile

	mu      sync.Mutex // guards the rest
	watched []*guard   // rollback marks in HPKE key files
}

// Watch makes the store compare itself with the rollback mark in a task's HPKE key file, too.
func (f *markFiles) Watch(id task.ID, keys *rollback.MarkFile) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watched = append(f.watched, &guard{MarkFile: keys, kind: kindKeys, task: [16]byte(id[:16])})
}

// Unwatch undoes Watch for a task whose epochs have all expired. The caller may then remove the key file.
func (f *markFiles) Unwatch(id task.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watched = slices.DeleteFunc(f.watched, func(g *guard) bool {
		if g.task != [16]byte(id[:16]) {
			return false
		}
		g.gone.Store(true)
		g.MarkFile.Close()
		return true
	})
}

// guards returns all rollback marks, the secret's mark first.
func (f *markFiles) guards() []*guard {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*guard{{MarkFile: f.secret, kind: kindSecret}}, f.watched...)
}

// Close closes the files with the rollback marks.
func (f *markFiles) Close() {
	for _, g := range f.guards() {
		g.MarkFile.Close()
	}
}

func (id EpochID) key() rollback.EpochKey {
	return rollback.EpochKey{Task: [16]byte(id.Task[:16]), Epoch: id.Epoch}
}

// Marked lists the epochs in all rollback marks, each once. A mark stores only the first half of a task's ID, so the
// other half of each returned ID is zero.
func (f *markFiles) Marked() (ids []EpochID) {
	for _, g := range f.guards() {
		for key := range g.state().Entries {
			id := EpochID{Epoch: key.Epoch}
			copy(id.Task[:], key.Task[:])
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, EpochID.compare)
	return slices.Compact(ids)
}

// Forget removes epochs from all rollback marks. The store has no rows of them, so the marks would show a state
// rollback permanently.
func (f *markFiles) Forget(ids []EpochID) (failed error) {
	for _, g := range f.guards() {
		known := g.state().Entries
		if !slices.ContainsFunc(ids, func(id EpochID) bool { _, has := known[id.key()]; return has }) {
			continue
		}
		failed = errors.Join(failed, g.Change(func(s *rollback.Mark) {
			for _, id := range ids {
				delete(s.Entries, id.key())
			}
		}))
	}
	return failed
}

// End records in all rollback marks that the operator has ended epochs. This replaces the marks' earlier entries of
// these epochs.
func (f *markFiles) End(ids []EpochID) (failed error) {
	for _, g := range f.guards() {
		failed = errors.Join(failed, g.Change(func(s *rollback.Mark) {
			s.Secret, s.Keys, s.Fenced, s.SignOff = "", nil, false, ""
			for _, id := range ids {
				if g.of(id.key()) {
					s.Entries[id.key()] = rollback.Entry{Ended: true}
				}
			}
		}))
	}
	return failed
}

// pendingMarks are the entries that a transaction writes to rollback marks after its commit, by mark file and epoch.
type pendingMarks map[*rollback.MarkFile]map[rollback.EpochKey]rollback.Entry

func (p pendingMarks) add(g *guard, key rollback.EpochKey, e rollback.Entry) {
	if p[g.MarkFile] == nil {
		p[g.MarkFile] = map[rollback.EpochKey]rollback.Entry{}
	}
	before := p[g.MarkFile][key]
	before.Grow(e)
	p[g.MarkFile][key] = before
}

// raise writes the entries to the rollback marks, in parallel and with one write per file.
func (p pendingMarks) raise() error {
	failed := make([]error, 0, len(p))
	var writing sync.WaitGroup
	var mu sync.Mutex // guards failed
	for file, entries := range p {
		writing.Go(func() {
			if err := file.Raise(entries); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	writing.Wait()
	return errors.Join(failed...)
}
