package adversary_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// TestEquivocation: a first relay signs another batch at every pull of one number. The next relay must mix one of them,
// once, and none of the others. The number must always name the same bytes.
func TestEquivocation(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	first := c.StartFirst(t)
	offers := make([][]byte, 8)
	for i := range offers {
		var err error
		offers[i], err = first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(uint64(100*i), 10)...)).Bytes()
		require.NoError(t, err)
	}
	var asked atomic.Int64
	first.Answer(0, 0, func(w http.ResponseWriter, _ *http.Request) {
		w.Write(offers[(asked.Add(1)-1)%int64(len(offers))])
	})
	stop := c.Start(t, 1)
	batch, _ := c.Pull(t, 0, 0)
	taken := c.Values(t, 0, batch)[0]
	require.ElementsMatch(t, span(taken[0]-taken[0]%100, 10), taken, "all slots must be of one offered batch")
	stop()
	c.Start(t, 1)
	again, _ := c.Pull(t, 0, 0)
	require.Equal(t, batch, again)
	// Offer the other batches under other numbers: their slots were never mixed. Those of the mixed batch are replays.
	for i := range offers {
		values := span(uint64(100*i), 10)
		b, err := onion.ParseBatch(offers[i])
		require.NoError(t, err)
		first.Serve(t, 0, uint64(1+i), first.Batch(t, 0, uint64(1+i), 10, b.Ciphertexts))
		batch, chain := c.Pull(t, 0, uint64(1+i))
		if values[0] == taken[0]-taken[0]%100 {
			require.True(t, chain[1].Destroyed())
			continue
		}
		require.ElementsMatch(t, values, c.Values(t, 0, batch)[0])
	}
}

// TestHostileDelivery: a first relay hangs within a batch, sends it very slowly, or never ends it. That must delay only
// its own task. The next relay must stop when asked to, and accept the batch when it comes complete.
func TestHostileDelivery(t *testing.T) {
	drip := func(pause time.Duration, total int) func([]byte) http.HandlerFunc {
		return func(raw []byte) http.HandlerFunc {
			return func(w http.ResponseWriter, req *http.Request) {
				for i := 0; i < total && req.Context().Err() == nil; i++ {
					if _, err := w.Write(raw[min(i, len(raw)-1):][:1]); err != nil {
						return
					}
					if pause > 0 {
						w.(http.Flusher).Flush()
						time.Sleep(pause)
					}
				}
			}
		}
	}
	for name, hostile := range map[string]func(raw []byte) http.HandlerFunc{
		"hangs before the answer": func([]byte) http.HandlerFunc {
			return func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }
		},
		"hangs mid transfer": func(raw []byte) http.HandlerFunc {
			return func(w http.ResponseWriter, req *http.Request) {
				w.Write(raw[:len(raw)/2])
				w.(http.Flusher).Flush()
				<-req.Context().Done()
			}
		},
		"drips": drip(50*time.Millisecond, 1<<20),
		"ends early": func(raw []byte) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.Write(raw[:len(raw)-1]) }
		},
		"one byte too many": func(raw []byte) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { w.Write(append(raw, 0)) }
		},
		"never ends": drip(0, 1<<26),
		"claims more": func(raw []byte) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "99999999")
				w.Write(raw)
			}
		},
		"a compressed bomb": func([]byte) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				io.WriteString(w, "\x1f\x8b")
			}
		},
		"redirects": func([]byte) http.HandlerFunc {
			return func(w http.ResponseWriter,
				req *http.Request) {
				http.Redirect(w, req, req.URL.Path, http.StatusFound)
			}
		},
		"a problem unheard of": func([]byte) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(410)
				io.WriteString(w, `{"type":"urn:doona:error:epoch-complete\u0000"}`)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := relaytest.New(t, relaytest.Options{Tasks: 2})
			other := c.Other(t, 1)
			first := c.StartFirst(t)
			good := first.Batch(t, 0, 0, 10, c.Slots(t, 0, span(0, 10)...))
			raw, err := good.Bytes()
			require.NoError(t, err)
			ctx, release := context.WithCancel(context.Background())
			defer release()
			answer := hostile(raw)
			first.Answer(0, 0, func(w http.ResponseWriter, req *http.Request) {
				if req.PathValue("task") == other.Open.ID.String() {
					lanes := other.Slots(t, 0, span(50, 10)...)
					b, err := onion.NewBatch(first.Sign, onion.BatchDraft{
						Context: onion.Context{TaskID: other.Open.ID}, Submissions: 10, In: []uint64{10},
					}, lanes)
					require.NoError(t, err)
					raw, err := b.Bytes()
					require.NoError(t, err)
					w.Write(raw)
					return
				}
				both, cancel := context.WithCancel(req.Context())
				defer cancel()
				context.AfterFunc(ctx, cancel)
				answer(w, req.WithContext(both))
			})
			stop := c.Start(t, 1)
			batch, _ := other.Pull(t, 0, 0)
			require.ElementsMatch(t, span(50, 10), other.Values(t, 0, batch)[0])
			require.Eventually(t, func() bool { return first.Pulls(0, 0) > 1 }, relaytest.Patience, 5*time.Millisecond)
			_, err = c.Verifier.Pull(t.Context(), c.Open, 1, 0, 0)
			require.ErrorIs(t, err, handover.ErrNotSealed)
			stop() // while the transfer hangs
			c.Start(t, 1)
			first.Serve(t, 0, 0, good)
			release()
			batch, _ = c.Pull(t, 0, 0)
			require.ElementsMatch(t, span(0, 10), c.Values(t, 0, batch)[0])
		})
	}
}

