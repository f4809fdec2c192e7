package store

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/doona-dp/doona/internal/secret"
)

// Making a batch may take minutes, so it happens outside of transactions: its input no longer changes. An attempt
// writes the batch as encrypted pieces, several per transaction, so that no other writer waits long. Only the last
// transaction makes the batch refer to them. A crash leaves pieces that no batch refers to. They reveal nothing,
// because their key was in memory only. Otherwise a reader could tell the dummies of the final batch from its other
// slots, as each attempt draws new dummies. If the last transaction was rolled back, the attempt's key may remain in
// the database's files or log, encrypted under the batch's key. Until the relay destroys the batch's key, an attacker
// who has the secret and finds that row and the pieces can read the attempt, and may recognize dummies.
//
//	transaction    writes                                         after a crash
//	first ones     pieces, and in sweeps a note to delete them    the pieces look random to everyone
//	last one       the other pieces, the batch with the           the batch is made
//	               attempt's key, and in sweeps a note to
//	               delete the open batch's slots
//	Sweep's        nothing: they delete what sweeps lists         the next Sweep continues
//
// Most batches fit into one transaction, the last one.

// groupBytes is how many bytes of a batch one transaction writes. This takes a fraction of a second on a slow disk.
// groupRows is how many tags one transaction writes.
var (
	groupBytes = 4 << 20
	groupRows  = 8192
)

// attempt is one try at making a batch.
type attempt struct {
	d     *batches
	ctx   context.Context
	epoch int64 // row ID
	of    BatchID
	name  []byte // 8 random bytes
	key   []byte
	seal  cipher.AEAD

	waiting [][]byte // pieces that are not yet in the store
	size    int      // total bytes of waiting
	next    int      // piece number of waiting[0]
}

const attemptName = 8 // bytes

var errBatch = errors.New("the store is damaged: a sealed batch's row is too short")

// head is the number of the piece that holds the batch's head: see [Made].
const head = 0

func (d *batches) newAttempt(ctx context.Context, epoch int64, b BatchID) (*attempt, error) {
	a := &attempt{d: d, ctx: ctx, epoch: epoch, of: b, name: make([]byte, attemptName),
		key:  make([]byte, 32),
		next: head + 1}
	rand.Read(a.name)
	rand.Read(a.key)
	c, err := d.vault.batchCipher(kindSealed, b)
	if err != nil {
		return nil, err
	}
	if a.seal, err = pieceCipher(c, bytes.Clone(a.key)); err != nil || !d.engine.alone() {
		return a, err
	}
	// No other process is making this batch. Delete pieces that a crash left of it now, because the disk may be full.
	const lost = `SELECT epoch, seq, made FROM sweeps WHERE epoch = $1 AND seq = $2 AND length(made) > 0`
	return a, d.sweepAll(ctx, lost, epoch, b.Seq)
}

// abandon deletes the pieces of a failed attempt, which may have filled the disk.
func (a *attempt) abandon() error {
	clear(a.key)
	if a.next == head+1 {
		return nil
	}
	const own = `SELECT epoch, seq, made FROM sweeps WHERE epoch = $1 AND seq = $2 AND made = $3`
	return a.d.sweepAll(context.WithoutCancel(a.ctx), own, a.epoch, a.of.Seq, a.name)
}

// last runs the last transaction of an attempt. If it fails, last deletes the pieces. If the commit succeeded and only
// its answer was lost, the pieces stay: the transaction removed the attempt from sweeps, where abandon looks.
func (a *attempt) last(do func(tx *transaction) error) error {
	err := a.d.within(a.ctx, do)
	clear(a.key)
	if err == nil {
		return nil
	}
	if left := a.abandon(); left != nil {
		return errors.Join(err, left)
	}
	return err
}

// pieceCipher returns the cipher of an attempt's pieces, and clears key. If tests have turned off the batch's
// encryption, it encrypts no pieces either.
func pieceCipher(batch cipher.AEAD, key []byte) (cipher.AEAD, error) {
	if _, broken := batch.(noCipher); broken {
		return batch, nil
	}
	return secret.NewAESGCM(key)
}

// put implements [Put].
func (a *attempt) put(piece []byte) error {
	a.waiting = append(a.waiting, encrypt(make([]byte, 0, len(piece)+sealedExtra), a.seal, piece))
	if a.size += len(piece); a.size < groupBytes {
		return nil
	}
	err := a.d.within(a.ctx, func(tx *transaction) error {
		if err := tx.batchTx().sweepLater(a.epoch, a.of.Seq, a.name); err != nil {
			return err
		}
		return a.write(tx)
	})
	if err != nil {
		return fmt.Errorf("couldn't store a piece of a batch: %w", err)
	}
	a.next += len(a.waiting)
	a.waiting, a.size = nil, 0
	return nil
}

