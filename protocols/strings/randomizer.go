package strings

import (
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Randomize is [protocols.Mechanism.Randomize]. A value is the bytes of a text, of any number up to 65536: what is
// beyond L is cut at a character.
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	text, err := m.text(value)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	return m.message(m.randomize(src, int(src.Below(uint64(m.plan.tables()))), text)), nil
}

// randomize returns the number of a client's message in a table.
func (m *Mechanism) randomize(src *randomizer.Source, table int, text []byte) uint64 {
	y := m.plan.of(table, text)
	if m.gamma() == 0 {
		return y
	}
	first := uint64(table) * m.plan.b
	return first + src.RandomizedResponse(y-first, m.plan.b, m.krr.Gamma)
}

// message encodes the number of a cell among those of all tables.
func (m *Mechanism) message(y uint64) protocols.Messages {
	out := make([]byte, m.task.Slots.MessageBytes)
	for i := range out {
		out[i] = byte(y >> (8 * (len(out) - 1 - i)))
	}
	return protocols.Messages{{out}}
}

// read decodes a message. Another lane, a wrong size or a cell that there is not is an error.
func (m *Mechanism) read(lane int, message []byte) (uint64, error) {
	if want := int(m.task.Slots.MessageBytes); lane != 0 || len(message) != want {
		return 0, invalid.Field("message", strconv.Itoa(len(message))+" bytes in lane "+strconv.Itoa(lane),
			strconv.Itoa(want)+" bytes in lane 0")
	}
	y := uint64(0)
	for _, c := range message {
		y = y<<8 | uint64(c)
	}
	if cells := m.plan.cells(); y >= cells {
		return 0, invalid.Field("message", strconv.FormatUint(y, 10), "a cell below "+strconv.FormatUint(cells, 10))
	}
	return y, nil
}
