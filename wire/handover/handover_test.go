package handover_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// answering returns a cascade of one relay whose answers come from a handler.
func answering(t *testing.T, handler http.HandlerFunc) *relaytest.Cascade {
	t.Helper()
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	c.Listen(t, 0, handler)
	return c
}

func TestPullErrors(t *testing.T) {
	problemOf := func(name problem.Name) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { problem.New(name, "").Write(w) }
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    error
	}{
		{"not sealed", problemOf(problem.NotSealed), handover.ErrNotSealed},
		{"complete", problemOf(problem.Complete), handover.ErrEpochComplete},
		{"confirmed", problemOf(problem.Confirmed), handover.ErrConfirmed},
		{"unauthorized", problemOf(problem.Unauthorized), handover.ErrUnauthorized},
		{"overloaded", problemOf(problem.Overloaded), problem.New(problem.Overloaded, "")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := answering(t, tt.handler)
			_, err := c.Verifier.Pull(t.Context(), c.Open, 0, 0, 0)
			require.ErrorIs(t, err, tt.want)
			for _, other := range tests {
				require.Equal(t, other.name == tt.name, isProblem(err, other.want), other.name)
			}
			require.ErrorIs(t, c.Verifier.Confirm(t.Context(), c.Open, 0, 0, 0, nil), tt.want)
		})
	}
}

func isProblem(err, target error) bool {
	p := &problem.Problem{}
	return errors.As(err, &p) && p.Is(target)
}

// TestBadAnswers: an answer that is neither a batch nor a problem must be an error. The Requester must read no more of
// it than the task's largest batch.
func TestBadAnswers(t *testing.T) {
	tests := map[string]http.HandlerFunc{
		"endless": func(w http.ResponseWriter, req *http.Request) {
			for chunk := make([]byte, 1<<16); req.Context().Err() == nil; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		},
		"redirect": func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		},
		"empty":       func(http.ResponseWriter, *http.Request) {},
		"not msgpack": func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) },
		"plain 404":   http.NotFound,
		"huge problem": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			w.Write(bytes.Repeat([]byte{'['}, 1<<20))
		},
	}
	for name, handler := range tests {
		t.Run(name, func(t *testing.T) {
			c := answering(t, handler)
			_, err := c.Verifier.Pull(t.Context(), c.Open, 0, 0, 0)
			require.Error(t, err)
			require.False(t, isProblem(err, handover.ErrNotSealed))
		})
	}
}

// TestResume: the Requester must resume a broken transfer with a Range header, or from the start if the relay ignores
// ranges. If attempts make no progress, the pull must fail.
func TestResume(t *testing.T) {
	const clients = 1500
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) {
		t.Batch.Size, t.Slots.MessageBytes = clients, 100 // 270 kB
	}})
	want := bigBatch(t, c, clients)
	raw, err := want.Bytes()
	require.NoError(t, err)
	require.Greater(t, len(raw), 240_000)
	var asked []string
	answer := func(ranges bool, most int) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			asked = append(asked, req.Header.Get("Range"))
			if !ranges {
				req.Header.Del("Range")
			}
			broken := &breaking{ResponseWriter: w, left: most}
			http.ServeContent(broken, req, "", time.Time{}, bytes.NewReader(raw))
			if broken.left < 0 {
				panic(http.ErrAbortHandler)
			}
		}
	}
	pull := func(handler http.HandlerFunc) (*onion.Batch, error) {
		asked = nil
		server := httptest.NewServer(handler)
		defer server.Close()
		c.Open.Relays[0].URL = server.URL
		return c.Verifier.Pull(t.Context(), c.Open, 0, 0, 0)
	}
	got, err := pull(answer(true, 100_000))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, "", asked[0])
	require.Regexp(t, `^bytes=\d{5,}-$`, asked[1])
	require.Len(t, asked, 3)
	_, err = pull(answer(false, 100_000))
	require.Error(t, err, "a second attempt from the start gets no further, so the pull must fail")
	_, err = pull(answer(true, 1000))
	require.Error(t, err)
	require.Len(t, asked, 1, "without progress, no further attempt may follow")
}

func bigBatch(t *testing.T, c *relaytest.Cascade, n int) *onion.Batch {
	t.Helper()
	layout, err := onion.NewLayout(c.Open.Task)
	require.NoError(t, err)
	slots := make([][]byte, n)
	for i := range slots {
		slots[i] = bytes.Repeat([]byte{byte(i)}, layout.SlotSize(1))
	}
	b, err := onion.NewBatch(c.SignKey(t, 0), onion.BatchDraft{
		Context: onion.Context{TaskID: c.Open.ID}, Submissions: uint64(n), In: []uint64{uint64(n)},
	}, [][][]byte{slots})
	require.NoError(t, err)
	return b
}

// breaking is a response writer that fails after left bytes.
type breaking struct {
	http.ResponseWriter
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, io.ErrClosedPipe
	}
	return b.ResponseWriter.Write(p)
}

