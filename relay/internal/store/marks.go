package store

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/doona-dp/doona/internal/rollback"
	"github.com/doona-dp/doona/wire/task"
)

// Every transaction that changes an epoch is a step of it, and stands in a mark in the secret file and in
// the task's HPKE key file (package rollback) before anyone is told of it. So a store that was set back is
// behind both marks, and a key file that was set back has a mark behind the store.
//
//	order of a step: 1 commit in the store   2 marks, fsync   3 acknowledge; serve a batch
//
//	a crash             the restart sees                 and does
//	before 1            nothing                          the client, or this relay, does it again
//	between 1 and 2     the store ahead of both marks,   writes the marks, then serves the same bytes and
//	                    by the last steps                knows the client's retry
//	within 2            the store ahead of one mark      the same
//	                    (a torn mark counts as the
//	                    one before)
//	between 2 and 3     all agree                        serves; knows the client's retry
//	3, then set back    a mark ahead of the store, or    refuses everything until an operator ends the
//	                    of what the store has known      epochs: [SetBack]
//	                    of the mark
//
// The store keeps two numbers for each mark and epoch: steps, which grows in the transaction, and marked,
// what the mark held on disk when that transaction began. Without a set-back
//
//	marked ≤ the mark ≤ steps                                                          (1)
//
// always. A mark belongs to a file, and gets its name with its first step: processes with copies of a file
// that were made before that have marks of their own, and processes with one file share its mark.

// Cause says what was set back. It is fit for strangers: it names no file.
type Cause string

// The causes of a [SetBack]: see [Causes].
const (
	storeBehindSecret Cause = "the store is behind the secret"
	storeBehindKeys   Cause = "the store is behind the HPKE keys"
	secretBehind      Cause = "the secret is behind the store"
	keysBehind        Cause = "the HPKE keys are behind the store"
	otherDatabase     Cause = "the store is in another database server, or in another of its histories"
	otherFound        Cause = "another process has found that the store was set back"
)

// Causes lists them all.
func Causes() []Cause {
	return []Cause{storeBehindSecret, storeBehindKeys, secretBehind, keysBehind, otherDatabase, otherFound}
}

// SetBack is the error of everything on a store that has been found to be behind its key files, or the
// other way round.
type SetBack struct {
	Cause  Cause
	Detail string // for the operator
}

// Error returns the cause, the detail and what to do.
func (s *SetBack) Error() string {
	return fmt.Sprintf("set back: %s: %s: nothing is taken, made or handed out until it is put right, or its "+
		"epochs are ended (relay end-epochs)", s.Cause, s.Detail)
}

// ofStore says whether it is the store that was set back, as this process has found itself.
func (s *SetBack) ofStore() bool {
	return s != nil && slices.Contains([]Cause{storeBehindSecret, storeBehindKeys, otherDatabase}, s.Cause)
}

// The kinds of marks, by the file that they are in.
const (
	kindSecret = iota
	kindKeys
)

// guard is a mark that the store must keep pace with.
type guard struct {
	*rollback.MarkFile
	kind int
	task [16]byte    // of HPKE keys
	gone atomic.Bool // nobody watches it any more, and its file may be removed
}

// of says whether a guard's mark has entries of a task.
func (g *guard) of(key rollback.Epoch) bool { return g.kind == kindSecret || g.task == key.Task }

// state returns the mark, empty where there is none yet.
func (g *guard) state() *rollback.Mark {
	if s := g.Known(); s != nil {
		return s
	}
	return &rollback.Mark{}
}

// storeBehind and fileBehind return the causes.
func (g *guard) storeBehind() Cause { return [...]Cause{storeBehindSecret, storeBehindKeys}[g.kind] }
func (g *guard) fileBehind() Cause  { return [...]Cause{secretBehind, keysBehind}[g.kind] }

