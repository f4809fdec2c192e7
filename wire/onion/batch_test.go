package onion_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"math/bits"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// slots returns n distinct ciphertexts of the size that slots have at a hop.
func (w *world) slots(t testing.TB, hop, n int) [][]byte {
	layout, err := onion.NewLayout(w.Task)
	require.NoError(t, err)
	out := make([][]byte, n)
	for i := range out {
		out[i] = make([]byte, layout.SlotSize(hop))
		out[i][0], out[i][1] = byte(i), byte(hop)
	}
	return out
}

func (w *world) context(hop int) onion.Context {
	return onion.Context{TaskID: w.id, Epoch: 1, Hop: hop}
}

// chain returns batch 7 of every relay. It has three submissions with three slots in each of two lanes. Every relay
// after the first drops one slot in lane 1.
func (w *world) chain(t testing.TB) []*onion.Batch {
	t.Helper()
	var out []*onion.Batch
	var source *onion.SignedManifest
	in := []uint64{9, 9}
	for hop := range w.Relays {
		lanes := [][][]byte{w.slots(t, hop+1, 9), w.slots(t, hop+1, 9-hop)}
		b, err := onion.NewBatch(w.sign[hop], onion.BatchDraft{
			Context: w.context(hop), Seq: 7, Submissions: 3, In: in, Source: source,
		}, lanes)
		require.NoError(t, err)
		out, source, in = append(out, b), b.Signed(), []uint64{9, uint64(9 - hop)}
	}
	return out
}

func TestBatchRoundTrip(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 3, nil)
	for hop, b := range w.chain(t) {
		raw, err := b.Bytes()
		require.NoError(t, err)
		back, err := onion.ParseBatch(raw)
		require.NoError(t, err)
		require.Equal(t, b, back)
		chain, err := back.Check(w.Task, w.context(hop), 7)
		require.NoError(t, err)
		require.Len(t, chain, hop+1)
		for h, m := range chain {
			require.Equal(t, uint64(h), m.Hop)
			require.False(t, m.Destroyed())
		}
		require.Equal(t, onion.LaneCount{In: 9 - uint64(max(hop-1, 0)), Out: 9 - uint64(hop),
			Dropped: min(1, uint64(hop))}, chain[hop].Lanes[1])
		header, err := back.Header()
		require.NoError(t, err)
		require.Equal(t, chain[hop], *header)
	}
}

func TestDestroyedBatch(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 2, nil)
	for name, lanes := range map[string][][][]byte{"nil": nil, "nil lanes": {nil, nil}, "empty lanes": {{}, {}}} {
		b, err := onion.NewBatch(w.sign[0], onion.BatchDraft{
			Context: w.context(0), Submissions: 2, In: []uint64{6, 6},
		}, lanes)
		require.NoError(t, err, name)
		raw, err := b.Bytes()
		require.NoError(t, err)
		back, err := onion.ParseBatch(raw)
		require.NoError(t, err)
		chain, err := back.Check(w.Task, w.context(0), 0)
		require.NoError(t, err)
		require.True(t, chain[0].Destroyed())
		require.Equal(t, onion.LaneCount{In: 6, Out: 0, Dropped: 6}, chain[0].Lanes[1])
		require.Error(t, onion.CheckCounts(w.Task, 2, []uint64{0, 0}))
	}
	_, err := onion.NewBatch(w.sign[0], onion.BatchDraft{
		Context: w.context(0), Submissions: 2, In: []uint64{0, 0},
	}, [][][]byte{w.slots(t, 1, 1), nil})
	require.ErrorContains(t, err, "1 slots out of lane 0, 0 in", "out of nothing")
	_, err = onion.NewBatch(w.sign[0], onion.BatchDraft{
		Context: w.context(0), Submissions: 2, In: []uint64{6, 6},
	}, [][][]byte{{}})
	require.ErrorContains(t, err, "1 lanes")
}

// manifest returns hop 0's batch from [world.chain], with a manifest that change has edited and key has signed.
func (w *world) manifest(t *testing.T, key ed25519.PrivateKey, change func(*onion.Manifest)) *onion.Batch {
	b := w.chain(t)[0]
	m, err := b.Header()
	require.NoError(t, err)
	change(m)
	if b.Manifest, err = codec.Marshal(m); err != nil {
		require.NoError(t, err)
	}
	b.Signature = signing.Sign(key, signing.Manifest, b.Manifest)
	return b
}

