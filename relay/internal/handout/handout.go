// Package handout gives this relay's sealed batches to the next hop. A [Server] answers pulls (requests for batches),
// accepts confirmations, and reports which epochs are open and which have ended.
//
// Package relay routes requests to it. The next hop signs every request, and the server answers each once. A request
// shows which batches the next hop has. If this relay lacks one, its store and key files were rolled back together, and
// the server hands out nothing more of that epoch.
package handout

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
)

// Server answers the next hop: batches, ends of epochs, confirmations and updates. It is safe for concurrent use.
type Server struct {
	*tasks.Registry
	Store Store
	Clock *clock.Guard

	host     *tasks.Host // remembers requests
	monitor  *monitor.Monitor
	epochs   Epochs
	retry    time.Duration // after which the next hop asks for an unsealed batch again
	instance [16]byte      // names this process in its updates
	handouts handouts
}

// Epochs is the part of package epochs that a Server calls.
type Epochs interface {
	Note(ctx context.Context, b tasks.BatchRef, why store.Reason, details ...any) error

	// Reconcile destroys the keys of batches that the next hop has confirmed.
	Reconcile(ctx context.Context) error

	// ScrubSoon makes the relay remove traces of deleted rows soon.
	ScrubSoon()
}

// New returns the server of a host's batches. A next hop repeats its request after retry if a batch is not sealed yet.
// The caller sets Store and Clock.
func New(host *tasks.Host, monitor *monitor.Monitor, epochs Epochs, retry time.Duration) *Server {
	h := &Server{Registry: host.Registry, host: host, monitor: monitor, epochs: epochs, retry: retry}
	rand.Read(h.instance[:])
	return h
}

// Store is the part of the store that a Server calls.
type Store interface {
	Batch(ctx context.Context, b store.BatchID) (*store.Sealed, error)
	Manifest(ctx context.Context, b store.BatchID) (manifest []byte, confirmed bool, err error)
	SealedBelow(ctx context.Context, b store.BatchID) (bool, error)
	Confirm(ctx context.Context, b store.BatchID) error
	End(ctx context.Context, id store.EpochID) ([]byte, error)
	StateRollback() *store.StateRollbackError
}

func (out *Server) batchOf(req *http.Request) (b tasks.BatchRef, err error) {
	e, err := out.epochOf(req)
	if err != nil {
		return b, err
	}
	seq, err := service.PathBatch(req, e.Task)
	return e.Ref(seq), err
}

func (out *Server) epochOf(req *http.Request) (e tasks.Epoch, err error) {
	s, err := service.PathTask(req, out.Hosted().ByID)
	if err != nil {
		return e, err
	}
	epoch, err := service.PathEpoch(req, s.Task)
	return s.Epoch(epoch), err
}

// signed returns an error unless the next hop signed the request and the request is no replay.
func (out *Server) signed(req *http.Request, s *tasks.Hosted, purpose signing.Purpose, body []byte) error {
	next := s.Party(s.Hop + 1).SignKey
	nonce, ok := handover.Verify(next, purpose, body, req.Header.Get(handover.Header))
	if !ok {
		return problem.New(problem.Unauthorized, "")
	}
	return out.host.Fresh(req.Context(), next, nonce)
}

// rangeStart returns the offset of the first byte that a request asks for. It must be below the size of the longest
// batch.
func rangeStart(s *tasks.Hosted, req *http.Request) (uint64, error) {
	header := req.Header.Get("Range")
	if header == "" {
		return 0, nil
	}
	text := strings.TrimSuffix(strings.TrimPrefix(header, "bytes="), "-")
	from, err := strconv.ParseUint(text, 10, 63)
	if err != nil || header != "bytes="+strconv.FormatUint(from, 10)+"-" {
		return 0, problem.New(problem.Malformed, "invalid Range: want bytes=N-")
	}
	if most := uint64(handover.MaxBatch(s.Task, s.Layout, s.Hop)); from >= most {
		return 0, problem.New(problem.Malformed, "invalid Range: starts at byte %d, want below %d", from, most)
	}
	return from, nil
}

// HandlePull answers the next hop with a sealed batch. It refuses if the request's digest of earlier batches differs
// from the store's.
func (out *Server) HandlePull(w http.ResponseWriter, req *http.Request) error {
	ref, err := out.batchOf(req)
	if err != nil {
		return err
	}
	from, err := rangeStart(ref.Hosted, req)
	if err != nil {
		return err
	}
	before, err := handover.ParseHistory(req.Header.Get(handover.HistoryHeader))
	if err != nil {
		return problem.New(problem.Malformed, "%s: %s", handover.HistoryHeader, err)
	}
	body := handover.Body(ref.Hosted.ID, ref.Number, ref.Seq, from, before)
	if err := out.signed(req, ref.Hosted, signing.Pull, body); err != nil {
		return err
	}
	ref.AskedNow()
	if !ref.Approved() { // see SetClockPeers
		start, _ := ref.Window()
		out.Clock.RecordPassed(start.Add(-service.MaxSkew)) // the epoch has begun by the next hop's clock
	}
	if err := out.checkHistory(req.Context(), ref, before); err != nil {
		return err
	}
	if !out.handouts.take(ref.Hosted) {
		return out.monitor.TurnAway(problem.Overloaded)
	}
	defer out.handouts.leave(ref.Hosted)
	b, err := out.sealed(req, ref)
	if err != nil {
		return err
	}
	// Check again, because this batch and the previous one may have been made meanwhile.
	if err := out.checkHistory(req.Context(), ref, before); err != nil {
		return err
	}
	if b.Confirmed {
		return problem.New(problem.Confirmed, "")
	}
	patience := service.WriteTimeout + time.Duration(b.Content.Size())*time.Second/(64<<10) // at 64 KiB/s
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", codec.MediaType)
	http.ServeContent(w, req, "", time.Time{}, b.Content) // a range, after an interrupted transfer
	return nil
}

