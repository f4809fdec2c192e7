package planner

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
)

// batches draws simulated batches. In each batch the honest clients come first, then the malicious ones.
type batches struct {
	task      *task.Task
	mechanism protocols.Mechanism
	honest    [][]float64
	malicious [][]float64
	can       protocols.Capabilities
	fast      protocols.Draw // Draws the aggregate of the honest clients at once; nil: draw every message.
	attack    string
	lost      Lost         // nil: no message is lost.
	noise     *dummies.Law // nil: relays add no dummies.
}

// simulatedBatch is a batch as the verifier would receive it.
type simulatedBatch struct {
	aggregate protocols.Aggregate
	loss      protocols.Loss
	messages  int
}

func (tr Trial) newBatches(t *task.Task, m protocols.Mechanism, values [][]float64) (*batches, error) {
	if tr.Malicious < 0 || tr.Malicious > len(values) {
		return nil, invalid.Field("malicious", strconv.Itoa(tr.Malicious),
			"0 to "+strconv.Itoa(len(values))+", the number of clients")
	}
	split := len(values) - tr.Malicious
	b := &batches{task: t, mechanism: m, can: protocols.CapabilitiesOf(m), honest: values[:split],
		malicious: values[split:], attack: tr.Attack, lost: tr.Lost}
	if t.Noise != nil {
		b.noise = dummies.New(t.Noise)
	}
	if tr.Fast && tr.Lost != nil {
		return nil, invalid.Field("fast", "true", "false: a simulation of losses draws every message")
	}
	if tr.Malicious > 0 && b.can.Attack == nil {
		return nil, invalid.Field("attack", strconv.Quote(tr.Attack),
			"none: protocol "+t.Protocol+" has no simulated attacks")
	}
	if tr.Fast {
		if b.can.Fast == nil {
			return nil, invalid.Field("fast", "true", "false: the aggregate of protocol "+t.Protocol+
				" is not simpler to draw than its messages")
		}
		var err error
		if b.fast, err = b.can.Fast(b.honest); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// next draws a batch. If count is true, it also counts the batch's messages.
func (b *batches) next(src *randomizer.Source, count bool) (*simulatedBatch, error) {
	d := &simulatedBatch{loss: protocols.Loss{Clients: uint64(len(b.honest) + len(b.malicious))}}
	if b.fast != nil {
		var sent func() uint64
		if d.aggregate, sent = b.fast(src); count {
			d.messages = int(sent())
		}
	} else {
		d.aggregate = b.mechanism.Aggregate()
		for i, v := range b.honest {
			lanes, err := b.mechanism.Randomize(src, v)
			if err != nil {
				return nil, err
			}
			if err := b.add(d, src, i, lanes); err != nil {
				return nil, err
			}
		}
	}
	for i, v := range b.malicious {
		lanes, err := b.can.Attack(src, b.attack, i, v)
		if err != nil {
			return nil, err
		}
		if err := b.fits(lanes); err != nil {
			return nil, err
		}
		if err := b.add(d, src, len(b.honest)+i, lanes); err != nil {
			return nil, err
		}
	}
	d.aggregate.AddUsers(d.loss.Clients)
	return d, b.addDummies(d, src)
}

// DefaultRelays is the number of relays that add dummies in a simulation, if the task does not name its relays yet.
const DefaultRelays = 2

func relays(t *task.Task) int {
	if len(t.Relays) == 0 {
		return DefaultRelays
	}
	return len(t.Relays)
}

// addDummies adds the dummies of every relay. It draws them as a relay does.
func (b *batches) addDummies(d *simulatedBatch, src *randomizer.Source) error {
	if b.task.Noise == nil {
		return nil
	}
	added := uint64(0)
	for range relays(b.task) {
		cells, err := b.noise.Draw(src)
		if err != nil {
			return err
		}
		added += uint64(len(cells))
		for _, cell := range cells {
			message := make([]byte, b.task.Slots.MessageBytes)
			for i := len(message) - 1; i >= 0; i-- {
				message[i] = byte(cell)
				cell >>= 8
			}
			if err := d.aggregate.Add(0, message); err != nil {
				return err
			}
		}
	}
	if b.can.Dummies == nil {
		return invalid.Field("noise", b.task.Noise.Kind, "no noise by relays: protocol "+b.task.Protocol+" takes none")
	}
	b.can.Dummies(d.aggregate).AddDummies(uint64(relays(b.task)), added)
	return nil
}

// fits returns an error if a malicious client sends more messages than the relays allow.
func (b *batches) fits(lanes protocols.Messages) error {
	s := b.task.Slots
	if uint64(len(lanes)) > s.Lanes {
		return invalid.Field("attack", strconv.Itoa(len(lanes))+" lanes", "at most "+strconv.FormatUint(s.Lanes, 10))
	}
	for _, messages := range lanes {
		if uint64(len(messages)) > s.PerLane {
			return invalid.Field("attack", strconv.Itoa(len(messages))+" messages",
				"at most "+strconv.FormatUint(s.PerLane, 10)+" in a lane")
		}
	}
	return nil
}

// add adds the messages of one client, except lost ones.
func (b *batches) add(d *simulatedBatch, src *randomizer.Source, client int, lanes protocols.Messages) error {
	if b.lost != nil {
		var err error
		if lanes, err = b.lose(d, src, client, lanes); err != nil {
			return err
		}
	}
	for lane, messages := range lanes {
		for _, message := range messages {
			if err := d.aggregate.Add(lane, message); err != nil {
				return err
			}
			d.messages++
		}
	}
	return nil
}

// lose adds covers to a client's messages, and returns the messages that are not lost.
func (b *batches) lose(d *simulatedBatch, src *randomizer.Source, client int,
	lanes protocols.Messages) (protocols.Messages, error) {
	slots, err := protocols.Pad(b.task, src, lanes)
	if err != nil {
		return nil, err
	}
	kept := make(protocols.Messages, len(slots))
	for lane, messages := range slots {
		for _, message := range messages {
			switch {
			case b.lost(src, client, message):
				d.loss.Messages++
			case !message.Cover:
				kept[lane] = append(kept[lane], message.Body)
			}
		}
	}
	return kept, nil
}
