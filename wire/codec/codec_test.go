package codec_test

import (
	"bytes"
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/codec"
)

type inner struct{ A, B uint64 }

// sample has a field of each type that parties exchange.
type sample struct {
	Text  string
	N     uint64
	Bytes []byte
	Lanes [][][]byte
	List  []inner
}

func valid() *sample {
	return &sample{"doona", 300, []byte{1, 2}, [][][]byte{{{3}, {}}, {}}, []inner{{1, 70000}}}
}

// encoded is the encoding of valid(), written by hand from the msgpack specification.
var encoded = []byte{
	0x95,                          // array of 5
	0xa5, 'd', 'o', 'o', 'n', 'a', // text of 5
	0xcd, 0x01, 0x2c, // 300
	0xc4, 0x02, 1, 2, // 2 bytes
	0x92, 0x92, 0xc4, 0x01, 3, 0xc4, 0x00, 0x90, // [[3, ""], []]
	0x91, 0x92, 0x01, 0xce, 0x00, 0x01, 0x11, 0x70, // [[1, 70000]]
}

func TestMarshalIsCanonical(t *testing.T) {
	out, err := codec.Marshal(valid())
	require.NoError(t, err)
	require.Equal(t, encoded, out)
	var back sample
	require.NoError(t, codec.Unmarshal(out, &back))
	require.Equal(t, valid(), &back)
}

func TestMarshalRejectsNil(t *testing.T) {
	for name, spoil := range map[string]func(*sample){
		"bytes": func(s *sample) { s.Bytes = nil },
		"lanes": func(s *sample) { s.Lanes = nil },
		"lane":  func(s *sample) { s.Lanes[1] = nil },
		"slot":  func(s *sample) { s.Lanes[0][1] = nil },
		"list":  func(s *sample) { s.List = nil },
	} {
		s := valid()
		spoil(s)
		_, err := codec.Marshal(s)
		require.ErrorContains(t, err, "0xc0", name)
	}
}

// replace returns encoded with the bytes old at offset i replaced by new.
func replace(t *testing.T, i int, old, new []byte) []byte {
	t.Helper()
	require.Equal(t, old, encoded[i:i+len(old)])
	return bytes.Join([][]byte{encoded[:i], new, encoded[i+len(old):]}, nil)
}

func TestUnmarshalRejectsOtherEncodings(t *testing.T) {
	for name, in := range map[string][]byte{
		"empty":                nil,
		"trailing byte":        append(bytes.Clone(encoded), 0),
		"array16 for fixarray": replace(t, 0, []byte{0x95}, []byte{0xdc, 0, 5}),
		"array32 for fixarray": replace(t, 0, []byte{0x95}, []byte{0xdd, 0, 0, 0, 5}),
		"map":                  {0x81, 0xa1, 'N', 0x01},
		"nil":                  {0xc0},
		"too few fields":       {0x91, 0xa5, 'd', 'o', 'o', 'n', 'a'},
		"too many fields":      append(append([]byte{0x96}, encoded[1:]...), 0),
		"str8 for fixstr":      replace(t, 1, []byte{0xa5}, []byte{0xd9, 5}),
		"bytes for text":       replace(t, 1, []byte{0xa5}, []byte{0xc4, 5}),
		"uint32 for uint16":    replace(t, 7, []byte{0xcd, 1, 0x2c}, []byte{0xce, 0, 0, 1, 0x2c}),
		"int16 for uint16":     replace(t, 7, []byte{0xcd, 1, 0x2c}, []byte{0xd1, 1, 0x2c}),
		"nil for integer":      replace(t, 7, []byte{0xcd, 1, 0x2c}, []byte{0xc0}),
		"float for integer":    replace(t, 7, []byte{0xcd, 1, 0x2c}, []byte{0xca, 0x43, 0x96, 0, 0}),
		"bool for integer":     replace(t, 7, []byte{0xcd, 1, 0x2c}, []byte{0xc3}),
		"text for bytes":       replace(t, 10, []byte{0xc4, 2}, []byte{0xa2}),
		"bin16 for bin8":       replace(t, 10, []byte{0xc4, 2}, []byte{0xc5, 0, 2}),
		"nil for bytes":        replace(t, 10, []byte{0xc4, 2, 1, 2}, []byte{0xc0}),
		"extension for bytes":  replace(t, 10, []byte{0xc4, 2, 1, 2}, []byte{0xd5, 7, 1, 2}),
		"nil for empty list":   replace(t, 21, []byte{0x90}, []byte{0xc0}),
		"negative integer":     replace(t, 24, []byte{0x01}, []byte{0xff}),
	} {
		var s sample
		require.Error(t, codec.Unmarshal(in, &s), name)
	}
}

