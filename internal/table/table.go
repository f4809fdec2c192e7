// Package table reads the files that users have: tables of numbers in CSV, plain or compressed by gzip, and lists of
// texts. It reads a file only if the file has one meaning, and tells the user which choices it made. Any other file is
// an error that names the line, the column, the text and what to do.
package table

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Read returns one column of a CSV file as finite numbers, in file order. It returns at most limit numbers, or all if
// limit is 0.
func Read(path string, f Format, limit int) ([]float64, error) {
	f.nameBy(path)
	return readFile(path, func(in io.Reader) ([]float64, error) { return Parse(in, f, limit) })
}

// ReadRows returns the rows of a CSV file as vectors over all columns: at most limit rows, or all if limit is 0.
func ReadRows(path string, f Format, limit int) ([][]float64, error) {
	f.nameBy(path)
	return readFile(path, func(in io.Reader) ([][]float64, error) { return ParseRows(in, f, limit) })
}

func (f *Format) nameBy(path string) {
	if f.Name == "" {
		f.Name = path
	}
}

// Parse does what [Read] does, from a reader. The caller sets [Format.Name], and adds it to errors. Parse recognizes
// gzip by its first bytes.
func Parse(in io.Reader, f Format, limit int) ([]float64, error) {
	var values []float64
	err := parse(in, f, limit, func(t *reader, row []string) error {
		v, err := t.number(row[t.column])
		if err != nil {
			return t.at(t.column, err)
		}
		values = append(values, v)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return values, nil
}

// ParseRows does what [ReadRows] does, from a reader.
func ParseRows(in io.Reader, f Format, limit int) ([][]float64, error) {
	var rows [][]float64
	f.Column = allColumns
	err := parse(in, f, limit, func(t *reader, row []string) error {
		values := make([]float64, len(row))
		for i, field := range row {
			var err error
			if values[i], err = t.number(field); err != nil {
				return t.at(i, err)
			}
		}
		rows = append(rows, values)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

type reader struct {
	Format
	rows    *csv.Reader
	lines   *bounded
	skipped int      // Lines before the table: 1 if the first line names the delimiter.
	found   bool     // Whether the delimiter was detected, not given by the caller.
	names   []string // The header; nil without one.
	width   int      // Number of fields in each row.
	column  int      // The column to read; -1 for all.
	first   int      // Line number of the first row.
	last    int      // Line number at which the last row ended.
	blank   blankLines
}

// parse calls take for each row of numbers, at most limit times (0: for all).
func parse(in io.Reader, f Format, limit int, take func(*reader, []string) error) error {
	text, err := newText(in)
	if err != nil {
		return err
	}
	t := newReader(text, f)
	err = t.readRows(limit, take)
	if err == nil {
		err = text.end()
	}
	return whole(err)
}

func newReader(text *text, f Format) *reader {
	t := &reader{Format: f, lines: &bounded{in: text}}
	head := text.head
	named, length := separatorLine(head)
	if length > 0 {
		t.skipped, head = 1, head[length:]
	}
	if t.Delimiter == 0 && named != 0 {
		t.Delimiter = Delimiter(named)
	} else if t.Delimiter == 0 {
		t.Delimiter, t.found = Delimiter(findDelimiter(head, f.Decimal)), true
	}
	text.Discard(length)
	t.rows = csv.NewReader(t.lines)
	t.rows.Comma, t.rows.FieldsPerRecord, t.rows.ReuseRecord = rune(t.Delimiter), -1, true
	t.rows.TrimLeadingSpace = t.Delimiter != '\t' && t.Delimiter != ' '
	return t
}

// readRows reads the header, if there is one, and calls take for each row.
func (t *reader) readRows(limit int, take func(*reader, []string) error) error {
	row, err := t.next()
	if errors.Is(err, io.EOF) {
		return errors.New("it is empty")
	}
	if err != nil {
		return err
	}
	t.width, t.first = len(row), t.line(0)
	if err := t.start(row); err != nil {
		return err
	}
	taken := 0
	if t.names != nil {
		row, err = t.next()
	}
	for ; err == nil && (limit == 0 || taken < limit); taken++ {
		if err := t.check(row); err != nil {
			return err
		}
		if err := take(t, row); err != nil {
			return err
		}
		row, err = t.next()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if taken == 0 {
		return errors.New("it has a header and no rows")
	}
	if err != nil { // the whole table was read
		t.blank.add(t.last+1, t.lines.count+t.skipped)
	}
	t.blank.note(&t.Format)
	return nil
}

func (t *reader) next() ([]string, error) {
	row, err := t.rows.Read()
	var wrong *csv.ParseError
	if errors.As(err, &wrong) {
		return nil, fmt.Errorf("line %d, byte %d: %w: quote a whole field, and double the quotes in it",
			wrong.Line+t.skipped, wrong.Column, wrong.Err)
	}
	if err != nil {
		return nil, err
	}
	begin := t.line(0)
	if t.last == 0 {
		t.last = t.skipped
	}
	t.blank.add(t.last+1, begin-1)
	t.last = t.line(len(row)-1) + strings.Count(row[len(row)-1], "\n")
	return row, nil
}

// line returns the number of the line in which a field of the last row begins.
func (t *reader) line(column int) int {
	line, _ := t.rows.FieldPos(column)
	return line + t.skipped
}

// check refuses a row whose number of fields differs from that of the first row.
func (t *reader) check(row []string) error {
	if len(row) != t.width {
		return fmt.Errorf("line %d has %s but line %d has %s: want the same in each; the delimiter is %q "+
			"(--delimiter gives another, --decimal , reads decimal commas)", t.line(0), count(len(row), "field"), t.first,
			count(t.width, "field"), string(rune(t.Delimiter)))
	}
	return nil
}

// at adds the line and the column to an error.
func (t *reader) at(column int, err error) error {
	return fmt.Errorf("line %d, column %s: %w", t.line(column), t.nameOf(column), err)
}

// nameOf returns a column's index and its name, if it has one.
func (t *reader) nameOf(column int) string {
	if t.names == nil || t.names[column] == "" {
		return fmt.Sprint(column)
	}
	return fmt.Sprintf("%d (%q)", column, t.names[column])
}

// maxRow is the maximum size of a row, in bytes: 2²⁰ numbers of 24 bytes take 26 MB.
const maxRow = 32 << 20

// bounded reads a file and refuses a row longer than maxRow. A small compressed file could expand to a huge row.
type bounded struct {
	in    io.Reader
	row   int // Bytes of the current row so far.
	count int // Line ends read so far.
}

func (b *bounded) Read(p []byte) (n int, err error) {
	n, err = b.in.Read(p)
	b.count += bytes.Count(p[:n], []byte("\n"))
	if at := bytes.LastIndexByte(p[:n], '\n'); at >= 0 {
		b.row = n - at - 1
	} else {
		b.row += n
	}
	if b.row > maxRow {
		return 0, fmt.Errorf("a row of more than %d bytes", maxRow)
	}
	return n, err
}

// blankLines counts the blank lines of a table or list.
type blankLines struct{ lines, first int }

// add counts the lines with the numbers from to to, both included, if there are any.
func (b *blankLines) add(from, to int) {
	if to < from {
		return
	}
	if b.lines == 0 {
		b.first = from
	}
	b.lines += to - from + 1
}

func (b *blankLines) note(f *Format) {
	switch {
	case b.lines == 1:
		f.note("line %d is blank and left out", b.first)
	case b.lines > 1:
		f.note("%d blank lines left out, the first is line %d", b.lines, b.first)
	}
}
