package invalid_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
)

// TestQuote: every text is quoted in printable ASCII, and strconv reads it back.
func TestQuote(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, text := range []string{"", "a b", `"\`, "a\nb", "\x00\x7f", "é", string(all)} {
		quoted := invalid.Quote(text)
		require.Regexp(t, `^"[ -~]*"$`, quoted)
		back, err := strconv.Unquote(quoted)
		require.NoError(t, err)
		require.Equal(t, text, back)
	}
	require.Equal(t, `"a\x0a\"b"`, invalid.Quote("a\n\"b"))
}
