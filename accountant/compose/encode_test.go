package compose_test

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/accountant/compose"
)

func TestLawIsWhatItsBytesSay(t *testing.T) {
	law := blankets{accountant.Exact, 16, 10_000, 1}.law(t)
	many, err := law.Copies(3)
	require.NoError(t, err)
	for _, l := range []*compose.Law{law, many} {
		read, err := compose.DecodeLaw(l.Encode())
		require.NoError(t, err)
		require.Equal(t, l, read)
		require.Equal(t, l.Encode(), read.Encode())
	}
	require.Less(t, len(law.Encode()), 1300)
	_, err = law.Copies(0)
	require.ErrorContains(t, err, "copies")
	_, err = many.Copies(1 << 20)
	require.ErrorContains(t, err, "copies")
}

// coin is an encoded law of 13 bytes: under P the loss is 1 with probability 1/2, else at most 0.
var coin = []byte{
	compose.LawVersion, 0, 0, 1, // One copy.
	0, 0x80, 0, // A step of 1.
	0, 0, 0, // No infinite loss.
	0, 1, // One mass:
	1, 0x80, 0, // 1/2.
}

func TestLawOfACoin(t *testing.T) {
	law, err := compose.DecodeLaw(coin)
	require.NoError(t, err)
	half := -math.Expm1(-1) / 2
	require.InEpsilon(t, half, law.Delta(0), 1e-14)
	require.InEpsilon(t, -math.Expm1(-.5)+math.Exp(-.5)*law.Delta(.5), law.Delta(-.5), 1e-14)
	require.Zero(t, law.Delta(1))
	two := compose.Delta([]compose.Observation{law.Observation(2)}, 1.5, 1e-6)
	require.InEpsilon(t, -math.Expm1(-.5)/4, two, 1e-3)
}

func TestBytesThatAreNoLaw(t *testing.T) {
	for name, change := range map[string]func(in []byte) []byte{
		"empty":                  func([]byte) []byte { return nil },
		"cut":                    func(in []byte) []byte { return in[:len(in)-1] },
		"longer":                 func(in []byte) []byte { return append(in, 0) },
		"another version":        func(in []byte) []byte { in[0]++; return in },
		"no copies":              func(in []byte) []byte { in[3] = 0; return in },
		"too many copies":        func(in []byte) []byte { in[1] = 0x11; return in },
		"no step":                func(in []byte) []byte { in[5] = 0; return in },
		"another form of a step": func(in []byte) []byte { in[5] = 0x40; return in },
		"another form of 0":      func(in []byte) []byte { in[7] = 1; return in },
		"an infinite loss of 2":  func(in []byte) []byte { in[8], in[9] = 0xff, 0xff; return in },
		"no masses but a count":  func(in []byte) []byte { return in[:12] },
		"a last mass of 0":       func(in []byte) []byte { in[12], in[13] = 0, 0; return in },
		"masses above 1":         func(in []byte) []byte { in[12] = 0; return in },
		"a loss of 100.1":        func(in []byte) []byte { return wide(in, 1024, .0977) },
		"masses of e^2":          func(in []byte) []byte { return copies(in, 4096) },
		"too many masses": func(in []byte) []byte {
			in[10], in[11] = 4, 1
			return append(in, bytes.Repeat([]byte{200, 0x80, 0}, 1024)...)
		},
	} {
		_, err := compose.DecodeLaw(change(append([]byte(nil), coin...)))
		require.ErrorContains(t, err, "law", name)
	}
}

// wide returns an encoded law with the given number of points and step. Every mass is 2^−200.
func wide(in []byte, points int, step float64) []byte {
	in[4], in[5], in[6] = 4, byte(int(step*(1<<19))>>8), byte(int(step*(1<<19)))
	in[10], in[11] = byte(points>>8), byte(points)
	return append(in[:12], bytes.Repeat([]byte{200, 0x80, 0}, points)...)
}

// copies returns an encoded law of the given number of copies. Each copy has loss 1 and masses that sum to 1.0005.
func copies(in []byte, number int) []byte {
	in[2], in[3] = byte(number>>8), byte(number)
	m := uint16(1.0005 / (1 + math.Exp(-1)) * (1 << 16))
	in[12], in[13], in[14] = 1, byte(m>>8), byte(m)
	return in
}

// DecodeLaw must reject numbers from which a computation could overflow, and accept every law that Encode produces.
func TestBoundsOfLaws(t *testing.T) {
	_, err := compose.DecodeLaw(wide(slices.Clone(coin), 1024, .0976))
	require.NoError(t, err)
	few, err := compose.DecodeLaw(copies(slices.Clone(coin), 1024))
	require.NoError(t, err)
	_, err = few.Copies(4)
	require.ErrorContains(t, err, "copies")
	law := compose.LawOf(func(eps float64) float64 { return math.Exp(-eps / 50) }, 250)
	read, err := compose.DecodeLaw(law.Encode())
	require.NoError(t, err)
	require.Equal(t, law, read)
	require.GreaterOrEqual(t, law.Delta(300), math.Exp(-2))
}

func FuzzDecodeLaw(f *testing.F) {
	f.Add(coin)
	law, err := compose.KRRLaw(accountant.Exact, 3, .5, 20)
	require.NoError(f, err)
	f.Add(law.Encode())
	f.Add([]byte("\x01\x00\x00\v\x00\x860\x10\xff0\x00\x01A\x800")) // 11 copies, whose δ(0.1) is above their δ(0.001)
	f.Fuzz(func(t *testing.T, in []byte) {
		law, err := compose.DecodeLaw(in)
		if err != nil {
			return
		}
		require.Equal(t, in, law.Encode())
		if in[1] > 0 || in[2] > 0 || in[3] > 16 {
			return // composing thousands takes longer than the ten seconds after which Go reports a fuzzer as stuck
		}
		one, err := compose.DecodeLaw(slices.Concat(in[:1], []byte{0, 0, 1}, in[4:]))
		require.NoError(t, err)
		last := 1.0
		for _, eps := range []float64{.001, .1, 1, 10, 100} {
			// One copy's curve falls. The bound of several copies need not fall: its window makes it up to 1 %
			// looser.
			delta, single := law.Delta(eps), one.Delta(eps)
			require.True(t, delta <= 1 && delta >= single*(1-1e-9), "δ(%v) = %v, and %v of one", eps, delta, single)
			require.True(t, single >= 0 && single <= last+1e-12, "δ(%v) = %v after %v", eps, single, last)
			last = single
		}
	})
}