func TestBatchCheckRejects(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 2, nil)
	stranger := ed25519.NewKeyFromSeed(make([]byte, 32))
	first := func(change func(*onion.Batch)) *onion.Batch {
		b := w.chain(t)[0]
		change(b)
		return b
	}
	signed := func(change func(*onion.Manifest)) *onion.Batch { return w.manifest(t, w.sign[0], change) }
	for name, c := range map[string]struct {
		batch *onion.Batch
		want  string
	}{
		"a stranger's signature":    {w.manifest(t, stranger, func(*onion.Manifest) {}), signing.ErrSigner.Error()},
		"another relay's signature": {w.manifest(t, w.sign[1], func(*onion.Manifest) {}), signing.ErrSigner.Error()},
		"no signature": {first(func(b *onion.Batch) { b.Signature = []byte{} }),
			signing.ErrSigner.Error()},
		"a signature for another use": {first(func(b *onion.Batch) {
			b.Signature = signing.Sign(w.sign[0],
				signing.KeyList, b.Manifest)
		}), signing.ErrSigner.Error()},
		"a changed manifest": {first(func(b *onion.Batch) { b.Manifest[len(b.Manifest)-1] ^= 1 }),
			signing.ErrSigner.Error()},
		"a message removed": {first(func(b *onion.Batch) { b.Ciphertexts[0] = b.Ciphertexts[0][1:] }),
			onion.ErrCiphertexts.Error()},
		"a message duplicated": {first(func(b *onion.Batch) { b.Ciphertexts[0][0] = b.Ciphertexts[0][1] }),
			onion.ErrCiphertexts.Error()},
		"a message added": {first(func(b *onion.Batch) {
			b.Ciphertexts[0] = append(b.Ciphertexts[0],
				b.Ciphertexts[0][0])
		}), onion.ErrCiphertexts.Error()},
		"a message changed": {first(func(b *onion.Batch) { b.Ciphertexts[1][8][40] ^= 1 }),
			onion.ErrCiphertexts.Error()},
		"messages swapped": {first(func(b *onion.Batch) { s := b.Ciphertexts[0]; s[0], s[1] = s[1], s[0] }),
			onion.ErrCiphertexts.Error()},
		"lanes swapped": {first(
			func(b *onion.Batch) { slices.Reverse(b.Ciphertexts); b.Ciphertexts[0][0][2] = 1 }),
			onion.ErrCiphertexts.Error()},
		"a lane removed": {first(func(b *onion.Batch) { b.Ciphertexts = b.Ciphertexts[:1] }),
			onion.ErrCiphertexts.Error()},
		"another label": {signed(func(m *onion.Manifest) { m.Label = "doona-manifesto" }),
			"not a manifest"},
		"another version": {signed(func(m *onion.Manifest) { m.Version++ }), "not a manifest"},
		"another task":    {signed(func(m *onion.Manifest) { m.TaskID[0]++ }), "another task"},
		"another epoch":   {signed(func(m *onion.Manifest) { m.Epoch = 0 }), "epoch 0, want 1"},
		"another hop":     {signed(func(m *onion.Manifest) { m.Hop = 1 }), "of hop 1"},
		"another number":  {signed(func(m *onion.Manifest) { m.Seq = 8 }), "batch 8"},
		"a lane less":     {signed(func(m *onion.Manifest) { m.Lanes = m.Lanes[:1] }), "1 lanes, want 2"},
		"no hash":         {signed(func(m *onion.Manifest) { m.Ciphertexts = []byte{} }), "no hash"},
		"a source at the first relay": {signed(func(m *onion.Manifest) { m.Source = []byte{0x92, 0xc4, 0, 0xc4, 0} }),
			"chain"},
		"slots that vanish":  {signed(func(m *onion.Manifest) { m.Lanes[0].Out-- }), "does not add up"},
		"slots from nowhere": {signed(func(m *onion.Manifest) { m.Lanes[0].In-- }), "does not add up"},
		"a wrapped difference": {signed(func(m *onion.Manifest) {
			m.Lanes[0] = onion.LaneCount{In: 8, Out: 9,
				Dropped: 1<<64 - 1}
		}), "does not add up"},
		"fewer slots than submitted": {signed(func(m *onion.Manifest) { m.Submissions = 4 }), "from 4 submissions"},
		"more slots than submitted":  {signed(func(m *onion.Manifest) { m.Submissions = 2 }), "from 2 submissions"},
		// 0x5555555555555558·3 = 8 mod 2^64, so the product overflows.
		"a wrapped product": {signed(func(m *onion.Manifest) { m.Submissions = 0x5555555555555558 }),
			"submissions, want below"},
		"counts that are not those of its ciphertexts": {signed(func(m *onion.Manifest) {
			m.Lanes[0].Out, m.Lanes[0].Dropped = 8, 1
		}), "9 slots in lane 0, manifest says 8"},
	} {
		_, err := c.batch.Check(w.Task, w.context(0), 7)
		require.ErrorContains(t, err, c.want, name)
	}
	for name, check := range map[string]func(b *onion.Batch) error{
		"number": func(b *onion.Batch) error { _, err := b.Check(w.Task, w.context(0), 8); return err },
		"hop":    func(b *onion.Batch) error { _, err := b.Check(w.Task, w.context(1), 7); return err },
		"epoch": func(b *onion.Batch) error {
			_, err := b.Check(w.Task, onion.Context{TaskID: w.id, Epoch: 0}, 7)
			return err
		},
		"task": func(b *onion.Batch) error {
			_,
				err := b.Check(w.Task, onion.Context{Epoch: 1}, 7)
			return err
		},
		"hop before the first": func(b *onion.Batch) error {
			_,
				err := b.Check(w.Task, w.context(-1), 7)
			return err
		},
		"hop after the last one": func(b *onion.Batch) error { _, err := b.Check(w.Task, w.context(2), 7); return err },
	} {
		require.Error(t, check(w.chain(t)[0]), "wrong %s", name)
	}
	// Slots of the wrong size, in a batch with a valid signature.
	b, err := onion.NewBatch(w.sign[0], onion.BatchDraft{
		Context: w.context(0), Seq: 7, Submissions: 3, In: []uint64{9, 9},
	}, [][][]byte{w.slots(t, 1, 9), w.slots(t, 2, 9)})
	require.NoError(t, err)
	_, err = b.Check(w.Task, w.context(0), 7)
	require.ErrorContains(t, err, "a slot of")
}

