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

	"github.com/doona-dp/doona/keyfile"
	"github.com/doona-dp/doona/onion"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/relay/problem"
)

// FirstRelay stands where a cascade's first relay should: it has its keys and hands out whatever
// batches a test gives it.
type FirstRelay struct {
	Sign    ed25519.PrivateKey
	cascade *Cascade

	mu        sync.Mutex // guards the rest
	batches   map[string][]byte
	over      map[uint64]bool
	confirmed map[string]bool
}

// StartFirst runs a first relay of the test's own until the test ends.
func (c *Cascade) StartFirst(t testing.TB) *FirstRelay {
	t.Helper()
	sign, err := keyfile.LoadSign(filepath.Join(c.Dir, "relay1", "sign.key"))
	require.NoError(t, err)
	f := &FirstRelay{Sign: sign, cascade: c, batches: map[string][]byte{}, over: map[uint64]bool{}, confirmed: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/tasks/{task}/epochs/{epoch}/batches/{seq}", f.handlePull)
	mux.HandleFunc("POST /v1/tasks/{task}/epochs/{epoch}/batches/{seq}/confirm", f.handleConfirm)
	c.Listen(t, 0, mux)
	return f
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

// place names a batch as its URL does.
func place(epoch, seq any) string { return fmt.Sprint(epoch, "/", seq) }

func (f *FirstRelay) handlePull(w http.ResponseWriter, req *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	raw, ok := f.batches[place(req.PathValue("epoch"), req.PathValue("seq"))]
	switch {
	case ok:
		w.Write(raw)
	case f.over[parse(req.PathValue("epoch"))]:
		problem.New(problem.Complete, "").Write(w)
	default:
		problem.New(problem.NotSealed, "").Write(w)
	}
}

func parse(text string) (n uint64) {
	fmt.Sscan(text, &n)
	return n
}

func (f *FirstRelay) handleConfirm(w http.ResponseWriter, req *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.confirmed[place(req.PathValue("epoch"), req.PathValue("seq"))] = true
	w.WriteHeader(http.StatusNoContent)
}

// Serve hands out a batch under a number from now on.
func (f *FirstRelay) Serve(t testing.TB, epoch, seq uint64, b *onion.Batch) {
	t.Helper()
	raw, err := b.Bytes()
	require.NoError(t, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches[place(epoch, seq)] = raw
}

// End says from now on that an epoch is over.
func (f *FirstRelay) End(epoch uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over[epoch] = true
}

// Confirmed says whether the next relay has confirmed a batch.
func (f *FirstRelay) Confirmed(epoch, seq uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.confirmed[place(epoch, seq)]
}

// Batch signs a batch of these slots as an honest first relay would.
func (f *FirstRelay) Batch(t testing.TB, epoch, seq, submissions uint64, lanes [][][]byte) *onion.Batch {
	t.Helper()
	in := make([]uint64, len(lanes))
	for lane := range lanes {
		in[lane] = submissions * f.cascade.Open.Slots.PerLane
	}
	b, err := onion.NewBatch(f.Sign, f.Context(epoch), seq, submissions, in, lanes, nil)
	require.NoError(t, err)
	return b
}

// Context is the context of the first relay's batches.
func (f *FirstRelay) Context(epoch uint64) onion.Context {
	return onion.Context{TaskID: f.cascade.Open.ID, Epoch: epoch, Hop: 0}
}

// Slots returns what the first relay finds in the envelopes of clients with these values, by
// lane.
func (c *Cascade) Slots(t testing.TB, epoch uint64, values ...uint64) [][][]byte {
	t.Helper()
	opener := c.Opener(t, 0, epoch)
	lanes := make([][][]byte, c.Open.Slots.Lanes)
	for _, value := range values {
		envelope, err := opener.OpenEnvelope(c.Seal(t, epoch, value))
		require.NoError(t, err)
		for lane, slots := range envelope.Lanes {
			lanes[lane] = append(lanes[lane], slots...)
		}
	}
	return lanes
}

// Opener returns what a relay opens with.
func (c *Cascade) Opener(t testing.TB, hop int, epoch uint64) *onion.Opener {
	t.Helper()
	keys, err := keyfile.LoadHPKE(filepath.Join(c.Dir, fmt.Sprintf("relay%d", hop+1), taskName(c.index)+".keys"))
	require.NoError(t, err)
	key, err := keys.Key(epoch)
	require.NoError(t, err)
	o, err := onion.NewOpener(c.Open.Task, c.Open.ID, hop, epoch, key)
	require.NoError(t, err)
	return o
}

// Status asks a running relay how far it has come.
func (c *Cascade) Status(t testing.TB, hop int) relay.TaskStatus {
	t.Helper()
	resp, err := c.http.Get("http://" + c.Config(t, hop).Admin + "/status")
	require.NoError(t, err)
	defer resp.Body.Close()
	var status relay.Status
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&status))
	return status.Tasks[c.index]
}