// Watch has the store keep pace with the mark in the file of a task's HPKE keys, besides that of the secret.
func (v *Vault) Watch(id task.ID, keys *rollback.MarkFile) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watched = append(v.watched, &guard{MarkFile: keys, kind: kindKeys, task: [16]byte(id[:16])})
}

// Unwatch undoes [Vault.Watch], for a task of which all epochs have expired: its file may be removed then.
func (v *Vault) Unwatch(id task.ID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watched = slices.DeleteFunc(v.watched, func(g *guard) bool {
		if g.task != [16]byte(id[:16]) {
			return false
		}
		g.gone.Store(true)
		g.MarkFile.Close()
		return true
	})
}

// guards returns all marks, that of the secret first.
func (v *Vault) guards() []*guard {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]*guard{{MarkFile: v.file.Mark(), kind: kindSecret}}, v.watched...)
}

// Close lets go of the files that the marks are in.
func (v *Vault) Close() {
	for _, g := range v.guards() {
		g.MarkFile.Close()
	}
}

// key is how marks call an epoch.
func (id EpochID) key() rollback.Epoch {
	return rollback.Epoch{Task: [16]byte(id.Task[:16]), Epoch: id.Epoch}
}

// owed is what the marks must say when a transaction has been made.
type owed map[*rollback.MarkFile]map[rollback.Epoch]rollback.Entry

func (o owed) add(g *guard, key rollback.Epoch, e rollback.Entry) {
	if o[g.MarkFile] == nil {
		o[g.MarkFile] = map[rollback.Epoch]rollback.Entry{}
	}
	before := o[g.MarkFile][key]
	before.Grow(e)
	o[g.MarkFile][key] = before
}