func TestChainIsChecked(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 3, nil)
	last := w.context(2)
	lanes := [][][]byte{w.slots(t, 3, 9), w.slots(t, 3, 7)}
	build := func(in []uint64, submissions uint64, source *onion.SignedManifest) *onion.Batch {
		b, err := onion.NewBatch(w.sign[2], onion.BatchDraft{
			Context: last, Seq: 7, Submissions: submissions, In: in, Source: source,
		}, lanes)
		require.NoError(t, err)
		return b
	}
	chain := w.chain(t)
	resign := func(hop int, change func(*onion.Manifest)) *onion.SignedManifest {
		var m onion.Manifest
		require.NoError(t, codec.Unmarshal(chain[hop].Manifest, &m))
		change(&m)
		body, err := codec.Marshal(&m)
		require.NoError(t, err)
		return &onion.SignedManifest{Manifest: body, Signature: signing.Sign(w.sign[hop], signing.Manifest, body)}
	}
	forged := chain[1].Signed()
	forged = &onion.SignedManifest{Manifest: forged.Manifest,
		Signature: signing.Sign(w.sign[2], signing.Manifest, forged.Manifest)}
	_, err := build([]uint64{9, 8}, 3, chain[1].Signed()).Check(w.Task, last, 7)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		batch *onion.Batch
		want  string
	}{
		"cut":                    {build([]uint64{9, 8}, 3, nil), "chain"},
		"a hop left out":         {build([]uint64{9, 9}, 3, chain[0].Signed()), signing.ErrSigner.Error()},
		"a source by a stranger": {build([]uint64{9, 8}, 3, forged), signing.ErrSigner.Error()},
		"more in than went out": {build([]uint64{9, 9}, 3, chain[1].Signed()),
			"9 slots into lane 1, hop 1 sent 8"},
		"fewer in than went out": {build([]uint64{9, 7}, 3, chain[1].Signed()),
			"7 slots into lane 1, hop 1 sent 8"},
		"more submissions":  {build([]uint64{9, 8}, 4, chain[1].Signed()), "4 submissions, hop 1 said 3"},
		"fewer submissions": {build([]uint64{9, 8}, 2, chain[1].Signed()), "2 submissions, hop 1 said 3"},
		"a source of another number": {build([]uint64{9, 8}, 3, resign(1, func(m *onion.Manifest) { m.Seq++ })),
			"batch 8"},
		"a source of another epoch": {build([]uint64{9, 8}, 3, resign(1, func(m *onion.Manifest) { m.Epoch = 0 })),
			"epoch 0"},
		"a source of another task": {build([]uint64{9, 8}, 3, resign(1, func(m *onion.Manifest) { m.TaskID[0]++ })),
			"another task"},
		"a source of its own hop": {build([]uint64{9, 8}, 3, resign(1, func(m *onion.Manifest) { m.Hop = 2 })),
			"of hop 2"},
		"a source cut short": {build([]uint64{9, 8}, 3,
			resign(1, func(m *onion.Manifest) { m.Source = []byte{} })), "chain"},
		"a source that is no msgpack": {build([]uint64{9, 8}, 3,
			resign(1, func(m *onion.Manifest) { m.Source = []byte{0xc1} })), "couldn't decode"},
	} {
		_, err := c.batch.Check(w.Task, last, 7)
		require.ErrorContains(t, err, c.want, name)
	}
}

// TestHasMinClients: a batch needs n submissions, and the slots of n_min clients must remain after subtracting all
// dummies.
func TestHasMinClients(t *testing.T) {
	noisy := &task.Task{Batch: task.Batch{Size: 10, Min: 9}, Slots: task.Slots{PerLane: 1, Padding: task.PaddingFull}}
	for _, c := range []struct {
		submissions, valid, first, second uint64
		ok                                bool
	}{
		{10, 9 + 7, 3, 4, true}, {10, 8 + 7, 3, 4, false}, {9, 9 + 7, 3, 4, false},
		{11, 30, 3, 4, true}, {10, 5, 3, 4, false},
	} {
		chain := []onion.Manifest{
			{Submissions: c.submissions, Lanes: []onion.LaneCount{{Added: c.first}}},
			{Submissions: c.submissions, Lanes: []onion.LaneCount{{Added: c.second}}},
		}
		require.Equal(t, c.ok, onion.HasMinClients(noisy, chain, []uint64{c.valid}), "%+v", c)
	}
	several := &task.Task{Batch: task.Batch{Size: 10, Min: 9}, Slots: task.Slots{PerLane: 3, Padding: task.PaddingFull}}
	chain := []onion.Manifest{{Submissions: 10, Lanes: make([]onion.LaneCount, 2)}}
	require.True(t, onion.HasMinClients(several, chain, []uint64{27, 27}))
	require.False(t, onion.HasMinClients(several, chain, []uint64{27, 26}))
}

