package table

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// allColumns as [Format.Column] means all columns. No column has this name, because no name ends with a line feed.
const allColumns = "all\n"

// start decides whether the first row is a header, and finds the column to read.
func (t *reader) start(row []string) error {
	names := make([]string, len(row))
	for i, field := range row {
		names[i] = strings.TrimSpace(field)
	}
	header, err := t.isHeader(names)
	if err != nil {
		return err
	}
	if header {
		t.names = names
	} else if t.found && t.Delimiter == ',' && t.ambiguous(names) {
		return fmt.Errorf("line %d: %q may be two numbers or one with a decimal comma: give --delimiter , or --decimal ,",
			t.first, strings.Join(names, ","))
	}
	if t.column, err = t.find(names); err != nil {
		return err
	}
	if t.Header == HeaderAuto && header {
		t.note("line %d is taken for the header: %s (--header no counts it as a row)", t.first, shorten(names))
	} else if t.Header == HeaderAuto {
		t.note("line %d is taken for a row, so there is no header (--header yes takes it for one)", t.first)
	}
	return nil
}

// isHeader decides whether the first row names the columns. It does if no field looks like a value, or if one of its
// fields is [Format.Column] and all numbers in it are whole, as years are. A row that could be either is an error.
func (t *reader) isHeader(names []string) (bool, error) {
	switch t.Header {
	case HeaderYes:
		return true, nil
	case HeaderNo:
		return false, nil
	}
	kinds := map[kind]int{}
	odd, fractions := -1, false
	for i, name := range names {
		k := t.kindOf(name)
		if kinds[k]++; odd < 0 && (k == isOdd || k == isBlank) {
			odd = i
		}
		fractions = fractions || k == isNumber && !allDigits(name)
	}
	if _, isIndex := index(t.Column, len(names)); !isIndex && !fractions && t.Column != "" &&
		slices.Contains(names, t.Column) {
		return true, nil
	}
	switch {
	case kinds[isName] > 0 && kinds[isNumber]+kinds[isOdd] == 0:
		return true, nil
	case kinds[isName] > 0:
		return false, fmt.Errorf("line %d: %s may be a header or a row: give --header yes or --header no", t.first,
			shorten(names))
	case odd >= 0:
		_, err := t.number(names[odd])
		return false, fmt.Errorf("line %d, column %d: %w; if the line is a header, give --header yes", t.first, odd, err)
	case len(names) > 1 && t.successive(names):
		return false, fmt.Errorf("line %d: %s may be a header of years or indices, or a row: "+
			"give --header yes or --header no", t.first, shorten(names))
	}
	return false, nil
}

// successive reports whether all names are whole numbers that rise by 1, as years and column indices do.
func (t *reader) successive(names []string) bool {
	for i, name := range names {
		n, err := strconv.Atoi(name)
		if before, _ := strconv.Atoi(names[max(i-1, 0)]); err != nil || i > 0 && n != before+1 {
			return false
		}
	}
	return true
}

// ambiguous reports whether a row of two fields could be a single number with a decimal comma.
func (t *reader) ambiguous(row []string) bool {
	return len(row) == 2 && allDigits(strings.TrimLeft(row[0], "+-−")) && allDigits(row[1])
}

// find returns the index of the column to read, or -1 for all. A column name that occurs twice is an error.
func (t *reader) find(names []string) (int, error) {
	switch t.Column {
	case allColumns:
		return -1, t.checkNames()
	case "":
		if len(names) == 1 {
			return 0, nil
		}
		return 0, fmt.Errorf("it has %d columns: name one of %s (--column)", len(names), shorten(names))
	}
	if found := t.named(t.Column); len(found) > 1 {
		return 0, fmt.Errorf("line %d: columns %d and %d are both named %q: give an index, or rename one", t.first,
			found[0], found[1], t.Column)
	} else if len(found) == 1 {
		return found[0], nil
	}
	if i, ok := index(t.Column, len(names)); ok {
		return i, nil
	}
	if t.names == nil {
		return 0, fmt.Errorf("it has no column %q and no header: want an index below %d, or --header yes", t.Column,
			len(names))
	}
	return 0, fmt.Errorf("it has no column %q: want one of %s, or an index below %d", t.Column, shorten(names),
		len(names))
}

// checkNames refuses a header in which two columns have the same name, because one of the two is a mistake.
func (t *reader) checkNames() error {
	seen := map[string]int{}
	for i, name := range t.names {
		if before, ok := seen[name]; ok && name != "" {
			return fmt.Errorf("line %d: columns %d and %d are both named %q: rename or remove one", t.first, before, i,
				name)
		}
		seen[name] = i
	}
	return nil
}

func (t *reader) named(name string) (found []int) {
	for i, n := range t.names {
		if n == name {
			found = append(found, i)
		}
	}
	return found
}

// index reads a column's index, from 0. It returns false if there is no such column.
func index(column string, columns int) (int, bool) {
	i, err := strconv.Atoi(column)
	return i, err == nil && i >= 0 && i < columns
}

// shorten lists at most eight names for a message.
func shorten(names []string) string {
	const most = 8
	var quoted []string
	for _, name := range names[:min(len(names), most)] {
		quoted = append(quoted, strconv.Quote(name))
	}
	if len(names) > most {
		quoted = append(quoted, fmt.Sprintf("… (%d columns)", len(names)))
	}
	return strings.Join(quoted, ", ")
}
