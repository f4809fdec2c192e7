package strings

import (
	"strconv"
	"unicode/utf8"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
)

// Value returns a text as the numbers that [Mechanism.Randomize] takes: its bytes. It must be in Unicode normal form
// C: who reads texts from people normalizes them.
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

// pad cuts a text after the last character that ends within L bytes, and fills up with zeros. What is not UTF-8 or
// has a zero byte is an error.
func (p plan) pad(text []byte) ([]byte, error) {
	for _, c := range text {
		if c == 0 {
			return nil, invalid.Field("value", "a text with a zero byte", "a text without one")
		}
	}
	if !utf8.Valid(text) {
		return nil, invalid.Field("value", "bytes that are no text", "a text in UTF-8")
	}
	end := min(len(text), p.length)
	for end < len(text) && end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	out := make([]byte, p.length)
	copy(out, text[:end])
	return out, nil
}

// unpad returns the text that was padded, and whether there is one: after the first zero come only zeros, and
// before it is UTF-8.
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
