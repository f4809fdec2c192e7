// Package table reads numbers from CSV files, plain or gzip-compressed.
package table

import (
	"bufio"
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

// Read returns one column of a CSV file as finite numbers, in file order, at most limit of them
// (all for 0). The first row is a header unless all its fields are numbers. column is a name of
// the header or a zero-based index; empty means the only column. Errors name the file, the line
// and the column.
func Read(path, column string, limit int) ([]float64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the input: %w", err)
	}
	defer f.Close()
	values, err := Parse(f, column, limit)
	if err != nil {
		return nil, fmt.Errorf("couldn't read %s: %w", path, err)
	}
	return values, nil
}

// Parse is [Read] from a reader; gzip is recognised by its first bytes.
func Parse(in io.Reader, column string, limit int) ([]float64, error) {
	buffered := bufio.NewReaderSize(in, 1<<16)
	if magic, _ := buffered.Peek(2); string(magic) == "\x1f\x8b" {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		return parseCSV(unzipped, column, limit)
	}
	return parseCSV(buffered, column, limit)
}

func parseCSV(in io.Reader, column string, limit int) ([]float64, error) {
	rows := csv.NewReader(in)
	rows.ReuseRecord = true
	first, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty")
	}
	if err != nil {
		return nil, err
	}
	header := !allNumbers(first)
	at, err := columnIndex(first, header, column)
	if err != nil {
		return nil, err
	}
	var values []float64
	for row := first; ; {
		if !header {
			v, err := number(row[at])
			if err != nil {
				line, _ := rows.FieldPos(at)
				return nil, fmt.Errorf("line %d, column %d: %w", line, at, err)
			}
			values = append(values, v)
		}
		header = false
		if limit > 0 && len(values) == limit {
			return values, nil
		}
		row, err = rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if len(values) == 0 {
		return nil, errors.New("it has a header and no rows")
	}
	return values, nil
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
		return 0, fmt.Errorf("it has no column %q: want one of %s, or an index below %d", column, strings.Join(first, ", "), len(first))
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
