package store

import (
	"context"
	"crypto/cipher"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"github.com/doona-dp/doona/randomizer"
)

// What clients bring is kept in runs. A run is many rows of one size in one encrypted value: a transaction writes one
// run of its slots, and not one page for each of them, as rows under random keys would have it. A run of level 0 tells
// which rows came in one transaction, and their place on the disk when. So that this does not last, the runs of level 0
// are merged, permuted, into one of level 1 as soon as they take freshRoom. A transaction that alone takes as much
// writes runs of level 1, of at most half of mergeRoom, and is not copied at once. Where another level has mergeRuns
// runs, as many of them as mergeRoom takes are merged into one of the next.
//
// docs/seized-relay.md has the arithmetic: what is written, and what a reader of the disk learns. Pages that a merge
// has freed are overwritten, by the merged run itself or with zeros.
var (
	freshRoom = 512 << 10 // bytes; each run counts for a page more
	mergeRuns = 16
	mergeRoom = 4 << 20 // bytes: what one transaction merges, five times in memory
)

// page is what a run takes at least.
const page = 4096

// brought is where a transaction's rows go: an open batch, or the names of an epoch.
type runTarget struct {
	epoch int64
	seq   uint64
	c     cipher.AEAD
	join  func(bytes int) runMerger
}

// joined makes one run of several, which take so many bytes together.
type runMerger interface {
	add(run []byte) error // may keep the run
	pack() []byte         // the rows of all, in an order that says nothing of theirs
}

// bring stores n rows of some bytes each, of which pack makes the run of those from one to another, and merges what is
// due. fresh is what runs of level 0 take before, and after.
func (t runsTx) storeRows(to runTarget, fresh, n, bytes int, pack func(from, to int) []byte) (int, error) {
	level, most := 0, n
	if runHead+n*bytes+sealedExtra+page >= freshRoom {
		level, most = 1, max((mergeRoom/2-runHead-sealedExtra)/bytes, 1)
	}
	for from := 0; from < n; from += most {
		size, err := t.putRun(to.epoch, to.seq, level, to.c, pack(from, min(from+most, n)))
		if err != nil {
			return 0, err
		}
		if level == 0 {
			fresh += size
		}
	}
	if level == 0 {
		if fresh < freshRoom {
			return fresh, nil
		}
		fresh = 0
	}
	return fresh, t.mergeFrom(to, level)
}

// putRun stores a run, which it encrypts, and returns what it takes.
func (t runsTx) putRun(epoch int64, seq uint64, level int, c cipher.AEAD, plain []byte) (size int, err error) {
	sealed := encrypt(make([]byte, 0, len(plain)+sealedExtra), c, plain)
	const store = `INSERT INTO runs (epoch, seq, level, bytes) VALUES ($1, $2, $3, $4)`
	if err := t.put(store, epoch, seq, level, sealed); err != nil {
		return 0, fmt.Errorf("couldn't store a run: %w", err)
	}
	return len(sealed) + page, nil
}

// mergeFrom merges the runs of a level that are due into one, and so on up.
func (t runsTx) mergeFrom(to runTarget, level int) error {
	for ; ; level++ {
		due, bytes, err := t.mergeDue(to.epoch, to.seq, level)
		if err != nil || len(due) == 0 {
			return err
		}
		if err := t.merge(to, level, due, to.join(bytes)); err != nil {
			return fmt.Errorf("couldn't merge runs: %w", err)
		}
	}
}

// mergeDue returns the runs of a level that are to be merged: all of level 0, and where there are mergeRuns of another,
// the smallest that mergeRoom takes, if it takes two, with the bytes of all. Were it all or none, larger transactions'
// runs would stay as they came.
func (t runsTx) mergeDue(epoch int64, seq uint64, level int) (due []int64, bytes int, err error) {
	room, n := mergeRoom, 0
	const list = `SELECT id, length(bytes) FROM runs WHERE epoch = $1 AND seq = $2 AND level = $3 ORDER BY 2, 1`
	err = t.ask(list, func(row scanner) error {
		var id int64
		var size int
		if err := row.Scan(&id, &size); err != nil {
			return err
		}
		if n, room = n+1, room-size; level == 0 || room >= 0 {
			due, bytes = append(due, id), bytes+size
		}
		return nil
	}, epoch, seq, level)
	if err != nil {
		return nil, 0, fmt.Errorf("couldn't list runs: %w", err)
	}
	if level > 0 && (n < mergeRuns || len(due) < 2) {
		return nil, 0, nil
	}
	return due, bytes, nil
}

// merge replaces runs of a level by one of the next. They are deleted first: the merged run takes their pages.
func (t runsTx) merge(to runTarget, level int, due []int64, all runMerger) error {
	for _, id := range due {
		err := t.ask(`SELECT bytes FROM runs WHERE id = $1`, func(row scanner) error {
			run, err := openRun(to.c, row)
			if err != nil {
				return err
			}
			return all.add(run)
		}, id)
		if err != nil {
			return err
		}
	}
	for _, id := range due {
		if err := t.put(`DELETE FROM runs WHERE id = $1`, id); err != nil {
			return err
		}
	}
	_, err := t.putRun(to.epoch, to.seq, level+1, to.c, all.pack())
	return err
}