func (a *attempt) write(tx *transaction) error {
	for i, piece := range a.waiting {
		if err := a.insert(tx, a.next+i, piece); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) insert(tx *transaction, number int, piece []byte) error {
	const store = `INSERT INTO pieces (epoch, seq, made, number, bytes) VALUES ($1, $2, $3, $4, $5)`
	_, err := tx.exec(store, a.epoch, a.of.Seq, a.name, number, piece)
	return err
}

// finish stores the remaining pieces of an attempt, and the batch. It runs in the attempt's last transaction.
// sourceConfirmed is 0 if this relay must still confirm the source batch to the upstream relay, else 1.
func (a *attempt) finish(tx *transaction, made *Made, sourceConfirmed int) error {
	c, err := tx.vault.batchCipher(kindSealed, a.of)
	if err != nil {
		return err
	}
	if err := a.write(tx); err != nil {
		return fmt.Errorf("couldn't store a batch: %w", err)
	}
	first := encrypt(make([]byte, 0, len(made.Head)+sealedExtra), a.seal, made.Head)
	if err := a.insert(tx, head, first); err != nil {
		return fmt.Errorf("couldn't store a batch: %w", err)
	}
	const store = `INSERT INTO batches (epoch, seq, manifest, bytes, confirmed) VALUES ($1, $2, $3, $4, $5)`
	if _, err = tx.exec(store, a.epoch, a.of.Seq, made.Manifest, encrypt(a.name[:attemptName:attemptName], c, a.key),
		sourceConfirmed); err != nil {
		return fmt.Errorf("couldn't store a batch: %w", err)
	}
	_, err = tx.exec(`DELETE FROM sweeps WHERE epoch = $1 AND seq = $2 AND made = $3`, a.epoch, a.of.Seq, a.name)
	return err
}

// sweepLater makes Sweep delete the pieces of an attempt or, if name is empty, the slots of an open batch.
func (t batchTx) sweepLater(epoch int64, seq uint64, name []byte) error {
	const store = `INSERT INTO sweeps (epoch, seq, made) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
	_, err := t.exec(store, epoch, seq, name)
	return err
}

// piecesAtOnce is how many pieces one transaction deletes. Most pieces have at most 1 MiB.
func piecesAtOnce() int { return max(groupBytes>>20, 1) }

// deleteSome deletes some of an attempt's pieces or, if name is empty, of an open batch's slots: all level 0 runs,
// which are small, and one larger run (see runs.go). It reports whether there may be more.
func (t batchTx) deleteSome(epoch int64, seq uint64, name []byte) (more bool, err error) {
	most, n := int64(1), int64(0)
	if len(name) == 0 {
		const fresh = `DELETE FROM runs WHERE epoch = $1 AND seq = $2 AND level = 0`
		const merged = `DELETE FROM runs WHERE epoch = $1 AND seq = $2 AND level > 0 AND id IN (
			SELECT id FROM runs WHERE epoch = $1 AND seq = $2 AND level > 0 LIMIT $3)`
		if _, err = t.exec(fresh, epoch, seq); err == nil {
			n, err = t.exec(merged, epoch, seq, most)
		}
	} else {
		most = int64(piecesAtOnce())
		n, err = t.exec(`DELETE FROM pieces WHERE epoch = $1 AND seq = $2 AND made = $3 AND number IN (
			SELECT number FROM pieces WHERE epoch = $1 AND seq = $2 AND made = $3 LIMIT $4)`, epoch, seq, name, most)
	}
	if err != nil {
		return false, fmt.Errorf("couldn't delete the rest of a batch: %w", err)
	}
	return n == most, nil
}

// sweep is deleteSome, and makes Sweep delete the rest later.
func (t batchTx) sweep(epoch int64, seq uint64, name []byte) error {
	more, err := t.deleteSome(epoch, seq, name)
	if err != nil || !more {
		return err
	}
	return t.sweepLater(epoch, seq, name)
}

type leftover struct {
	epoch int64
	seq   uint64
	made  []byte
}

// Sweep deletes, in small transactions, what remains after batches were made or confirmed: open slots, pieces and
// abandoned attempts. Meanwhile this process sends heartbeats to the others.
func (d *batches) Sweep(ctx context.Context) error {
	return d.heartbeat.during(ctx, func() error {
		return d.reserve.WithReserve(func() error { return d.sweepOnce(ctx) })
	})
}

func (d *batches) sweepOnce(ctx context.Context) error {
	const due = `SELECT s.epoch, s.seq, s.made FROM sweeps s JOIN epochs e ON e.id = s.epoch WHERE e.state >= $1
		OR EXISTS (SELECT 1 FROM batches b WHERE b.epoch = s.epoch AND b.seq = s.seq)`
	return d.sweepAll(ctx, due, int(StateExpired))
}

// sweepAll deletes everything that a query of the table sweeps lists.
func (d *batches) sweepAll(ctx context.Context, list string, args ...any) error {
	all, err := collect(ctx, d.read, list, func(rows *sql.Rows) (l leftover, err error) {
		err = rows.Scan(&l.epoch, &l.seq, &l.made)
		l.made = append([]byte{}, l.made...) // an empty name is not NULL
		return l, err
	}, args...)
	if err != nil {
		return fmt.Errorf("couldn't list what to delete after batches were made: %w", err)
	}
	for _, l := range all {
		for more := true; more; {
			err := d.within(ctx, func(tx *transaction) (err error) {
				if more, err = tx.batchTx().deleteSome(l.epoch, l.seq, l.made); err != nil || more {
					return err
				}
				_, err = tx.exec(`DELETE FROM sweeps WHERE epoch = $1 AND seq = $2 AND made = $3`, l.epoch, l.seq,
					l.made)
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// contentReader reads and decrypts a sealed batch. It fails once the batch is confirmed, because the pieces are then
// deleted.
type contentReader struct {
	d     *database
	ctx   context.Context
	epoch int64
	seq   uint64
	name  []byte
	seal  cipher.AEAD

	numbers []int   // piece numbers, in order
	ends    []int64 // where each piece ends, in bytes of the decrypted batch
	at      int64   // where the next Read begins
	piece   []byte  // the decrypted piece that was loaded last
	number  int     // index of piece in numbers; -1 for none
}

// content returns a reader of a sealed batch. refers is what its row holds: the name of an attempt, and the encrypted
// key of its pieces.
func (d *batches) content(ctx context.Context, b BatchID, refers []byte) (*contentReader, error) {
	batch, err := d.vault.batchCipher(kindSealed, b)
	if err != nil {
		return nil, err
	}
	if len(refers) < attemptName+nonceSize {
		return nil, errBatch
	}
	c := &contentReader{d: d.database, ctx: ctx, seq: b.Seq, name: refers[:attemptName], number: -1}
	sealed := refers[attemptName:]
	key, err := decrypt(batch, sealed[:nonceSize], sealed[nonceSize:])
	if err != nil {
		return nil, err
	}
	if c.seal, err = pieceCipher(batch, key); err != nil {
		return nil, err
	}
	const epoch = `SELECT id FROM epochs WHERE task = $1 AND epoch = $2`
	if err := d.read.QueryRowContext(ctx, epoch, b.Task[:], b.Epoch).Scan(&c.epoch); err != nil {
		return nil, fmt.Errorf("couldn't read a batch: %w", err)
	}
	const list = `SELECT number, length(bytes) FROM pieces WHERE epoch = $1 AND seq = $2 AND made = $3 ORDER BY number`
	end := int64(0)
	_, err = collect(ctx, d.read, list, func(rows *sql.Rows) (_ struct{}, err error) {
		var number int
		var size int64
		if err := rows.Scan(&number, &size); err != nil {
			return struct{}{}, err
		}
		end += size - sealedExtra
		c.numbers, c.ends = append(c.numbers, number), append(c.ends, end)
		return struct{}{}, nil
	}, c.epoch, b.Seq, c.name)
	if err == nil && len(c.ends) == 0 {
		err = ErrNoBatch // the next hop has confirmed the batch meanwhile
	}
	return c, err
}

// Size returns the number of bytes.
func (c *contentReader) Size() int64 { return c.ends[len(c.ends)-1] }

// Seek implements [io.Seeker].
func (c *contentReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.Size()
	}
	if offset < 0 {
		return 0, errors.New("couldn't seek before the first byte of a batch")
	}
	c.at = offset
	return offset, nil
}

// Read implements [io.Reader].
func (c *contentReader) Read(p []byte) (int, error) {
	i, _ := slices.BinarySearch(c.ends, c.at+1)
	if i == len(c.ends) {
		return 0, io.EOF
	}
	if i != c.number {
		if err := c.load(i); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.piece[int64(len(c.piece))-(c.ends[i]-c.at):])
	c.at += int64(n)
	return n, nil
}

func (c *contentReader) load(i int) error {
	const find = `SELECT bytes FROM pieces WHERE epoch = $1 AND seq = $2 AND made = $3 AND number = $4`
	var sealed []byte
	err := c.d.read.QueryRowContext(c.ctx, find, c.epoch, c.seq, c.name, c.numbers[i]).Scan(&sealed)
	if err != nil {
		return fmt.Errorf("couldn't read a piece of a batch: %w", err)
	}
	if c.piece, err = decrypt(c.seal, sealed[:nonceSize], sealed[nonceSize:]); err != nil {
		return err
	}
	c.number = i
	return nil
}