// sealed returns a sealed batch, or the problem that tells the next hop whether to ask again.
func (out *Server) sealed(req *http.Request, b tasks.BatchRef) (*store.Sealed, error) {
	// Read the state before the batch: the batch may be made meanwhile.
	over := b.State() >= store.StateComplete
	if b.State() == store.StateEnded {
		return nil, tasks.EndedProblem()
	}
	found, err := out.Store.Batch(req.Context(), b.BatchID())
	if errors.Is(err, store.ErrUncut) {
		return nil, problem.New(problem.NotSealed, "").Retry(out.retry)
	}
	if !errors.Is(err, store.ErrNoBatch) {
		return found, err
	}
	if over {
		return nil, problem.New(problem.Complete, "")
	}
	if err := out.checkBegun(req.Context(), b); err != nil {
		return nil, err
	}
	return nil, problem.New(problem.NotSealed, "").Retry(out.retry)
}

// HandleEnd answers the next hop with the signed end of an epoch that has no further batch here.
func (out *Server) HandleEnd(w http.ResponseWriter, req *http.Request) error {
	e, err := out.epochOf(req)
	if err != nil {
		return err
	}
	if err := out.signed(req, e.Hosted, signing.AskEnd, handover.EndBody(e.Hosted.ID, e.Number)); err != nil {
		return err
	}
	if err := out.checkOpen(e); err != nil {
		return err
	}
	end, err := out.Store.End(req.Context(), e.ID())
	if err != nil {
		return err
	}
	if end == nil {
		return problem.New(problem.NotSealed, "").Retry(out.retry)
	}
	w.Header().Set("Cache-Control", "no-store")
	return service.Write(w, codec.MediaType, end)
}

// checkOpen returns a problem if nothing of an epoch may be handed out or deleted: a state rollback was found, or the
// operator has ended it.
func (out *Server) checkOpen(e tasks.Epoch) error {
	if back := out.Store.StateRollback(); back != nil {
		return back
	}
	return e.CheckServable()
}

// HandleConfirm records that the next hop holds a batch, and destroys it here. When it answers 204, both are durable.
func (out *Server) HandleConfirm(w http.ResponseWriter, req *http.Request) error {
	b, err := out.batchOf(req)
	if err != nil {
		return err
	}
	manifest, confirmed, err := out.Store.Manifest(req.Context(), b.BatchID())
	missing := errors.Is(err, store.ErrNoBatch)
	if err != nil && !missing {
		return err
	}
	// Check the signature even if there is no such batch, so that neither answer nor timing tells strangers which
	// batches exist.
	body := handover.ConfirmBody(b.Hosted.ID, b.Number, b.Seq, manifest)
	if err := out.signed(req, b.Hosted, signing.Confirm, body); err != nil {
		return err
	}
	if err := out.checkOpen(b.Epoch); err != nil && !errors.Is(err, tasks.EndedProblem()) {
		return err
	}
	if missing {
		return problem.New(problem.Unauthorized, "")
	}
	if !confirmed {
		if err := out.Store.Confirm(req.Context(), b.BatchID()); err != nil {
			return err
		}
		out.monitor.Logged(req.Context(), "couldn't destroy keys", out.epochs.Reconcile(req.Context()))
		out.epochs.ScrubSoon()
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// handouts limits how many batches are sent at one time, because each takes memory. An attacker who intercepts a next
// hop's signed request could repeat it and read slowly. Each task may always send one batch, and more while all
// together take at most handoutBytes.
type handouts struct {
	mu    sync.Mutex // guards the rest
	bytes int64
	tasks map[*tasks.Hosted]int
}

const handoutBytes = 64 << 20

// take reserves the memory to send a batch and reports whether there was enough.
func (h *handouts) take(s *tasks.Hosted) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	size := handoutBytesOf(s)
	if h.tasks[s] > 0 && h.bytes+size > handoutBytes {
		return false
	}
	if h.tasks == nil {
		h.tasks = map[*tasks.Hosted]int{}
	}
	h.tasks[s]++
	h.bytes += size
	return true
}

func (h *handouts) leave(s *tasks.Hosted) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tasks[s]--
	h.bytes -= handoutBytesOf(s)
}

// handoutBytesOf returns how many bytes it takes to send a batch of a task: one chunk, encrypted and decrypted, and the
// positions of all chunks.
func handoutBytesOf(s *tasks.Hosted) int64 {
	return 2*onion.ChunkSlots*int64(s.Layout.SlotSize(s.Hop+1)) +
		handover.MaxBatch(s.Task, s.Layout, s.Hop)/int64(s.Layout.SlotSize(s.Hop+1))/onion.ChunkSlots*24
}
