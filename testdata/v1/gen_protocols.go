//go:build ignore

package main

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// sample is a task of one protocol, with clients' values. It states all parameters, so that no vector depends on a
// calibration.
type sample struct {
	name, rule string
	query      task.Query
	claim      task.Claim
	batch      task.Batch
	input      task.Input
	params     string // NAME=RATIONAL …, in ascending order of names.
	slots      task.Slots
	values     [][]float64
	blocks     int // Random bytes for the reports, in blocks of 32 bytes. 0 means 64 blocks.
	batches    []batch
	noise      *task.Noise // Noise that relays add. With it, no other client must be honest.
	unproven   string      // Field for which a client must refuse the task; "" if the claim is proven.
}

type batch struct {
	users uint64
	lanes protocols.Messages

	draws, dummies uint64 // Draws of relays' noise, and their dummies.
}

// full returns slots under padding full.
func full(lanes, perLane, messageBytes uint64) task.Slots {
	return task.Slots{Padding: task.PaddingFull, Lanes: lanes, PerLane: perLane, MessageBytes: messageBytes}
}

// honest returns a batch size at which all clients count as honest.
func honest(size uint64) task.Batch {
	return task.Batch{Size: size, Honest: randomizer.NewRational(1, 1), Min: size}
}

// between returns the input range of a query for numbers or vectors.
func between(lo, hi int64) task.Input {
	return task.Input{Lo: randomizer.NewRational(lo, 1), Hi: randomizer.NewRational(hi, 1)}
}

// task returns the sample's task, with the parties of w.
func (s *sample) task(w *world, protocol string) *task.Task {
	t := *w.Task
	t.Name, t.Query, t.Protocol, t.Rule = s.name, s.query, protocol, s.rule
	t.Claim, t.Batch, t.Input, t.Slots = s.claim, s.batch, s.input, s.slots
	t.Params = nil
	if s.noise != nil {
		t.Noise, t.Claim.Assumption = s.noise, task.NoneHonest
	}
	for _, field := range strings.Fields(s.params) {
		key, value, _ := strings.Cut(field, "=")
		t.Params = append(t.Params, task.Param{Key: key, Value: rational(value)})
	}
	check(t.Validate())
	return &t
}

// vectorSet holds the vectors of a protocol. Each invalid one is the first sample with one fault.
type vectorSet struct {
	protocol string
	samples  []sample
	tasks    []badTask
	values   []badValue
	messages []badMessage
	batches  []badBatch
}

// badTask is a change that makes a task invalid, with the field that the error must name.
type badTask struct {
	name, field, description string
	change                   func(t *task.Task)
}

type badValue struct {
	name, description string
	value             []float64
}

// badMessage is a message that a verifier must leave out.
type badMessage struct {
	name, description string
	lane              int
	message           []byte
}

// badBatch is a batch without an estimate.
type badBatch struct {
	name, description string
	batch
}

func param(key, value string) func(t *task.Task) {
	return func(t *task.Task) {
		for i, p := range t.Params {
			if p.Key == key {
				t.Params[i].Value = rational(value)
				return
			}
		}
		panic("no parameter " + key)
	}
}

func protocolVectors(w *world, fault faultFunc) {
	for _, set := range []vectorSet{
		histogramVectors(), realsumVectors(), splitmixVectors(), correlatedVectors(),
		rapporVectors(), vectorsumVectors(), vectorgridVectors(), vectormeanVectors(), augmentedVectors(),
		stringsVectors(),
	} {
		var out []object
		for i := range set.samples {
			out = append(out, set.samples[i].vector(w, set.protocol))
		}
		write(set.protocol, out)
		set.bad(w, fault)
	}
}

func (set *vectorSet) bad(w *world, fault faultFunc) {
	first := func() *task.Task { return set.samples[0].task(w, set.protocol) }
	for _, c := range set.tasks {
		t := first()
		c.change(t)
		check(t.Validate())
		fault(set.protocol+"_"+c.name, "mechanism", "field:"+c.field, c.description,
			object{"task": hexOf(t.Canonical())})
	}
	for _, c := range set.values {
		fault(set.protocol+"_"+c.name, "value", "field:value", c.description,
			object{"task": hexOf(first().Canonical()), "value": c.value})
	}
	for _, c := range set.messages {
		fault(set.protocol+"_"+c.name, "message", "message", c.description,
			object{"task": hexOf(first().Canonical()), "lane": c.lane, "message": hexOf(c.message)})
	}
	for _, c := range set.batches {
		fault(set.protocol+"_"+c.name, "messages", "field:batch", c.description,
			object{"task": hexOf(first().Canonical()), "users": c.users, "lanes": hexLanes(c.lanes)})
	}
}

