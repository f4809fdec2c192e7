package display_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/display"
)

// hostile maps texts that would have an effect where they are shown to the escaped form that must be shown.
var hostile = map[string]string{
	"plain, \"quoted\" \\ ü 語 😀 −5 to 0": "plain, \"quoted\" \\ ü 語 😀 −5 to 0",
	"a\u00a0b\u2003c":                 "a\u00a0b\u2003c",
	"\x1b[2J\x07\x7f":                 `\x1b[2J\a\x7f`,
	"\u009b31m":                       `\u009b31m`,
	"abc\u202ecba\u202c":              `abc\u202ecba\u202c`,
	"\u2066x\u2069\u200f\u200e\u061c": `\u2066x\u2069\u200f\u200e\u061c`,
	"a\u200bb\ufeffc\u00add":          `a\u200bb\ufeffc\u00add`,
	"one\nline\r\ttab\u2028":          `one\nline\r\ttab\u2028`,
	"\xff\xfe":                        `\xff\xfe`,
	"\U000e0041":                      `\U000e0041`,
}

func TestPlainShowsAllOfAText(t *testing.T) {
	for text, want := range hostile {
		require.Equal(t, want, display.Plain(text))
		var out bytes.Buffer
		_, err := io.Copy(display.Terminal(&out), iotest.OneByteReader(strings.NewReader(text+"|")))
		require.NoError(t, err)
		want = strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(want)
		require.Equal(t, want+"|", out.String())
	}
}

func TestJSONIsTheSameAndShown(t *testing.T) {
	for text := range hostile {
		encoded, err := json.Marshal(map[string]string{text: text + text})
		require.NoError(t, err)
		shown := display.JSON(encoded)
		require.Equal(t, string(shown), display.Plain(string(shown)))
		var before, after map[string]string
		require.NoError(t, json.Unmarshal(encoded, &before))
		require.NoError(t, json.Unmarshal(shown, &after))
		require.Equal(t, before, after)
	}
}

// TestCellsAreNoFormulas: no cell is a formula, in a spreadsheet of any locale. The original text can be read back.
func TestCellsAreNoFormulas(t *testing.T) {
	for text := range hostile {
		for _, begin := range []string{"", "=", "+", "-", "@", "\t=", "\r=", "＝", "a;=1+", "a;\"=1+", "'="} {
			cell := display.Cell(begin + text)
			require.True(t, strings.HasPrefix(cell, `"`) && !strings.ContainsAny(cell, ";\t\r\n"), cell)
			require.Equal(t, cell, display.Plain(cell))
			back, err := strconv.Unquote(cell)
			require.NoError(t, err)
			if utf8.ValidString(text) {
				require.Equal(t, begin+text, back)
			}
		}
	}
}
