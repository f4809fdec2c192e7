package relay

import (
	"bytes"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
)

// mediaType is that of everything on the wire but problems.
const mediaType = "application/msgpack"

// answer is [service.Answer].
func (r *Relay) answer(handle service.Handler) http.HandlerFunc {
	return service.Answer(r.cfg.Log, handle)
}

// open is answer for what pages of any origin may read.
func (r *Relay) open(handle service.Handler) http.HandlerFunc {
	return r.answer(func(w http.ResponseWriter, req *http.Request) error {
		service.AllowOrigins(w)
		return handle(w, req)
	})
}

func (r *Relay) handleTask(w http.ResponseWriter, req *http.Request) error {
	s, err := service.PathTask(req, r.tasks)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "public, max-age=3600")
	return service.Write(w, mediaType, s.bundle)
}

func (r *Relay) handleKeys(w http.ResponseWriter, _ *http.Request) error {
	return service.Write(w, mediaType, r.keyLists)
}

// batchOf returns what a pull or confirmation is about.
func (r *Relay) batchOf(req *http.Request) (s *served, epoch, seq uint64, err error) {
	if s, err = service.PathTask(req, r.tasks); err != nil {
		return nil, 0, 0, err
	}
	if epoch, err = service.PathNumber(req, "epoch"); err != nil {
		return nil, 0, 0, err
	}
	seq, err = service.PathNumber(req, "seq")
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
	if b.Confirmed {
		return problem.New(problem.Confirmed, "")
	}
	patience := service.WriteTimeout + time.Duration(len(b.Bytes))*time.Second/(64<<10) // at 64 kB/s
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", mediaType)
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(b.Bytes)) // a range, where a transfer broke off
	return nil
}

// sealed returns a sealed batch, or the problem that says whether it may come yet.
func (r *Relay) sealed(req *http.Request, s *served, epoch, seq uint64) (*store.Sealed, error) {
	// before looking, lest one comes in between
	over := epoch >= s.Epochs.Count || s.state(epoch) >= store.StateComplete
	b, err := r.store.Batch(req.Context(), s.epochID(epoch), seq)
	if !errors.Is(err, store.ErrNoBatch) {
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
	manifest, confirmed, err := r.store.Manifest(req.Context(), s.epochID(epoch), seq)
	missing := errors.Is(err, store.ErrNoBatch)
	if err != nil && !missing {
		return err
	}
	// Also where there is nothing to confirm: strangers learn what exists neither by the answer nor by how long
	// a signature takes to check.
	if err := s.signed(req, onion.SignConfirm, handover.ConfirmBody(s.ID, epoch, seq, manifest)); err != nil {
		return err
	}
	if missing {
		return problem.New(problem.Unauthorized, "")
	}
	if !confirmed {
		if err := r.store.Confirm(req.Context(), s.epochID(epoch), seq); err != nil {
			return err
		}
		r.logged(req.Context(), "couldn't destroy keys", r.settle(req.Context()))
		r.scrub(req.Context())
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
