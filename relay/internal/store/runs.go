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
	"github.com/doona-dp/doona/wire/onion"
)

// The store keeps clients' slots in runs. A run is one encrypted value with many rows of equal size. A transaction
// writes one run; rows with random keys would need one page per slot. A level 0 run reveals which rows came in one
// transaction, and its position on the disk reveals when. To end this, the store merges and shuffles level 0 runs into
// one level 1 run once they take freshRoom bytes. A transaction with as many bytes writes level 1 runs directly, each
// of at most half of mergeRoom. When a higher level has mergeRuns runs, the store merges as many of them as fit into
// mergeRoom into one run of the next level.
//
// docs/seized-relay.md computes the bytes written and what a reader of the disk learns. Pages that a merge frees are
// overwritten, by the merged run or with zeros.
var (
	freshRoom = 512 << 10 // bytes; each run counts as its size plus one page
	mergeRuns = 16
	mergeRoom = 4 << 20 // bytes that one transaction merges, with five times as much memory
)

// page is the minimum size of a run on disk, in bytes.
const page = 4096

// runTarget says what a transaction's rows belong to: an open batch, or an epoch's tags and clients (seq is nameRuns).
type runTarget struct {
	epoch int64
	seq   uint64
	c     cipher.AEAD
	join  func(bytes int) runMerger
}

// runMerger merges several runs into one.
type runMerger interface {
	add(run []byte) error // adds the rows of a run; may keep its bytes
	pack() []byte         // all rows, in an order that does not reveal their runs
}

// storeRows stores n rows of bytes bytes each as runs, and merges the runs that are due. pack makes a run of the rows
// in an index range. fresh is the size of the level 0 runs before, in bytes; the result is their size afterwards.
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

// putRun encrypts and stores a run. It returns how many bytes the run takes on disk.
func (t runsTx) putRun(epoch int64, seq uint64, level int, c cipher.AEAD, plain []byte) (size int, err error) {
	sealed := encrypt(make([]byte, 0, len(plain)+sealedExtra), c, plain)
	const store = `INSERT INTO runs (epoch, seq, level, bytes) VALUES ($1, $2, $3, $4)`
	if err := t.put(store, epoch, seq, level, sealed); err != nil {
		return 0, fmt.Errorf("couldn't store a run: %w", err)
	}
	return len(sealed) + page, nil
}

// mergeFrom merges the runs that are due in a level, then those in the levels above.
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

// mergeDue returns the runs of a level to merge, and their bytes: all of level 0; of a higher level with at least
// mergeRuns runs, the smallest that fit into mergeRoom, if at least two fit. If it merged either all or none, the runs
// of larger transactions would never be merged.
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

// merge replaces runs of a level by one run of the next level. It deletes the old runs first, so that the merged run
// overwrites their pages.
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

var errRun = errors.New("the store is damaged: a run of rows is damaged")

// A run of slots is the size of a row, then the rows, each with a lane number and a slot. Lengths of row size and lane
// number, in bytes:
const (
	runHead = 4
	rowLane = 2
)

func packRows(rows []Row) []byte {
	size := rowLane + len(rows[0].Slot)
	out := binary.BigEndian.AppendUint32(make([]byte, 0, runHead+len(rows)*size), uint32(size))
	for _, row := range rows {
		out = append(binary.BigEndian.AppendUint16(out, uint16(row.Lane)), row.Slot...)
	}
	return out
}

// rowsOf returns the slots of submissions in a uniformly random order.
func rowsOf(subs []onion.Lanes) []Row {
	rows := make([]Row, 0, len(subs)) // each has at least one slot
	for _, lanes := range subs {
		for lane, slots := range lanes {
			for _, slot := range slots {
				rows = append(rows, Row{lane, slot})
			}
		}
	}
	randomizer.Shuffle(randomizer.NewSource(), rows)
	return rows
}

// splitRun returns the rows of a run of slots, in order, and the size of a row in bytes.
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

// slotRun is the runMerger for slots.
type slotRun struct {
	rows [][]byte
	size int // bytes per row
}

func (r *slotRun) add(run []byte) error {
	rows, size, err := splitRun(run)
	if err != nil || r.size > 0 && r.size != size {
		return errRun
	}
	r.rows, r.size = append(r.rows, rows...), size
	return nil
}

// pack returns a run with the rows in a uniformly random order.
func (r *slotRun) pack() []byte {
	randomizer.Shuffle(randomizer.NewSource(), r.rows)
	out := binary.BigEndian.AppendUint32(make([]byte, 0, runHead+len(r.rows)*r.size), uint32(r.size))
	for _, row := range r.rows {
		out = append(out, row...)
	}
	return out
}

// rows yields the slots of an open batch that accepts no more reports. It keeps one run in memory at a time and reads
// each in its own transaction, because a long transaction would keep SQLite from emptying its log.
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

// run returns the rows of one run of slots. It returns ErrNoBatch if another process has sealed the batch and deleted
// the run.
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

// missing returns the error for a run that does not exist: ErrNoBatch if the batch is no longer open, else errRun.
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
