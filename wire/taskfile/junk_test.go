package taskfile_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// cheap is how many bytes of memory a reader may use for junk whose announced lists it never parses.
const cheap = 4 << 20

// requireCheap fails unless do returns an error and allocates at most most bytes.
func requireCheap(t *testing.T, name string, most uint64, do func() error) {
	t.Helper()
	before := fixture.Allocated()
	err := do()
	require.LessOrEqual(t, fixture.Allocated()-before, most, name)
	require.Error(t, err, name)
}

// TestJunkBundles: junk of the largest size must cost little memory, wherever in a bundle it is.
func TestJunkBundles(t *testing.T) {
	s, lists := sample(t)
	b, err := taskfile.Sign(s, signKey("owner"), lists)
	require.NoError(t, err)
	for _, c := range fixture.JunkBundles(b, taskfile.MaxBundle) {
		requireCheap(t, c.Name, cheap, func() error {
			_, _, err := taskfile.ReadBundle(c.Reader(), func(*taskfile.Open) error { return nil })
			return err
		})
	}
	for _, c := range fixture.JunkBundles(b, 1<<18) { // small, because a file is in memory before it is parsed
		whole := c.Bytes()
		requireCheap(t, c.Name, 1<<16, func() error { _, err := taskfile.ParseOpen(whole); return err })
	}
	_, err = taskfile.ParseBundle(make([]byte, taskfile.MaxBundle+1))
	require.ErrorContains(t, err, "at most 8388608")
	raw := bytesOf(t, b)
	refused := fmt.Errorf("not this one")
	for name, in := range map[string][]byte{"trailing": append(bytes.Clone(raw), 0), "cut": raw[:len(raw)-1],
		"good": raw} {
		accepted := false
		read, open, err := taskfile.ReadBundle(bytes.NewReader(in), func(o *taskfile.Open) error {
			accepted = o.ID == taskfile.ID(s) && o.Owner == public(signKey("owner")) && o.KeyLists == nil
			return nil
		})
		require.True(t, accepted, name)
		if name != "good" {
			require.Error(t, err, name)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, raw, read)
		require.Len(t, open.KeyLists, 3)
	}
	_, _, err = taskfile.ReadBundle(bytes.NewReader(raw), func(*taskfile.Open) error { return refused })
	require.ErrorIs(t, err, refused)
}

// TestJunkUnsigned: a reader must read nothing after a part without a valid signature.
func TestJunkUnsigned(t *testing.T) {
	s, lists := sample(t)
	b, err := taskfile.Sign(s, signKey("owner"), lists)
	require.NoError(t, err)
	b.Signature = signing.Sign(signKey("two"), signing.Task, b.Task)
	raw := bytesOf(t, b)
	in := bytes.NewReader(raw)
	_, _, err = taskfile.ReadBundle(in, func(*taskfile.Open) error { t.Error("accepted"); return nil })
	require.ErrorIs(t, err, signing.ErrSigner)
	behind := 0
	for _, list := range b.KeyLists {
		behind += len(list)
	}
	require.Greater(t, in.Len(), behind, "the reader must not read the key lists")
}

// TestJunkStreams: junk in a stream must cost little memory, too. Anybody can send a stream that begins with the right
// first task.
func TestJunkStreams(t *testing.T) {
	chain, root := newChain(t, "owner")
	for _, c := range fixture.JunkStreams(chain[0], taskfile.MaxStream) {
		requireCheap(t, c.Name, cheap, func() error {
			chain, err := taskfile.ReadChain(c.Reader(), root)
			if err == nil {
				_, _, err = chain.Open(taskfile.Trust{Root: root, Owner: public(signKey("owner"))})
			}
			return err
		})
	}
}

// TestForgedLists: a task too large for any bundle must be refused before its key lists are read.
func TestForgedLists(t *testing.T) {
	chain, root := newChain(t, "owner")
	streams := fixture.JunkStreams(chain[0], taskfile.MaxStream)
	forged := streams[len(streams)-1]
	_, err := taskfile.ReadChain(forged.Reader(), root)
	require.ErrorContains(t, err, "epochs.count")
	require.Less(t, forged.Len(), 4<<10)
}

// TestJunkBehindAStream: a reader must stop at the largest possible size of a stream.
func TestJunkBehindAStream(t *testing.T) {
	chain, root := newChain(t, "owner")
	raw, err := (&taskfile.Chain{Tasks: chain}).Bytes()
	require.NoError(t, err)
	_, err = taskfile.ReadChain(bytes.NewReader(append(raw, 0)), root)
	require.ErrorContains(t, err, "trailing")
	many := make([]*taskfile.Bundle, taskfile.MaxTasks+1)
	for i := range many {
		many[i] = chain[0]
	}
	raw, err = (&taskfile.Chain{Tasks: many}).Bytes()
	require.NoError(t, err)
	_, err = taskfile.ReadChain(bytes.NewReader(raw), root)
	require.ErrorContains(t, err, "at most 4096")
}

