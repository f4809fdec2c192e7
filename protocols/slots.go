package protocols

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Pad turns one client's messages into slots by the task's padding, lane by lane, each lane in random order. Under
// padding full every lane gets exactly PerLane slots; a lane with more messages is an error. Under padding none a lane
// without messages gets one cover. The verifier can recognize a cover, so a protocol must not let the value decide
// whether a lane is empty.
func Pad(t *task.Task, src *randomizer.Source, messages Messages) ([][]task.Message, error) {
	slots := make([][]task.Message, len(messages))
	for lane, bodies := range messages {
		n := uint64(len(bodies))
		if n > t.Slots.PerLane {
			return nil, invalid.Field("messages", strconv.FormatUint(n, 10),
				"at most "+strconv.FormatUint(t.Slots.PerLane, 10)+" in a lane")
		}
		want := max(n, 1)
		if t.Slots.Padding == task.PaddingFull {
			want = t.Slots.PerLane
		}
		slots[lane] = make([]task.Message, 0, want)
		for _, body := range bodies {
			slots[lane] = append(slots[lane], task.Message{Body: body})
		}
		for ; n < want; n++ {
			slots[lane] = append(slots[lane], task.Message{Cover: true})
		}
		randomizer.Shuffle(src, slots[lane])
	}
	return slots, nil
}
