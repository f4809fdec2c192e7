package figures

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Table is the data of a figure: a column of x, and one column for each series.
type Table struct {
	X      string
	Series []string
	Rows   [][]float64 // Each row: x, then the value of each series; NaN if a series has no value at x.
}

func newTable(x string, series ...string) *Table { return &Table{X: x, Series: series} }

// add appends a row.
func (t *Table) add(x float64, values ...float64) {
	if len(values) != len(t.Series) {
		panic(fmt.Sprintf("figures: internal error: %d values for %d series", len(values), len(t.Series)))
	}
	t.Rows = append(t.Rows, append([]float64{x}, values...))
}

// column returns the index of a series in a row. It is 0 (the index of x) if there is no such series.
func (t *Table) column(series string) int { return slices.Index(t.Series, series) + 1 }

// Points returns the points (x, y) of a series, without missing values.
func (t *Table) Points(series string) (points [][2]float64) {
	at := t.column(series)
	for _, row := range t.Rows {
		if at > 0 && !math.IsNaN(row[at]) {
			points = append(points, [2]float64{row[0], row[at]})
		}
	}
	return points
}

// At returns the value of a series at x. It is NaN if the series has no point there.
func (t *Table) At(series string, x float64) float64 {
	for _, p := range t.Points(series) {
		if math.Abs(p[0]-x) <= 1e-9*math.Abs(x) {
			return p[1]
		}
	}
	return math.NaN()
}

// Fit fits y = c·x^b to the points of s.Series from s.From to s.To, by least squares in logarithms.
func (t *Table) Fit(s Slope) (b, c float64) {
	var n, sx, sy, sxx, sxy float64
	for _, p := range t.Points(s.Series) {
		if p[0] < s.From || s.To > 0 && p[0] > s.To || p[0] <= 0 || p[1] <= 0 {
			continue
		}
		x, y := math.Log(p[0]), math.Log(p[1])
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	b = (n*sxy - sx*sy) / (n*sxx - sx*sx)
	return b, math.Exp((sy - b*sx) / n)
}

// digits is the number of significant digits in a CSV file.
const digits = 6

// encode returns the table as CSV.
func (t *Table) encode() ([]byte, error) {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	records := [][]string{append([]string{t.X}, t.Series...)}
	for _, row := range t.Rows {
		var record []string
		for _, v := range row {
			text := ""
			if !math.IsNaN(v) {
				text = strconv.FormatFloat(v, 'g', digits, 64)
			}
			record = append(record, text)
		}
		records = append(records, record)
	}
	err := w.WriteAll(records)
	return out.Bytes(), err
}

// decodeTable decodes a table from the CSV that encode returns.
func decodeTable(text []byte) (*Table, error) {
	records, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(records) < 2 || len(records[0]) < 2 {
		return nil, errors.New("no rows or no series")
	}
	t := newTable(records[0][0], records[0][1:]...)
	for _, record := range records[1:] {
		var row []float64
		for _, text := range record {
			v := math.NaN()
			if text != "" {
				if v, err = strconv.ParseFloat(text, 64); err != nil {
					return nil, err
				}
			}
			row = append(row, v)
		}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}