// run is a sample with its task and random bytes.
type run struct {
	*sample
	task      *task.Task
	mechanism protocols.Mechanism
	given     []byte
}

// vector returns the vector of a sample: reports drawn one after the other from the same random bytes, and estimates of
// batches. The first batch holds these reports.
func (s *sample) vector(w *world, protocol string) object {
	r := run{sample: s, task: s.task(w, protocol), given: stream(protocol+" "+s.name, max(s.blocks, 64))}
	var err error
	r.mechanism, err = registry.Open(r.task)
	check(err)
	if err := r.mechanism.CheckClaim(); err != nil && s.unproven == "" || err == nil && s.unproven != "" {
		panic(fmt.Sprint(protocol, " ", s.name, ": ", err))
	}
	var reports []object
	own, used := batch{users: uint64(len(s.values)), lanes: make(protocols.Messages, r.task.Slots.Lanes)}, 0
	for i, value := range s.values {
		messages, drawn := r.report(i, false, used)
		slots, padded := r.report(i, true, drawn)
		for lane := range messages {
			own.lanes[lane] = append(own.lanes[lane], messages[lane]...)
		}
		used = padded
		reports = append(reports, object{"value": value, "messages": hexLanes(messages), "messagesEnd": drawn,
			"slots": hexLanes(slots), "slotsEnd": padded})
	}
	return object{"name": s.name, "unproven": s.unproven, "task": hexOf(r.task.Canonical()),
		"bytes": hexOf(r.given[:max(used, 8)]), "reports": reports,
		"batches": estimates(r.mechanism, append([]batch{own}, s.batches...))}
}

// report returns report i, as messages or as slots, and the offset of the first unused random byte. A source reads
// ahead, so report draws all earlier reports again and searches the bytes, from offset from, for the next draw.
func (r *run) report(i int, slots bool, from int) (lanes protocols.Messages, end int) {
	src := source(r.given)
	for j := range i + 1 {
		var err error
		lanes, err = r.mechanism.Randomize(src, append([]float64{}, r.values[j]...))
		check(err)
		if j < i || slots {
			padded, err := protocols.Pad(r.task, src, lanes)
			check(err)
			lanes = bodies(padded)
		}
	}
	next := src.Uint64()
	for end = from; binary.BigEndian.Uint64(r.given[end:]) != next; end += 8 {
	}
	return lanes, end
}

// bodies returns the messages in slots, by lane. A cover is empty.
func bodies(slots [][]task.Message) protocols.Messages {
	out := make(protocols.Messages, len(slots))
	for lane := range slots {
		for _, slot := range slots[lane] {
			out[lane] = append(out[lane], slot.Body)
		}
	}
	return out
}

// estimates adds the batches to one aggregate, one after the other, and returns the total after each.
func estimates(m protocols.Mechanism, batches []batch) (out []object) {
	aggregate, can := m.Aggregate(), protocols.CapabilitiesOf(m)
	for _, b := range batches {
		for lane, messages := range b.lanes {
			for _, message := range messages {
				check(aggregate.Add(lane, message))
			}
		}
		if can.CheckComplete != nil {
			check(can.CheckComplete(aggregate, b.users))
		}
		aggregate.AddUsers(b.users)
		one := object{"users": b.users, "lanes": hexLanes(b.lanes)}
		if can.Dummies != nil {
			can.Dummies(aggregate).AddDummies(b.draws, b.dummies)
			one["draws"], one["dummies"] = b.draws, b.dummies
		}
		one["total"] = aggregate.Total()
		out = append(out, one)
	}
	return out
}

// hexLanes returns messages by lane in hexadecimal. A cover is empty.
func hexLanes(lanes protocols.Messages) [][]string {
	out := make([][]string, len(lanes))
	for lane, messages := range lanes {
		out[lane] = []string{}
		for _, message := range messages {
			out[lane] = append(out[lane], hexOf(message))
		}
	}
	return out
}
