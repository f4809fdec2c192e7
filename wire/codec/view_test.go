package codec_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/codec"
)

// laneForm is a structure with lanes, like an opened report.
type laneForm struct {
	N     uint64
	Tag   []byte
	Lanes [][][]byte
}

func view(in []byte) (*laneForm, error) {
	v := codec.NewView(in)
	if v.Array() != 3 {
		return nil, errors.Join(errors.New("not three parts"), v.End())
	}
	out := &laneForm{N: uint64(v.Small()), Tag: v.Bytes(), Lanes: make([][][]byte, v.Array())}
	for i := range out.Lanes {
		out.Lanes[i] = make([][]byte, v.Array())
		for j := range out.Lanes[i] {
			out.Lanes[i][j] = v.Bytes()
		}
	}
	return out, v.End()
}

func appended(r *laneForm) []byte {
	out := codec.AppendSmall(codec.AppendArray(nil, 3), byte(r.N))
	out = codec.AppendArray(codec.AppendBytes(out, r.Tag), len(r.Lanes))
	for _, lane := range r.Lanes {
		out = codec.AppendArray(out, len(lane))
		for _, slot := range lane {
			out = codec.AppendBytes(out, slot)
		}
	}
	return out
}

// TestViewIsUnmarshal: appended bytes must equal the output of [codec.Marshal]. A view must accept exactly what
// [codec.Unmarshal] accepts: the test changes each byte, cuts the input at each length, and adds a byte.
func TestViewIsUnmarshal(t *testing.T) {
	for _, r := range []*laneForm{
		{1, []byte{}, [][][]byte{}},
		{0, []byte{1, 2}, [][][]byte{{{3}, {}}, {}, {bytes.Repeat([]byte{4}, 256)}}},
		{127, bytes.Repeat([]byte{5}, 255), [][][]byte{make17()}},
	} {
		in, err := codec.Marshal(r)
		require.NoError(t, err)
		require.Equal(t, in, appended(r))
		requireAlike(t, append(bytes.Clone(in), 0))
		for i := range in {
			requireAlike(t, in[:i])
			changed := bytes.Clone(in)
			for b := range 256 {
				changed[i] = byte(b)
				requireAlike(t, changed)
			}
		}
	}
}

// make17 returns a lane of 17 slots. The shortest array header can count only 15.
func make17() [][]byte {
	out := make([][]byte, 17)
	for i := range out {
		out[i] = []byte{byte(i)}
	}
	return out
}

func requireAlike(t testing.TB, in []byte) {
	t.Helper()
	var want laneForm
	wantErr := codec.Unmarshal(in, &want)
	if wantErr == nil && want.N > 127 {
		wantErr = errors.New("not small")
	}
	got, err := view(in)
	if wantErr != nil {
		require.Error(t, err, "%x", in)
		return
	}
	require.NoError(t, err, "%x", in)
	require.Equal(t, &want, got)
}

// FuzzView compares [codec.View] with [codec.Unmarshal], as [TestViewIsUnmarshal] does, on arbitrary bytes.
func FuzzView(f *testing.F) {
	f.Add(appended(&laneForm{3, []byte{1, 2}, [][][]byte{{{3}, {}}, {}}}))
	f.Add([]byte{0xdc, 0, 3, 1, 0xc5, 0, 1, 7, 0x90})
	f.Fuzz(func(t *testing.T, in []byte) { requireAlike(t, in) })
}

// TestViewHostileLengths: a header that claims more than remains must be an error, and must not make the view allocate.
func TestViewHostileLengths(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff}
	for name, in := range map[string][]byte{
		"array": append([]byte{0x93, 1, 0xc4, 0, 0xdd}, huge...),
		"lane":  append([]byte{0x93, 1, 0xc4, 0, 0x91, 0xdd}, huge...),
		"bytes": append([]byte{0x93, 1, 0xc6}, huge...),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := view(in)
		runtime.ReadMemStats(&after)
		require.Error(t, err, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<16), name)
	}
}
