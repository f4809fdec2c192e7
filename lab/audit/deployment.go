package audit

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
)

// ClientFunc randomizes one client's value. It returns the client's slots by lane, including covers. It runs natively
// or in doona.wasm.
type ClientFunc func(src *randomizer.Source, value []float64) ([][]task.Message, error)

// native returns a Go client, as in shufflerclient and edge workers: it randomizes the value and adds covers.
func native(t *task.Task, randomize func(*randomizer.Source, []float64) (protocols.Messages, error)) ClientFunc {
	return func(src *randomizer.Source, value []float64) ([][]task.Message, error) {
		messages, err := randomize(src, value)
		if err != nil {
			return nil, err
		}
		return protocols.Pad(t, src, messages)
	}
}

// deployment simulates the clients, two relays and the verifier of a task. It runs the shipped code, except for planted
// faults. It leaves out encryption, because the audit does not attack encryption.
type deployment struct {
	task   *task.Task
	honest protocols.Mechanism
	client func(i int) ClientFunc // Number 0 is the victim.

	draw    func(src *randomizer.Source) ([]uint64, error) // Draws the honest relay's dummies; nil: it adds none.
	ordered bool                                           // Fault: the honest relay does not shuffle.
	copies  int                                            // Copies that the attacker adds of each victim's slot.
	admits  bool                                           // Fault: the honest relay accepts copies.
	cells   [2]map[int]bool                                // Cells of the victim's two texts, for byTexts.

	unresting bool // Fault: the rest cell draws as the others do.
}

// all returns a function that gives every client number the same client.
func all(client ClientFunc) func(int) ClientFunc { return func(int) ClientFunc { return client } }

// newDeployment returns the deployment of a task, without planted faults.
func newDeployment(t *task.Task, m protocols.Mechanism) *deployment {
	r := &deployment{task: t, honest: m, client: all(native(t, m.Randomize))}
	if t.Noise != nil {
		r.draw = dummies.New(t.Noise).Draw
	}
	return r
}

// slot is a message with the tag by which a relay recognizes copies: copies have equal tags.
type slot struct {
	message task.Message
	tag     int
}

// batchView is what the attacked parties see of one batch.
type batchView struct {
	sizes []int      // Number of slots in each client's report, as the first relay sees it.
	lanes [][][]byte // Messages by lane in the order in which the verifier receives them, without covers.
	added uint64     // Number of dummies among the messages of lane 0.
}

// run runs a batch with one client for each value. The first client is the victim.
func (r *deployment) run(src *randomizer.Source, values [][]float64) (*batchView, error) {
	out := &batchView{}
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

// relay simulates the honest relay, at any hop: it drops copies, adds dummies and shuffles. It leaves out the other
// relay, which colludes: the attacker can undo all that it does.
func (r *deployment) relay(src *randomizer.Source, out *batchView, lanes [][]slot) error {
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

// encode encodes the number of a cell as a big-endian message of size bytes.
func encode(cell, size uint64) []byte {
	out := make([]byte, size)
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = byte(cell)
		cell >>= 8
	}
	return out
}

// totals returns the verifier's estimate of the sum over clients. The estimate is unbiased: the verifier subtracts the
// mean of the dummies.
func (r *deployment) totals(lanes [][][]byte, clients, added uint64) ([]float64, error) {
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
		dummies := protocols.CapabilitiesOf(r.honest).Dummies
		if dummies == nil {
			return nil, invalid.Field("noise", r.task.Noise.Kind, "none for protocol "+r.task.Protocol)
		}
		dummies(a).AddDummies(1, added)
	}
	return a.Total(), nil
}

// words formats numbers as the text of a view.
func words(numbers ...int) string {
	out := []byte{}
	for _, n := range numbers {
		out = append(strconv.AppendInt(out, int64(n), 10), ' ')
	}
	return string(out)
}
