package display

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shows says whether a character of a text from outside may be shown as it is: what is printed, and spaces. Marks of
// direction would have other text read in another order, control characters command a terminal, and what has no
// width hides.
func shows(r rune) bool { return unicode.IsPrint(r) || unicode.Is(unicode.Zs, r) }

// Plain returns a text from outside in one line that shows all of it, other characters escaped as Go does.
func Plain(text string) string { return escaped(text, "") }

// escaped escapes what is not shown, but for some characters.
func escaped(text, but string) string {
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			out.WriteString(`\x` + strconv.FormatUint(0x100|uint64(text[0]), 16)[1:])
		case shows(r) || strings.ContainsRune(but, r):
			out.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return out.String()
}

// terminal escapes what texts from outside must not do where they are shown.
type terminal struct {
	w    io.Writer
	rest []byte // of a character that is not whole yet
}

// Terminal returns a writer of lines for a terminal or a page that escapes what [Plain] does, line ends and tabs
// apart. What was written of a character that never ends is lost.
func Terminal(w io.Writer) io.Writer { return &terminal{w: w} }

func (t *terminal) Write(p []byte) (int, error) {
	text := append(t.rest, p...)
	end := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if start := len(text) - back; utf8.RuneStart(text[start]) {
			if !utf8.FullRune(text[start:]) {
				end = start
			}
			break
		}
	}
	t.rest = bytes.Clone(text[end:])
	if _, err := io.WriteString(t.w, escaped(string(text[:end]), "\n\t")); err != nil {
		return 0, err
	}
	return len(p), nil
}

// JSON escapes in encoded JSON what [Plain] does: the texts in it stay the same, and a terminal can show it.
func JSON(encoded []byte) []byte {
	out := make([]byte, 0, len(encoded))
	for _, r := range string(encoded) { // what is no UTF-8 becomes U+FFFD
		switch {
		case shows(r) || r == '\n' || r == '\t':
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			r -= 0x10000
			out = appendUnit(appendUnit(out, 0xd800+r>>10), 0xdc00+r&0x3ff)
		default:
			out = appendUnit(out, r)
		}
	}
	return out
}

// appendUnit appends the escape of a unit of UTF-16.
func appendUnit(out []byte, unit rune) []byte {
	return append(append(out, `\u`...), strconv.FormatUint(uint64(0x10000|unit), 16)[1:]...)
}

// Cell returns a text from outside for a cell of a table that a spreadsheet reads: quoted as by Go, so that it is no
// formula whichever of =, +, -, @, tab and carriage return it begins with; and without semicolons, which some
// spreadsheets take for the end of a cell, and what follows for a formula.
func Cell(text string) string { return strings.ReplaceAll(strconv.Quote(text), ";", `\x3b`) }
