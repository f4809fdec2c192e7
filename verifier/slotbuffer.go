package verifier

import (
	"errors"
	"fmt"

	"github.com/doona-dp/doona/wire/codec"
)

// ErrScratch means that slots could not be stored or read again. This machine is at fault, not the record.
var ErrScratch = errors.New("couldn't keep the slots of a record")

// pieceBytes is the maximum size of a piece in bytes, unless one slot is larger.
const pieceBytes = 256 << 10

// pieceSlots returns the number of slots in each piece of a lane except the last, for slots of size bytes.
func pieceSlots(size int) int { return max(1, pieceBytes/size) }

// slotBuffer holds the slots of a record by lane, in pieces; [slotHeader] shows the form of a slot. A nil slotBuffer is
// empty.
type slotBuffer struct {
	space *scratchSpace
	size  int // size of a slot, in bytes
	lanes [][]scratchBlock
	lane  int // The lane to which slots are added; lower lanes are complete.
	piece []byte
}

func newSlotBuffer(space *scratchSpace, size, lanes int) *slotBuffer {
	return &slotBuffer{space: space, size: size, lanes: make([][]scratchBlock, lanes)}
}

// add adds a slot to a lane. The caller fills the lanes in ascending order.
func (p *slotBuffer) add(lane int, tag []byte, kind byte, body []byte) error {
	if lane != p.lane || len(p.piece) == pieceSlots(p.size)*p.size {
		if err := p.flush(); err != nil {
			return err
		}
		p.lane = lane
	}
	p.piece = append(append(append(p.piece, tag...), kind), body...)
	return nil
}

// flush stores the piece that is not stored yet.
func (p *slotBuffer) flush() error {
	if len(p.piece) == 0 {
		return nil
	}
	whole := make([]byte, len(p.piece))
	copy(whole, p.piece)
	p.piece = p.piece[:0]
	return p.put(p.lane, whole)
}

func (p *slotBuffer) put(lane int, piece []byte) error {
	b, err := p.space.Put(piece)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrScratch, err)
	}
	p.lanes[lane] = append(p.lanes[lane], b)
	return nil
}

// finish stores the last piece. The caller calls it after the last slot.
func (p *slotBuffer) finish() error {
	err := p.flush()
	p.piece = nil
	return err
}

// eachPiece is a function that is called for each piece in turn. It must not change or keep the piece.
type eachPiece func(lane int, piece []byte) error

// pieces calls f for every piece, lane by lane.
func (p *slotBuffer) pieces(f eachPiece) error {
	if p == nil {
		return nil
	}
	var buffer []byte
	for lane, blocks := range p.lanes {
		for _, b := range blocks {
			piece, next, err := p.space.Get(b, buffer)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrScratch, err)
			}
			buffer = next
			if err := f(lane, piece); err != nil {
				return err
			}
		}
	}
	return nil
}

// each calls f for every slot in the order of the batch.
func (p *slotBuffer) each(f func(lane int, slot []byte) error) error {
	return p.pieces(func(lane int, piece []byte) error {
		for ; len(piece) > 0; piece = piece[p.size:] {
			if err := f(lane, piece[:p.size]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *slotBuffer) free() {
	if p == nil {
		return
	}
	for lane, blocks := range p.lanes {
		for _, b := range blocks {
			p.space.Free(b)
		}
		p.lanes[lane] = nil
	}
}

// write writes each lane as an array of pieces.
func (p *slotBuffer) write(w *codec.Writer) error {
	if p == nil {
		w.Array(0)
		return w.Err
	}
	w.Array(len(p.lanes))
	begun := -1
	begin := func(until int) {
		for ; begun < until; begun++ {
			w.Array(len(p.lanes[begun+1]))
		}
	}
	err := p.pieces(func(lane int, piece []byte) error {
		begin(lane)
		w.Bytes(piece)
		return w.Err
	})
	begin(len(p.lanes) - 1)
	return errors.Join(err, w.Err)
}

// readSlotBuffer reads what write wrote, for slots of size bytes. It calls see with each piece before storing it.
// Pieces must have the sizes that write chooses, so that there is only one encoding. After an error, readSlotBuffer
// leaves nothing in the space.
func readSlotBuffer(r *codec.Reader, space *scratchSpace, size, lanes int, see eachPiece) (p *slotBuffer, err error) {
	n, err := r.Array()
	if err != nil || n == 0 {
		return nil, err
	}
	if n != uint64(lanes) {
		return nil, fmt.Errorf("couldn't accept a record: %d lanes, want %d", n, lanes)
	}
	p = newSlotBuffer(space, size, lanes)
	defer func() {
		if err != nil {
			p.free()
			p = nil
		}
	}()
	for lane := range lanes {
		if err := p.readLane(r, lane, see); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *slotBuffer) readLane(r *codec.Reader, lane int, see eachPiece) error {
	n, err := r.Array()
	full := pieceSlots(p.size) * p.size
	for ; err == nil && n > 0; n-- {
		var piece []byte
		piece, err = r.Bytes(int64(full))
		if size := len(piece); err == nil && (size == 0 || size%p.size != 0 || n > 1 && size != full) {
			err = fmt.Errorf("couldn't accept a record: it has %d bytes of slots, want a multiple of the slot's %d bytes", size, p.size)
		}
		if err == nil {
			err = see(lane, piece)
		}
		if err == nil {
			err = p.put(lane, piece)
		}
	}
	return err
}