func TestUnmarshalTruncated(t *testing.T) {
	for n := range encoded {
		var s sample
		require.Error(t, codec.Unmarshal(encoded[:n], &s), "%d bytes", n)
	}
}

// TestHostileLengths: a header that claims a large length must be an error and must not make the decoder allocate it.
func TestHostileLengths(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff}
	for name, in := range map[string][]byte{
		"array":         append([]byte{0x95, 0xa0, 0, 0xc4, 0, 0xdd}, huge...),
		"inner array":   append([]byte{0x95, 0xa0, 0, 0xc4, 0, 0x91, 0xdd}, huge...),
		"structs":       append([]byte{0x95, 0xa0, 0, 0xc4, 0, 0x90, 0xdd}, huge...),
		"bytes":         append([]byte{0x95, 0xa0, 0, 0xc6}, huge...),
		"text":          append([]byte{0x95, 0xdb}, huge...),
		"outermost":     append([]byte{0xdd}, huge...),
		"deep":          bytes.Repeat([]byte{0x91}, 1<<20),
		"deep, skipped": append(append([]byte{0x96}, encoded[1:]...), bytes.Repeat([]byte{0x91}, 1<<20)...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var s sample
		require.Error(t, codec.Unmarshal(in, &s), name)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<16), name)
	}
}

// TestListsNeedTheirBytes: the decoder must allocate a list only if enough bytes remain for all its elements.
func TestListsNeedTheirBytes(t *testing.T) {
	const n = 1 << 20
	head := append([]byte{0x95, 0xa0, 0, 0xc4, 0}, 0x90, 0xdd, 0, 0x10, 0, 0) // n structs of at least 3 bytes each
	in := append(head, make([]byte, n)...)                                    // but there is only 1 byte for each
	before := allocated()
	var s sample
	require.Error(t, codec.Unmarshal(in, &s))
	require.Less(t, allocated()-before, uint64(n))
	var short struct{ N int }
	require.NoError(t, codec.Unmarshal([]byte{0x91, 0xcf, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, &short))
	require.Error(t, codec.Unmarshal([]byte{0x91, 0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0}, &short))
}

// FuzzUnmarshal: an input that decodes must encode to the same bytes again, and memory must be proportional to the
// input. The most expensive value is an empty list in a list: it takes 24 bytes of memory for 1 byte of input.
func FuzzUnmarshal(f *testing.F) {
	f.Add(encoded)
	f.Add([]byte{0x95, 0xa0, 0, 0xc4, 0, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x95, 0xa0, 0xc0, 0xc0, 0xc0, 0xc0})
	f.Add(append([]byte{0x95, 0xa0, 0, 0xc4, 0, 0xdc, 0x00, 0xff}, append(bytes.Repeat([]byte{0x90}, 0xff), 0x90)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		var s sample
		before := allocated()
		err := codec.Unmarshal(in, &s)
		require.Less(t, allocated()-before, uint64(1<<20+64*len(in))) // the fuzzer's own goroutines allocate, too
		if err != nil {
			return
		}
		again, err := codec.Marshal(&s)
		require.NoError(t, err)
		require.Equal(t, in, again)
	})
}

// allocated returns how many bytes this process has allocated so far. Go may count bytes in a thread's cache later.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
