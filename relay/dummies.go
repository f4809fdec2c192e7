package relay

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/doona-dp/doona/randomizer"
)

// dilute draws what this relay adds to one batch, and seals it for the hops behind as their slots arrive
// there. It is called before the transaction that makes the batch, so that no writer waits for it, and for
// every call anew: a draw that is not used is forgotten, and no draw is used twice. Nothing of it is
// stored or logged but, permuted among the others, the sealed slots.
func (s *served) dilute(epoch uint64) ([][]byte, error) {
	if s.draw == nil {
		return nil, nil
	}
	cells, err := s.draw(randomizer.NewSource())
	if err != nil {
		return nil, err
	}
	slots := make([][]byte, len(cells))
	const chunk = 64
	var next atomic.Int64
	var workers sync.WaitGroup
	var failed sync.Once
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for from := next.Add(chunk) - chunk; from < int64(len(cells)); from = next.Add(chunk) - chunk {
				for i := from; i < min(from+chunk, int64(len(cells))); i++ {
					slot, sealErr := s.sealer.SealSlot(epoch, s.hop+1, 0, s.message(cells[i]))
					if sealErr != nil {
						failed.Do(func() { err = sealErr })
						return
					}
					slots[i] = slot
				}
				runtime.Gosched() // requests go first
			}
		})
	}
	workers.Wait()
	return slots, err
}

// mostBatches returns how many batches an epoch may have, 0 for no bound.
func (s *served) mostBatches() uint64 {
	if s.Noise == nil {
		return 0
	}
	return s.Noise.Batches
}

// message returns the message of a cell: its number, big-endian.
func (s *served) message(cell uint64) []byte {
	out := make([]byte, s.Slots.MessageBytes)
	for i := len(out) - 1; i >= 0 && cell > 0; i-- {
		out[i] = byte(cell)
		cell >>= 8
	}
	return out
}
