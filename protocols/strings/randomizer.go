package strings

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
)

// Randomize implements [protocols.Mechanism.Randomize]. A value is the bytes of a text, at most 65536. The part
// beyond L is cut at a character boundary.
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	text, err := m.text(value)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	return m.message(m.randomize(src, int(src.Below(uint64(m.plan.tables()))), text)), nil
}

// randomize returns the number of the cell that a client sends from a table.
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

// read decodes a message. A wrong lane, a wrong size or a cell that does not exist is an error.
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

// Value returns a text as the numbers that [Mechanism.Randomize] and shufflerclient.Client.Report take: its bytes.
// The text must be in Unicode normal form C, else one word counts as two. Callers normalize people's texts first
// (norm.NFC of golang.org/x/text), and cut off what names a person, such as the query of an address: texts that many
// clients have are published.
func Value(text string) []float64 {
	out := make([]float64, len(text))
	for i := range len(text) {
		out[i] = float64(text[i])
	}
	return out
}

// text returns a client's value as a padded text.
func (m *Mechanism) text(value []float64) ([]byte, error) {
	if len(value) > mostText {
		return nil, invalid.Field("value", strconv.Itoa(len(value))+" bytes", "at most "+strconv.Itoa(mostText))
	}
	raw := make([]byte, len(value))
	for i, v := range value {
		if !whole(v, 255) {
			return nil, invalid.Field("value", decimal.Format(v, -1), "bytes of a text, 0 to 255")
		}
		raw[i] = byte(v)
	}
	return m.plan.pad(raw)
}

// Cut returns a text in UTF-8 as clients report it: up to the last character that ends within length bytes.
func Cut(text []byte, length int) []byte {
	end := min(len(text), length)
	for end < len(text) && end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// pad cuts a text and fills it up with zeros. Invalid UTF-8 or a zero byte is an error.
func (p plan) pad(text []byte) ([]byte, error) {
	if slices.Contains(text, 0) || !utf8.Valid(text) {
		return nil, invalid.Field("value", "bytes that are no text", "a text in UTF-8, without zero bytes")
	}
	out := make([]byte, p.length)
	copy(out, Cut(text, p.length))
	return out, nil
}

// unpad returns the text that was padded. ok is false unless the part before the first zero is UTF-8 and only zeros
// follow.
func unpad(padded []byte) (string, bool) {
	end := len(padded)
	for end > 0 && padded[end-1] == 0 {
		end--
	}
	for _, c := range padded[:end] {
		if c == 0 {
			return "", false
		}
	}
	return string(padded[:end]), utf8.Valid(padded[:end])
}