// TestMaxBatch: batches that relays make must not be larger than MaxBatch says, and not much smaller.
func TestMaxBatch(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 3})
	c.StartAll(t)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	batch, _ := c.Pull(t, 0, 0)
	raw, err := batch.Bytes()
	require.NoError(t, err)
	layout, err := onion.NewLayout(c.Open.Task)
	require.NoError(t, err)
	most := handover.MaxBatch(c.Open.Task, layout, 2)
	big, err := bigBatch(t, c, 10*onion.ChunkSlots+1).Bytes()
	require.NoError(t, err)
	large := *c.Open.Task
	large.Batch.Size = 10*onion.ChunkSlots + 1
	require.LessOrEqual(t, int64(len(big)), handover.MaxBatch(&large, layout, 0))
	require.LessOrEqual(t, int64(len(raw)), most)
	require.Less(t, most, int64(len(raw))+2048)
	many := uint64(1 << 40)
	large.Slots.Lanes, large.Noise = 65535, &task.Noise{Total: &many}
	require.EqualValues(t, math.MaxInt64, handover.MaxBatch(&large, layout, 2), "more than 63 bits count")
}

// TestPullChecksAsItStreams: for each fault in a batch, the error must say whether the relay is at fault. The Requester
// must read nothing after the point where it can detect the fault.
func TestPullChecksAsItStreams(t *testing.T) {
	const clients = 3 * onion.ChunkSlots
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) { t.Batch.Size = clients }})
	good := bigBatch(t, c, clients)
	_, stranger, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	layout, err := onion.NewLayout(c.Open.Task)
	require.NoError(t, err)
	signed := func(change func(*onion.Manifest)) *onion.Batch {
		b := *good
		m, err := b.Header()
		require.NoError(t, err)
		change(m)
		b.Manifest, err = codec.Marshal(m)
		require.NoError(t, err)
		b.Signature = signing.Sign(c.SignKey(t, 0), signing.Manifest, b.Manifest)
		return &b
	}
	altered := *good
	altered.Ciphertexts = onion.Lanes{slices.Clone(good.Ciphertexts[0])}
	altered.Ciphertexts[0][0] = good.Ciphertexts[0][1]
	short := signed(func(m *onion.Manifest) {
		lane := make([][]byte, clients)
		for i := range lane {
			lane[i] = make([]byte, layout.SlotSize(1)-1)
		}
		b, err := onion.NewBatch(c.SignKey(t, 0), onion.BatchDraft{
			Context: onion.Context{TaskID: c.Open.ID}, Submissions: clients, In: []uint64{clients},
		}, onion.Lanes{lane})
		require.NoError(t, err)
		made, err := b.Header()
		require.NoError(t, err)
		m.Ciphertexts = made.Ciphertexts
	})
	short.Ciphertexts = onion.Lanes{slices.Repeat([][]byte{make([]byte, layout.SlotSize(1)-1)}, clients)}
	size := layout.SlotSize(1)
	for name, tt := range map[string]struct {
		batch *onion.Batch
		want  error // expected error; nil means an InvalidBatchError
		read  int   // largest number of bytes that may be read
	}{
		"a stranger's": {&onion.Batch{Manifest: good.Manifest,
			Signature: signing.Sign(stranger, signing.Manifest, good.Manifest), Ciphertexts: good.Ciphertexts},
			handover.ErrStranger, 4096},
		"of another number": {signed(func(m *onion.Manifest) { m.Seq = 1 }), handover.ErrOther, 4096},
		"altered":           {&altered, handover.ErrAltered, 4096},
		"counts of other chunks": {signed(func(m *onion.Manifest) {
			m.Lanes[0].Out, m.Lanes[0].Dropped = clients-1, 1
		}), handover.ErrAltered, 4096},
		"no lane":         {signed(func(m *onion.Manifest) { m.Lanes = []onion.LaneCount{} }), nil, 4096},
		"does not add up": {signed(func(m *onion.Manifest) { m.Lanes[0].Dropped++ }), nil, 4096},
		"slots from nowhere": {signed(func(m *onion.Manifest) {
			m.Lanes[0].Added, m.Lanes[0].Dropped = 1, 1
		}), nil, 4096},
		"slots of another size": {short, nil, 4096 + onion.ChunkSlots*size},
	} {
		raw, err := tt.batch.Bytes()
		require.NoError(t, err)
		a := &cannedResponse{http.StatusOK, http.Header{}, bytes.NewReader(raw)}
		_, err = handover.NewRequester(stranger, a).Pull(t.Context(), c.Open, 0, 0, 0)
		require.Error(t, err, name)
		require.Equal(t, tt.want, handover.Foreign(err), name)
		var refused *handover.InvalidBatchError
		require.Equal(t, tt.want == nil, errors.As(err, &refused), "%s: %v", name, err)
		if tt.want == nil {
			require.Equal(t, tt.batch.Signed(), refused.Signed)
		}
		require.LessOrEqual(t, len(raw)-a.body.Len(), tt.read, name)
	}
}

// TestManifestHashesMatch: Matches must accept the digest of all hashes and of the last few, and refuse any other
// selection or order.
func TestManifestHashesMatch(t *testing.T) {
	a, b, c, other := []byte("a"), []byte("b"), []byte("c"), []byte("other")
	had := handover.HashManifests(a, b, c)
	for _, same := range []handover.ManifestHashes{had, handover.HashManifests(b, c), handover.HashManifests(c)} {
		require.True(t, had.Matches(same.History()))
	}
	for _, not := range []handover.ManifestHashes{nil, handover.HashManifests(a, b),
		handover.HashManifests(other, b, c),
		handover.HashManifests(a, other, c), handover.HashManifests(a, b, other), handover.HashManifests(a, c, b),
		handover.HashManifests(a, a, b, c)} {
		require.False(t, had.Matches(not.History()))
	}
	require.Equal(t, handover.HistoryDigest{}, handover.HashManifests().History())
}
