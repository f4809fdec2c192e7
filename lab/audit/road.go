package audit

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
)

// Client draws one client's slots, covers among them, by lane: natively, or in doona.wasm.
type Client func(src *randomizer.Source, value []float64) ([][]task.Message, error)

// native is the client of shufflerclient and of the edge worker.
func native(t *task.Task, randomize func(*randomizer.Source, []float64) (protocols.Messages, error)) Client {
	return func(src *randomizer.Source, value []float64) ([][]task.Message, error) {
		messages, err := randomize(src, value)
		if err != nil {
			return nil, err
		}
		return protocols.Pad(t, src, messages)
	}
}

// road is what a batch passes: clients, two relays and the verifier. Its parts are those of the product, but for the
// encryption, which nobody here is asked to break, and for planted faults.
type road struct {
	task   *task.Task
	honest protocols.Mechanism
	client func(i int) Client // Number 0 is the victim.

	draw    func(src *randomizer.Source) ([]uint64, error) // Of one honest relay; nil: it adds nothing.
	ordered bool                                           // The honest relay does not permute.
	copies  int                                            // Of the victim's slots, that the attacker adds.
	admits  bool                                           // The honest relay lets them through.
	cells   [2]map[int]bool                                // Of two texts, for byTexts.
}

// all has every client be the same.
func all(client Client) func(int) Client { return func(int) Client { return client } }

// newRoad returns the honest road of a task.
func newRoad(t *task.Task, m protocols.Mechanism) *road {
	r := &road{task: t, honest: m, client: all(native(t, m.Randomize))}
	if t.Noise != nil {
		r.draw = dummies.New(t.Noise).Draw
	}
	return r
}

// slot is what a relay sees of a message: nothing but that it is one, and whether it came before.
type slot struct {
	message task.Message
	tag     int
}

// trip is one batch on its road: what each party sees of it.
type trip struct {
	sizes []int      // Of each client's report, in slots: the first relay's view.
	lanes [][][]byte // Messages by lane, in the verifier's order, covers dropped.
	added uint64     // Dummies among them.
}

// run plays a batch. The victim is the first client.
func (r *road) run(src *randomizer.Source, values [][]float64) (*trip, error) {
	out := &trip{}
	lanes := make([][]slot, r.task.Slots.Lanes)
	tag := 0
	for i, value := range values {
		times := 1
		if i == 0 {
			times += r.copies
		}
		slots, err := r.client(i)(src, value)
		if err != nil {
			return nil, err
		}
		out.sizes = append(out.sizes, total(slots))
		for lane, messages := range slots {
			for _, m := range messages {
				for range times {
					lanes[lane] = append(lanes[lane], slot{m, tag})
				}
				tag++
			}
		}
	}
	return out, r.relay(src, out, lanes)
}

func total(slots [][]task.Message) (n int) {
	for _, lane := range slots {
		n += len(lane)
	}
	return n
}

// relay is the honest relay, wherever it stands: it drops what came before, adds its dummies and permutes. The other
// colludes, so that what it does is known and as good as undone.
func (r *road) relay(src *randomizer.Source, out *trip, lanes [][]slot) error {
	seen := map[int]bool{}
	for lane, slots := range lanes {
		var fresh []task.Message
		for _, s := range slots {
			if seen[s.tag] && !r.admits {
				continue
			}
			seen[s.tag] = true
			fresh = append(fresh, s.message)
		}
		if lane == 0 && r.draw != nil {
			cells, err := r.draw(src)
			if err != nil {
				return err
			}
			out.added = uint64(len(cells))
			for _, cell := range cells {
				fresh = append(fresh, task.Message{Body: encode(cell, r.task.Slots.MessageBytes)})
			}
		}
		if !r.ordered {
			randomizer.Shuffle(src, fresh)
		}
		var kept [][]byte
		for _, m := range fresh {
			if !m.Cover {
				kept = append(kept, m.Body)
			}
		}
		out.lanes = append(out.lanes, kept)
	}
	return nil
}

// encode writes a cell as messages have it.
func encode(cell, size uint64) []byte {
	out := make([]byte, size)
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = byte(cell)
		cell >>= 8
	}
	return out
}

// totals returns the verifier's statistic: an unbiased estimate of the sum over clients, without the dummies' mean.
func (r *road) totals(lanes [][][]byte, clients, added uint64) ([]float64, error) {
	a := r.honest.Aggregate()
	for lane, messages := range lanes {
		for _, m := range messages {
			if err := a.Add(lane, m); err != nil {
				return nil, err
			}
		}
	}
	a.AddUsers(clients)
	if r.draw != nil {
		diluted := protocols.CapabilitiesOf(r.honest).Diluted
		if diluted == nil {
			return nil, invalid.Field("noise", r.task.Noise.Kind, "none for protocol "+r.task.Protocol)
		}
		diluted(a).AddDummies(1, added)
	}
	return a.Total(), nil
}

// words writes numbers as a view.
func words(numbers ...int) string {
	out := []byte{}
	for _, n := range numbers {
		out = append(strconv.AppendInt(out, int64(n), 10), ' ')
	}
	return string(out)
}
