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

// kind is what a request is for.
type kind int

const (
	report kind = iota
	pull
	confirm
	other
	kinds
)

// place names a batch.
type place struct {
	task       task.ID
	epoch, seq uint64
}

// epochPlace names an epoch of a task.
type epochPlace struct {
	task  task.ID
	epoch uint64
}

// road is the reverse proxy before a relay. It knows what is under way, and holds every batch to
// the bytes that it first had.
type road struct {
	hop      int
	url      string
	store    *store
	backends []*process
	next     func(task task.ID) *process // who pulls here
	turn     atomic.Uint64
	line     http.Transport

	mu        sync.Mutex // guards the rest
	batches   map[place][sha256.Size]byte
	manifests map[place][]byte
	delivered map[epochPlace]uint64 // how many batches have been handed out in full
	confirmed map[place]bool
	released  int // batches with messages
	repeats   int // batches handed out again
	faults    []string
}

func newRoad(t *testing.T, hop int) *road {
	l := listenLoopback(t)
	r := &road{hop: hop, url: "http://" + l.Addr().String(), batches: map[place][sha256.Size]byte{},
		manifests: map[place][]byte{},
		delivered: map[epochPlace]uint64{}, confirmed: map[place]bool{}}
	r.line.MaxIdleConnsPerHost = 256
	r.line.DisableCompression = true
	s := &http.Server{Handler: r}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return r
}

// probe marks requests of the harness itself.
const probe = "Crashtest-Probe"

// parse reads what a request is for from its path: /v1/tasks/{id}/epochs/{e}/batches/{seq}/confirm.
func parse(path string) (k kind, at place) {
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

// ServeHTTP passes a request on, and breaks the connection where the relay breaks its own.
func (r *road) ServeHTTP(w http.ResponseWriter, req *http.Request) {
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
	if err := dawdle(w, io.TeeReader(resp.Body, &seen)); err != nil {
		panic(http.ErrAbortHandler)
	}
	switch {
	case k == pull && resp.StatusCode == http.StatusOK:
		r.hold(at, seen.Bytes())
	case k == confirm && resp.StatusCode == http.StatusNoContent:
		r.mu.Lock()
		r.confirmed[at] = true
		r.mu.Unlock()
	}
}

// dawdle copies as a long line would: so a batch is long enough on its way to be cut off there.
func dawdle(w http.ResponseWriter, from io.Reader) error {
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

// hold notes a batch that went out in full, and demands that its number never stood for another.
func (r *road) hold(at place, body []byte) {
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
		e := epochPlace{at.task, at.epoch}
		r.delivered[e] = max(r.delivered[e], at.seq+1)
		if len(batch.Ciphertexts) > 0 && len(batch.Ciphertexts[0]) > 0 {
			r.released++
		}
	}
}

// unconfirmed returns a batch that was handed out and is not confirmed, if there is one.
func (r *road) unconfirmed() (at place, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := range r.batches {
		if !r.confirmed[at] {
			return at, true
		}
	}
	return at, false
}

// released counts the batches that left the last relay.
func (w *world) released() int {
	last := w.roads[len(w.roads)-1]
	last.mu.Lock()
	defer last.mu.Unlock()
	return last.released
}
