package verifier

import (
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// slot is an opened slot.
type slot struct {
	lane    int
	tag     [onion.TagSize]byte
	message task.Message
	err     error
}

// workItem is a part of a chunk. One core opens it.
type workItem struct {
	lane   int
	sealed [][]byte
	slots  []slot
	opened chan struct{} // Closed when all slots are set.
}

// itemSlots is the maximum number of slots of a work item. itemsAhead is the maximum number of queued items per core.
// Both are small, to save memory.
const (
	itemSlots  = 128
	itemsAhead = 8
)

// errStopped ends the reading of chunks after take has failed.
var errStopped = errors.New("stopped")

// openAll opens the slots of all chunks on all cores, and calls take with each slot in order. It returns the first
// error of take, or else the first error of each.
func openAll(opener *onion.Opener, each eachChunk, take func(*slot) error) error {
	cores := runtime.GOMAXPROCS(0)
	work, queue := make(chan *workItem, itemsAhead*cores), make(chan *workItem, itemsAhead*cores)
	var all sync.WaitGroup
	for range cores {
		all.Go(func() {
			for s := range work {
				s.open(opener)
			}
		})
	}
	stop := make(chan struct{})
	var failed error
	all.Go(func() {
		for s := range queue {
			<-s.opened
			if failed != nil {
				continue
			}
			if failed = s.take(take); failed != nil {
				close(stop)
			}
		}
	})
	err := each(func(lane int, slots [][]byte) error {
		for sealed := range slices.Chunk(slots, itemSlots) {
			select {
			case <-stop:
				return errStopped
			default:
			}
			s := &workItem{lane: lane, sealed: sealed, opened: make(chan struct{})}
			queue <- s
			work <- s
		}
		return nil
	})
	close(work)
	close(queue)
	all.Wait()
	if failed != nil {
		return failed
	}
	return err
}

func (s *workItem) open(opener *onion.Opener) {
	s.slots = make([]slot, len(s.sealed))
	for i, sealed := range s.sealed {
		one := &s.slots[i]
		one.lane = s.lane
		one.tag, one.message, one.err = opener.OpenMessage(s.lane, sealed)
	}
	close(s.opened)
}

func (s *workItem) take(take func(*slot) error) error {
	for i := range s.slots {
		if errors.Is(s.slots[i].err, onion.ErrErased) { // the key was erased meanwhile, so the slot is not at fault
			return onion.ErrErased
		}
		if err := take(&s.slots[i]); err != nil {
			return err
		}
	}
	return nil
}