func TestCheckCounts(t *testing.T) {
	full := newWorld(t, task.KEMX25519, 1, nil).Task // n = 3, n_min = 2, B = 3 slots per client and lane, 2 lanes
	none := newWorld(t, task.KEMX25519, 1, func(t *task.Task) { t.Slots.Padding = task.PaddingNone }).Task
	average := newWorld(t, task.KEMX25519, 1, func(t *task.Task) {
		t.Slots.Padding, t.Slots.Average = task.PaddingNone, 2
	}).Task
	for _, c := range []struct {
		task        *task.Task
		submissions uint64
		valid       []uint64
		ok          bool
	}{
		{full, 3, []uint64{9, 9}, true}, {full, 3, []uint64{6, 6}, true}, {full, 4, []uint64{6, 6}, true},
		{full, 3, []uint64{5, 9}, false}, {full, 3, []uint64{9, 5}, false}, {full, 2, []uint64{6, 6}, false},
		{full, 0, []uint64{9, 9}, false},
		{full, 3, nil, false}, {full, 3, []uint64{9}, false}, {full, 3, []uint64{9, 9, 9}, false},
		{none, 3, []uint64{2, 2}, true}, {none, 3, []uint64{2, 1}, false}, {none, 2, []uint64{6, 6}, false},
		{none, 3, []uint64{9, 9}, true}, {none, 3, []uint64{9, 10}, false},
		{average, 3, []uint64{6, 6}, true}, {average, 3, []uint64{6, 7}, false},
	} {
		require.Equal(t, c.ok, onion.CheckCounts(c.task, c.submissions, c.valid) == nil, "%s, %d, %v",
			c.task.Slots.Padding, c.submissions, c.valid)
	}
}

// TestHashOfLanes: batches that differ in the number or the bytes of their slots must have different hashes. The hash
// must be the one that docs/SPEC.md defines.
func TestHashOfLanes(t *testing.T) {
	seen := map[string]bool{}
	for _, lanes := range []onion.Lanes{
		{}, {{}}, {{}, {}}, {{{1}}}, {{{1}}, {}}, {{}, {{1}}}, {{{1, 2}}}, {{{1}, {2}}}, {{{1}}, {{2}}}, {{{2}, {1}}},
		{{{1, 2}}, {}},
	} {
		h := string(onion.HashLanes(lanes))
		require.False(t, seen[h], "%v", lanes)
		seen[h] = true
	}
	lane := make([][]byte, onion.ChunkSlots+1)
	for i := range lane {
		lane[i] = []byte{byte(i), byte(i >> 8)}
	}
	full, rest := sha256.Sum256(bytes.Join(lane[:onion.ChunkSlots], nil)), sha256.Sum256(lane[onion.ChunkSlots])
	other := sha256.Sum256([]byte{7, 8})
	head := []byte{6: 4, 14: 4, 15: 1, 31: 1}
	want := sha256.Sum256(slices.Concat(head, full[:], rest[:], other[:]))
	require.Equal(t, want[:], onion.HashLanes(onion.Lanes{lane, {}, {{7, 8}}}))
}

// bigBatch returns a batch of hop 0 with a lane of three chunks and a lane of one chunk.
func (w *world) bigBatch(t testing.TB) *onion.Batch {
	t.Helper()
	lanes := onion.Lanes{w.slots(t, 1, 2*onion.ChunkSlots+5), w.slots(t, 1, onion.ChunkSlots)}
	n := uint64(len(lanes[0]))
	b, err := onion.NewBatch(w.sign[0], onion.BatchDraft{
		Context: w.context(0), Seq: 7, Submissions: n, In: []uint64{n, n},
	}, lanes)
	require.NoError(t, err)
	return b
}

// TestBatchStreams: the reader must check the signature before the first slot, and each chunk as it arrives. It must
// return what was written.
func TestBatchStreams(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 1, func(t *task.Task) { t.Slots.PerLane, t.Batch.Size = 1, 4*onion.ChunkSlots })
	want := w.bigBatch(t)
	raw, err := want.Bytes()
	require.NoError(t, err)
	parsed, err := onion.ParseBatch(raw)
	require.NoError(t, err)
	require.Equal(t, want, parsed)

	layout, err := onion.NewLayout(w.Task)
	require.NoError(t, err)
	size := layout.SlotSize(1)
	slots := (3*onion.ChunkSlots + 5) * size
	head := len(raw) - slots - 3*5 - 3 // three chunks with 5-byte headers, one with a 3-byte header
	r, err := onion.NewBatchReader(bytes.NewReader(raw[:head]), 1<<20)
	require.NoError(t, err)
	chain, err := r.Check(w.Task, w.context(0), 7)
	require.NoError(t, err)
	require.Len(t, chain, 1)
	_, _, err = r.Next()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)

	r, err = onion.NewBatchReader(bytes.NewReader(raw), 1<<20)
	require.NoError(t, err)
	_, err = r.Check(w.Task, w.context(0), 7)
	require.NoError(t, err)
	for _, want := range []struct{ lane, slots int }{{0, onion.ChunkSlots}, {0, onion.ChunkSlots}, {0, 5},
		{1, onion.ChunkSlots}} {
		lane, slots, err := r.Next()
		require.NoError(t, err)
		require.Equal(t, want.lane, lane)
		require.Len(t, slots, want.slots)
	}
	_, _, err = r.Next()
	require.Equal(t, io.EOF, err)

	for name, c := range map[string]struct {
		raw    []byte
		chunks int // number of valid chunks before the fault
		want   error
	}{
		"a bit in the first chunk": {flipped(raw, head+50), 0, onion.ErrCiphertexts},
		"a bit in the last chunk":  {flipped(raw, len(raw)-1), 3, onion.ErrCiphertexts},
		"cut in the third chunk":   {raw[:head+2*(5+onion.ChunkSlots*size)+100], 2, io.ErrUnexpectedEOF},
	} {
		r, err := onion.NewBatchReader(bytes.NewReader(c.raw), 1<<20)
		require.NoError(t, err)
		_, err = r.Check(w.Task, w.context(0), 7)
		require.NoError(t, err, name)
		for range c.chunks {
			_, _, err := r.Next()
			require.NoError(t, err, name)
		}
		_, _, err = r.Next()
		require.ErrorIs(t, err, c.want, name)
	}
	r, err = onion.NewBatchReader(bytes.NewReader(append(bytes.Clone(raw), 0)), 1<<20)
	require.NoError(t, err)
	_, err = r.Check(w.Task, w.context(0), 7)
	require.NoError(t, err)
	_, err = r.Rest()
	require.ErrorContains(t, err, "trailing")
}

