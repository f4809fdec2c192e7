package randomizer_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/randomizer"
)

func TestDrawsAreBigEndianInOrder(t *testing.T) {
	next := byte(0)
	fills := 0
	src := randomizer.NewSourceFrom(func(p []byte) {
		fills++
		for i := range p {
			p[i] = next
			next++
		}
	})
	require.Zero(t, fills, "NewSource must not draw before the first use")
	require.Equal(t, uint64(0x0001020304050607), src.Uint64())
	require.Equal(t, uint64(0x08090a0b0c0d0e0f), src.Uint64())

	short := make([]byte, 11)
	n, err := src.Read(short)
	require.NoError(t, err)
	require.Equal(t, 11, n)
	require.Equal(t, []byte{0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a}, short)
	require.Equal(t, uint64(0x2021222324252627), src.Uint64(), "Read must drop the rest of a partial draw")
	n, err = src.Read(nil)
	require.NoError(t, err)
	require.Zero(t, n)

	rest := make([]byte, 2_500) // crosses the end of the buffer twice
	src.Read(rest)
	for i, b := range rest {
		require.Equal(t, byte(0x28+i), b, i)
	}
	require.Equal(t, 3, fills)
}

func TestUsedBytesAreZeroed(t *testing.T) {
	var buffer []byte
	src := randomizer.NewSourceFrom(func(p []byte) {
		buffer = p
		for i := range p {
			p[i] = 0xff
		}
	})
	for used := 8; used <= 256; used += 8 {
		src.Uint64()
		require.Equal(t, make([]byte, used), buffer[:used])
		require.Equal(t, bytes.Repeat([]byte{0xff}, len(buffer)-used), buffer[used:])
	}
}

// TestPlatformSourceNeverRepeats reads 2¹⁶ blocks of 16 bytes from each of two sources, over many refills, and fails if
// two are equal. For uniform blocks this has a probability below 2⁻⁹⁴.
func TestPlatformSourceNeverRepeats(t *testing.T) {
	seen := map[[16]byte]bool{}
	for range 2 {
		src := randomizer.NewSource()
		for range 1 << 16 {
			var block [16]byte
			src.Read(block[:])
			require.False(t, seen[block])
			seen[block] = true
		}
	}
}

// TestPlatformBytesFit tests whether single bytes of the platform's source are uniform, with a goodness-of-fit test.
func TestPlatformBytesFit(t *testing.T) {
	src := randomizer.NewSource()
	for shift := 0; shift < 64; shift += 24 {
		require.True(t, fits(t, samples, uniform(256), func() uint64 { return src.Uint64() >> shift & 0xff }),
			"shift %d", shift)
	}
}
