package onion_test

import (
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// FuzzOpenSlot opens what a hostile client may seal inside a layer, or may send instead of a ciphertext, at a relay and
// at the verifier. The result must be an error, or exactly the sealed tag and next layer, or tag, kind and message, of
// the task's sizes.
func FuzzOpenSlot(f *testing.F) {
	w := newWorld(f, task.KEMX25519, 2, func(t *task.Task) { t.Slots.MessageBytes = 1 })
	relay, verifier := w.opener(f, 1, 0), w.opener(f, 2, 0)
	const tag = "sixteen byte tag"
	f.Add([]byte(tag+"\x01m"), true, true)
	f.Add([]byte(tag+"\x00\x00"), true, true)
	f.Add([]byte(tag+"\x00\x01"), true, true)
	f.Add([]byte(tag+"\x02\x00"), true, true)
	f.Add([]byte(tag), true, true)
	f.Add(append([]byte(tag), make([]byte, relay.SlotSize(2))...), false, true)
	f.Add(make([]byte, relay.SlotSize(1)), false, false)
	f.Fuzz(func(t *testing.T, in []byte, last, inside bool) {
		hop, sealed := 1, in
		if last {
			hop = 2
		}
		if inside {
			var err error
			sealed, err = onion.SealFor(w.keys[hop][0].Public(), onion.Context{TaskID: w.id, Hop: hop}, 1,
				onion.KindSlot, in)
			require.NoError(t, err)
		}
		if last {
			tag, m, err := verifier.OpenMessage(1, sealed)
			if err == nil {
				kind := byte(1)
				if m.Cover {
					kind = 0
					require.Equal(t, make([]byte, w.Slots.MessageBytes), m.Body)
				}
				require.True(t, inside)
				require.Equal(t, in, append(append(tag[:], kind), m.Body...))
			}
			return
		}
		tag, next, err := relay.OpenSlot(1, sealed)
		if err == nil {
			require.True(t, inside)
			require.Len(t, next, relay.SlotSize(2))
			require.Equal(t, in, append(tag[:], next...))
		}
	})
}

// FuzzManifestChain signs arbitrary manifests of a first and a second relay. If the next hop accepts them, it must
// return exactly what was signed, and the counts must add up from the first relay on.
func FuzzManifestChain(f *testing.F) {
	w := newWorld(f, task.KEMX25519, 2, nil)
	none := newWorld(f, task.KEMX25519, 2, func(t *task.Task) { t.Slots.Padding = task.PaddingNone })
	for _, b := range [][]*onion.Batch{w.chain(f), none.chain(f)} {
		f.Add(b[0].Manifest, b[1].Manifest, true, false)
		f.Add(b[0].Manifest, b[1].Manifest, true, true)
		f.Add(b[1].Manifest, b[1].Manifest, true, false)
		f.Add([]byte{}, b[1].Manifest, false, false)
	}
	f.Add([]byte{0x9a}, []byte{0x9a, 0xae}, true, false)
	f.Fuzz(func(t *testing.T, first, second []byte, embed, unpadded bool) {
		w := w
		if unpadded {
			w = none
		}
		var m onion.Manifest
		if embed && codec.Unmarshal(second, &m) == nil {
			source := onion.SignedManifest{Manifest: first, Signature: signing.Sign(w.sign[0], signing.Manifest, first)}
			m.TaskID = w.id[:] // the fuzzed id cannot match: keys, and so the task's id, are new in each process
			var s onion.Manifest
			if codec.Unmarshal(first, &s) == nil && len(s.TaskID) == 32 {
				s.TaskID = w.id[:]
				source.Manifest, _ = codec.Marshal(&s)
				source.Signature = signing.Sign(w.sign[0], signing.Manifest, source.Manifest)
			}
			var err error
			m.Source, err = codec.Marshal(&source)
			require.NoError(t, err)
			lanes := make([][][]byte, min(len(m.Lanes), 4))
			for i := range lanes {
				lanes[i] = w.slots(t, 2, int(min(m.Lanes[i].Out, 16)))
			}
			m.Ciphertexts = onion.HashLanes(lanes)
			second, err = codec.Marshal(&m)
			require.NoError(t, err)
			b := onion.Batch{Manifest: second, Signature: signing.Sign(w.sign[1], signing.Manifest, second),
				Ciphertexts: lanes}
			chain, err := b.Check(w.Task, w.context(1), 7)
			if err == nil {
				requireChain(t, w, chain)
				last, err := codec.Marshal(&chain[1])
				require.NoError(t, err)
				require.Equal(t, second, last)
				for lane := range lanes {
					require.EqualValues(t, len(lanes[lane]), chain[1].Lanes[lane].Out)
				}
			}
			return
		}
		b := onion.Batch{Manifest: second, Signature: signing.Sign(w.sign[1], signing.Manifest, second),
			Ciphertexts: [][][]byte{}}
		_, err := b.Check(w.Task, w.context(1), 7)
		require.Error(t, err, "no first relay signed the source, so it must be refused")
	})
}

// requireChain checks again that the counts of a chain add up, without sums that could overflow.
func requireChain(t *testing.T, w *world, chain []onion.Manifest) {
	t.Helper()
	require.Len(t, chain, 2)
	for hop, m := range chain {
		require.Equal(t, w.id[:], m.TaskID)
		require.Equal(t, []uint64{1, uint64(hop), 7}, []uint64{m.Epoch, m.Hop, m.Seq})
		require.Equal(t, chain[0].Submissions, m.Submissions)
		require.EqualValues(t, w.Slots.Lanes, len(m.Lanes))
		for lane, n := range m.Lanes {
			require.Zero(t, n.Added)
			require.LessOrEqual(t, n.Out, n.In)
			require.Equal(t, n.In-n.Out, n.Dropped)
			if hop > 0 {
				require.Equal(t, chain[hop-1].Lanes[lane].Out, n.In)
				continue
			}
			require.Less(t, n.In, uint64(1)<<50)
			if w.Slots.Padding == task.PaddingFull {
				require.Equal(t, m.Submissions*w.Slots.PerLane, n.In)
			} else {
				require.GreaterOrEqual(t, n.In, m.Submissions)
				require.LessOrEqual(t, n.In, m.Submissions*w.Slots.PerLane)
			}
		}
	}
}

// FuzzPartyKeys signs an arbitrary key list with the key of a party, and makes the task name it. It passes arbitrary
// keys with it. Accepted keys must be valid and distinct.
func FuzzPartyKeys(f *testing.F) {
	w := newWorld(f, task.KEMX25519, 1, nil)
	f.Add(w.lists[0].List, uint64(0), w.lists[0].Keys, []byte{})
	f.Add([]byte("\x95\xaadoona-keys\x01\xa6x25519\x02\xc6\xff\xff\xff\xff"), uint64(1<<63), []byte{}, make([]byte, 32))
	f.Fuzz(func(t *testing.T, list []byte, first uint64, public, path []byte) {
		named := *w.Task
		named.Relays = []task.Party{named.Relays[0]}
		named.Relays[0].KeyList = sha256.Sum256(list)
		s := &onion.SignedKeyList{List: list, Signature: signing.Sign(w.sign[0], signing.KeyList, list), First: first,
			Keys: public, Path: path}
		keys, err := onion.PartyKeys(&named, 0, s)
		if err != nil {
			return
		}
		var parsed onion.KeyList
		require.NoError(t, codec.Unmarshal(list, &parsed))
		again, err := codec.Marshal(&parsed)
		require.NoError(t, err)
		require.Equal(t, list, again)
		require.EqualValues(t, epochs, len(keys))
		require.NotEqual(t, keys[0].ID(), keys[1].ID())
	})
}

// FuzzEnd parses arbitrary bytes as the end of an epoch. It also signs arbitrary ends of a first and a second relay. An
// end that the next hop accepts must encode to the same bytes again, and its counts must add up from the first relay
// on.
func FuzzEnd(f *testing.F) {
	w := newWorld(f, task.KEMX25519, 2, nil)
	none := newWorld(f, task.KEMX25519, 2, func(t *task.Task) { t.Slots.Padding = task.PaddingNone })
	ends := w.ends(f)
	raw, err := ends[1].Bytes()
	require.NoError(f, err)
	f.Add(raw, ends[0].End, ends[1].End, true, false)
	f.Add(raw[:len(raw)-1], ends[0].End, ends[1].End, true, true)
	f.Add([]byte{0x92}, ends[1].End, ends[1].End, true, false)
	f.Add([]byte("\x92\xdd\xff\xff\xff\xff"), []byte{0x99}, ends[0].End, false, false)
	f.Fuzz(func(t *testing.T, in, first, second []byte, embed, unpadded bool) {
		w := w
		if unpadded {
			w = none
		}
		if s, err := onion.ParseEnd(in); err == nil {
			again, err := s.Bytes()
			require.NoError(t, err)
			require.Equal(t, in, again)
			if chain, err := s.Check(w.Task, w.context(1)); err == nil {
				requireEnds(t, w, chain)
			}
		}
		var e onion.End
		if codec.Unmarshal(second, &e) != nil {
			return
		}
		e.TaskID = w.id[:] // the fuzzed id cannot match: keys, and so the task's id, are new in each process
		if e.Source = []byte{}; embed {
			var before onion.End
			if codec.Unmarshal(first, &before) == nil {
				before.TaskID = w.id[:]
				first, err = codec.Marshal(&before)
				require.NoError(t, err)
			}
			e.Source, err = codec.Marshal(&onion.SignedEnd{End: first,
				Signature: signing.Sign(w.sign[0], signing.End, first)})
			require.NoError(t, err)
		}
		second, err := codec.Marshal(&e)
		require.NoError(t, err)
		s := onion.SignedEnd{End: second, Signature: signing.Sign(w.sign[1], signing.End, second)}
		chain, err := s.Check(w.Task, w.context(1))
		if err != nil {
			return
		}
		require.Equal(t, e, chain[len(chain)-1])
		require.Equal(t, embed, len(chain) == 2)
		requireEnds(t, w, chain)
	})
}

// requireEnds checks that the counts in a chain of ends, the last of which is hop 1's, add up.
func requireEnds(t *testing.T, w *world, chain []onion.End) {
	t.Helper()
	require.NotEmpty(t, chain)
	for i, e := range chain {
		hop := uint64(2 - len(chain) + i)
		require.Equal(t, w.id[:], e.TaskID)
		require.Equal(t, []uint64{1, hop}, []uint64{e.Epoch, e.Hop})
		require.Equal(t, []uint64{chain[0].Batches, chain[0].Submissions}, []uint64{e.Batches, e.Submissions})
		require.EqualValues(t, w.Slots.Lanes, len(e.Lanes))
		for lane, n := range e.Lanes {
			require.Zero(t, n.Added)
			require.LessOrEqual(t, n.Out, n.In)
			require.Equal(t, n.In-n.Out, n.Dropped)
			require.False(t, e.Batches == 0 && n.In > 0, "slots in no batches")
			switch {
			case i > 0:
				require.Equal(t, chain[i-1].Lanes[lane].Out, n.In)
			case hop == 0 && w.Slots.Padding == task.PaddingFull:
				require.Equal(t, e.Submissions*w.Slots.PerLane, n.In)
			case hop == 0:
				require.GreaterOrEqual(t, n.In, e.Submissions)
				require.LessOrEqual(t, n.In, e.Submissions*w.Slots.PerLane)
			}
		}
	}
}
