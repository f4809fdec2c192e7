package display

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// isVisible reports whether a character of a text from outside may be shown unescaped: printable characters and spaces.
// Direction marks would reorder other text, control characters command a terminal, and characters without width are
// hidden.
func isVisible(r rune) bool { return unicode.IsPrint(r) || unicode.Is(unicode.Zs, r) }

// Plain returns a text from outside as one line. It escapes invisible characters as Go string literals do.
func Plain(text string) string { return escaped(text, "") }

// escaped escapes the invisible characters of a text, except the characters in but.
func escaped(text, but string) string {
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			out.WriteString(`\x` + strconv.FormatUint(0x100|uint64(text[0]), 16)[1:])
		case isVisible(r) || strings.ContainsRune(but, r):
			out.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return out.String()
}

// terminal is a writer that escapes invisible characters, as [Terminal] says.
type terminal struct {
	w    io.Writer
	rest []byte // the first bytes of a character whose other bytes have not come yet
}

// Terminal returns a writer of text for a terminal or a page. It escapes the characters that [Plain] escapes, except
// line ends and tabs. An incomplete character at the end is lost.
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

// JSON escapes in encoded JSON the characters that [Plain] escapes. The strings in it stay the same, and a terminal can
// show it safely.
func JSON(encoded []byte) []byte {
	out := make([]byte, 0, len(encoded))
	for _, r := range string(encoded) { // invalid UTF-8 becomes U+FFFD
		switch {
		case isVisible(r) || r == '\n' || r == '\t':
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

// appendUnit appends the escape \uXXXX of a UTF-16 code unit.
func appendUnit(out []byte, unit rune) []byte {
	return append(append(out, `\u`...), strconv.FormatUint(uint64(0x10000|unit), 16)[1:]...)
}

// Cell returns a text from outside for a cell of a table that a spreadsheet reads. It quotes the text as Go does, so
// that a text that begins with =, +, -, @, a tab or a carriage return is no formula. It escapes semicolons, because
// some spreadsheets take a semicolon for the end of a cell, and the rest for a formula.
func Cell(text string) string { return strings.ReplaceAll(strconv.Quote(text), ";", `\x3b`) }
