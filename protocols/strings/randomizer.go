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

// Randomize implements [protocols.Mechanism.Randomize]. A value is the bytes of a text, at most 65536. It cuts off what
// exceeds L bytes, at a character boundary.
func (m *Mechanism) Randomize(src *randomizer.Source, value []float64) (protocols.Messages, error) {
	text, err := m.text(value)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	return m.message(m.randomize(src, int(src.Below(uint64(m.plan.tables()))), text)), nil
}

// randomize returns the number of the cell that a client with this text sends if it draws the given table.
func (m *Mechanism) randomize(src *randomizer.Source, table int, text []byte) uint64 {
	y := m.plan.of(table, text)
	if m.gamma() == 0 {
		return y
	}
	first := uint64(table) * m.plan.b
	return first + src.RandomizedResponse(y-first, m.plan.b, m.krr.Gamma)
}

// message encodes the number of a cell. Cells are numbered over all tables.
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

// Value returns the bytes of a text as numbers, the form that [Mechanism.Randomize] and shufflerclient.Client.Report
// take. The text must be in Unicode normal form C; otherwise two forms of one word count as two texts. So callers
// normalize people's texts first (norm.NFC of golang.org/x/text). They also cut off what names a person, such as the
// query of a web address: texts that many clients have are published.
func Value(text string) []float64 {
	out := make([]float64, len(text))
	for i := range len(text) {
		out[i] = float64(text[i])
	}
	return out
}

// text converts a client's value into a padded text.
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

// Cut returns the part of a UTF-8 text that clients report: up to the last character that ends within length bytes.
func Cut(text []byte, length int) []byte {
	end := min(len(text), length)
	for end < len(text) && end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// pad cuts a text to the task's length and fills it up with zeros. Invalid UTF-8 or a zero byte is an error.
func (p plan) pad(text []byte) ([]byte, error) {
	if slices.Contains(text, 0) || !utf8.Valid(text) {
		return nil, invalid.Field("value", "bytes that are not UTF-8 or contain a zero byte",
			"a text in UTF-8, without zero bytes")
	}
	out := make([]byte, p.length)
	copy(out, Cut(text, p.length))
	return out, nil
}

// unpad returns the text of a padded text. ok is false unless it is valid UTF-8 followed only by zeros.
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
