package verifier

import (
	"errors"
	"fmt"

	"github.com/doona-dp/doona/wire/codec"
)

// ErrScratch is returned where slots cannot be kept, or read again: a fault of this machine, not of a record.
var ErrScratch = errors.New("couldn't keep the slots of a record")

// pieceBytes is the most bytes that a piece of a record takes, but for a piece of one slot.
const pieceBytes = 256 << 10

// pieceSlots is the number of slots in every piece of a lane but its last, for slots of a size in bytes.
func pieceSlots(size int) int { return max(1, pieceBytes/size) }

// slotBuffer is the slots of a record by lane, in pieces, see [slotHeader]. A nil slotBuffer has none.
type slotBuffer struct {
	space *scratchSpace
	size  int // bytes of a slot
	lanes [][]scratchBlock
	lane  int // Which is being filled: those before it are whole.
	piece []byte
}

func newSlotBuffer(space *scratchSpace, size, lanes int) *slotBuffer {
	return &slotBuffer{space: space, size: size, lanes: make([][]scratchBlock, lanes)}
}

// add adds a slot behind those of its lane. Lanes come in order.
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

// flush keeps the piece that is being filled.
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

// finish is called behind the last slot.
func (p *slotBuffer) finish() error {
	err := p.flush()
	p.piece = nil
	return err
}

// eachPiece is called for one piece after the other. It must not change it, or keep it.
type eachPiece func(lane int, piece []byte) error

// pieces calls f for every piece.
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

// free gives the room of all slots back: there are none any more.
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

// write writes the lanes, each an array of pieces.
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

// readSlotBuffer reads what write wrote, of slots of a size, and has see look at each piece before it is kept.
// Pieces of other sizes than write's are errors, so that slots have one form. An error leaves nothing in the space.
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
			err = fmt.Errorf("couldn't accept a record: %d bytes of slots of %d", size, p.size)
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
