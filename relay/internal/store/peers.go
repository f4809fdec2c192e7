package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/rollback"
)

// Several processes may share a PostgreSQL database, each with marks of its own. A batch is handed out only
// when its leaf is cut in the marks of all of them: else one that lives on, or comes back, beside a database
// that was set back could make another batch of that number. A process that is not heard of for
// [fenceAfter] is fenced: the others go on without it, and it hands out nothing until it has caught up, beside
// one that was never fenced.
//
//	the maker crashes            the restart, or another process, sees      and does
//	before its own cut           a batch that is not cut                    cuts, waits for all, serves
//	before the others' cuts      a batch that is cut here alone             the same
//	after the first byte         a batch that all have cut                  serves the same bytes; where the
//	                                                                        database was set back: [SetBack]
//
// A fenced process that comes back, and a new one beside others, joins in three looks at the store, of which
// each is a [Store.Follow]:
//
//	1  It is joining: from here on the others wait for its cuts. It hands out nothing yet.
//	2  It cuts what is there. What the others have handed out without it was made before 1, and is there,
//	   unless the database has been set back since.
//	3  It is a member, if another member has begun a look of its own after 2 and found no set-back: a member
//	   has cut all that was ever handed out.
//
// A process that sees that it was fenced keeps that in its secret's mark until it is a member again: a database
// that does not know of it was set back. A member that starts again is one at once, as the others have waited
// for it all the time; so is the first process of all.
//
// A process that was away, and never saw that it was fenced, is still a member of a database that was set back
// to before that. The others know better: whoever finds a set-back of the database says so in it (halted), and
// stops all. Nobody is fenced before he was given [fenceAfter] to say so, by the clock of the one who waits, and
// while that one was looking itself. What this does not tell is in docs/threat-model.md: that all who know are gone.
//
// Time is counted in looks, as the database's clock may be set: each look takes the next number. Who has seen a
// number that the database has forgotten knows that it was set back.

// fenceAfter is how long a process may be silent before the others go on without it. Each is heard of about
// once a second.
const fenceAfter = 10 * time.Second

// longestGap is the most of the time between two looks of this process that counts as another one's silence: both
// may have been cut off from the database together.
const longestGap = 2 * time.Second

// standing is how a process counts for the others.
type standing int

const (
	member  standing = iota // The others wait for its cuts, and it hands out batches.
	fenced                  // Nobody waits for it.
	joining                 // The others wait for its cuts, and it hands out nothing yet.
	halted                  // It has found that the database was set back: nobody hands out anything.

	unknown standing = -1 // There is no row of it.
)

// peer is a process by the name of its secret's mark: those that share the file are one.
type peer struct {
	file     string
	looked   uint64 // the number of its last look at the store that found no set-back
	begun    uint64 // the highest number of all when that look began
	standing standing
}

// silence is how long a process has not been heard of.
type silence struct {
	looked uint64 // the number of its last look
	length time.Duration
}

// members is the part of a store that keeps processes which share it from handing out what others do not know.
type members struct {
	*database
	reconciler *reconciler
	said       atomic.Bool      // the other processes have been told of what was set back
	met        atomic.Bool      // this process is a member among those that share the database
	told       map[BatchID]bool // what the others know that this process has cut; as caught, under reconciler.following
	caught     uint64           // the number of the look by which it had caught up as it was joining; 0 for not

	hearing  sync.Mutex         // guards the rest
	latest   uint64             // the number of this process's last look
	listened time.Time          // when that was
	silent   map[string]silence // the others, by their marks' names
	joining  Joining            // why this process is not a member
}

// ErrUncut is returned for a batch whose number another process has not cut yet.
var ErrUncut = errors.New("another process has not taken note of the batch yet")

// Joining says why a process hands out nothing beside others, though nothing was set back; "" where it does.
type Joining string

// Why a process is not a member.
const (
	CatchesUp Joining = "joining: it catches up beside another process"
	NoMember  Joining = "joining: no member is there: start a process that was not fenced; if there is none, " +
		"end the epochs (relay end-epochs)"
)

// Joining says why this process, among those that share the store, hands out nothing; "" where it does.
func (d *members) Joining() Joining {
	d.hearing.Lock()
	defer d.hearing.Unlock()
	return d.joining
}