// TestMaliciousMiddleRelay plays the second of three relays. The third must check everything that it signs against the
// first relay's signature and counts, and against n and n_min.
func TestMaliciousMiddleRelay(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 3})
	middle := c.StartRogue(t, 1)
	sign := c.SignKey(t, 0)
	// source returns the manifest of a first relay's batch, and the slots that the middle relay finds in it.
	source := func(seq, clients uint64) (*onion.SignedManifest, [][][]byte) {
		slots := c.Slots(t, 0, span(100*seq, clients)...)
		b, err := onion.NewBatch(sign, onion.BatchDraft{
			Context: onion.Context{TaskID: c.Open.ID}, Seq: seq, Submissions: clients, In: []uint64{clients},
		}, slots)
		require.NoError(t, err)
		opener := c.Opener(t, 1, 0)
		lanes := [][][]byte{{}}
		for _, slot := range slots[0] {
			_, next, err := opener.OpenSlot(0, slot)
			require.NoError(t, err)
			lanes[0] = append(lanes[0], next)
		}
		return b.Signed(), lanes
	}
	const tooFew, inconsistent = "too few valid slots", "inconsistent manifest"
	_, earlier := source(0, 10)
	tests := []struct {
		name    string
		seq     uint64
		make    func(*onion.SignedManifest, [][][]byte) *onion.Batch
		out     uint64
		finding relay.Reason
	}{
		{"honest", 10, func(s *onion.SignedManifest, lanes [][][]byte) *onion.Batch {
			return middle.Sealed(t, onion.BatchDraft{Submissions: 10, In: []uint64{10}, Source: s}, lanes)
		}, 10, ""},
		{"drops down to n_min", 10, func(s *onion.SignedManifest, lanes [][][]byte) *onion.Batch {
			return middle.Sealed(t, onion.BatchDraft{
				Seq: 1, Submissions: 10, In: []uint64{10}, Source: s,
			}, [][][]byte{lanes[0][:9]})
		}, 9, ""},
		{"drops all but one", 10, func(s *onion.SignedManifest, lanes [][][]byte) *onion.Batch {
			return middle.Sealed(t, onion.BatchDraft{
				Seq: 2, Submissions: 10, In: []uint64{10}, Source: s,
			}, [][][]byte{lanes[0][:1]})
		}, 0, tooFew},
		{"one slot ten times", 10, func(s *onion.SignedManifest, lanes [][][]byte) *onion.Batch {
			for i := range lanes[0] {
				lanes[0][i] = lanes[0][0]
			}
			return middle.Sealed(t, onion.BatchDraft{Seq: 3, Submissions: 10, In: []uint64{10}, Source: s}, lanes)
		}, 0, tooFew},
		{"more clients than the first relay said", 1, func(s *onion.SignedManifest, _ [][][]byte) *onion.Batch {
			return middle.Sealed(t, onion.BatchDraft{Seq: 4, Submissions: 10, In: []uint64{10}, Source: s}, earlier)
		}, 0, inconsistent},
		{"more slots than the first relay sent", 1, func(s *onion.SignedManifest, _ [][][]byte) *onion.Batch {
			return middle.Sealed(t, onion.BatchDraft{Seq: 5, Submissions: 1, In: []uint64{10}, Source: s}, earlier)
		}, 0, inconsistent},
		{"one client more than the first relay said", 9, func(s *onion.SignedManifest, lanes [][][]byte) *onion.Batch {
			return middle.Sealed(t, onion.BatchDraft{Seq: 6, Submissions: 10, In: []uint64{9}, Source: s}, lanes)
		}, 0, inconsistent},
		{"another number's source", 10, func(_ *onion.SignedManifest, lanes [][][]byte) *onion.Batch {
			s, _ := source(99, 10)
			return middle.Sealed(t, onion.BatchDraft{Seq: 7, Submissions: 10, In: []uint64{10}, Source: s}, lanes)
		}, 0, inconsistent},
		{"a source it signed itself", 10, func(_ *onion.SignedManifest, lanes [][][]byte) *onion.Batch {
			own, err := onion.NewBatch(middle.Sign, onion.BatchDraft{
				Context: onion.Context{TaskID: c.Open.ID}, Seq: 8, Submissions: 10, In: []uint64{10},
			}, lanes)
			require.NoError(t, err)
			return middle.Sealed(t, onion.BatchDraft{
				Seq: 8, Submissions: 10, In: []uint64{10}, Source: own.Signed(),
			}, lanes)
		}, 0, inconsistent},
		{"no source", 10, func(_ *onion.SignedManifest, lanes [][][]byte) *onion.Batch {
			return middle.Sealed(t, onion.BatchDraft{Seq: 9, Submissions: 10, In: []uint64{10}}, lanes)
		}, 0, inconsistent},
		{"a batch of one client, as it is", 1, func(s *onion.SignedManifest, lanes [][][]byte) *onion.Batch {
			return middle.Sealed(t, onion.BatchDraft{Seq: 10, Submissions: 1, In: []uint64{1}, Source: s}, lanes)
		}, 0, tooFew},
		{"as if it were the first", 10, func(_ *onion.SignedManifest, lanes [][][]byte) *onion.Batch {
			b, err := onion.NewBatch(middle.Sign, onion.BatchDraft{
				Context: onion.Context{TaskID: c.Open.ID}, Seq: 11, Submissions: 10, In: []uint64{10},
			}, lanes)
			require.NoError(t, err)
			return b
		}, 0, "not the batch asked for"},
	}
	for seq, tt := range tests {
		s, lanes := source(uint64(seq), tt.seq)
		middle.Serve(t, 0, uint64(seq), tt.make(s, lanes))
	}
	c.Start(t, 2)
	found := map[relay.Reason]uint64{}
	for i, tt := range tests {
		seq := uint64(i)
		t.Run(tt.name, func(t *testing.T) {
			if tt.finding != "" {
				found[tt.finding]++
				require.Eventually(t, func() bool { return foundOf(t, c, 2, tt.finding) >= found[tt.finding] },
					relaytest.Patience, 10*time.Millisecond)
			}
			if seq == uint64(len(tests)-1) {
				_, err := c.Verifier.Pull(t.Context(), c.Open, 2, 0, seq)
				require.ErrorIs(t, err, handover.ErrNotSealed)
				return
			}
			var batch *onion.Batch
			var refused *handover.InvalidBatchError // set if its manifest contains an inconsistent one
			require.Eventually(t, func() (ok bool) {
				var err error
				batch, err = c.Verifier.Pull(t.Context(), c.Open, 2, 0, seq)
				return err == nil || errors.As(err, &refused)
			}, relaytest.Patience, 10*time.Millisecond)
			require.Equal(t, tt.finding == inconsistent, refused != nil)
			if refused != nil {
				requireDestroyed(t, c, 2, refused.Signed)
				return
			}
			require.EqualValues(t, tt.out, len(batch.Ciphertexts[0]))
		})
	}
	for why, n := range found {
		require.Equal(t, n, foundOf(t, c, 2, why), why)
	}
}

