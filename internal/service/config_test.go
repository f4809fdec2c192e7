package service_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
)

// settings has a setting of every kind that a configuration has.
type settings struct {
	Listen string        `yaml:"listen"`
	Most   int           `yaml:"most"`
	Share  float64       `yaml:"share"`
	Pause  time.Duration `yaml:"pause"`
	Tasks  []struct {
		File  string `yaml:"file"`
		Quota int    `yaml:"quota"`
	} `yaml:"tasks"`
}

// inUTF16 encodes a text as Windows programs do.
func inUTF16(text string, order binary.ByteOrder) string {
	var out []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		out = append(out, 0, 0)
		order.PutUint16(out[len(out)-2:], unit)
	}
	return string(out)
}

// TestConfigurationsOfPeople: a configuration is read correctly, or is an error that names the file and the place.
func TestConfigurationsOfPeople(t *testing.T) {
	want := settings{Listen: "127.0.0.1:1", Most: 3}
	for name, c := range map[string]struct {
		in      string
		refused []string // texts of the error; nil if the file gives want
	}{
		"plain":               {in: "listen: 127.0.0.1:1\nmost: 3\n"},
		"BOM":                 {in: "\ufefflisten: 127.0.0.1:1\nmost: 3\n"},
		"CRLF":                {in: "listen: 127.0.0.1:1\r\nmost: 3\r\n"},
		"BOM and CRLF":        {in: "\ufefflisten: 127.0.0.1:1\r\nmost: 3\r\n"},
		"no end":              {in: "listen: 127.0.0.1:1\nmost: 3"},
		"comments":            {in: "# a\nlisten: 127.0.0.1:1 # b\n\nmost: 3\n"},
		"quotes":              {in: "\"listen\": '127.0.0.1:1'\nmost: 3\n"},
		"JSON":                {in: `{"listen": "127.0.0.1:1", "most": 3}`},
		"UTF-16":              {in: inUTF16("most: 3\n", binary.LittleEndian), refused: []string{"UTF-16: save it"}},
		"UTF-16, big-endian":  {in: inUTF16("most: 3\n", binary.BigEndian), refused: []string{"UTF-16"}},
		"an unknown key":      {in: "most: 3\nlisten_on: x\n", refused: []string{"[2:1]", `unknown field "listen_on"`}},
		"a key twice":         {in: "most: 3\nmost: 4\n", refused: []string{"[2:1]", "most"}},
		"a tab":               {in: "tasks:\n\t- file: x\n", refused: []string{"[2:1]", "tab"}},
		"a word for a number": {in: "most: many\n", refused: []string{`line 1: invalid most "many": want`}},
		"a fraction":          {in: "most: 1.5\n", refused: []string{`line 1: invalid most "1.5": want a whole number of at most 1048576`}},
		"a decimal comma":     {in: "share: 0,5\n", refused: []string{"[1:8]", "0,5"}},
		"a number too large":  {in: "most: 18446744073709551616\n", refused: []string{"line 1: invalid most"}},
		"a number in quotes":  {in: "listen: 127.0.0.1:1\nmost: '3' # three\n"},
		"no number":           {in: "listen: 127.0.0.1:1\nmost: 3\npause:\n"},
		"a quota in a list":   {in: "tasks: [\n {\n  quota: 1.5}]\n", refused: []string{"line 3: invalid quota"}},
		"no unit":             {in: "pause: 5\n", refused: []string{"line 1: invalid pause \"5\": want", "such as 5s"}},
		"a value that begins another": {in: "listen: 1.5.0.0:1\npause: 5s\nmost: 1.5\n",
			refused: []string{`line 3: invalid most "1.5"`}},
		"a unit of no time":   {in: "pause: 5 apples\n", refused: []string{"line 1: invalid pause", "such as 5s"}},
		"a list that is none": {in: "tasks: x\n", refused: []string{"[1:8]"}},
		"a wrong key in a list": {in: "tasks:\n  - {file: x}\n  - {fil: y}\n",
			refused: []string{"[3:", `unknown field "fil"`}},
		"a quote without end": {in: "listen: \"127.0.0.1:1\nmost: 3\n", refused: []string{"[1:9]"}},
		"too large":           {in: strings.Repeat("#", 1<<20+1), refused: []string{"more than 1048576 bytes"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "relay.yaml")
			require.NoError(t, os.WriteFile(path, []byte(c.in), 0o600))
			var got settings
			err := service.ReadConfig(path, &got)
			for _, text := range c.refused {
				require.ErrorContains(t, err, text)
			}
			if c.refused == nil {
				require.NoError(t, err)
				require.Equal(t, want, got)
			} else {
				require.ErrorContains(t, err, path)
			}
		})
	}
}