// Joins is what [Store.Joining] says of the process with a vault, but that it takes all members for running.
func (d *members) Joins(ctx context.Context, v *Vault) (Joining, error) {
	var mine standing
	var members, others int
	file := guard{MarkFile: v.file.Mark()}
	const query = `SELECT COALESCE(MAX(CASE WHEN file = $1 THEN standing END), -1),
		COUNT(CASE WHEN file <> $1 AND standing = 0 THEN 1 END), COUNT(CASE WHEN file <> $1 THEN 1 END) FROM processes`
	err := d.read.QueryRowContext(ctx, query, file.state().ID).Scan(&mine, &members, &others)
	if err != nil {
		return "", fmt.Errorf("couldn't look for other processes: %w", err)
	}
	switch {
	case mine == unknown && others == 0, mine == halted, mine == member && !file.state().Fenced:
		return "", nil
	case members == 0:
		return NoMember, nil
	}
	return CatchesUp, nil
}

// clock returns the highest number of a look.
func (d *members) clock(ctx context.Context) (at uint64, err error) {
	if d.engine.alone() {
		return 0, nil
	}
	if err := d.read.QueryRowContext(ctx, `SELECT COALESCE(MAX(looked), 0) FROM processes`).Scan(&at); err != nil {
		return 0, fmt.Errorf("couldn't read the number of looks: %w", err)
	}
	return at, nil
}

// meet has the others hear of this process, which has caught up with the store by a look that began after another
// one's of a number, and tells them which batches it has cut.
func (d *members) meet(ctx context.Context, all []Progress, begun uint64) error {
	if d.engine.alone() || len(all) == 0 {
		return nil
	}
	name, err := d.vault.file.Mark().Name()
	if err != nil {
		return err
	}
	held := map[BatchID]bool{}
	var peers []peer
	var caught uint64
	me := peer{file: name, begun: begun}
	err = d.within(ctx, func(tx *transaction) (err error) {
		if peers, err = tx.memberTx().peers(); err != nil {
			return err
		}
		if err := d.remembers(peers); err != nil {
			return err
		}
		mine, err := tx.memberTx().keepFence(standingOf(peers, name), all)
		if err != nil {
			return err
		}
		me.looked = latest(peers) + 1
		me.standing, caught = stand(mine, others(peers, name), me.looked, d.caught)
		if err := tx.memberTx().recordFence(me.standing != member && mine != unknown); err != nil {
			return err
		}
		if err := tx.memberTx().enlist(me); err != nil {
			return err
		}
		return tx.memberTx().tell(name, all, d.told, held)
	})
	if err != nil {
		return fmt.Errorf("couldn't be heard of: %w", err)
	}
	d.told, d.caught = held, caught
	d.listen(me, others(peers, name), time.Now())
	return nil
}

// peers lists the processes, for one that decides at a time.
func (t memberTx) peers() ([]peer, error) {
	if _, err := t.exec(`SELECT pg_advisory_xact_lock($1)`, int64(peersLock)); err != nil {
		return nil, err
	}
	const list = `SELECT file, looked, begun, standing FROM processes ORDER BY file`
	return collect(t.ctx, t.tx, list, func(rows *sql.Rows) (p peer, err error) {
		return p, rows.Scan(&p.file, &p.looked, &p.begun, &p.standing)
	})
}

// peersLock is the number of the advisory lock under which processes are listed and fenced: rows do not do, as there
// is none of the first process.
const peersLock = migrationLock + 1

// enlist stores a process's row.
func (t memberTx) enlist(p peer) error {
	_, err := t.exec(`INSERT INTO processes (file, looked, begun, standing) VALUES ($1, $2, $3, $4)
		ON CONFLICT (file) DO UPDATE SET looked = excluded.looked, begun = excluded.begun,
		standing = excluded.standing`, p.file, p.looked, p.begun, int(p.standing))
	return err
}

func others(peers []peer, name string) []peer {
	return slices.DeleteFunc(slices.Clone(peers), func(p peer) bool { return p.file == name })
}

