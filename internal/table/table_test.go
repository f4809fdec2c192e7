package table_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/table"
)

// file is a small file such as users have. Reading it gives want, or an error that contains each text of refused.
type file struct {
	in      string
	format  table.Format
	limit   int
	want    []float64
	refused []string
	says    []string // texts that the notes must contain
	silent  bool     // whether there must be no notes
}

const bom = "\ufeff"

func column(name string) table.Format          { return table.Format{Column: name} }
func header(h table.Header) table.Format       { return table.Format{Header: h} }
func delimited(d table.Delimiter) table.Format { return table.Format{Delimiter: d} }

// files has examples from public bug reports about other software, and similar files.
var files = map[string]file{
	// Byte order marks and encodings.
	"BOM, numbers":          {in: bom + "10\n20\n30\n", want: []float64{10, 20, 30}, says: []string{"line 1 is taken for a row"}},
	"BOM, header":           {in: bom + "delay,n\n10,1\n20,2\n", format: column("delay"), want: []float64{10, 20}, says: []string{`header: "delay", "n"`}},
	"BOM, quoted header":    {in: bom + "\"delay\",n\n10,1\n", format: column("delay"), want: []float64{10}},
	"BOM in the middle":     {in: "x\n1\n" + bom + "2\n", refused: []string{"line 3", `column 0 ("x")`, `"\ufeff2"`}},
	"UTF-16, little-endian": {in: utf16Text("x\n1\n", 0), refused: []string{"it is UTF-16: save it as UTF-8"}},
	"UTF-16, big-endian":    {in: utf16Text("x\n1\n", 1), refused: []string{"it is UTF-16"}},
	"UTF-16 without a mark": {in: utf16Text("x\n1\n", 0)[2:], refused: []string{"it is UTF-16"}},
	"UTF-16, big, no mark":  {in: utf16Text("x\n1\n", 1)[2:], refused: []string{"it is UTF-16"}},
	"XLSX":                  {in: "PK\x03\x04\x14\x00\x06\x00", refused: []string{"XLSX", "save the sheet as CSV"}},
	"Latin-1 in a name":     {in: "gr\xf6\xdfe\n1\n", want: []float64{1}, says: []string{`"gr\xf6\xdfe"`}},
	"Latin-1 in a value":    {in: "x\n1\xa0\n", refused: []string{"line 2", `"1\xa0"`}},
	"empty":                 {in: "", refused: []string{"it is empty"}},
	"only a BOM":            {in: bom, refused: []string{"it is empty"}},
	"only blank lines":      {in: "\n\n", refused: []string{"it is empty"}},
	"header alone":          {in: "x\n", refused: []string{"a header and no rows"}},
	"broken gzip":           {in: "\x1f\x8bnot gzip", refused: []string{"gzip"}},

	// Line ends.
	"CRLF":                   {in: "x\r\n1\r\n2\r\n", want: []float64{1, 2}},
	"CR alone":               {in: "x\r1\r2\r", want: []float64{1, 2}},
	"no line end at the end": {in: "x\n1\n2", want: []float64{1, 2}},
	"a blank line":           {in: "x\n1\n\n3\n", want: []float64{1, 3}, says: []string{"line 3 is blank and left out"}},
	"blank lines at the end": {in: "1\n2\n\n\r\n", want: []float64{1, 2}, says: []string{"2 blank lines left out, the first is line 3"}},
	"blank lines first":      {in: "\n\nx\n1\n", want: []float64{1}, says: []string{"2 blank lines left out, the first is line 1", "line 3 is taken for the header"}},
	"a line of spaces":       {in: "x\n1\n  \n3\n", refused: []string{"line 3", `""`, "fill it in, or remove the row"}},
	"a line end in quotes":   {in: "\"de\nlay\",n\n1,2\n\n3,4\n", format: column("n"), want: []float64{2, 4}, says: []string{"line 4 is blank"}},

	// First rows that are not finite numbers, and headers of numbers.
	"NaN first":                  {in: "NaN\n20\n30\n", refused: []string{"line 1, column 0", `"NaN"`, "--header yes"}},
	"NaN first, a header":        {in: "NaN\n20\n30\n", format: header("yes"), want: []float64{20, 30}, silent: true},
	"empty quotes first":         {in: "\"\"\n20\n30\n", refused: []string{"line 1, column 0", `""`, "fill it in"}},
	"thousands first":            {in: "\"1,234\"\n20\n", refused: []string{"line 1, column 0", `"1,234"`, "thousands separators", "--decimal ,"}},
	"hexadecimal first":          {in: "0x10\n20\n", refused: []string{"line 1, column 0", `"0x10"`}},
	"hexadecimal float":          {in: "x\n0x1p4\n", refused: []string{"line 2", `"0x1p4"`}},
	"per cent first":             {in: "5 %\n20\n", refused: []string{"line 1", `"5 %"`}},
	"years, by index":            {in: "2023,2024\n10,20\n30,40\n", format: column("0"), refused: []string{"line 1", "header of years", "--header yes or --header no"}},
	"years, by name":             {in: "2023,2024\n10,20\n30,40\n", format: column("2024"), want: []float64{20, 40}, says: []string{`line 1 is taken for the header: "2023", "2024"`}},
	"years, a header":            {in: "2023,2024\n10,20\n30,40\n", format: table.Format{Column: "0", Header: "yes"}, want: []float64{10, 30}, silent: true},
	"years, no header":           {in: "2023,2024\n10,20\n", format: table.Format{Column: "0", Header: "no", Delimiter: ','}, want: []float64{2023, 10}, silent: true},
	"a name and a year":          {in: "id,2023\n1,20\n", format: column("1"), refused: []string{"line 1", `"id", "2023" may be a header or a row`}},
	"a name and a year, by name": {in: "id,2023\n1,20\n", format: column("2023"), want: []float64{20}},
	"a text beside numbers":      {in: "ann,5\nbob,6\n", format: column("1"), refused: []string{"line 1", "may be a header or a row"}},
	"an unnamed index":           {in: ",delay\n0,5\n1,6\n", format: column("delay"), want: []float64{5, 6}},
	"numbers, no header":         {in: "7\n8\n", want: []float64{7, 8}, says: []string{"line 1 is taken for a row"}},
	"header, told not":           {in: "delay\n8\n", format: header("no"), refused: []string{"line 1, column 0", `"delay"`}},

	// Delimiters and decimal signs.
	"decimal commas":            {in: "1,5\n2,5\n3,5\n", format: column("0"), refused: []string{"line 1", `"1,5" may be two numbers or one`, "--delimiter ,", "--decimal ,"}},
	"decimal commas, told":      {in: "1,5\n2,5\n3\n", format: table.Format{Decimal: ','}, want: []float64{1.5, 2.5, 3}},
	"two columns, told":         {in: "1,5\n2,5\n", format: table.Format{Column: "1", Delimiter: ','}, want: []float64{5, 5}},
	"decimal commas, header":    {in: "x\n1,5\n2,5\n", refused: []string{"line 2 has 2 fields but line 1 has 1 field", "--decimal ,"}},
	"semicolons and commas":     {in: "1,5;2\n3,5;4\n", format: column("0"), refused: []string{"line 1, column 0", `"1,5"`, "--decimal ,"}},
	"semicolons, commas, told":  {in: "1,5;2\n-3,5;4\n", format: table.Format{Column: "0", Decimal: ','}, want: []float64{1.5, -3.5}},
	"semicolons":                {in: "delay;n\n1;2\n", format: column("delay"), want: []float64{1}},
	"tabs":                      {in: "a\tb\n1\t2\n3\t4\n", format: column("a"), want: []float64{1, 3}},
	"tabs, an empty field":      {in: "a\tb\n\t2\n", format: column("b"), want: []float64{2}},
	"bars":                      {in: "a|b\n1|2\n", format: column("b"), want: []float64{2}},
	"spaces, told":              {in: "1 2\n3 4\n", format: table.Format{Column: "1", Delimiter: ' ', Header: "no"}, want: []float64{2, 4}},
	"Excel's separator line":    {in: bom + "sep=;\r\nx;y\r\n1;2\r\n3;z\r\n", format: column("y"), refused: []string{"line 4", `column 1 ("y")`, `"z"`}},
	"the same, right":           {in: "sep=|\nx|y\n1|2\n", format: column("y"), want: []float64{2}},
	"a point under --decimal ,": {in: "x\n1.5\n", format: table.Format{Decimal: ','}, refused: []string{"line 2", `"1.5"`, "leave out --decimal"}},
	"thousands and a comma":     {in: "x\n\"1.234,5\"\n", format: table.Format{Decimal: ','}, refused: []string{"line 2", `"1.234,5"`}},
	"a semicolon in a name":     {in: "delay (min; UTC)\n1\n2\n", want: []float64{1, 2}},
	"told the wrong delimiter":  {in: "a,b\n1,2\n", format: delimited(';'), refused: []string{"line 2", `"1,2"`}},

	// Quotes, spaces and signs.
	"quoted numbers":         {in: "\"x\",\"y\"\n\"1\",\"2\"\n", format: column("y"), want: []float64{2}},
	"a delimiter in quotes":  {in: "name,x\n\"Doe, Ann\",1\n\"Roe; Bob\",2\n", format: column("x"), want: []float64{1, 2}},
	"a space before a quote": {in: "x, \"y\"\n1, \"2\"\n", format: column("y"), want: []float64{2}},
	"a quote in a field":     {in: "x,y\n5\",1\n", format: column("y"), refused: []string{"line 2, byte 2", "quote"}},
	"a quote without end":    {in: "x\n\"1\n2\n", refused: []string{"line", "quote"}},
	"spaces":                 {in: "x , y\n 1 , 2 \n", format: column("y"), want: []float64{2}},
	"signs and exponents":    {in: "x\n-1.5e3\n+2\n.5\n4.\n1E-2\n", want: []float64{-1500, 2, .5, 4, .01}},
	"a minus of print":       {in: "x\n−3\n", want: []float64{-3}},

	// Rows and columns.
	"by index":                  {in: "a,b\n1,10\n2,20\n", format: column("0"), want: []float64{1, 2}},
	"first rows":                {in: "a,b\n1,10\n2,20\n3,30\n", format: column("b"), limit: 2, want: []float64{10, 20}},
	"no column named":           {in: "a,b\n1,2\n", refused: []string{`name one of "a", "b" (--column)`}},
	"unknown column":            {in: "a,b\n1,2\n", format: column("c"), refused: []string{`no column "c": want one of "a", "b"`}},
	"index too large":           {in: "1.5,2\n", format: column("2"), refused: []string{"want an index below 2, or --header yes"}},
	"two of one name":           {in: "x,y,x\n1,2,3\n", format: column("x"), refused: []string{"line 1", `columns 0 and 2 are both named "x"`}},
	"two of one name, by index": {in: "x,y,x\n1,2,3\n", format: column("2"), want: []float64{3}},
	"too few fields":            {in: "a,b\n1,2\n3\n", format: column("b"), refused: []string{"line 3 has 1 field but line 1 has 2 fields"}},
	"too many fields":           {in: "a,b\n1,2\n3,4,5\n", format: column("b"), refused: []string{"line 3 has 3 fields"}},
	"a missing value":           {in: "a,b\n1,2\n3,\n", format: column("b"), refused: []string{"line 3", `column 1 ("b")`, `""`, "fill it in"}},
	"empty rows of a sheet":     {in: "a,b\n1,2\n,\n", format: column("b"), refused: []string{"line 3", "remove the row"}},
	"NaN":                       {in: "x\n1\nNaN\n", refused: []string{"line 3", `"NaN"`, "finite"}},
	"infinite":                  {in: "x\n1\n-Inf\n", refused: []string{"line 3", `"-Inf"`}},
	"too large":                 {in: "x\n1e400\n", refused: []string{"line 2", `"1e400"`}},
	"a word":                    {in: "x\n1\nlate\n", refused: []string{"line 3", `"late"`, "correct it, or remove the row"}},
	"a comment":                 {in: "x\n1\n# end, really\n", refused: []string{"line 3 has 2 fields"}},
}

