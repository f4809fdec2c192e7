package table_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/table"
)

func TestParseFindsTheColumn(t *testing.T) {
	const named = "a,b\n1,10\n2,20\n3,30\n"
	for name, c := range map[string]struct {
		in, column string
		limit      int
		want       []float64
	}{
		"by name":            {named, "b", 0, []float64{10, 20, 30}},
		"by index":           {named, "0", 0, []float64{1, 2, 3}},
		"first rows":         {named, "b", 2, []float64{10, 20}},
		"without a header":   {"1,10\n2,20\n", "1", 0, []float64{10, 20}},
		"the only column":    {"x\n-1.5e3\n", "", 0, []float64{-1500}},
		"one row, no header": {"7", "", 0, []float64{7}},
		"windows line ends":  {"x\r\n1\r\n2\r\n", "x", 0, []float64{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := table.Parse(strings.NewReader(c.in), c.column, c.limit)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			var zipped bytes.Buffer
			w := gzip.NewWriter(&zipped)
			_, err = w.Write([]byte(c.in))
			require.NoError(t, err)
			require.NoError(t, w.Close())
			got, err = table.Parse(&zipped, c.column, c.limit)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestParseNamesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ in, column, want string }{
		"empty":           {"", "", "empty"},
		"header alone":    {"x\n", "x", "no rows"},
		"unknown column":  {"a,b\n1,2\n", "c", `no column "c": want one of a, b`},
		"index too large": {"1,2\n", "2", "an index below 2"},
		"no column named": {"a,b\n1,2\n", "", "name one of a, b"},
		"NaN":             {"x\n1\nNaN\n", "x", "line 3, column 0"},
		"infinite":        {"x\n1\nInf\n", "x", "finite"},
		"text in a row":   {"x\n1\nlate\n", "x", `"late"`},
		"too few fields":  {"a,b\n1,2\n3\n", "b", "wrong number of fields"},
		"broken gzip":     {"\x1f\x8bnot gzip", "", "gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := table.Parse(strings.NewReader(c.in), c.column, 0)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Any truncation of a compressed file is an error, even if only the first rows are asked for.
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
			_, err := table.Parse(bytes.NewReader(whole[:len(whole)-missing]), "", limit)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d bytes missing, limit %d", missing, limit)
		}
		damaged := bytes.Clone(whole)
		damaged[len(damaged)-5] ^= 1 // in the checksum
		_, err := table.Parse(bytes.NewReader(damaged), "", limit)
		require.ErrorIs(t, err, gzip.ErrChecksum)
		values, err := table.Parse(bytes.NewReader(whole), "", limit)
		require.NoError(t, err)
		require.Len(t, values, cmp.Or(limit, 20_000))
	}
}

func TestReadRowsTakesAllColumns(t *testing.T) {
	rows, err := table.ParseRows(strings.NewReader("a,b\n1,2\n3,4\n"), 1)
	require.NoError(t, err)
	require.Equal(t, [][]float64{{1, 2}}, rows)
	_, err = table.ParseRows(strings.NewReader("a,b\n1,2\n3,x\n"), 0)
	require.ErrorContains(t, err, "line 3, column 1")
}

// TestLongRow: a row without an end, which a small compressed file can produce, is not read to its end.
func TestLongRow(t *testing.T) {
	_, err := table.Parse(&endless{}, "", 0)
	require.ErrorContains(t, err, "a row of more than 33554432 bytes")
}

// endless yields digits without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '1'
	}
	return len(p), nil
}
