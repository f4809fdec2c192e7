package memscan_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/memscan"
)

var planted []byte

// TestFinds: the scan finds each 32 bytes of a key in every form in which memory can hold a key. After the test has
// overwritten the key, the scan must find nothing.
func TestFinds(t *testing.T) {
	const prefix = "abc"
	for _, size := range []int{40, 64, 96} {
		key := make([]byte, size)
		rand.Read(key)
		forms := map[string][]byte{"hex": hex.AppendEncode(nil, key), "reversed": bytes.Clone(key)}
		forms["HEX"] = bytes.ToUpper(forms["hex"])
		slices.Reverse(forms["reversed"])
		for part := range size / 32 {
			forms[fmt.Sprintf("raw, part %d", part)] = bytes.Clone(key[32*part : 32*part+32])
		}
		if size == 40 {
			forms["raw, part 0"] = bytes.Clone(key)
		}
		for _, with := range []byte{0x36, 0x5c} {
			padded := bytes.Clone(key)
			for i := range padded {
				padded[i] ^= with
			}
			forms[fmt.Sprintf("padded, %x", with)] = padded
		}
		for before := range len(prefix) {
			text := append([]byte(prefix[:before]), key...)
			forms[fmt.Sprintf("base64, %d", before)] = base64.StdEncoding.AppendEncode(nil, text)
			forms[fmt.Sprintf("base64url, %d", before)] = base64.RawURLEncoding.AppendEncode(nil, text)
			clear(text)
		}
		needle := memscan.New("key", key)
		require.Equal(t, make([]byte, size), key)
		names := []string{}
		for name, form := range forms { // mask all forms, so that memory holds only the one that is planted
			for i := range form {
				form[i] ^= 0x55
			}
			names = append(names, name)
		}
		runtime.GC()
		memscan.RequireGone(t, []*memscan.Needle{needle})
		for _, name := range names {
			planted = append(planted[:0], forms[name]...)
			for i := range planted {
				planted[i] ^= 0x55
			}
			found := memscan.Count(t, needle)
			kind, _, _ := strings.Cut(name, ",")
			require.Contains(t, found, "key, "+kind, "%s of %d bytes", name, size)
			clear(planted)
		}
		require.Empty(t, memscan.Count(t, needle))
	}
}