// openRun reads and decrypts what putRun has stored.
func openRun(c cipher.AEAD, row scanner) ([]byte, error) {
	var sealed []byte
	if err := row.Scan(&sealed); err != nil {
		return nil, err
	}
	return decryptRun(c, sealed)
}

func decryptRun(c cipher.AEAD, sealed []byte) ([]byte, error) {
	if len(sealed) < nonceSize {
		return nil, errRun
	}
	return decrypt(c, sealed[:nonceSize], sealed[nonceSize:])
}

// errRun is returned for a run that is not as it was made.
var errRun = errors.New("a run is damaged")

// The bytes of a run of slots: the size of a row, and rows, each of a lane and a slot.
const (
	runHead = 4
	rowLane = 2
)

// packRows returns the run of some rows, in their order.
func packRows(rows []Row) []byte {
	size := rowLane + len(rows[0].Slot)
	out := binary.BigEndian.AppendUint32(make([]byte, 0, runHead+len(rows)*size), uint32(size))
	for _, row := range rows {
		out = append(binary.BigEndian.AppendUint16(out, uint16(row.Lane)), row.Slot...)
	}
	return out
}

// rowsOf returns the slots of submissions in a uniform order.
func rowsOf(subs []*Submission) []Row {
	rows := make([]Row, 0, len(subs)) // one slot of each is the least
	for _, sub := range subs {
		for lane, slots := range sub.Lanes {
			for _, slot := range slots {
				rows = append(rows, Row{lane, slot})
			}
		}
	}
	randomizer.Shuffle(randomizer.NewSource(), rows)
	return rows
}

// splitRun returns the rows of a run of slots, as they stand there, and their size.
func splitRun(run []byte) (rows [][]byte, size int, err error) {
	if len(run) < runHead {
		return nil, 0, errRun
	}
	size, run = int(binary.BigEndian.Uint32(run)), run[runHead:]
	if size < rowLane || len(run)%size != 0 {
		return nil, 0, errRun
	}
	rows = make([][]byte, 0, len(run)/size)
	for ; len(run) > 0; run = run[size:] {
		rows = append(rows, run[:size:size])
	}
	return rows, size, nil
}

// slotRun is a run of slots of several.
type slotRun struct {
	rows [][]byte
	size int // bytes of a row
}

func (r *slotRun) add(run []byte) error {
	rows, size, err := splitRun(run)
	if err != nil || r.size > 0 && r.size != size {
		return errRun
	}
	r.rows, r.size = append(r.rows, rows...), size
	return nil
}

// pack puts them in a uniform order.
func (r *slotRun) pack() []byte {
	randomizer.Shuffle(randomizer.NewSource(), r.rows)
	out := binary.BigEndian.AppendUint32(make([]byte, 0, runHead+len(r.rows)*r.size), uint32(r.size))
	for _, row := range r.rows {
		out = append(out, row...)
	}
	return out
}

// rows yields the rows of an open batch that takes no more, run by run: one is in memory at a time, and one in a
// transaction, as a long one would keep the log from being emptied.
func (d *batches) rows(ctx context.Context, epoch int64, b BatchID) (iter.Seq2[Row, error], error) {
	c, err := d.vault.batchCipher(kindRows, b)
	if err != nil {
		return nil, err
	}
	const list = `SELECT id FROM runs WHERE epoch = $1 AND seq = $2`
	ids, err := collect(ctx, d.read, list, func(rows *sql.Rows) (run int64, err error) {
		return run, rows.Scan(&run)
	}, epoch, b.Seq)
	if err != nil {
		return nil, fmt.Errorf("couldn't read slots: %w", err)
	}
	return func(yield func(Row, error) bool) {
		for _, run := range ids {
			rows, err := d.run(ctx, c, epoch, b.Seq, run)
			if err != nil {
				yield(Row{}, fmt.Errorf("couldn't read slots: %w", err))
				return
			}
			for _, row := range rows {
				if !yield(Row{int(binary.BigEndian.Uint16(row)), row[rowLane:]}, nil) {
					return
				}
			}
		}
	}, nil
}

// run returns the rows of one run of slots, or ErrNoBatch where another process has made the batch and swept it.
func (d *batches) run(ctx context.Context, c cipher.AEAD, epoch int64, seq uint64, run int64) ([][]byte, error) {
	runs, err := collect(ctx, d.read, `SELECT bytes FROM runs WHERE id = $1`, func(rows *sql.Rows) ([]byte, error) {
		return openRun(c, rows)
	}, run)
	if err != nil {
		return nil, err
	}
	if len(runs) == 0 {
		return nil, d.missing(ctx, epoch, seq)
	}
	rows, _, err := splitRun(runs[0])
	return rows, err
}

// missing is ErrNoBatch where a batch is not open any more, and else what a run is that is not there.
func (d *batches) missing(ctx context.Context, epoch int64, seq uint64) error {
	var open bool
	const query = `SELECT EXISTS (SELECT 1 FROM open WHERE epoch = $1 AND seq = $2)`
	if err := d.read.QueryRowContext(ctx, query, epoch, seq).Scan(&open); err != nil {
		return err
	}
	if open {
		return errRun
	}
	return ErrNoBatch
}