// TestListsOfAChain: a reader must refuse key lists of another number or length than the task implies, and keys of more
// than a block.
func TestListsOfAChain(t *testing.T) {
	for name, change := range map[string]func(*taskfile.Bundle){
		"want 124":           func(b *taskfile.Bundle) { b.KeyLists[2] = b.KeyLists[2][1:] },
		"2 key lists":        func(b *taskfile.Bundle) { b.KeyLists = b.KeyLists[:2] },
		"2 elements, want 4": func(b *taskfile.Bundle) { b.Keys = b.Keys[:2] },
		"at most 256":        func(b *taskfile.Bundle) { b.Keys[0].Keys = make([]byte, 257) },
		"at most 416":        func(b *taskfile.Bundle) { b.Keys[0].Path = make([]byte, 417) },
	} {
		chain, root := newChain(t, "owner")
		change(chain[1])
		raw, err := (&taskfile.Chain{Tasks: chain}).Bytes()
		require.NoError(t, err)
		_, err = taskfile.ReadChain(bytes.NewReader(raw), root)
		require.ErrorContains(t, err, name)
	}
}

// TestSignedJunk: an owner that controls all parties signs junk lists and keys of the right length. Memory for them
// must be a small multiple of their bytes.
func TestSignedJunk(t *testing.T) {
	s, _ := sample(t)
	s.Epochs.Count, s.Clients = 6_000, task.Clients{Kind: task.ClientAddress, Quota: 1}
	size, _, err := onion.KeySizes(s.KEM, s.Epochs.Count)
	require.NoError(t, err)
	for _, c := range fixture.JunkBehind("a list", nil, int(size)-(1+2+2+64)) {
		var b taskfile.Bundle
		party := func(name string, first byte) task.Party {
			list := c.Bytes()
			list[len(list)-1] = first // a different list of each party
			signed := &onion.SignedKeyList{List: list, Signature: signing.Sign(signKey(name), signing.KeyList, list)}
			head, err := signed.Head()
			require.NoError(t, err)
			b.KeyLists = append(b.KeyLists, head)
			b.Keys = append(b.Keys, taskfile.Keys{Keys: make([]byte, 32*s.Epochs.Count), Path: []byte{}})
			return task.Party{URL: "https://" + name, SignKey: public(signKey(name)), KeyList: signed.Hash()}
		}
		s.Relays = []task.Party{party("one", 1), party("two", 2)}
		s.Verifier = party("verifier", 3)
		b.Task, b.Owner = s.Canonical(), signKey("owner").Public().(ed25519.PublicKey)
		b.Signature = signing.Sign(signKey("owner"), signing.Task, b.Task)
		raw := bytesOf(t, &b)
		require.Greater(t, len(raw), 500_000)
		requireCheap(t, c.Name, 4*uint64(len(raw)), func() error {
			_, _, err := taskfile.ReadBundle(bytes.NewReader(raw), func(*taskfile.Open) error { return nil })
			require.ErrorContains(t, err, "keys of hop 0")
			return err
		})
	}
}

// TestTasksTooLarge: a task whose bundle would be too large must be refused both when the owner signs it and when a
// party reads it.
func TestTasksTooLarge(t *testing.T) {
	for _, c := range []struct {
		kem   task.KEM
		count uint64
		fits  bool
	}{
		{task.KEMX25519, 65_000, true}, {task.KEMX25519, 65_536, false}, // the sample has an issuer, too
		{task.KEMMLKEM768X25519, 365, true}, {task.KEMMLKEM768X25519, 2_200, true},
		{task.KEMMLKEM768X25519, 2_300, false}, {task.KEMMLKEM768, 2_300, true}, {task.KEMMLKEM768, 2_400, false},
	} {
		s, lists := sample(t)
		s.KEM, s.Epochs.Count = c.kem, c.count
		err := taskfile.CheckSize(s)
		if c.fits {
			require.NoError(t, err)
			continue
		}
		for _, word := range []string{"epochs.count", fmt.Sprint(c.count), string(c.kem), "8388608"} {
			require.ErrorContains(t, err, word)
		}
		_, err = taskfile.Sign(s, signKey("owner"), lists)
		require.ErrorContains(t, err, "epochs.count")
		b := &taskfile.Bundle{Task: s.Canonical(), Owner: signKey("owner").Public().(ed25519.PublicKey)}
		b.Signature = signing.Sign(signKey("owner"), signing.Task, b.Task)
		_, err = b.Open(nil)
		require.ErrorContains(t, err, "epochs.count")
	}
}

// TestStreamsTooLarge: a stream may have at most MaxTasks tasks, and a client's form of it must fit.
func TestStreamsTooLarge(t *testing.T) {
	s, _ := sample(t)
	s.Epochs.Count = 60_000 // their keys count little: a client gets those of a block
	require.NoError(t, taskfile.CheckSize(s))
	long := slices.Repeat([]*task.Task{s}, taskfile.MaxTasks)
	require.NoError(t, taskfile.CheckStreamSize(long))
	require.ErrorContains(t, taskfile.CheckStreamSize(append(long, s)), "begin another stream")
	s.Clients.Origins = nil
	for i := range 64 {
		s.Clients.Origins = append(s.Clients.Origins, fmt.Sprintf("https://%02d.%s.example", i, strings.Repeat("x", 60)))
	}
	require.NoError(t, taskfile.CheckSize(s))
	require.ErrorContains(t, taskfile.CheckStreamSize(long), "16777216")
}
