package table

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Format says how a table is written. The zero value detects everything except the decimal sign.
type Format struct {
	Column    string    // Name in the header or index from 0. Default: the only column. [ReadRows] reads all.
	Header    Header    // Default: detected (auto).
	Delimiter Delimiter // Default: detected.
	Decimal   Decimal   // Default: a point.
	Notes     io.Writer // Gets a line about each choice that a user may not expect. Default: none.
	Name      string    // The file's name in Notes. Default: the path.
}

// Header says whether the first row of a table names its columns. It is a command-line flag's value.
type Header string

// HeaderAuto detects whether the first row is a header. A row that could be either is an error.
const (
	HeaderAuto Header = ""
	HeaderYes  Header = "yes"
	HeaderNo   Header = "no"
)

// Set sets the header from a flag's text: "auto", "yes" or "no".
func (h *Header) Set(text string) error {
	switch text {
	case "auto":
		text = string(HeaderAuto)
	case string(HeaderYes), string(HeaderNo):
	default:
		return errors.New("want yes, no or auto")
	}
	*h = Header(text)
	return nil
}

// String returns the flag's text.
func (h *Header) String() string {
	if *h == HeaderAuto {
		return "auto"
	}
	return string(*h)
}

// Type returns the word that stands for the value in the help.
func (*Header) Type() string { return "string" }

// Delimiter separates the fields of a row. It is a command-line flag's value; 0 is detected from the first lines.
type Delimiter rune

// noDelimiters are characters that package csv uses for something else.
const noDelimiters = "\"\r\n\ufeff\x00\ufffd"

// Set sets the delimiter from a flag's text: one character, or "tab".
func (d *Delimiter) Set(text string) error {
	if text == "tab" || text == `\t` {
		text = "\t"
	}
	r, size := utf8.DecodeRuneInString(text)
	if size == 0 || size != len(text) || strings.ContainsRune(noDelimiters, r) {
		return errors.New("want one character, or tab")
	}
	*d = Delimiter(r)
	return nil
}

// String returns the flag's text.
func (d *Delimiter) String() string {
	switch *d {
	case 0:
		return ""
	case '\t':
		return "tab"
	}
	return string(*d)
}

// Type returns the word that stands for the value in the help.
func (*Delimiter) Type() string { return "string" }

// Decimal is the decimal sign of numbers: a point or a comma. It implements a command-line flag's value. 0 means a
// point.
type Decimal byte

// Set sets the decimal sign from a flag's text: "." or ",".
func (d *Decimal) Set(text string) error {
	if text != "." && text != "," {
		return errors.New("want . or ,")
	}
	*d = Decimal(text[0])
	return nil
}

// String returns the flag's text.
func (d *Decimal) String() string {
	if *d == 0 {
		return "."
	}
	return string(*d)
}

// Type returns the word that stands for the value in the help.
func (*Decimal) Type() string { return "string" }

// note writes a line about the file to [Format.Notes].
func (f *Format) note(format string, args ...any) {
	if f.Notes != nil {
		fmt.Fprintf(f.Notes, "%s: %s\n", f.Name, fmt.Sprintf(format, args...))
	}
}

// delimiters are the characters that findDelimiter tries, in this order. The comma is last because commas also stand
// inside numbers.
const delimiters = "\t;|,"

// findDelimiter returns the delimiter of the table that begins with head: the first candidate that occurs equally often
// in all lines. If there is none, it returns one that does so in most lines, or the default; reading then fails at a
// line that differs. With decimal commas, a comma is no candidate.
func findDelimiter(head []byte, decimal Decimal) rune {
	lines, candidates, otherwise := firstLines(head), delimiters, ','
	if decimal == ',' {
		candidates, otherwise = strings.TrimSuffix(delimiters, ","), ';'
	}
	for _, least := range []int{len(lines), len(lines)/2 + 1} {
		for _, d := range candidates {
			if found := countLines(lines, d); found >= max(least, 1) {
				return d
			}
		}
	}
	return otherwise
}

// countLines counts the lines that contain the delimiter as often as the first line that contains it at all.
func countLines(lines []string, d rune) (found int) {
	first := 0
	for _, line := range lines {
		n := strings.Count(line, string(d))
		if first == 0 {
			first = n
		}
		if n > 0 && n == first {
			found++
		}
	}
	return found
}

// firstLines returns the first lines without quoted text, and without blank lines. The last line counts only if it is
// whole or the only one.
func firstLines(head []byte) (lines []string) {
	var line strings.Builder
	quoted := false
	end := func() {
		if line.Len() > 0 {
			lines = append(lines, line.String())
		}
		line.Reset()
	}
	for _, c := range head {
		switch {
		case c == '"':
			quoted = !quoted
			line.WriteByte(c)
		case quoted || c == '\r':
		case c == '\n':
			end()
		default:
			line.WriteByte(c)
		}
	}
	if len(head) < window || len(lines) == 0 {
		end()
	}
	return lines
}

// separatorLine returns the delimiter that a first line such as "sep=;" names, as Excel writes it, and the length of
// that line in bytes; zeros if there is no such line.
func separatorLine(head []byte) (delimiter rune, length int) {
	rest, ok := strings.CutPrefix(string(head[:min(len(head), 16)]), "sep=")
	if !ok {
		return 0, 0
	}
	d, size := utf8.DecodeRuneInString(rest)
	for _, end := range []string{"\r\n", "\n"} {
		if strings.HasPrefix(rest[size:], end) && !strings.ContainsRune(noDelimiters, d) {
			return d, len("sep=") + size + len(end)
		}
	}
	return 0, 0
}
