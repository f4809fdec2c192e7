package correlated

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Randomize implements [protocols.Mechanism.Randomize]. It draws the noise again until it fits into B-1 slots; the last
// slot is for the value.
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	at, x, err := m.input(value)
	if err != nil {
		return nil, err
	}
	rounded := int64(src.Round(randomizer.Fixed(x), m.top))
	var messages [][]byte
	for {
		messages = m.draw(src)
		if messages != nil {
			break
		}
	}
	return protocols.Messages{m.own(messages, at, rounded)}, nil
}

// own appends the message of a client's rounded value. Value 0 has one only if [Mechanism.needsZero].
func (m *Mechanism) own(messages [][]byte, at uint64, rounded int64) [][]byte {
	switch {
	case rounded != 0:
		return append(messages, m.encode(at, rounded))
	case m.needsZero():
		return append(messages, m.encode(0, 0))
	}
	return messages
}

// draw returns the messages of one draw of a client's noise, or nil if they do not fit the slots.
func (m *Mechanism) draw(src *randomizer.Source) [][]byte {
	messages := [][]byte{}
	room := m.task.Slots.PerLane - 1
	fits := true
	src.Events(m.noise, func(i int, size uint64) {
		s := &m.sources[i]
		if fits = fits && size <= room && size*uint64(s.Size) <= room-uint64(len(messages)); !fits {
			return
		}
		at := uint64(0)
		if s.Messages != [3]int64{} {
			at = src.Below(m.dim)
		}
		for _, v := range s.Messages[:s.Size] {
			for range size {
				messages = append(messages, m.encode(at, v))
			}
		}
	})
	if !fits {
		return nil
	}
	return messages
}

// input returns the coordinate of a client's value, and the value scaled to [0, 1].
func (m *Mechanism) input(value []float64) (at uint64, x float64, err error) {
	switch m.task.Query {
	case task.Histogram:
		at, err = protocols.Category(m.task.Input, value)
		return at, 1, err
	case task.Vector:
		v, err := protocols.Vector(m.task.Input, value)
		if err != nil {
			return 0, 0, err
		}
		defer clear(v)
		others := 0
		for l, y := range v {
			if y != 0 {
				at, x = uint64(l), y
				others++
			}
		}
		if others > 1 {
			return 0, 0, invalid.Field("value", strconv.Itoa(others)+" coordinates that are not 0", "at most one")
		}
		return at, x, nil
	}
	x, err = protocols.Number(m.task, value)
	return 0, x, err
}

// encode returns the message for a value of a coordinate: the number coordinate·values + (value + ⌈Δ/2⌉).
func (m *Mechanism) encode(at uint64, value int64) []byte {
	return protocols.Indices(m.values()*m.dim).Encode(nil, at*m.values()+uint64(value+int64(m.offset())))
}

// decode returns the coordinate and value of a message that encode wrote. Value 0 is an error unless
// [Mechanism.needsZero].
func (m *Mechanism) decode(lane int, message []byte) (at uint64, value int64, err error) {
	if lane != 0 {
		return 0, 0, invalid.Field("message", "one in lane "+strconv.Itoa(lane), "lane 0")
	}
	index, err := protocols.Indices(m.values() * m.dim).Decode(message)
	if err != nil {
		return 0, 0, err
	}
	at, value = index/m.values(), int64(index%m.values())-int64(m.offset())
	if value == 0 && (at != 0 || !m.needsZero()) {
		return 0, 0, invalid.Field("message", "0 for coordinate "+strconv.FormatUint(at, 10),
			"a value other than 0: only padding none has messages of value 0, for coordinate 0")
	}
	return at, value, nil
}