func standingOf(peers []peer, name string) standing {
	for _, p := range peers {
		if p.file == name {
			return p.standing
		}
	}
	return unknown
}

// latest returns the highest number of a look.
func latest(peers []peer) (at uint64) {
	for _, p := range peers {
		at = max(at, p.looked)
	}
	return at
}

// remembers is a [SetBack] where the database has forgotten a look that this process knows of, or where a process
// has said in it that it was set back.
func (d *members) remembers(peers []peer) error {
	d.hearing.Lock()
	defer d.hearing.Unlock()
	if at := latest(peers); at < d.latest {
		return &SetBack{storeBehindSecret, fmt.Sprintf("%d of at least %d looks at it", at, d.latest)}
	}
	if slices.ContainsFunc(peers, func(p peer) bool { return p.standing == halted }) {
		return foundByOther()
	}
	return nil
}

func foundByOther() *SetBack {
	return &SetBack{otherFound, "its log and its status say what it has found"}
}

// stand decides how a process counts that takes its look of a number. caught is the number of the look by which it
// had caught up as it was joining, 0 for not yet; so is the second result.
//
//	it was                the others                            it is
//	not there             none                                  a member
//	not there             some                                  joining
//	a member                                                    a member
//	fenced                                                      joining
//	joining                                                     joining, and has caught up
//	joining, caught up    a member has begun a look since       a member
//	joining, caught up    none has                              joining, and has caught up
func stand(mine standing, others []peer, at, caught uint64) (standing, uint64) {
	since := func(p peer) bool { return p.standing == member && p.begun >= caught }
	switch {
	case mine == member, mine == unknown && len(others) == 0:
		return member, 0
	case mine != joining:
		return joining, 0
	case caught == 0:
		return joining, at
	case slices.ContainsFunc(others, since):
		return member, 0
	}
	return joining, caught
}

// listen takes note of who was heard of since the last look, and of how this process stands.
func (d *members) listen(me peer, others []peer, at time.Time) {
	d.hearing.Lock()
	defer d.hearing.Unlock()
	gap := min(at.Sub(d.listened), longestGap)
	before := d.silent
	d.latest, d.listened, d.silent, d.joining = me.looked, at, map[string]silence{}, NoMember
	for _, p := range others {
		s := silence{looked: p.looked}
		if last, known := before[p.file]; known && last.looked == p.looked {
			s.length = last.length + gap
		}
		d.silent[p.file] = s
		if p.standing == member && s.length < fenceAfter {
			d.joining = CatchesUp
		}
	}
	if me.standing == member {
		d.joining = ""
	}
	d.met.Store(me.standing == member)
}

// isSilent says whether a process has not been heard of for too long, nor now.
func (d *members) isSilent(p peer) bool {
	d.hearing.Lock()
	defer d.hearing.Unlock()
	s, known := d.silent[p.file]
	return known && s.looked == p.looked && s.length >= fenceAfter
}

// keepFence returns how this process counted so far: one that has seen that it was fenced is so until it is a member
// again. It is a [SetBack] where the database does not know of that, and an epoch goes on that this process has a
// part in. The peers are locked: processes with one secret share the mark.
func (t memberTx) keepFence(mine standing, all []Progress) (standing, error) {
	file := &guard{MarkFile: t.vault.file.Mark(), kind: kindSecret}
	if err := file.Refresh(); err != nil {
		return mine, err
	}
	s := file.state()
	if !s.Fenced || mine == fenced || mine == joining {
		return mine, nil
	}
	if newPicture(all, nil).goesOn(s) {
		return mine, &SetBack{storeBehindSecret, "it does not know that the other processes went on without this one"}
	}
	return fenced, nil
}

// recordFence has the secret's mark say that this process was fenced, or no more.
func (t memberTx) recordFence(is bool) error {
	file := &guard{MarkFile: t.vault.file.Mark(), kind: kindSecret}
	if file.state().Fenced == is {
		return nil
	}
	return file.Change(func(s *rollback.Mark) { s.Fenced = is })
}