func flipped(in []byte, at int) []byte {
	out := bytes.Clone(in)
	out[at] ^= 1
	return out
}

// TestBatchHeadRejects: the reader must detect faults in the head before the first slot, and must refuse slots of the
// wrong size.
func TestBatchHeadRejects(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 1, func(t *task.Task) { t.Slots.PerLane, t.Batch.Size = 1, 4*onion.ChunkSlots })
	good := w.bigBatch(t)
	raw, err := good.Bytes()
	require.NoError(t, err)
	hash := sha256.Sum256(bytes.Join(good.Ciphertexts[1], nil))
	at := bytes.LastIndex(raw, hash[:])
	hashes := func(raw []byte) error {
		r, err := onion.NewBatchReader(bytes.NewReader(raw), 1<<20)
		require.NoError(t, err)
		_, err = r.Check(w.Task, w.context(0), 7)
		require.NoError(t, err)
		return r.Hashes()
	}
	require.NoError(t, hashes(raw))
	require.ErrorIs(t, hashes(flipped(raw, at)), onion.ErrCiphertexts, "a bit in a hash")
	require.Equal(t, []byte{0xc4, 128}, raw[at-3*32-2:at-3*32])
	require.Equal(t, byte(0x94), raw[at+32])
	short := slices.Concat(raw[:at-3*32-2], []byte{0xc4, 96}, raw[at-3*32:at], []byte{0x93}, raw[at+33:])
	require.ErrorIs(t, hashes(short), onion.ErrCiphertexts, "a hash and a chunk less than the counts ask for")
	require.ErrorIs(t, hashes(flipped(raw, at-3*32-2)), onion.ErrCiphertexts, "no bytes")
	require.ErrorIs(t, hashes(raw[:at]), io.ErrUnexpectedEOF)
	_, err = onion.NewBatchReader(bytes.NewReader(raw), 100)
	require.ErrorContains(t, err, "at most 100")

	long := onion.Lanes{w.slots(t, 0, 3), w.slots(t, 0, 3)} // slots as hop 0 receives them, one layer too large
	b, err := onion.NewBatch(w.sign[0], onion.BatchDraft{
		Context: w.context(0), Seq: 7, Submissions: 3, In: []uint64{3, 3},
	}, long)
	require.NoError(t, err)
	raw, err = b.Bytes()
	require.NoError(t, err)
	first := func(raw []byte) error {
		r, err := onion.NewBatchReader(bytes.NewReader(raw), 1<<20)
		require.NoError(t, err)
		_, err = r.Check(w.Task, w.context(0), 7)
		require.NoError(t, err)
		_, _, err = r.Next()
		return err
	}
	require.ErrorIs(t, first(raw), onion.ErrSlotSize)
	require.ErrorIs(t, first(flipped(raw, len(raw)-len(long[1][0])*3-10)), onion.ErrCiphertexts, "nor signed for")
}

// TestAdded: only in a task with noise may a batch have slots that no client sent.
func TestAdded(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 1, nil)
	noisy := *w.Task
	noisy.Noise = &task.Noise{Kind: task.NoisePool, Cells: 2, Pool: 3}
	const law = "by the task's noise"
	for _, c := range []struct {
		count       onion.LaneCount
		plain, with string
	}{
		{onion.LaneCount{In: 9, Out: 9}, "", law},
		{onion.LaneCount{In: 9, Added: 3, Out: 9, Dropped: 3}, "3 slots added", ""},
		{onion.LaneCount{In: 9, Added: 4, Out: 9, Dropped: 4}, "4 slots added", law},
		{onion.LaneCount{In: 9, Added: 2, Out: 9, Dropped: 2}, "2 slots added", law},
		{onion.LaneCount{In: 9, Added: 3, Out: 9}, "does not add up", "does not add up"},
		{onion.LaneCount{In: 9, Out: 9, Dropped: 3}, "does not add up", "does not add up"},
		{onion.LaneCount{In: 9, Added: 1<<64 - 9, Out: 0}, "does not add up", "does not add up"},
	} {
		b := w.manifest(t, w.sign[0], func(m *onion.Manifest) {
			for lane := range m.Lanes {
				m.Lanes[lane] = c.count
			}
		})
		for task, want := range map[*task.Task]string{w.Task: c.plain, &noisy: c.with} {
			_, err := b.Check(task, w.context(0), 7)
			if want == "" {
				require.NoError(t, err, "%+v", c.count)
			} else {
				require.ErrorContains(t, err, want, "%+v", c.count)
			}
		}
	}
}

