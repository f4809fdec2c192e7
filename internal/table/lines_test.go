package table_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/table"
)

// TestListsOfPeople: a list of texts is read correctly, or is an error that names the line.
func TestListsOfPeople(t *testing.T) {
	for name, c := range map[string]struct {
		in      string
		want    []string
		refused []string
		says    []string
	}{
		"plain":              {in: "/home\n/x\n", want: []string{"/home", "/x"}},
		"BOM":                {in: bom + "/home\n/x\n", want: []string{"/home", "/x"}},
		"CRLF":               {in: "/home\r\n/x\r\n", want: []string{"/home", "/x"}},
		"CR alone":           {in: "/home\r/x\r", want: []string{"/home", "/x"}},
		"no end":             {in: "/home\n/x", want: []string{"/home", "/x"}},
		"blank lines":        {in: "/home\n\n/x\n\n", want: []string{"/home", "/x"}, says: []string{"2 blank lines left out, the first is line 2"}},
		"a blank at the end": {in: "/home\n \n", want: []string{"/home"}, says: []string{"line 2 is blank and left out"}},
		"NFD":                {in: "cafe\u0301\ncaf\u00e9\n", want: []string{"caf\u00e9"}, says: []string{"1 text brought into Unicode normal form C", "1 repetition left out"}},
		"repetitions":        {in: "/a\n/b\n/a\n/a\n", want: []string{"/a", "/b"}, says: []string{"2 repetitions left out"}},
		"quotes":             {in: "/a\n\"/b,c\"\n", want: []string{"/a", "\"/b,c\""}, says: []string{"1 text in quotes, which count as part of the text, the first in line 2"}},
		"Latin-1":            {in: "/a\n/caf\xe9\n", refused: []string{"line 2", `"/caf\xe9"`, "UTF-8"}},
		"a zero byte":        {in: "/a\n/b\x00\n", refused: []string{"line 2", "zero bytes"}},
		"UTF-16":             {in: utf16Text("/a\n", 0), refused: []string{"UTF-16"}},
		"XLSX":               {in: "PK\x03\x04\x14\x00", refused: []string{"XLSX"}},
		"a long line":        {in: "/a\n" + strings.Repeat("x", 1<<17), refused: []string{"line 2", "more than 65536 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, in := range []string{c.in, zip(t, c.in)} {
				path := filepath.Join(t.TempDir(), "list.txt")
				require.NoError(t, os.WriteFile(path, []byte(in), 0o600))
				var notes bytes.Buffer
				got, err := table.ReadDistinct(path, &notes)
				for _, text := range c.refused {
					require.ErrorContains(t, err, text)
				}
				if c.refused == nil {
					require.NoError(t, err)
				}
				require.Equal(t, c.want, got)
				for _, text := range c.says {
					require.Contains(t, notes.String(), path+": ")
					require.Contains(t, notes.String(), text)
				}
				require.Equal(t, c.says == nil, notes.Len() == 0, notes.String())
			}
		})
	}
}

// TestReadLinesKeepsRepetitions: each line is a client, so ReadLines keeps repeated lines.
func TestReadLinesKeepsRepetitions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.txt")
	require.NoError(t, os.WriteFile(path, []byte(bom+strings.Repeat("/home\n", 300)), 0o600))
	got, err := table.ReadLines(path, nil)
	require.NoError(t, err)
	require.Len(t, got, 300)
	require.Equal(t, "/home", got[0])
	_, err = table.ReadLines(filepath.Join(t.TempDir(), "absent"), nil)
	require.ErrorContains(t, err, "absent")
}
