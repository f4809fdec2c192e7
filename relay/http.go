package relay

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/doona-dp/doona/onion"
	"github.com/doona-dp/doona/relay/handover"
	"github.com/doona-dp/doona/relay/problem"
)

// mediaType is that of everything on the wire but problems.
const mediaType = "application/msgpack"

// handler is an HTTP handler that may fail.
type handler func(http.ResponseWriter, *http.Request) error

// answer turns a handler's error into a problem; errors that are none are the relay's own, are
// logged, and tell the client nothing.
func (r *Relay) answer(handle handler) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		err := handle(w, req)
		if err == nil {
			return
		}
		var p *problem.Problem
		if !errors.As(err, &p) {
			r.logged(req.Context(), "couldn't answer", err)
			p = problem.New(problem.Internal, "")
		}
		p.Write(w)
	}
}

// open is answer for what pages of any origin may read.
func (r *Relay) open(handle handler) http.HandlerFunc {
	inner := r.answer(handle)
	return func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate")
		inner(w, req)
	}
}

// preflight lets pages of any origin send reports, and browsers remember so for a day.
func preflight(w http.ResponseWriter, _ *http.Request) {
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", "*")
	header.Set("Access-Control-Allow-Methods", "POST")
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type")
	header.Set("Access-Control-Max-Age", "86400")
	w.WriteHeader(http.StatusNoContent)
}

// task returns the task that a request's path names.
func (r *Relay) task(req *http.Request) (*served, error) {
	text := req.PathValue("task")
	raw, err := hex.DecodeString(text)
	if err == nil && len(raw) == 32 && hex.EncodeToString(raw) == text {
		if s := r.tasks[[32]byte(raw)]; s != nil {
			return s, nil
		}
	}
	return nil, problem.New(problem.UnknownTask, "")
}

// number reads a decimal number from a request's path.
func number(req *http.Request, name string) (uint64, error) {
	text := req.PathValue(name)
	v, err := strconv.ParseUint(text, 10, 63)
	if err != nil || strconv.FormatUint(v, 10) != text {
		return 0, problem.New(problem.Malformed, "%s: want a decimal number", name)
	}
	return v, nil
}

func (r *Relay) handleTask(w http.ResponseWriter, req *http.Request) error {
	s, err := r.task(req)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "public, max-age=3600")
	return write(w, s.bundle)
}

func (r *Relay) handleKeys(w http.ResponseWriter, _ *http.Request) error {
	return write(w, r.keyLists)
}

func write(w http.ResponseWriter, body []byte) error {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body) // an error is the peer's leaving
	return nil
}

// batchOf returns what a pull or confirmation is about.
func (r *Relay) batchOf(req *http.Request) (s *served, epoch, seq uint64, err error) {
	if s, err = r.task(req); err != nil {
		return nil, 0, 0, err
	}
	if epoch, err = number(req, "epoch"); err != nil {
		return nil, 0, 0, err
	}
	seq, err = number(req, "seq")
	return s, epoch, seq, err
}

// signed checks that the next hop signed a request.
func (s *served) signed(req *http.Request, purpose onion.Purpose, body []byte) error {
	signature, err := base64.RawURLEncoding.DecodeString(req.Header.Get(handover.Header))
	next := s.Party(s.hop + 1).SignKey
	if err != nil || !onion.Verify(next[:], purpose, body, signature) {
		return problem.New(problem.Unauthorized, "")
	}
	return nil
}

func (r *Relay) handlePull(w http.ResponseWriter, req *http.Request) error {
	s, epoch, seq, err := r.batchOf(req)
	if err != nil {
		return err
	}
	if err := s.signed(req, onion.SignPull, handover.Body(s.ID, epoch, seq)); err != nil {
		return err
	}
	if !r.handouts.take(s) {
		return r.turnAway(problem.Overloaded)
	}
	defer r.handouts.leave(s)
	b, err := r.sealed(req, s, epoch, seq)
	if err != nil {
		return err
	}
	if b.confirmed {
		return problem.New(problem.Confirmed, "")
	}
	patience := writeTimeout + time.Duration(len(b.bytes))*time.Second/(64<<10) // at 64 kB/s
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", mediaType)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(b.bytes)) // a range, where a transfer broke off
	return nil
}

// sealed returns a sealed batch, or the problem that says whether it may come yet.
func (r *Relay) sealed(req *http.Request, s *served, epoch, seq uint64) (*sealed, error) {
	over := epoch >= s.Epochs.Count || s.state(epoch) >= stateComplete // before looking, lest one comes in between
	b, err := r.store.batch(req.Context(), s.epochID(epoch), seq)
	if !errors.Is(err, errNoBatch) {
		return b, err
	}
	if over {
		return nil, problem.New(problem.Complete, "")
	}
	return nil, problem.New(problem.NotSealed, "").Retry(r.cfg.PullInterval)
}

func (r *Relay) handleConfirm(w http.ResponseWriter, req *http.Request) error {
	s, epoch, seq, err := r.batchOf(req)
	if err != nil {
		return err
	}
	manifest, confirmed, err := r.store.manifest(req.Context(), s.epochID(epoch), seq)
	if errors.Is(err, errNoBatch) {
		return problem.New(problem.Unauthorized, "") // and strangers do not learn what exists
	}
	if err != nil {
		return err
	}
	if err := s.signed(req, onion.SignConfirm, handover.ConfirmBody(s.ID, epoch, seq, manifest)); err != nil {
		return err
	}
	if !confirmed {
		if err := r.store.confirm(req.Context(), s.epochID(epoch), seq); err != nil {
			return err
		}
		r.logged(req.Context(), "couldn't destroy keys", r.settle(req.Context()))
		r.scrub(req.Context())
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
