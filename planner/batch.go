package planner

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// batches draws one batch after the other: honest clients, and after them malicious ones.
type batches struct {
	task      *task.Task
	mechanism protocols.Mechanism
	honest    [][]float64
	malicious [][]float64
	fast      func(*randomizer.Source) (protocols.Aggregate, uint64) // nil: draw every message.
	attacker  protocols.Attacker                                     // nil without malicious clients.
	attack    string
}

func (tr Trial) newBatches(t *task.Task, m protocols.Mechanism, values [][]float64) (*batches, error) {
	if tr.Malicious < 0 || tr.Malicious > len(values) {
		return nil, invalid.Field("malicious", strconv.Itoa(tr.Malicious),
			"0 to "+strconv.Itoa(len(values))+", the number of clients")
	}
	split := len(values) - tr.Malicious
	b := &batches{task: t, mechanism: m, honest: values[:split], malicious: values[split:], attack: tr.Attack}
	if tr.Malicious > 0 {
		var ok bool
		if b.attacker, ok = m.(protocols.Attacker); !ok {
			return nil, invalid.Field("attack", strconv.Quote(tr.Attack),
				"none: protocol "+t.Protocol+" has no simulated attacks")
		}
	}
	if tr.Fast {
		simulator, ok := m.(protocols.FastSimulator)
		if !ok {
			return nil, invalid.Field("fast", "true", "false: the aggregate of protocol "+t.Protocol+
				" is not simpler to draw than its messages")
		}
		var err error
		if b.fast, err = simulator.Fast(b.honest); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// next draws a batch and returns its aggregate and the number of messages in it.
func (b *batches) next(src *randomizer.Source) (agg protocols.Aggregate, messages int, err error) {
	if b.fast != nil {
		var sent uint64
		agg, sent = b.fast(src)
		messages = int(sent)
	} else {
		agg = b.mechanism.Aggregate()
		for _, v := range b.honest {
			lanes, err := b.mechanism.Randomize(src, v)
			if err != nil {
				return nil, 0, err
			}
			if messages, err = add(agg, lanes, messages); err != nil {
				return nil, 0, err
			}
		}
	}
	for i, v := range b.malicious {
		lanes, err := b.attacker.Attack(src, b.attack, i, v)
		if err != nil {
			return nil, 0, err
		}
		if err := b.fits(lanes); err != nil {
			return nil, 0, err
		}
		if messages, err = add(agg, lanes, messages); err != nil {
			return nil, 0, err
		}
	}
	agg.AddUsers(uint64(len(b.honest) + len(b.malicious)))
	return agg, messages, nil
}

// fits holds a malicious client to the slots that the relays hold it to.
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

// add adds the messages of one client and returns their number plus those before.
func add(agg protocols.Aggregate, lanes protocols.Messages, before int) (int, error) {
	for lane, messages := range lanes {
		for _, message := range messages {
			if err := agg.Add(lane, message); err != nil {
				return before, err
			}
			before++
		}
	}
	return before, nil
}
