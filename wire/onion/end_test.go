package onion_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// ends returns the ends of epoch 1 by hop. The epoch has only the batch of [world.chain].
func (w *world) ends(t testing.TB) (out []*onion.SignedEnd) {
	t.Helper()
	var source *onion.SignedEnd
	for hop, b := range w.chain(t) {
		m, err := b.Header()
		require.NoError(t, err)
		end, err := onion.NewEnd(w.sign[hop], w.Task, w.context(hop), []onion.Manifest{*m}, source)
		require.NoError(t, err)
		out, source = append(out, end), end
	}
	return out
}

func TestEnd(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 2, nil)
	last := w.ends(t)[1]
	raw, err := last.Bytes()
	require.NoError(t, err)
	back, err := onion.ParseEnd(raw)
	require.NoError(t, err)
	chain, err := back.Check(w.Task, w.context(1))
	require.NoError(t, err)
	require.Len(t, chain, 2)
	require.Equal(t, uint64(1), chain[1].Batches)
	require.Equal(t, uint64(3), chain[1].Submissions)
	require.Equal(t, onion.LaneCount{In: 9, Out: 8, Dropped: 1}, chain[1].Lanes[1])

	m, err := w.chain(t)[1].Header()
	require.NoError(t, err)
	require.True(t, chain[0].MatchesTaken([]onion.Manifest{*m}))
	require.False(t, chain[0].MatchesTaken(nil))
	require.False(t, chain[0].MatchesTaken([]onion.Manifest{*m, *m}))
	m.Lanes[1].In--
	require.False(t, chain[0].MatchesTaken([]onion.Manifest{*m}))

	none, err := onion.NewEnd(w.sign[1], w.Task, w.context(1), nil, nil)
	require.NoError(t, err)
	chain, err = none.Check(w.Task, w.context(1))
	require.NoError(t, err, "the end of a relay that stopped waiting must be accepted")
	require.Len(t, chain, 1)
}

func TestEndRejects(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 2, nil)
	for name, c := range map[string]struct {
		hop    int
		signer int
		change func(*onion.End)
		want   string
	}{
		"another relay's signature": {0, 1, func(*onion.End) {}, signing.ErrSigner.Error()},
		"another label":             {0, 0, func(e *onion.End) { e.Label = "doona-and" }, "of this version"},
		"another version":           {0, 0, func(e *onion.End) { e.Version = 2 }, "of this version"},
		"another task":              {0, 0, func(e *onion.End) { e.TaskID[0]++ }, "another task"},
		"another epoch":             {0, 0, func(e *onion.End) { e.Epoch = 0 }, "of epoch 0"},
		"another hop":               {0, 0, func(e *onion.End) { e.Hop = 1 }, "of hop 1"},
		"a lane less":               {0, 0, func(e *onion.End) { e.Lanes = e.Lanes[:1] }, "1 lanes"},
		"a source at the first":     {0, 0, func(e *onion.End) { e.Source = []byte{1} }, "a source at the first"},
		"counts that do not add up": {0, 0, func(e *onion.End) { e.Lanes[0].Out-- }, "does not add up"},
		"slots from nowhere": {0, 0, func(e *onion.End) {
			e.Lanes[0].Added, e.Lanes[0].Dropped = 1, 1
		}, "added"},
		"fewer slots than submitted": {0, 0, func(e *onion.End) { e.Submissions = 4 }, "from 4 submissions"},
		"submissions in no batch":    {0, 0, func(e *onion.End) { e.Batches = 0 }, "in no batches"},
		"too many batches": {0, 0, func(e *onion.End) { e.Batches = (&task.Task{}).MostBatches() + 1 },
			"65537 batches: the task has 65536"},
		"fewer batches than before": {1, 1, func(e *onion.End) { e.Batches = 2 }, "hop 0 said 1"},
		"fewer slots than were sent": {1, 1, func(e *onion.End) {
			e.Lanes[0].In, e.Lanes[0].Out = 8, 8
		}, "hop 0 sent 9"},
	} {
		var e onion.End
		require.NoError(t, codec.Unmarshal(w.ends(t)[c.hop].End, &e))
		c.change(&e)
		body, err := codec.Marshal(&e)
		require.NoError(t, err)
		s := onion.SignedEnd{End: body, Signature: signing.Sign(w.sign[c.signer], signing.End, body)}
		_, err = s.Check(w.Task, w.context(c.hop))
		require.ErrorContains(t, err, c.want, name)
	}
}

// TestEndOfNoise: an end sums the dummies of all batches, each with its own draw. Check must accept the sums, and
// refuse more dummies or batches than the task's noise allows.
func TestEndOfNoise(t *testing.T) {
	total := uint64(3)
	w := newWorld(t, task.KEMX25519, 1, func(t *task.Task) {
		t.Slots = task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1, MessageBytes: 4}
		t.Claim.Assumption = task.NoneHonest
		t.Noise = &task.Noise{Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{{1, 1, 1, 1}}, Total: &total,
			Batches: 4}
	})
	batch := onion.Manifest{Submissions: 3, Lanes: []onion.LaneCount{{In: 3, Added: total, Out: 3 + total}}}
	short := onion.Manifest{Submissions: 1, Lanes: []onion.LaneCount{{In: 1, Added: total, Out: 1 + total}}}
	destroyed := onion.Manifest{Submissions: 3, Lanes: []onion.LaneCount{{In: 3, Dropped: 3}}}
	check := func(change func(*onion.End), batches ...onion.Manifest) error {
		end, err := onion.NewEnd(w.sign[0], w.Task, w.context(0), batches, nil)
		require.NoError(t, err)
		var e onion.End
		require.NoError(t, codec.Unmarshal(end.End, &e))
		change(&e)
		body, err := codec.Marshal(&e)
		require.NoError(t, err)
		s := onion.SignedEnd{End: body, Signature: signing.Sign(w.sign[0], signing.End, body)}
		_, err = s.Check(w.Task, w.context(0))
		return err
	}
	same := func(*onion.End) {}
	require.NoError(t, check(same, batch))
	require.NoError(t, check(same, batch, destroyed, batch, short))
	require.ErrorContains(t, check(same, batch, batch, batch, batch, short), "5 batches: the task has 4 in an epoch")
	one := func(e *onion.End) { e.Lanes[0].Added++; e.Lanes[0].Out++ }
	require.ErrorContains(t, check(one, batch, short), "7 slots added: want at most 3 in each of 2 batches")
}

func TestTime(t *testing.T) {
	w := newWorld(t, task.KEMX25519, 2, nil)
	nonce := signing.Nonce{1, 2, 3}
	raw, err := signing.NewTime(w.sign[1], w.id, 1, nonce, 1_800_000_000)
	require.NoError(t, err)
	got, err := signing.OpenTime(w.Task, w.id, 1, nonce, raw)
	require.NoError(t, err)
	require.Equal(t, uint64(1_800_000_000), got)
	_, err = signing.OpenTime(w.Task, w.id, 1, signing.Nonce{}, raw)
	require.ErrorContains(t, err, "another nonce")
	for _, hop := range []int{-1, 0, 2, 3} {
		_, err = signing.OpenTime(w.Task, w.id, hop, nonce, raw)
		require.ErrorIs(t, err, signing.ErrSigner, hop)
	}
	_, err = signing.OpenTime(w.Task, task.ID{1}, 1, nonce, raw)
	require.ErrorContains(t, err, "another task")
	_, err = signing.OpenTime(w.Task, w.id, 1, nonce, append(raw, 0))
	require.Error(t, err)
}