// TestMaliciousNextHop plays the relay after an honest first one, and others in its name. A signature must be valid
// once, for one number, epoch, task and purpose. Other parties must not learn which batches exist. A next hop that
// confirms a batch without storing it may lose only that batch.
func TestMaliciousNextHop(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 3, Tasks: 2, Task: func(t *task.Task) { t.Epochs.Count = 3 }})
	other := c.Other(t, 1)
	c.Start(t, 0)
	for i := range 20 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	next := handover.NewRequester(c.SignKey(t, 1), nil)
	pull := func(client *handover.Requester, epoch, seq uint64) (*onion.Batch, error) {
		return client.Pull(t.Context(), c.Open, 0, epoch, seq)
	}
	var batch *onion.Batch
	require.Eventually(t, func() (ok bool) {
		_, err := pull(next, 0, 1)
		batch, ok = must(pull(next, 0, 0)), err == nil
		return ok
	}, relaytest.Patience, 10*time.Millisecond)

	// Every other party of the task gets the same answer, whether the batch exists or not.
	for name, key := range map[string]*handover.Requester{
		"itself":          handover.NewRequester(c.SignKey(t, 0), nil),
		"the third relay": handover.NewRequester(c.SignKey(t, 2), nil), "the verifier": c.Verifier,
	} {
		for _, at := range [][2]uint64{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {2, 7}, {2, 65536}} {
			_, err := pull(key, at[0], at[1])
			require.ErrorIs(t, err, handover.ErrUnauthorized, name)
			require.ErrorIs(t, key.Confirm(t.Context(), c.Open, 0, at[0], at[1], batch.Manifest),
				handover.ErrUnauthorized, name)
		}
	}

	// Captured signatures are used for other requests.
	signed := func(method, path string, signature string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+c.Config(t, 0).Listen+path, nil)
		require.NoError(t, err)
		req.Header.Set(handover.Header, signature)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		return resp.StatusCode
	}
	at := func(id task.ID, epoch, seq int) string {
		return fmt.Sprintf("/v1/tasks/%s/epochs/%d/batches/%d", id, epoch, seq)
	}
	newPull := func() string {
		return handover.Signed(c.SignKey(t, 1), signing.Pull,
			handover.Body(c.Open.ID, 0, 0, 0, handover.HistoryDigest{}))
	}
	newConfirm := func() string {
		return handover.Signed(c.SignKey(t, 1), signing.Confirm,
			handover.ConfirmBody(c.Open.ID, 0, 0, batch.Manifest))
	}
	seenPull, seenConfirm := newPull(), newConfirm()
	here := at(c.Open.ID, 0, 0)
	require.Equal(t, 200, signed("GET", here, seenPull))
	require.Equal(t, 403, signed("GET", here, seenPull), "an eavesdropper cannot repeat a pull")
	seenPull = newPull()
	for _, elsewhere := range []string{at(c.Open.ID, 0, 1), at(c.Open.ID, 1, 0), at(other.Open.ID, 0, 0)} {
		require.Equal(t, 403, signed("GET", elsewhere, seenPull))
		require.Equal(t, 403, signed("POST", elsewhere+"/confirm", seenConfirm))
	}
	require.Equal(t, 403, signed("POST", here+"/confirm", seenPull), "a pull is no confirmation")
	require.Equal(t, 403, signed("GET", here, seenConfirm))
	require.Equal(t, 403, signed("GET", here, seenPull+"A"))
	require.Equal(t, 403, signed("GET", here, ""))
	require.ErrorIs(t, next.Confirm(t.Context(), c.Open, 0, 0, 0, append(batch.Manifest, 0)), handover.ErrUnauthorized,
		"another batch of the number")

	// The next hop confirms a batch without storing it, twice: it loses this batch, but not the next one.
	require.Equal(t, 204, signed("POST", here+"/confirm", seenConfirm))
	require.Equal(t, 403, signed("POST", here+"/confirm", seenConfirm), "an eavesdropper cannot repeat a confirmation")
	require.Equal(t, 204, signed("POST", here+"/confirm", newConfirm()))
	require.Equal(t, 410, signed("GET", here, newPull()))
	_, err := pull(next, 0, 0)
	require.ErrorIs(t, err, handover.ErrConfirmed)
	second := must(pull(next, 0, 1))
	require.Len(t, second.Ciphertexts[0], 10)

	_, err = pull(next, 0, 2)
	require.ErrorIs(t, err, handover.ErrNotSealed)
	require.ErrorIs(t, err, problem.New(problem.NotSealed, ""))
}

// must returns v and ignores an error that the caller checks elsewhere.
func must[T any](v T, _ error) T { return v }