// utf16Text encodes ASCII in UTF-16 with a byte order mark. at is 0 for little-endian and 1 for big-endian.
func utf16Text(text string, at int) string {
	var out []byte
	for _, unit := range utf16.Encode([]rune(bom + text)) {
		two := []byte{byte(unit), byte(unit >> 8)}
		out = append(out, two[at], two[1-at])
	}
	return string(out)
}

// TestFilesOfPeople: each file is read correctly, or is an error that names the place. Its gzip file gives the same
// result.
func TestFilesOfPeople(t *testing.T) {
	require.GreaterOrEqual(t, len(files), 40)
	for name, f := range files {
		t.Run(name, func(t *testing.T) {
			f.check(t, f.in)
			if !strings.HasPrefix(f.in, "\x1f\x8b") {
				f.check(t, zip(t, f.in))
			}
		})
	}
}

func (f file) check(t *testing.T, in string) {
	t.Helper()
	var notes bytes.Buffer
	format := f.format
	format.Name, format.Notes = "a.csv", &notes
	got, err := table.Parse(strings.NewReader(in), format, f.limit)
	for _, text := range f.refused {
		require.ErrorContains(t, err, text)
	}
	if f.refused == nil {
		require.NoError(t, err)
	}
	require.Equal(t, f.want, got)
	for _, text := range f.says {
		require.Contains(t, notes.String(), text)
	}
	require.False(t, f.silent && notes.Len() > 0, notes.String())
}

