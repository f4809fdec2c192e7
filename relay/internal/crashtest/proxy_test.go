package crashtest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// kind is the purpose of a request.
type kind int

const (
	report kind = iota
	pull
	confirm
	other
	kinds
)

// batchKey names a batch.
type batchKey struct {
	task       task.ID
	epoch, seq uint64
}

// epochKey names an epoch of a task.
type epochKey struct {
	task  task.ID
	epoch uint64
}

// proxy is the reverse proxy before a relay. It knows which requests are in progress, and records a fault if the bytes
// of a batch number change.
type proxy struct {
	hop      int
	url      string
	store    *store
	backends []*process
	next     func(task task.ID) *process // returns the process that pulls from this relay
	turn     atomic.Uint64
	line     http.Transport

	mu        sync.Mutex // guards the rest
	batches   map[batchKey][sha256.Size]byte
	manifests map[batchKey][]byte
	delivered map[epochKey]uint64 // number of batches that were handed out completely
	confirmed map[batchKey]bool
	released  int // batches with messages
	repeats   int // batches handed out again
	faults    []string
}

func newProxy(t *testing.T, hop int) *proxy {
	l := listenLoopback(t)
	r := &proxy{hop: hop, url: "http://" + l.Addr().String(), batches: map[batchKey][sha256.Size]byte{},
		manifests: map[batchKey][]byte{},
		delivered: map[epochKey]uint64{}, confirmed: map[batchKey]bool{}}
	r.line.MaxIdleConnsPerHost = 256
	r.line.DisableCompression = true
	s := &http.Server{Handler: r}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return r
}

// probe is the header that marks requests of the test itself.
const probe = "Crashtest-Probe"

// parse returns the kind of a request, and its batch, from a path like /v1/tasks/{id}/epochs/{e}/batches/{seq}/confirm.
func parse(path string) (k kind, at batchKey) {
	parts := strings.Split(strings.TrimPrefix(path, "/v1/"), "/")
	if len(parts) < 5 {
		return other, at
	}
	hex.Decode(at.task[:], []byte(parts[1]))
	at.epoch, _ = strconv.ParseUint(parts[3], 10, 63)
	switch parts[4] {
	case "reports":
		return report, at
	case "batches":
	default:
		return other, at
	}
	at.seq, _ = strconv.ParseUint(parts[5], 10, 63)
	if len(parts) == 7 {
		return confirm, at
	}
	return pull, at
}

// ServeHTTP forwards a request. If the relay breaks the connection, the proxy breaks the client's connection.
func (r *proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	k, at := parse(req.URL.Path)
	p := r.backends[r.turn.Add(1)%uint64(len(r.backends))]
	p.serving[k].Add(1)
	defer p.serving[k].Add(-1)
	if k == pull || k == confirm {
		if by := r.next(at.task); req.Header.Get(probe) == "" && by != nil {
			by.asking[k].Add(1)
			defer by.asking[k].Add(-1)
		}
	}
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = "http", p.address, "", ""
	resp, err := r.line.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	var seen bytes.Buffer
	if err := copySlowly(w, io.TeeReader(resp.Body, &seen)); err != nil {
		panic(http.ErrAbortHandler)
	}
	switch {
	case k == pull && resp.StatusCode == http.StatusOK:
		r.record(at, seen.Bytes())
	case k == confirm && resp.StatusCode == http.StatusNoContent:
		r.mu.Lock()
		r.confirmed[at] = true
		r.mu.Unlock()
	}
}

// copySlowly copies like a slow network, so that transfers of batches last long enough to be interrupted.
func copySlowly(w http.ResponseWriter, from io.Reader) error {
	for {
		n, err := io.CopyN(w, from, 4<<10)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if n == 4<<10 {
			http.NewResponseController(w).Flush()
			time.Sleep(time.Millisecond)
		}
	}
}

// record records a batch that was handed out completely, and checks that its number always has the same bytes.
func (r *proxy) record(at batchKey, body []byte) {
	hash := sha256.Sum256(body)
	batch, err := onion.ParseBatch(body)
	r.mu.Lock()
	defer r.mu.Unlock()
	before, again := r.batches[at]
	switch {
	case err != nil:
		r.faults = append(r.faults, fmt.Sprintf("hop %d: batch %d of epoch %d: %v", r.hop, at.seq, at.epoch, err))
	case again && before != hash:
		r.faults = append(r.faults,
			fmt.Sprintf("hop %d: batch %d of epoch %d stood for two different byte strings", r.hop, at.seq, at.epoch))
	case again:
		r.repeats++
	default:
		r.batches[at] = hash
		r.manifests[at] = batch.Manifest
		e := epochKey{at.task, at.epoch}
		r.delivered[e] = max(r.delivered[e], at.seq+1)
		if len(batch.Ciphertexts) > 0 && len(batch.Ciphertexts[0]) > 0 {
			r.released++
		}
	}
}

// unconfirmed returns a batch that was handed out and is not confirmed, if there is one.
func (r *proxy) unconfirmed() (at batchKey, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := range r.batches {
		if !r.confirmed[at] {
			return at, true
		}
	}
	return at, false
}

// released counts the batches with messages that left the last relay.
func (w *world) released() int {
	last := w.proxies[len(w.proxies)-1]
	last.mu.Lock()
	defer last.mu.Unlock()
	return last.released
}