// TestKeyLists: a key list must be refused by name if its party signed another form, or if the keys in it are not those
// under the root.
func TestKeyLists(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 2, nil)
	keys, err := onion.PartyKeys(w.Task, 1, w.lists[1])
	require.NoError(t, err)
	require.Equal(t, w.keys[1][0].Public().ID(), keys[0].ID())
	raw, err := w.lists[1].Bytes()
	require.NoError(t, err)
	back, err := onion.ParseKeyList(raw)
	require.NoError(t, err)
	require.Equal(t, []any{w.lists[1].List, w.lists[1].Signature, w.lists[1].Keys},
		[]any{back.List, back.Signature, back.Keys})
	head, err := back.Head()
	require.NoError(t, err)
	size, keysSize, err := onion.KeySizes(w.KEM, epochs)
	require.NoError(t, err)
	require.Equal(t, []int{int(size), int(keysSize)}, []int{len(head), len(back.Keys)})

	_, err = onion.PartyKeys(w.Task, 0, w.lists[1])
	require.ErrorContains(t, err, "not the list the task names")
	twice := slices.Concat(back.Keys[:32], back.Keys[:32])
	for name, c := range map[string]struct {
		change func(*onion.KeyList)
		keys   []byte
		signer int
		want   string
	}{
		"a stranger's signature": {func(*onion.KeyList) {}, back.Keys, 0, signing.ErrSigner.Error()},
		"fewer keys":             {func(l *onion.KeyList) { l.Count = 1 }, back.Keys, 1, "want 2 keys"},
		"more keys":              {func(l *onion.KeyList) { l.Count = 3 }, back.Keys, 1, "want 2 keys"},
		"another kem":            {func(l *onion.KeyList) { l.KEM = task.KEMMLKEM768 }, back.Keys, 1, "of kem x25519"},
		"another label":          {func(l *onion.KeyList) { l.Label = "x" }, back.Keys, 1, "version 1"},
		"another version":        {func(l *onion.KeyList) { l.Version = 2 }, back.Keys, 1, "version 1"},
		"a short root":           {func(l *onion.KeyList) { l.Root = l.Root[1:] }, back.Keys, 1, "other keys"},
		"another root":           {func(l *onion.KeyList) { l.Root[0] ^= 1 }, back.Keys, 1, "other keys"},
		"keys swapped":           {func(*onion.KeyList) {}, slices.Concat(back.Keys[32:], back.Keys[:32]), 1, "other keys"},
		"a key missing":          {func(*onion.KeyList) {}, back.Keys[:32], 1, "32 bytes of keys from epoch 0 on, want 64"},
		"a byte missing":         {func(*onion.KeyList) {}, back.Keys[:63], 1, "63 bytes of keys from epoch 0 on, want 64"},
		"a key twice": {func(l *onion.KeyList) {
			signed, err := onion.ListOf(w.KEM, twice, w.sign[1])
			require.NoError(t, err)
			require.NoError(t, codec.Unmarshal(signed.List, l))
		}, twice, 1, "epochs 0 and 1"},
	} {
		var list onion.KeyList
		require.NoError(t, codec.Unmarshal(w.lists[1].List, &list))
		c.change(&list)
		body, err := codec.Marshal(&list)
		require.NoError(t, err)
		signed := &onion.SignedKeyList{List: body, Signature: signing.Sign(w.sign[c.signer], signing.KeyList, body),
			Keys: c.keys}
		named := *w.Task
		named.Relays = slices.Clone(w.Relays)
		named.Relays[1].KeyList = signed.Hash()
		_, err = onion.PartyKeys(&named, 1, signed)
		require.ErrorContains(t, err, c.want, name)
	}
}

// TestKeyBlocks: each block of a list's keys must be accepted where it stands, and nowhere else, for all numbers of
// epochs up to 150 and some large ones. A block must stay small.
func TestKeyBlocks(t *testing.T) {
	counts := []uint64{256, 365, 1000, 4096, 4097}
	for count := range uint64(150) {
		counts = append(counts, count+1)
	}
	sign := ed25519.NewKeyFromSeed(make([]byte, 32))
	for _, count := range counts {
		keys := make([]byte, 32*count)
		for epoch := range count {
			binary.BigEndian.PutUint64(keys[32*epoch:], epoch+1)
		}
		whole, err := onion.ListOf(onion.TokenKEM, keys, sign)
		require.NoError(t, err)
		named := &task.Task{Epochs: task.Epochs{Count: count}, Clients: task.Clients{Issuer: task.Party{
			SignKey: task.SignKey(sign.Public().(ed25519.PublicKey)), KeyList: whole.Hash()}}}
		all, err := onion.IssuerKeys(named, whole)
		require.NoError(t, err)
		for _, epoch := range []uint64{0, count / 2, count - 1} {
			block := whole.Block(epoch)
			require.LessOrEqual(t, len(block.Keys), 32*onion.BlockEpochs)
			require.LessOrEqual(t, len(block.Path), 32*bits.Len64(count/onion.BlockEpochs))
			ids, err := onion.IssuerKeys(named, block)
			require.NoError(t, err)
			for i, id := range ids {
				if in := uint64(i)/onion.BlockEpochs == epoch/onion.BlockEpochs; in {
					require.Equal(t, all[i], id)
				} else {
					require.Zero(t, id)
				}
			}
			for name, change := range map[string]func(*onion.SignedKeyList){
				"another key":       func(s *onion.SignedKeyList) { s.Keys[0] ^= 1 },
				"a key more":        func(s *onion.SignedKeyList) { s.Keys = append(s.Keys, make([]byte, 32)...) },
				"a key less":        func(s *onion.SignedKeyList) { s.Keys = s.Keys[32:] },
				"another place":     func(s *onion.SignedKeyList) { s.First += onion.BlockEpochs },
				"an earlier place":  func(s *onion.SignedKeyList) { s.First -= onion.BlockEpochs },
				"between blocks":    func(s *onion.SignedKeyList) { s.First++ },
				"another path":      func(s *onion.SignedKeyList) { s.Path = otherNode(s.Path) },
				"a node more":       func(s *onion.SignedKeyList) { s.Path = append(s.Path, make([]byte, 32)...) },
				"a byte more":       func(s *onion.SignedKeyList) { s.Path = append(s.Path, 0) },
				"a node less":       func(s *onion.SignedKeyList) { s.Path = shortened(s.Path) },
				"a node that hides": func(s *onion.SignedKeyList) { s.Path = append(make([]byte, 32), s.Path...) },
			} {
				bad := *block
				bad.Keys, bad.Path = bytes.Clone(block.Keys), append([]byte{}, block.Path...)
				change(&bad)
				_, err := onion.IssuerKeys(named, &bad)
				require.Error(t, err, "%s, epoch %d of %d", name, epoch, count)
			}
		}
	}
}

