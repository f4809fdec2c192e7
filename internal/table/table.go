// Package table reads numbers from CSV files, plain or gzip-compressed.
package table

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
)

// Read returns one column of a CSV file as finite numbers, in file order, at most limit of them (all for 0). The
// first row is a header unless all its fields are numbers. column is a name of the header or a zero-based index.
// Empty means the only column. Errors name the file, the line and the column.
func Read(path, column string, limit int) ([]float64, error) {
	return readFile(path, func(in io.Reader) ([]float64, error) { return Parse(in, column, limit) })
}

// ReadRows returns the rows of a CSV file as vectors over all its columns; see [Read].
func ReadRows(path string, limit int) ([][]float64, error) {
	return readFile(path, func(in io.Reader) ([][]float64, error) { return ParseRows(in, limit) })
}

func readFile[T any](path string, parse func(io.Reader) (T, error)) (T, error) {
	var none T
	f, err := os.Open(path)
	if err != nil {
		return none, fmt.Errorf("couldn't read the input: %w", err)
	}
	defer f.Close()
	values, err := parse(f)
	if err != nil {
		return none, fmt.Errorf("couldn't read %s: %w", path, err)
	}
	return values, nil
}

// Parse is [Read] from a reader. It recognizes gzip by its first bytes.
func Parse(in io.Reader, column string, limit int) ([]float64, error) {
	var values []float64
	at := 0
	pick := func(first []string, header bool) (err error) {
		at, err = columnIndex(first, header, column)
		return err
	}
	err := parse(in, limit, pick, func(row []string) (int, error) {
		v, err := number(row[at])
		values = append(values, v)
		return at, err
	})
	return values, err
}

// ParseRows is [ReadRows] from a reader.
func ParseRows(in io.Reader, limit int) ([][]float64, error) {
	var rows [][]float64
	err := parse(in, limit, func([]string, bool) error { return nil }, func(row []string) (int, error) {
		values := make([]float64, len(row))
		for i, field := range row {
			var err error
			if values[i], err = number(field); err != nil {
				return i, err
			}
		}
		rows = append(rows, values)
		return 0, nil
	})
	return rows, err
}

// parse reads the rows as [readRows] does. It reads a compressed file to its end even if fewer rows are asked for:
// the checksum is at the end, and a part of a truncated file must not pass for the whole.
func parse(in io.Reader, limit int, start func(first []string, header bool) error,
	take func(row []string) (int, error)) error {
	in, zipped, err := unzip(in)
	if err == nil {
		err = readRows(csv.NewReader(&bounded{in: in}), limit, start, take)
	}
	if err == nil && zipped {
		_, err = io.Copy(io.Discard, in)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it is truncated: want a whole gzip file: %w", err)
	}
	return err
}

// maxRow is the largest number of bytes of a row: 2²⁰ numbers of 24 bytes take 26 MB.
const maxRow = 32 << 20

// bounded reads a file and refuses a row longer than maxRow, even if a small compressed file expands to it.
type bounded struct {
	in  io.Reader
	row int // bytes of the row so far
}

func (b *bounded) Read(p []byte) (n int, err error) {
	n, err = b.in.Read(p)
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

// readRows calls start with the first row and whether it is a header. Then it calls take with each row of numbers, up
// to limit; take returns the column of an error.
func readRows(rows *csv.Reader, limit int, start func(first []string, header bool) error,
	take func(row []string) (int, error)) error {
	rows.ReuseRecord = true
	row, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return errors.New("it is empty")
	}
	if err != nil {
		return err
	}
	header := !allNumbers(row)
	if err := start(row, header); err != nil {
		return err
	}
	taken := 0
	if header {
		row, err = rows.Read()
	}
	for ; err == nil && (limit == 0 || taken < limit); taken++ {
		if at, err := take(row); err != nil {
			line, _ := rows.FieldPos(at)
			return fmt.Errorf("line %d, column %d: %w", line, at, err)
		}
		row, err = rows.Read()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if taken == 0 {
		return errors.New("it has a header and no rows")
	}
	return nil
}

// unzip returns the uncompressed content of a file, and whether it was compressed.
func unzip(in io.Reader) (plain io.Reader, zipped bool, err error) {
	buffered := bufio.NewReaderSize(in, 1<<16)
	if magic, _ := buffered.Peek(2); string(magic) != "\x1f\x8b" {
		return buffered, false, nil
	}
	plain, err = gzip.NewReader(buffered)
	return plain, true, err
}

func columnIndex(first []string, header bool, column string) (int, error) {
	if column == "" {
		if len(first) == 1 {
			return 0, nil
		}
		return 0, fmt.Errorf("it has %d columns: name one of %s", len(first), strings.Join(first, ", "))
	}
	if header {
		for i, name := range first {
			if strings.TrimSpace(name) == column {
				return i, nil
			}
		}
	}
	if i, err := strconv.Atoi(column); err == nil && i >= 0 && i < len(first) {
		return i, nil
	}
	if header {
		return 0, fmt.Errorf("it has no column %q: want one of %s, or an index below %d", column,
			strings.Join(first, ", "), len(first))
	}
	return 0, fmt.Errorf("it has no column %q and no header: want an index below %d", column, len(first))
}

func allNumbers(row []string) bool {
	for _, field := range row {
		if _, err := number(field); err != nil {
			return false
		}
	}
	return true
}

func number(field string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(field), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("invalid value %q: want a finite number", field)
	}
	return v, nil
}
