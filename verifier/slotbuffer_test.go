package verifier

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/codec"
)

// TestSlotBuffersGiveWhatTheyWereGiven: slots of any size must come back in order, from memory and from disk, and have
// only one encoding.
func TestSlotBuffersGiveWhatTheyWereGiven(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{slotHeader + 1, 5_000, pieceBytes/2 + 1, pieceBytes + 7} {
		for _, memory := range []int{0, 3 * pieceBytes} {
			space := newScratch(t.TempDir(), max(size, pieceBytes), memory)
			p := newSlotBuffer(space, size, 4)
			var want [][]byte
			for lane, n := range []int{3, 0, min(3*pieceSlots(size), 40_000), 1} {
				for range n {
					slot := make([]byte, size)
					for i := range 16 {
						slot[i%size] = byte(random.Uint32())
					}
					require.NoError(t, p.add(lane, slot[:tagHalf], slot[tagHalf], slot[slotHeader:]))
					want = append(want, append([]byte{byte(lane)}, slot...))
				}
			}
			require.NoError(t, p.finish())
			requireSlots(t, want, p)
			var written bytes.Buffer
			require.NoError(t, p.write(codec.NewWriter(&written)))
			again, err := readSlotBuffer(codec.NewReader(bytes.NewReader(written.Bytes())), space, size, 4, seeNothing)
			require.NoError(t, err)
			requireSlots(t, want, again)
			var twice bytes.Buffer
			require.NoError(t, again.write(codec.NewWriter(&twice)))
			require.True(t, bytes.Equal(written.Bytes(), twice.Bytes()))
			filed := space.PeakFileBytes()
			again.free()
			requireSlots(t, nil, again)
			_, err = readSlotBuffer(codec.NewReader(bytes.NewReader(written.Bytes())), space, size, 4,
				func(lane int, _ []byte) error {
					if lane == 3 {
						return errors.New("refused")
					}
					return nil
				})
			require.ErrorContains(t, err, "refused")
			_, err = readSlotBuffer(codec.NewReader(bytes.NewReader(written.Bytes())), space, size, 4, seeNothing)
			require.NoError(t, err)
			require.Equal(t, filed, space.PeakFileBytes(), "freed space is used again")
		}
	}
}

func seeNothing(int, []byte) error { return nil }

func requireSlots(t *testing.T, want [][]byte, p *slotBuffer) {
	t.Helper()
	i := 0
	require.NoError(t, p.each(func(lane int, slot []byte) error {
		if i >= len(want) || !bytes.Equal(want[i], append([]byte{byte(lane)}, slot...)) {
			return fmt.Errorf("slot %d is another", i)
		}
		i++
		return nil
	}))
	require.Len(t, want, i)
}