// otherNode returns a path with another bit, or a path of zeros in place of an empty one.
func otherNode(path []byte) []byte {
	if len(path) == 0 {
		return make([]byte, 32)
	}
	path[len(path)-1] ^= 1
	return path
}

// shortened returns a path without its last node, or a byte in place of an empty one.
func shortened(path []byte) []byte {
	if len(path) == 0 {
		return []byte{0}
	}
	return path[:len(path)-32]
}

// TestSealsOnlyWithKeys: a sealer with the keys of a block must refuse an epoch outside.
func TestSealsOnlyWithKeys(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 1, func(t *task.Task) { t.Epochs.Count = 20 })
	require.EqualValues(t, 20, w.Epochs.Count)
	blocks := []*onion.SignedKeyList{w.lists[0].Block(9), w.lists[1].Block(9)}
	s, err := onion.NewSealer(w.Task, w.id, blocks)
	require.NoError(t, err)
	whole := w.sealer(t)
	lanes := make([][]task.Message, w.Slots.Lanes)
	for lane := range lanes {
		lanes[lane] = slices.Repeat([]task.Message{{Body: make([]byte, 4)}}, int(w.Slots.PerLane))
	}
	for epoch := range w.Epochs.Count {
		_, err := whole.Seal(epoch, lanes)
		require.NoError(t, err)
		if _, err = s.Seal(epoch, lanes); epoch/onion.BlockEpochs == 1 {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "the keys of other epochs")
			_, err = s.SealSlot(epoch, 1, 0, make([]byte, 4))
			require.ErrorContains(t, err, "the keys of other epochs")
		}
	}
	_, err = onion.NewSealer(w.Task, w.id, []*onion.SignedKeyList{w.lists[0].Block(9), w.lists[1].Block(0)})
	require.ErrorContains(t, err, "of other epochs than those of hop 0")
}

// TestSignaturesAreNotMalleable adds the group order L to the number S of a valid Ed25519 signature. The result must be
// refused.
func TestSignaturesAreNotMalleable(t *testing.T) {
	order := []byte{0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
		31: 0x10}
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	signature := signing.Sign(key, signing.Task, nil)
	carry := 0
	for i := range 32 {
		carry += int(signature[32+i]) + int(order[i])
		signature[32+i] = byte(carry)
		carry >>= 8
	}
	require.False(t, signing.Verify(key.Public().(ed25519.PublicKey), signing.Task, nil, signature))
}

// FuzzParseBatch: a batch that parses must encode to the same bytes again.
func FuzzParseBatch(f *testing.F) {
	w := newWorld(f, task.KEMX25519, 2, func(t *task.Task) { t.Slots.PerLane, t.Batch.Size = 1, 4*onion.ChunkSlots })
	b, err := onion.NewBatch(w.sign[0], onion.BatchDraft{
		Context: w.context(0), Seq: 7, Submissions: 3, In: []uint64{3, 3},
	}, [][][]byte{w.slots(f, 1, 3), {}})
	require.NoError(f, err)
	raw, err := b.Bytes()
	require.NoError(f, err)
	f.Add(raw)
	f.Add(bytes.Replace(raw, []byte{0x90}, []byte{0xc0}, 1))
	f.Add([]byte{0x94, 0xc4, 0, 0xc4, 0, 0xc4, 0, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := onion.ParseBatch(in)
		if err != nil {
			return
		}
		again, err := b.Bytes()
		require.NoError(t, err)
		require.Equal(t, in, again)
		_, _ = b.Check(w.Task, w.context(0), 7) // must not panic
		_, _ = b.Header()
	})
}

// FuzzParseKeyList: a key list that parses must encode to the same bytes again.
func FuzzParseKeyList(f *testing.F) {
	w := newWorld(f, task.KEMX25519, 1, nil)
	raw, err := w.lists[0].Bytes()
	require.NoError(f, err)
	f.Add(raw)
	f.Add([]byte{0x92, 0xc6, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, in []byte) {
		s, err := onion.ParseKeyList(in)
		if err != nil {
			return
		}
		again, err := s.Bytes()
		require.NoError(t, err)
		require.Equal(t, in, again)
		_, _ = onion.PartyKeys(w.Task, 0, s)
	})
}