// pay writes the marks, all at once, and each once.
func (o owed) pay() error {
	failed := make([]error, 0, len(o))
	var writing sync.WaitGroup
	var mu sync.Mutex // guards failed
	for file, entries := range o {
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

// step makes the transaction a step of an epoch, whose row it has locked, and has the marks say so, and
// that the batches of some numbers were made.
func (t *transaction) step(e epochRow, id EpochID, made ...uint64) error {
	return t.advanceMarks(e, id, 1, made...)
}

// settled is step for a transaction that changes nothing, and whose answer relies on the steps before: their
// marks may not be on disk, where writing them failed.
func (t *transaction) settled(e epochRow, id EpochID) error { return t.advanceMarks(e, id, 0) }

func (t *transaction) advanceMarks(e epochRow, id EpochID, steps uint64, made ...uint64) error {
	if e.state == StateEnded {
		return nil
	}
	guards := t.vault.guards()
	if e.marks == nil {
		e.marks = map[string]markRow{}
		err := t.tx.ask(ask{t.engine.sql(marksOf), []any{id.Task[:], id.Epoch}, e.addMark})
		if err != nil {
			return fmt.Errorf("couldn't read marks: %w", err)
		}
	}
	for _, g := range guards {
		if !g.of(id.key()) {
			continue
		}
		name, err := g.Name()
		if err != nil {
			return err
		}
		row, held := e.marks[name], g.Entry(id.key()).Steps
		if err := t.checkStep(g, id, row, made); err != nil {
			return err
		}
		t.owes.add(g, id.key(), rollback.Entry{Steps: row.steps + steps, Made: rollback.SetOf(made...)})
		if steps == 0 {
			continue
		}
		err = t.put(`INSERT INTO marks (epoch, file, kind, steps, marked) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (epoch, file) DO UPDATE SET steps = excluded.steps, marked = excluded.marked`,
			e.id, name, g.kind, row.steps+steps, held)
		if err != nil {
			return fmt.Errorf("couldn't count a step: %w", err)
		}
	}
	return nil
}

// checkStep is a [SetBack] where a mark knows of something that the store does not hold. That may be a batch whose
// number is about to be made: the mark knows that it was made before.
func (t *transaction) checkStep(g *guard, id EpochID, row markRow, made []uint64) error {
	if len(made) > 0 && !t.engine.alone() {
		if err := g.Refresh(); err != nil { // another process may have made them
			return err
		}
	}
	e, where := g.Entry(id.key()), fmt.Sprintf("task %x, epoch %d", id.Task[:4], id.Epoch)
	if row.steps < e.Steps {
		return &SetBack{g.storeBehind(), fmt.Sprintf("%s: %d of %d steps", where, row.steps, e.Steps)}
	}
	if e.Ended {
		return &SetBack{g.storeBehind(), where + ": the operator has ended the epoch"}
	}
	for _, seq := range made {
		if e.Made.Has(seq) {
			return &SetBack{g.storeBehind(), fmt.Sprintf("%s: batch %d was made and is not held", where, seq)}
		}
	}
	return g.check(id.key(), row)
}

// check is a [SetBack] where a mark has less of an epoch than the store has known it to have. Where another
// process shares the file it may have raised the mark since this one looked.
func (g *guard) check(key rollback.Epoch, row markRow) error {
	if row.marked <= g.Entry(key).Steps {
		return nil
	}
	if err := g.Refresh(); err != nil {
		return err
	}
	if held := g.Entry(key).Steps; row.marked > held {
		return &SetBack{g.fileBehind(), fmt.Sprintf("task %x, epoch %d: %d of at least %d steps", key.Task[:4],
			key.Epoch, held, row.marked)}
	}
	return nil
}

// markRow is what the store knows of a mark in an epoch.
type markRow struct {
	key           rollback.Epoch
	file          string
	kind          int
	steps, marked uint64
}

// marksOf selects what is known of an epoch's marks.
const marksOf = `SELECT file, steps, marked FROM marks WHERE epoch = ` + epochOf

// addMark takes note of a mark by its name.
func (e *epochRow) addMark(row scanner) error {
	var m markRow
	err := row.Scan(&m.file, &m.steps, &m.marked)
	e.marks[m.file] = m
	return err
}

// marks lists what is known of all marks.
func (d *reconciler) marks(ctx context.Context) ([]markRow, error) {
	const query = `SELECT task, e.epoch, file, kind, steps, marked FROM marks m JOIN epochs e ON e.id = m.epoch`
	out, err := collect(ctx, d.read, query, func(rows *sql.Rows) (row markRow, err error) {
		var id []byte
		err = rows.Scan(&id, &row.key.Epoch, &row.file, &row.kind, &row.steps, &row.marked)
		copy(row.key.Task[:], id)
		return row, err
	})
	if err != nil {
		return nil, fmt.Errorf("couldn't list marks: %w", err)
	}
	return out, nil
}

// reconciler is the part of a store that holds it against the marks in the key files.
type reconciler struct {
	*database
	epochs    *epochs
	members   *members
	following sync.Mutex // one Follow at a time; guards what members told and caught, too
}

// Follow is Progress that compares the store with the marks in the key files, and takes note there of
// what a crash kept out, or another process has made. It must be called before anything else, and again
// and again. Where something was set back its error is a [SetBack], and from then on that of all
// methods that change the store or hand out a batch.
func (d *reconciler) Follow(ctx context.Context) (all []Progress, err error) {
	err = d.reserve.WithReserve(func() error {
		all, err = d.followOnce(ctx)
		return err
	})
	return all, err
}

func (d *reconciler) followOnce(ctx context.Context) ([]Progress, error) {
	guards := d.vault.guards()
	d.following.Lock()
	defer d.following.Unlock()
	if back := d.back.Load(); back != nil {
		return nil, cmp.Or(d.members.say(ctx), error(back))
	}
	begun, err := d.members.clock(ctx)
	if err != nil {
		return nil, err
	}
	if guards, err = d.readMarks(guards); err != nil {
		return nil, err
	}
	seen, history, back, err := d.compare(ctx, guards)
	if err != nil {
		return nil, err
	}
	if back != nil {
		return seen.all, d.stop(ctx, back)
	}
	if err := errors.Join(catchUp(guards, seen).pay(), know(guards, history)); err != nil {
		return nil, err
	}
	return seen.all, d.members.meet(ctx, seen.all, begun)
}

// readMarks waits until the marks that the files show are on disk, and reads those that other processes may share. It
// returns the guards without those that are not watched any more, as their tasks were dropped meanwhile.
func (d *reconciler) readMarks(guards []*guard) (watched []*guard, err error) {
	for _, g := range guards {
		err := g.Settle()
		if err == nil && !d.engine.alone() {
			err = g.Refresh()
		}
		if g.gone.Load() {
			continue
		}
		if err != nil {
			return nil, err
		}
		watched = append(watched, g)
	}
	return watched, nil
}

// know writes into the marks in which database the store is, and ties those of the secret and of the HPKE keys
// together, for good: where another process was faster, the next look finds it. The secret, which all tasks share, is
// written once for all of them.
func know(guards []*guard, history string) (failed error) {
	secret, tied := guards[0].state(), map[string]string{}
	for _, g := range guards {
		s := g.Known()
		if s == nil {
			continue
		}
		bind := g.kind == kindKeys && s.Secret == "" && secret.ID != ""
		if s.Database != history || bind {
			failed = errors.Join(failed, g.Change(func(s *rollback.Mark) {
				s.Database = history
				if bind {
					s.Secret = cmp.Or(s.Secret, secret.ID)
				}
			}))
		}
		if g.kind == kindKeys && g.state().Secret == secret.ID && secret.Keys[g.half()] == "" {
			tied[g.half()] = s.ID
		}
	}
	if len(tied) == 0 {
		return failed
	}
	return errors.Join(failed, guards[0].Change(func(of *rollback.Mark) {
		if of.Keys == nil {
			of.Keys = map[string]string{}
		}
		for half, id := range tied {
			of.Keys[half] = cmp.Or(of.Keys[half], id)
		}
	}))
}

// half is how the secret's mark calls the task of HPKE keys.
func (g *guard) half() string { return hex.EncodeToString(g.task[:]) }

// comparePair is a [SetBack] where HPKE keys have been used with another mark of the secret, or the secret with
// another mark of the keys: the other file was set back to before its first one. In a database that others share it
// looks like a new process's. So does a process that shares one of the two files, and has a copy of the other.
func (g *guard) comparePair(s, secret *rollback.Mark) error {
	const shared = " (processes share both of these files, or neither)"
	if g.kind != kindKeys {
		return nil
	}
	if s.Secret != "" && s.Secret != secret.ID {
		return &SetBack{secretBehind, "the HPKE keys have been used with another one: it was set back to before its " +
			"first use, or is a copy" + shared}
	}
	if known := secret.Keys[g.half()]; known != "" && known != s.ID {
		return &SetBack{keysBehind, "the secret has been used with others: they were set back to before their first " +
			"use, or are a copy" + shared}
	}
	return nil
}

// elsewhere is a [SetBack] where the store is not in the database that a mark knows, or was promoted from a
// replica or restored there, and an epoch has begun that the operator has not ended, and is not over. It may
// lack what was made last, and by another process than this one.
func elsewhere(history string, s *rollback.Mark, seen *picture) error {
	if s.Database == "" || s.Database == history || !seen.goesOn(s) {
		return nil
	}
	return &SetBack{otherDatabase, fmt.Sprintf("it was in %s, and is in %s", s.Database, history)}
}

// goesOn says whether an epoch that a mark knows was not ended by the operator, and is not over.
func (seen *picture) goesOn(s *rollback.Mark) bool {
	for key := range s.Entries {
		if p := seen.epochs[key]; p == nil || p.State < StateExpired {
			return true
		}
	}
	return false
}

// Behind compares the store with the marks in the key files, and returns what was set back, if
// anything.
func (d *reconciler) Behind(ctx context.Context, v *Vault) (*SetBack, error) {
	if d.absent {
		return behindNothing(v), nil
	}
	_, _, back, err := d.compare(ctx, v.guards())
	if back != nil || err != nil {
		return back, err
	}
	var said bool
	const query = `SELECT EXISTS (SELECT 1 FROM processes WHERE standing = $1)`
	if err := d.read.QueryRowContext(ctx, query, int(halted)).Scan(&said); err != nil || !said {
		return nil, err
	}
	return foundByOther(), nil
}

// behindNothing is a [SetBack] where a mark knows of a store, and there is none.
func behindNothing(v *Vault) *SetBack {
	for _, g := range v.guards() {
		if s := g.Known(); s != nil && len(s.Entries) > 0 {
			return &SetBack{g.storeBehind(), "there is no store"}
		}
	}
	return nil
}

// compare holds the marks against the store. It looks at the marks before the store, which only grows, so
// that what is done meanwhile does not look like a set-back.
func (d *reconciler) compare(ctx context.Context, guards []*guard) (*picture, string, *SetBack, error) {
	states := make([]*rollback.Mark, len(guards))
	for i, g := range guards {
		states[i] = g.state()
	}
	all, err := d.epochs.Progress(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	rows, err := d.marks(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	history, err := d.engine.history(ctx, d.read)
	if err != nil {
		return nil, "", nil, err
	}
	seen := newPicture(all, rows)
	for i, g := range guards {
		err := errors.Join(elsewhere(history, states[i], seen), g.compareEntries(states[i], seen),
			d.compareRows(g, states[i], seen), g.comparePair(states[i], states[0]))
		if back := new(SetBack); errors.As(err, &back) {
			return seen, history, back, nil
		}
		if err != nil {
			return nil, "", nil, err
		}
	}
	return seen, history, nil, nil
}

// picture is what the store says of all epochs and marks, by epoch: each of a thousand tasks' marks is held against it
// every second.
type picture struct {
	all    []Progress
	epochs map[rollback.Epoch]*Progress
	rows   map[rollback.Epoch][]markRow
	keys   []rollback.Epoch              // of both
	tasks  map[[16]byte][]rollback.Epoch // the same by task
}

func newPicture(all []Progress, rows []markRow) *picture {
	seen := &picture{all: all, epochs: map[rollback.Epoch]*Progress{}, rows: map[rollback.Epoch][]markRow{},
		tasks: map[[16]byte][]rollback.Epoch{}}
	add := func(key rollback.Epoch) {
		if seen.epochs[key] == nil && seen.rows[key] == nil {
			seen.keys = append(seen.keys, key)
			seen.tasks[key.Task] = append(seen.tasks[key.Task], key)
		}
	}
	for i := range all {
		key := all[i].ID.key()
		add(key)
		seen.epochs[key] = &all[i]
	}
	for _, row := range rows {
		add(row.key)
		seen.rows[row.key] = append(seen.rows[row.key], row)
	}
	return seen
}

// of returns the epochs of which a guard's mark has entries.
func (seen *picture) of(g *guard) []rollback.Epoch {
	if g.kind == kindSecret {
		return seen.keys
	}
	return seen.tasks[g.task]
}

// made returns the numbers of the batches that have been made.
func (p *Progress) made() rollback.Set {
	var open []uint64
	for _, b := range p.Open {
		open = append(open, b.Seq)
	}
	return rollback.SetBelow(p.Next, open...)
}

// compareEntries is a [SetBack] where a mark knows of what the store does not hold.
func (g *guard) compareEntries(s *rollback.Mark, seen *picture) error {
	for key, e := range s.Entries {
		p := seen.epochs[key]
		where := func() string { return fmt.Sprintf("task %x, epoch %d", key.Task[:4], key.Epoch) }
		switch {
		case p == nil:
			return &SetBack{g.storeBehind(), where() + ": it knows nothing of the epoch"}
		case p.State == StateEnded:
			continue
		case e.Ended:
			return &SetBack{g.storeBehind(), where() + ": the operator has ended the epoch"}
		}
		if seq, some := e.Made.Beyond(p.made()); some {
			return &SetBack{g.storeBehind(), fmt.Sprintf("%s: batch %d was made and is not held", where(), seq)}
		}
		var row markRow
		for _, r := range seen.rows[key] {
			if r.file == s.ID {
				row = r
			}
		}
		if row.steps < e.Steps {
			return &SetBack{g.storeBehind(), fmt.Sprintf("%s: %d of %d steps", where(), row.steps, e.Steps)}
		}
	}
	return nil
}

// compareRows is a [SetBack] where the store knows more of a mark than the mark itself: its file was set
// back. One process has a file, so a file that is new to an SQLite store, where another was known, was set
// back to before its first use.
func (d *reconciler) compareRows(g *guard, s *rollback.Mark, seen *picture) error {
	now := g.state().ID // its first step may have come after s was read
	for _, key := range seen.of(g) {
		if p := seen.epochs[key]; p == nil || p.State == StateEnded {
			continue
		}
		for _, row := range seen.rows[key] {
			if row.kind != g.kind {
				continue
			}
			if row.file == s.ID || row.file == now {
				if err := g.check(key, row); err != nil {
					return err
				}
			} else if d.engine.alone() {
				return &SetBack{g.fileBehind(), "it knows nothing of the store"}
			}
		}
	}
	return nil
}

// catchUp returns what the marks lack of what the store holds: a crash has come between, or another process
// has made it.
func catchUp(guards []*guard, seen *picture) owed {
	out := owed{}
	for _, g := range guards {
		s := g.state()
		for _, key := range seen.of(g) {
			e := s.Entries[key]
			if p := seen.epochs[key]; p != nil && p.State == StateEnded && !e.Ended {
				out.add(g, key, rollback.Entry{Ended: true})
			} else if p != nil {
				if _, some := p.made().Beyond(e.Made); some {
					out.add(g, key, rollback.Entry{Made: p.made()})
				}
			}
			for _, row := range seen.rows[key] {
				if row.file == s.ID && row.steps > e.Steps {
					out.add(g, key, rollback.Entry{Steps: row.steps})
				}
			}
		}
	}
	return out
}

// Marked lists the epochs that any mark knows, each once. A mark has half of a task's id: the rest is zero.
func (v *Vault) Marked() (ids []EpochID) {
	for _, g := range v.guards() {
		for key := range g.state().Entries {
			id := EpochID{Epoch: key.Epoch}
			copy(id.Task[:], key.Task[:])
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, EpochID.compare)
	return slices.Compact(ids)
}

// Forget takes epochs of which the store has no row out of all marks: there they would be a set-back for ever.
func (v *Vault) Forget(ids []EpochID) (failed error) {
	for _, g := range v.guards() {
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

// End has the marks say that epochs were ended, in place of what they said of them.
func (v *Vault) End(ids []EpochID) (failed error) {
	for _, g := range v.guards() {
		failed = errors.Join(failed, g.Change(func(s *rollback.Mark) {
			s.Secret, s.Keys, s.Fenced = "", nil, false
			for _, id := range ids {
				if g.of(id.key()) {
					s.Entries[id.key()] = rollback.Entry{Ended: true}
				}
			}
		}))
	}
	return failed
}

// SetBack returns what has been found to be set back, nil for nothing.
func (d *reconciler) SetBack() *SetBack { return d.back.Load() }

// cut cuts a batch's leaf in the marks, if it is not cut, before its first byte leaves.
func (d *reconciler) cut(b BatchID) error {
	owes := owed{}
	for _, g := range d.vault.guards() {
		if g.of(b.key()) && !g.Entry(b.key()).Made.Has(b.Seq) {
			owes.add(g, b.key(), rollback.Entry{Made: rollback.SetOf(b.Seq)})
		}
	}
	return owes.pay()
}
