package codec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/codec"
)

// TestDocument: Document must remove a byte order mark, and refuse UTF-16 by its name.
func TestDocument(t *testing.T) {
	got, err := codec.Document([]byte("\xef\xbb\xbf{}"))
	require.NoError(t, err)
	require.Equal(t, "{}", string(got))
	for _, in := range []string{"", "x", "\x94\x00"} { // msgpack is left as it is
		got, err := codec.Document([]byte(in))
		require.NoError(t, err)
		require.Equal(t, in, string(got))
	}
	for _, in := range []string{"\xff\xfe{\x00}\x00", "\xfe\xff\x00{\x00}", "{\x00}\x00", "\x00{\x00}"} {
		_, err := codec.Document([]byte(in))
		require.ErrorContains(t, err, "UTF-16")
	}
}
