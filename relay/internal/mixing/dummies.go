package mixing

import (
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/task"
)

// drawDummies draws the dummies that this relay adds to one batch, and seals them for the later hops. It runs before
// the transaction that stores the batch, so that no writer waits for it. Each call draws anew: an unused draw is
// discarded, and no draw is used twice. Only the sealed slots are stored, permuted among the others; nothing is logged.
func drawDummies(e tasks.Epoch) ([][]byte, error) {
	if e.Draw == nil {
		return nil, nil
	}
	cells, err := e.Draw(randomizer.NewSource())
	if err != nil {
		return nil, err
	}
	slots := make([][]byte, len(cells))
	err = onAllCores(len(cells), func(i int) (err error) {
		slots[i], err = e.Sealer.SealSlot(e.Number, e.Hop+1, 0, dummyMessage(e.Task, cells[i]))
		return err
	})
	return slots, err
}

// dummyMessage returns the message that reports a cell: the cell's number, big-endian.
func dummyMessage(t *task.Task, cell uint64) []byte {
	out := make([]byte, t.Slots.MessageBytes)
	for i := len(out) - 1; i >= 0 && cell > 0; i-- {
		out[i] = byte(cell)
		cell >>= 8
	}
	return out
}
