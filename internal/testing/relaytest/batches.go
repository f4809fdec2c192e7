package relaytest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/onion"
)

// few returns the slots of n clients with values 0 to 2, as the first relay sees them after opening envelopes.
func (c *Cascade) few(t testing.TB, epoch uint64, n int) [][]byte {
	t.Helper()
	values := make([]uint64, n)
	for i := range values {
		values[i] = uint64(i % 3)
	}
	return c.Slots(t, epoch, values...)[0]
}

// Chain plays two relays that process the slots of one batch. If change is given, it alters what the second relay signs
// and passes on, as colluding relays could.
func (c *Cascade) Chain(t testing.TB, epoch, seq uint64, first [][]byte,
	change ...func([][]byte) [][]byte) *onion.Batch {
	t.Helper()
	in := uint64(len(first))
	at := onion.Context{TaskID: c.Open.ID, Epoch: epoch, Hop: 0}
	ingress, err := onion.NewBatch(c.SignKey(t, 0), onion.BatchDraft{
		Context: at, Seq: seq, Submissions: in, In: []uint64{in},
	}, [][][]byte{first})
	require.NoError(t, err)
	opener := c.Opener(t, 1, epoch)
	var next [][]byte
	for _, slot := range first {
		_, inner, err := opener.OpenSlot(0, slot)
		require.NoError(t, err)
		next = append(next, inner)
	}
	for _, f := range change {
		next = f(next)
	}
	at.Hop = 1
	batch, err := onion.NewBatch(c.SignKey(t, 1), onion.BatchDraft{
		Context: at, Seq: seq, Submissions: in, In: []uint64{in}, Source: ingress.Signed(),
	}, [][][]byte{next})
	require.NoError(t, err)
	return batch
}

// Destroyed returns a batch of epoch 0 that the relay at the given hop destroyed.
func (c *Cascade) Destroyed(t testing.TB, seq, submissions, hop uint64) *onion.Batch {
	t.Helper()
	at, in := onion.Context{TaskID: c.Open.ID}, []uint64{submissions}
	var lanes onion.Lanes
	if hop > 0 {
		lanes = onion.Lanes{c.few(t, 0, int(submissions))}
	}
	first, err := onion.NewBatch(c.SignKey(t, 0), onion.BatchDraft{
		Context: at, Seq: seq, Submissions: submissions, In: in,
	}, lanes)
	require.NoError(t, err)
	at.Hop = 1
	if hop == 0 {
		in = []uint64{0}
	}
	last, err := onion.NewBatch(c.SignKey(t, 1), onion.BatchDraft{
		Context: at, Seq: seq, Submissions: submissions, In: in, Source: first.Signed(),
	}, nil)
	require.NoError(t, err)
	return last
}

// Spoil makes the first n slots impossible to open.
func Spoil(slots [][]byte, n int) [][]byte {
	for i := range n {
		slots[i] = append([]byte{}, slots[i]...)
		slots[i][40] ^= 1
	}
	return slots
}

// Faulty returns batch files of two epochs with every kind of fault. Among them are messages that occur in two batches,
// a repeated batch, two signed batches with one number, withheld batches, a destroyed remainder, and files that are no
// batch.
func (c *Cascade) Faulty(t testing.TB) (files [][]byte) {
	t.Helper()
	size := int(c.Open.Batch.Size)
	add := func(b *onion.Batch) {
		raw, err := b.Bytes()
		require.NoError(t, err)
		files = append(files, raw)
	}
	shared := c.few(t, 0, 2)
	for seq := range uint64(8) {
		fresh := c.few(t, 0, size-2)
		if seq%3 == 1 {
			fresh = append(fresh, shared...)
		} else {
			fresh = append(fresh, c.few(t, 0, 2)...)
		}
		switch seq {
		case 1: // spoiled, so batch 4's copies count as new
			add(c.Chain(t, 0, seq, fresh, func(next [][]byte) [][]byte { return Spoil(next, 3) }))
		case 2: // part of this batch is repeated as batch 5
			add(c.Chain(t, 0, seq, fresh))
			add(c.Chain(t, 0, 5, fresh))
		case 5:
		case 6:
			add(c.Chain(t, 0, seq, fresh))
			add(c.Chain(t, 0, seq, c.few(t, 0, size)))
		case 7:
			add(c.Chain(t, 0, seq, fresh))
			files = append(files, files[len(files)-1], files[len(files)-2][:300])
		default:
			add(c.Chain(t, 0, seq, fresh))
		}
	}
	add(c.Destroyed(t, 8, 3, 0))
	add(c.Chain(t, 1, 1, c.few(t, 1, size)))
	return append(files, []byte("no batch"))
}

// FileName returns the name of the i-th batch file.
func FileName(i int) string { return fmt.Sprintf("%02d.batch", i) }
