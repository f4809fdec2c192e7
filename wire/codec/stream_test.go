package codec_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/codec"
)

// TestStreamIsMarshal: a value written part by part must equal the output of [codec.Marshal], and the Reader must read
// it back.
func TestStreamIsMarshal(t *testing.T) {
	for _, sizes := range [][]int{{}, {0, 1, 255, 256, 65535, 65536}, make([]int, 15), make([]int, 16),
		make([]int, 70000)} {
		parts := make([][]byte, len(sizes))
		var streamed bytes.Buffer
		w := codec.NewWriter(&streamed)
		w.Array(len(sizes))
		for i, n := range sizes {
			parts[i] = bytes.Repeat([]byte{7}, n)
			w.Bytes(parts[i])
		}
		require.NoError(t, w.Err)
		whole, err := codec.Marshal(&parts)
		require.NoError(t, err)
		require.True(t, bytes.Equal(whole, streamed.Bytes()))

		r := codec.NewReader(iotest.OneByteReader(&streamed))
		n, err := r.Array()
		require.NoError(t, err)
		require.EqualValues(t, len(sizes), n)
		for _, want := range parts {
			got, err := r.Bytes(int64(len(want)))
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))
		}
		require.NoError(t, r.End())
	}
}

func TestStreamRejects(t *testing.T) {
	for name, in := range map[string]string{
		"nothing": "", "nil": "\xc0", "text": "\xa1a", "an integer": "\x01", "an array": "\x90",
		"bin16 for bin8": "\xc5\x00\x01a", "bin32 for bin16": "\xc6\x00\x00\x01\x00" + strings.Repeat("a", 256),
		"cut in the head": "\xc5\x01", "cut": "\xc4\x02a", "too long": "\xc5\x03\xe9" + strings.Repeat("a", 1001),
	} {
		_, err := codec.NewReader(strings.NewReader(in)).Bytes(1000)
		require.Error(t, err, name)
	}
	for name, in := range map[string]string{
		"nothing": "", "bytes": "\xc4\x00", "array16 for fixarray": "\xdc\x00\x0f",
		"array32 for array16": "\xdd\x00\x00\xff\xff",
	} {
		_, err := codec.NewReader(strings.NewReader(in)).Array()
		require.Error(t, err, name)
	}
	require.Error(t, codec.NewReader(strings.NewReader("a")).End())
	broken := errors.New("broken")
	_, err := codec.NewReader(io.MultiReader(strings.NewReader("\xc4\x02a"), iotest.ErrReader(broken))).Bytes(9)
	require.ErrorIs(t, err, broken)
	require.ErrorIs(t, codec.NewReader(iotest.ErrReader(broken)).End(), broken)
}

// TestStreamHostileLength: the Reader's memory must grow with the bytes that arrive, not with the length that a header
// claims.
func TestStreamHostileLength(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := codec.NewReader(strings.NewReader("\xc6\xff\xff\xff\xff")).Bytes(1 << 40)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<18))
}

// TestAnotherErrorIsNotOfTheForm: if the input fails before the first byte, the Reader must return the input's own
// error.
func TestAnotherErrorIsNotOfTheForm(t *testing.T) {
	away := errors.New("the relay does not answer")
	r := codec.NewReader(iotest.ErrReader(away))
	_, err := r.Array()
	require.Equal(t, away, err)
	_, err = r.Bytes(1)
	require.Equal(t, away, err)
}

// TestExactly: the Reader must refuse a byte string of an unexpected length before it reads the content. It must also
// refuse an array of too many elements.
func TestExactly(t *testing.T) {
	in := "\xc4\x02ab\xc4\x02cd\x92"
	r := codec.NewReader(strings.NewReader(in))
	got, err := r.Exactly(2)
	require.NoError(t, err)
	require.Equal(t, "ab", string(got))
	_, err = r.Exactly(2)
	require.NoError(t, err)
	require.NoError(t, r.ArrayOf(2))
	for _, read := range []func(*codec.Reader) error{
		func(r *codec.Reader) error { _, err := r.Exactly(3); return err },
		func(r *codec.Reader) error { return r.ArrayOf(2) },
	} {
		rest := strings.NewReader(in)
		require.Error(t, read(codec.NewReader(rest)))
		require.GreaterOrEqual(t, rest.Len(), len(in)-2)
	}
	for most, fails := range map[uint64]bool{2: false, 1: true} {
		_, err := codec.NewReader(strings.NewReader("\x92")).ArrayUpTo(most)
		require.Equal(t, fails, err != nil)
		v := codec.NewView([]byte{0x92, 1, 1})
		v.ArrayUpTo(int(most))
		require.Equal(t, fails, v.Failed())
	}
	for _, cut := range []string{"\xc4\x02a", "\xc4\x02"} {
		_, err := codec.NewReader(strings.NewReader(cut)).Exactly(2)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
}

// TestUint: a reader must read each integer in its shortest form only, of the size that UintSize says.
func TestUint(t *testing.T) {
	for _, n := range []uint64{0, 1, 1<<7 - 1, 1 << 7, 1<<8 - 1, 1 << 8, 1<<16 - 1, 1 << 16, 1<<32 - 1, 1 << 32,
		1<<64 - 1} {
		raw, err := codec.Marshal(&struct{ N uint64 }{n})
		require.NoError(t, err)
		require.Len(t, raw[1:], codec.UintSize(n))
		got, err := codec.NewReader(bytes.NewReader(append(raw[1:], 1))).Uint()
		require.NoError(t, err)
		require.Equal(t, n, got)
		_, err = codec.NewReader(bytes.NewReader(raw[1 : len(raw)-1])).Uint()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
	for _, bad := range []string{"\xcc\x7f", "\xcd\x00\xff", "\xcf\x00\x00\x00\x00\xff\xff\xff\xff", "\xff", "\x90",
		"\xc4\x01a"} {
		_, err := codec.NewReader(strings.NewReader(bad)).Uint()
		require.Error(t, err, "%x", bad)
	}
}

// TestAnnouncedBytes: bytes that a header announces and that never arrive must cost no memory, with any read function.
func TestAnnouncedBytes(t *testing.T) {
	const n = 1 << 28
	for _, read := range []func(*codec.Reader) ([]byte, error){
		func(r *codec.Reader) ([]byte, error) { return r.Exactly(n) },
		func(r *codec.Reader) ([]byte, error) { return r.Bytes(n) },
	} {
		in := io.MultiReader(bytes.NewReader(codec.AppendLength(nil, n)), strings.NewReader("ab"))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := read(codec.NewReader(in))
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	}
}