// say tells the other processes, in the database, that it was set back, once it can be told; that is true of what
// the database lacks, and not of this process's own files.
func (d *members) say(ctx context.Context) error {
	back := d.back.Load()
	if d.engine.alone() || d.vault == nil || d.said.Load() || !back.ofStore() {
		return nil
	}
	name, err := d.vault.file.Mark().Name()
	if err != nil {
		return err
	}
	err = d.transact(ctx, func(tx *transaction) error {
		peers, err := tx.memberTx().peers()
		if err != nil {
			return err
		}
		return tx.memberTx().enlist(peer{file: name, looked: latest(peers) + 1, standing: halted})
	})
	if err != nil {
		return fmt.Errorf("couldn't tell the other processes of the set-back: %w", err)
	}
	d.said.Store(true)
	return nil
}

// reset has this process, whose operator has ended the epochs, be the member that the others join.
func (t memberTx) reset() error {
	if t.engine.alone() {
		return nil
	}
	name, err := t.vault.file.Mark().Name()
	if err != nil {
		return err
	}
	peers, err := t.peers()
	if err != nil {
		return err
	}
	if _, err := t.exec(`UPDATE processes SET standing = $1`, int(fenced)); err != nil {
		return err
	}
	at := latest(peers)
	return t.enlist(peer{name, at + 1, at, member})
}

// tell tells the others which batches this process has cut, but for those they have been told of, and lists
// all in held.
func (t memberTx) tell(name string, all []Progress, told, held map[BatchID]bool) error {
	const cut = `INSERT INTO cuts (epoch, seq, file) SELECT epoch, seq, $1 FROM batches
		WHERE bytes IS NOT NULL AND epoch = (SELECT id FROM epochs WHERE task = $2 AND epoch = $3)` + `
		AND seq = $4 ON CONFLICT DO NOTHING`
	for i := range all {
		for _, seq := range all[i].Held {
			key := all[i].ID.Batch(seq)
			held[key] = true
			if told[key] {
				continue
			}
			if _, err := t.exec(cut, name, key.Task[:], key.Epoch, seq); err != nil {
				return err
			}
		}
	}
	return nil
}

// cutByAll is [ErrUncut] until all processes have cut a batch that this one has cut, or were fenced.
func (d *members) cutByAll(ctx context.Context, b BatchID) error {
	if d.engine.alone() {
		return nil
	}
	if !d.met.Load() {
		if _, err := d.reconciler.Follow(ctx); err != nil {
			return err
		}
		if !d.met.Load() {
			return ErrUncut
		}
	}
	name, err := d.vault.file.Mark().Name()
	if err != nil {
		return err
	}
	return d.within(ctx, func(tx *transaction) error { return d.waitFor(tx, name, b) })
}

// waitFor is [ErrUncut] while this process is not a member, or waits for another. It fences those that it has waited
// for too long.
func (d *members) waitFor(t *transaction, name string, b BatchID) error {
	peers, err := t.memberTx().peers() // one at a time, or two could fence each other
	if err != nil {
		return err
	}
	if err := d.remembers(peers); err != nil {
		return err
	}
	if standingOf(peers, name) != member {
		return ErrUncut
	}
	const query = `SELECT file FROM cuts WHERE seq = $3 AND epoch = ` + epochOf
	cut, err := collect(t.ctx, t.tx, query, func(rows *sql.Rows) (file string, err error) {
		return file, rows.Scan(&file)
	}, b.Task[:], b.Epoch, b.Seq)
	if err != nil {
		return fmt.Errorf("couldn't look for other processes: %w", err)
	}
	waits := slices.DeleteFunc(others(peers, name), func(p peer) bool {
		return p.standing == fenced || slices.Contains(cut, p.file)
	})
	if slices.ContainsFunc(waits, func(p peer) bool { return !d.isSilent(p) }) {
		return ErrUncut
	}
	for _, p := range waits {
		if _, err := t.exec(`UPDATE processes SET standing = $2 WHERE file = $1`, p.file, int(fenced)); err != nil {
			return fmt.Errorf("couldn't fence another process: %w", err)
		}
	}
	return nil
}

// forget has this process go on with the store as it is.
func (d *members) forget() {
	d.hearing.Lock()
	defer d.hearing.Unlock()
	d.back.Store(nil)
	d.said.Store(false)
	d.latest, d.silent = 0, nil
}