// TestBatchWriter: a batch that [onion.BatchWriter] writes slot by slot must have the same bytes as one made in memory,
// for any number of chunks. Without slots it must be a destroyed batch.
func TestBatchWriter(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 1, nil)
	for _, n := range [][2]int{{0, 0}, {1, 0}, {0, 1}, {1024, 1024}, {1025, 3000}} {
		lanes, in := onion.Lanes{w.slots(t, 1, n[0]), w.slots(t, 1, n[1])}, []uint64{3000, 3000}
		added := []uint64{25, 0}
		want, err := onion.NewBatch(w.sign[0], onion.BatchDraft{
			Context: w.context(0), Seq: 7, Submissions: 3000, In: in, Added: added,
		}, lanes)
		require.NoError(t, err)
		raw, err := want.Bytes()
		require.NoError(t, err)
		var behind bytes.Buffer
		out := onion.NewBatchWriter(2, func(chunk []byte) error {
			_, err := behind.Write(chunk)
			return err
		})
		require.False(t, out.Filled())
		for lane, slots := range lanes {
			for _, slot := range slots {
				require.NoError(t, out.Add(lane, slot))
				require.True(t, out.Filled())
			}
		}
		signed, head, err := out.Finish(w.sign[0], onion.BatchDraft{
			Context: w.context(0), Seq: 7, Submissions: 3000, In: in, Added: added,
		})
		require.NoError(t, err)
		require.Equal(t, want.Signed(), signed)
		require.Equal(t, raw, append(head, behind.Bytes()...))
	}
	out := onion.NewBatchWriter(2, func([]byte) error { return io.ErrShortWrite })
	require.NoError(t, out.Add(1, []byte{1}))
	require.ErrorContains(t, out.Add(0, []byte{1}), "lane 0 follows lane 1")
	require.ErrorContains(t, out.Add(2, []byte{1}), "lane 2")
	_, _, err := out.Finish(w.sign[0], onion.BatchDraft{
		Context: w.context(0), Submissions: 1, In: []uint64{1, 1}, Added: []uint64{0, 0},
	})
	require.ErrorIs(t, err, io.ErrShortWrite)
	out = onion.NewBatchWriter(1, func([]byte) error { return nil })
	require.NoError(t, out.Add(0, []byte{1}))
	_, _, err = out.Finish(w.sign[0], onion.BatchDraft{
		Context: w.context(0), Submissions: 1, In: []uint64{0}, Added: []uint64{0},
	})
	require.ErrorContains(t, err, "1 slots out of lane 0, 0 in", "out of nothing")
}

// claiming returns head, followed by a byte string that claims n bytes and has n zeros.
func claiming(head []byte, n uint32) io.Reader {
	head = binary.BigEndian.AppendUint32(append(bytes.Clone(head), 0xc6), n)
	return io.MultiReader(bytes.NewReader(head), io.LimitReader(zeroes{}, int64(n)))
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestMemoryIsNotTheSenders: a part of a batch claims or has a wrong length. The reader must not take more memory than
// this part needs in a batch of the task. Where possible, the signature in the test is valid.
func TestMemoryIsNotTheSenders(t *testing.T) {
	const claim = 64 << 20
	w := newWorld(t, task.KEMX25519, 1, func(t *task.Task) { t.Slots.PerLane, t.Batch.Size = 1, 4*onion.ChunkSlots })
	good := w.bigBatch(t)
	raw, err := good.Bytes()
	require.NoError(t, err)
	w.Task.Batch.Size = uint64(len(good.Ciphertexts[0]))
	hash := sha256.Sum256(bytes.Join(good.Ciphertexts[1], nil))
	hashes := bytes.LastIndex(raw, hash[:]) - 3*32 - 2
	signature := hashes - 64 - 2
	read := func(in io.Reader) error {
		r, err := onion.NewBatchReader(in, onion.MaxManifest(w.Task, 0))
		if err == nil {
			_, err = r.Check(w.Task, w.context(0), 7)
		}
		if err == nil {
			_, _, err = r.Next()
		}
		return err
	}
	require.NoError(t, read(bytes.NewReader(raw)))
	for name, head := range map[string][]byte{"manifest": raw[:1], "signature": raw[:signature], "hashes": raw[:hashes],
		"chunk": raw[:hashes+2+4*32+1]} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := read(claiming(head, claim))
		runtime.ReadMemStats(&after)
		require.Error(t, err, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(claim/8), name)
	}
	w.Task.Batch.Size = onion.ChunkSlots // smaller than the signed batch
	err = read(bytes.NewReader(raw))
	require.ErrorIs(t, err, onion.ErrCounts)
	require.ErrorContains(t, err, "want at most 1024")
}

// TestNumbersOfBatches: a batch must be refused if its number is not below [task.Task.MostBatches].
func TestNumbersOfBatches(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 2, nil)
	for _, seq := range []uint64{(&task.Task{}).MostBatches() - 1, (&task.Task{}).MostBatches(), 1<<63 - 1} {
		b := w.manifest(t, w.sign[0], func(m *onion.Manifest) { m.Seq = seq })
		_, err := b.Signed().Check(w.Task, w.context(0), seq)
		if seq < (&task.Task{}).MostBatches() {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "the task has 65536 batches in an epoch")
		}
	}
}

// TestTooManyDestroyed: an epoch may have as many destroyed as released batches, and DestroyedAllowance more.
func TestTooManyDestroyed(t *testing.T) {
	for _, released := range []uint64{0, 1, 1000} {
		require.False(t, onion.TooManyDestroyed(released, released+onion.DestroyedAllowance))
		require.True(t, onion.TooManyDestroyed(released, released+onion.DestroyedAllowance+1))
	}
	require.EqualValues(t, 1024, onion.DestroyedAllowance, "must be as docs/SPEC.md says")
}