func zip(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String()
}

// TestParseRefusesTruncatedGzip: any truncation of a gzip file is an error, even if only its first rows are read.
func TestParseRefusesTruncatedGzip(t *testing.T) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	for i := range 20_000 {
		fmt.Fprintln(w, i*i%10_007)
	}
	require.NoError(t, w.Close())
	whole := zipped.Bytes()
	for _, limit := range []int{0, 5} {
		for _, missing := range []int{1, 8, 9, len(whole) / 2} {
			_, err := table.Parse(bytes.NewReader(whole[:len(whole)-missing]), table.Format{}, limit)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d bytes missing, limit %d", missing, limit)
		}
		damaged := bytes.Clone(whole)
		damaged[len(damaged)-5] ^= 1 // in the checksum
		_, err := table.Parse(bytes.NewReader(damaged), table.Format{}, limit)
		require.ErrorIs(t, err, gzip.ErrChecksum)
		values, err := table.Parse(bytes.NewReader(whole), table.Format{}, limit)
		require.NoError(t, err)
		require.Len(t, values, cmp.Or(limit, 20_000))
	}
}

func TestReadRowsTakesAllColumns(t *testing.T) {
	rows, err := table.ParseRows(strings.NewReader(bom+"a;b\r\n1,5;2\r\n3;4\r\n"), table.Format{Decimal: ','}, 1)
	require.NoError(t, err)
	require.Equal(t, [][]float64{{1.5, 2}}, rows)
	for in, want := range map[string]string{
		"a,b\n1,2\n3,x\n": `line 3, column 1 ("b"): invalid value "x"`,
		"a,b,a\n1,2,3\n":  `columns 0 and 2 are both named "a"`,
		"1,5\n2,5\n":      "may be two numbers or one with a decimal comma",
		"0,1,2\n1,0,0\n":  "may be a header of years or indices",
	} {
		_, err = table.ParseRows(strings.NewReader(in), table.Format{}, 0)
		require.ErrorContains(t, err, want)
	}
}

// TestLongRow: an endless row, which a small gzip file can produce, is an error after 32 MiB.
func TestLongRow(t *testing.T) {
	_, err := table.Parse(&endless{}, table.Format{}, 0)
	require.ErrorContains(t, err, "a row of more than 33554432 bytes")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '1'
	}
	return len(p), nil
}

// TestFlags: the flags accept and print their allowed values, and refuse others.
func TestFlags(t *testing.T) {
	var f table.Format
	for _, text := range []string{"yes", "no", "auto"} {
		require.NoError(t, f.Header.Set(text))
		require.Equal(t, text, f.Header.String())
	}
	require.Error(t, f.Header.Set("perhaps"))
	for given, shown := range map[string]string{"tab": "tab", `\t`: "tab", ";": ";", "·": "·"} {
		require.NoError(t, f.Delimiter.Set(given))
		require.Equal(t, shown, f.Delimiter.String())
	}
	for _, text := range []string{"", ";;", "\"", "\n", "\xff"} {
		require.Error(t, f.Delimiter.Set(text), "%q", text)
	}
	require.NoError(t, f.Decimal.Set(","))
	require.Equal(t, ",", f.Decimal.String())
	require.Error(t, f.Decimal.Set(";"))
}
