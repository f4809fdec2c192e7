package table

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/doona-dp/doona/internal/invalid"
)

// Limits of a file of texts. Clients cut their texts to far fewer bytes.
const (
	mostTexts = 1 << 22 // lines that are not blank
	longest   = 1 << 16 // bytes of a line
)

// ReadLines reads a file with one text per line, plain or compressed by gzip. It returns the texts in Unicode normal
// form C, without blank lines. It reports its changes on notes, unless notes is nil. A line that is not UTF-8 is an
// error that names the line. More than 2²² lines are an error about the field "texts".
func ReadLines(path string, notes io.Writer) ([]string, error) {
	l := &lines{Format: Format{Name: path, Notes: notes}}
	texts, err := readFile(path, l.read)
	if err == nil {
		l.say()
	}
	return texts, err
}

// ReadDistinct does what [ReadLines] does, for a list of different texts: it leaves out repetitions and notes that.
func ReadDistinct(path string, notes io.Writer) (distinct []string, err error) {
	texts, err := ReadLines(path, notes)
	seen := make(map[string]bool, len(texts))
	for _, text := range texts {
		if !seen[text] {
			distinct = append(distinct, text)
		}
		seen[text] = true
	}
	if n := len(texts) - len(distinct); n > 0 {
		f := Format{Name: path, Notes: notes}
		f.note("%s left out: these texts occur on earlier lines", count(n, "repetition"))
	}
	return distinct, err
}

// lines reads texts, and counts the lines that notes will mention.
type lines struct {
	Format
	blank              blankLines
	normalized, quoted int // Counts of lines that were not in normal form C, and of lines in quotes.
	firstQuoted        int
}

func (l *lines) read(in io.Reader) (texts []string, err error) {
	t, err := newText(in)
	if err != nil {
		return nil, err
	}
	scanner := bufio.NewScanner(t)
	scanner.Buffer(nil, longest)
	number := 0
	for scanner.Scan() {
		number++
		text := strings.TrimSuffix(scanner.Text(), "\r")
		switch {
		case strings.TrimSpace(text) == "":
			l.blank.add(number, number)
			continue
		case len(texts) == mostTexts:
			return nil, invalid.Field("texts", "more lines", fmt.Sprintf("at most %d", mostTexts))
		case !utf8.ValidString(text) || strings.Contains(text, "\x00"):
			return nil, fmt.Errorf("line %d: %q is no text: want UTF-8 without zero bytes", number, text)
		}
		texts = append(texts, l.normal(text, number))
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: more than %d bytes: want one text per line", number+1, longest)
	} else if err != nil {
		return nil, whole(err)
	}
	return texts, nil
}

// normal returns a text in Unicode normal form C. It counts what notes will mention.
func (l *lines) normal(text string, number int) string {
	if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		if l.quoted++; l.quoted == 1 {
			l.firstQuoted = number
		}
	}
	if norm.NFC.IsNormalString(text) {
		return text
	}
	l.normalized++
	return norm.NFC.String(text)
}

func (l *lines) say() {
	l.blank.note(&l.Format)
	if l.normalized > 0 {
		l.note("%s brought into Unicode normal form C, in which clients report", count(l.normalized, "text"))
	}
	if l.quoted > 0 {
		l.note("%s in quotes, which count as part of the text, the first in line %d", count(l.quoted, "text"),
			l.firstQuoted)
	}
}

func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprint(n, " ", thing)
}
