package relaytest

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// Rogue takes the place of a relay, with the relay's keys. It serves whatever batches a test gives it.
type Rogue struct {
	Sign    ed25519.PrivateKey
	cascade *Cascade
	hop     int

	mu        sync.Mutex // guards the fields below
	answers   map[string]http.HandlerFunc
	pulls     map[string]int
	over      map[uint64]bool
	confirmed map[string]bool
	deaf      bool // whether it refuses confirmations
	asked     int  // confirmations that it refused
	served    map[string]onion.Manifest
}

// StartFirst runs a rogue as the first relay until the test ends.
func (c *Cascade) StartFirst(t testing.TB) *Rogue { return c.StartRogue(t, 0) }

// StartRogue runs a rogue instead of the relay at a hop until the test ends.
func (c *Cascade) StartRogue(t testing.TB, hop int) *Rogue {
	t.Helper()
	r := &Rogue{Sign: c.SignKey(t, hop), cascade: c, hop: hop, answers: map[string]http.HandlerFunc{},
		pulls: map[string]int{},
		over:  map[uint64]bool{}, confirmed: map[string]bool{}, served: map[string]onion.Manifest{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+endpoint.BatchPath, r.handlePull)
	mux.HandleFunc("POST "+endpoint.ConfirmPath, r.handleConfirm)
	mux.HandleFunc("GET "+endpoint.EndPath, r.handleEnd)
	mux.HandleFunc("GET "+endpoint.TimePath, func(w http.ResponseWriter, req *http.Request) {
		service.WriteTime(w, req, r.Sign, c.Open.ID, hop, c.Clock.Now())
	})
	c.Listen(t, hop, mux)
	return r
}

// SignKey returns a relay's signing key.
func (c *Cascade) SignKey(t testing.TB, hop int) ed25519.PrivateKey {
	t.Helper()
	sign, err := keyfile.LoadSign(filepath.Join(c.Dir, fmt.Sprintf("relay%d", hop+1), "sign.key"))
	require.NoError(t, err)
	return sign
}

// Listen serves a handler at the address of a relay until the test ends.
func (c *Cascade) Listen(t testing.TB, hop int, handler http.Handler) {
	t.Helper()
	l, err := net.Listen("tcp", c.addresses[hop])
	require.NoError(t, err)
	server := &http.Server{Handler: handler}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
}

// batchName returns the key of a batch in the rogue's maps: epoch/number.
func batchName(epoch, seq any) string { return fmt.Sprint(epoch, "/", seq) }

func (r *Rogue) handlePull(w http.ResponseWriter, req *http.Request) {
	at := batchName(req.PathValue("epoch"), req.PathValue("seq"))
	r.mu.Lock()
	r.pulls[at]++
	answer, over := r.answers[at], r.over[parse(req.PathValue("epoch"))]
	r.mu.Unlock()
	switch {
	case answer != nil:
		answer(w, req)
	case over:
		problem.New(problem.Complete, "").Write(w)
	default:
		problem.New(problem.NotSealed, "").Write(w)
	}
}

// handleEnd serves the signed end of an epoch that the test has ended, with the batches served in it.
func (r *Rogue) handleEnd(w http.ResponseWriter, req *http.Request) {
	epoch := parse(req.PathValue("epoch"))
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over[epoch] {
		problem.New(problem.NotSealed, "").Write(w)
		return
	}
	var batches []onion.Manifest
	for seq := 0; ; seq++ {
		m, ok := r.served[batchName(epoch, seq)]
		if !ok {
			break
		}
		batches = append(batches, m)
	}
	end, err := onion.NewEnd(r.Sign, r.cascade.Open.Task, r.Context(epoch), batches, nil)
	if err != nil {
		panic(err)
	}
	raw, err := end.Bytes()
	if err != nil {
		panic(err)
	}
	w.Write(raw)
}

func parse(text string) (n uint64) {
	fmt.Sscan(text, &n)
	return n
}

func (r *Rogue) handleConfirm(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deaf {
		r.asked++
		problem.New(problem.Overloaded, "").Write(w)
		return
	}
	r.confirmed[batchName(req.PathValue("epoch"), req.PathValue("seq"))] = true
	w.WriteHeader(http.StatusNoContent)
}

// Serve makes the rogue serve a batch under a number.
func (r *Rogue) Serve(t testing.TB, epoch, seq uint64, b *onion.Batch) {
	t.Helper()
	raw, err := b.Bytes()
	require.NoError(t, err)
	if m, err := b.Header(); err == nil {
		r.mu.Lock()
		r.served[batchName(epoch, seq)] = *m
		r.mu.Unlock()
	}
	r.Answer(epoch, seq, func(w http.ResponseWriter, _ *http.Request) { w.Write(raw) })
}

// Answer makes the rogue answer requests for a batch number with a handler. If the handler is nil, the batch is gone.
func (r *Rogue) Answer(epoch, seq uint64, answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[batchName(epoch, seq)] = answer
	if answer == nil {
		delete(r.served, batchName(epoch, seq))
	}
}

// Pulls returns how often a batch number was requested.
func (r *Rogue) Pulls(epoch, seq uint64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls[batchName(epoch, seq)]
}

// End makes the rogue report an epoch as ended.
func (r *Rogue) End(epoch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over[epoch] = true
}

// Deaf makes the rogue refuse confirmations, or accept them again. It returns how many confirmations it has refused so
// far.
func (r *Rogue) Deaf(deaf bool) (lost int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = deaf
	return r.asked
}

// Confirmed reports whether the next hop has confirmed a batch.
func (r *Rogue) Confirmed(epoch, seq uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.confirmed[batchName(epoch, seq)]
}

// Batch signs a batch of the given slots as an honest first relay would.
func (r *Rogue) Batch(t testing.TB, epoch, seq, submissions uint64, lanes onion.Lanes) *onion.Batch {
	t.Helper()
	in := make([]uint64, len(lanes))
	for lane := range lanes {
		in[lane] = submissions * r.cascade.Open.Slots.PerLane
		if r.cascade.Open.Slots.Padding == task.PaddingNone {
			in[lane] = max(submissions, uint64(len(lanes[lane])))
		}
	}
	draft := onion.BatchDraft{Context: r.Context(epoch), Seq: seq, Submissions: submissions, In: in}
	return r.Sealed(t, draft, lanes)
}

// Sealed signs a batch with any counts and source, in the epoch that the draft names.
func (r *Rogue) Sealed(t testing.TB, draft onion.BatchDraft, lanes onion.Lanes) *onion.Batch {
	t.Helper()
	draft.Context = r.Context(draft.Epoch)
	b, err := onion.NewBatch(r.Sign, draft, lanes)
	require.NoError(t, err)
	return b
}

// Context returns the task, epoch and hop of the rogue's batches.
func (r *Rogue) Context(epoch uint64) onion.Context {
	return onion.Context{TaskID: r.cascade.Open.ID, Epoch: epoch, Hop: r.hop}
}

// Slots returns, by lane, the slots that the first relay finds in the envelopes of clients with the given values.
func (c *Cascade) Slots(t testing.TB, epoch uint64, values ...uint64) onion.Lanes {
	t.Helper()
	opener := c.Opener(t, 0, epoch)
	lanes := make(onion.Lanes, c.Open.Slots.Lanes)
	for _, value := range values {
		envelope, err := opener.OpenEnvelope(c.Seal(t, epoch, value))
		require.NoError(t, err)
		for lane, slots := range envelope.Lanes {
			lanes[lane] = append(lanes[lane], slots...)
		}
	}
	return lanes
}

// Opener returns an opener with a relay's key of an epoch.
func (c *Cascade) Opener(t testing.TB, hop int, epoch uint64) *onion.Opener {
	t.Helper()
	keys, err := keyfile.LoadHPKE(filepath.Join(c.Dir, fmt.Sprintf("relay%d", hop+1), c.fileName()+".keys"))
	require.NoError(t, err)
	key, err := keys.Key(epoch)
	require.NoError(t, err)
	o, err := onion.NewOpener(c.Open.Task, c.Open.ID, hop, epoch, key)
	require.NoError(t, err)
	return o
}

// Status asks a running relay for its progress in the task.
func (c *Cascade) Status(t testing.TB, hop int) relay.TaskStatus {
	t.Helper()
	return c.Statuses(t, hop)[c.index]
}

// Statuses returns a relay's progress in all its tasks.
func (c *Cascade) Statuses(t testing.TB, hop int) []relay.TaskStatus {
	t.Helper()
	resp, err := c.http.Get("http://" + c.Config(t, hop).Admin + "/status")
	require.NoError(t, err)
	defer resp.Body.Close()
	var status relay.Status
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&status))
	return status.Tasks
}
