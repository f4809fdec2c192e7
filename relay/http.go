package relay

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
)

// mediaType is that of everything on the wire but problems.
const mediaType = "application/msgpack"

// answer is [service.Answer].
func (r *Relay) answer(handle service.Handler) http.HandlerFunc {
	return service.Answer(r.cfg.Log, func(w http.ResponseWriter, req *http.Request) error {
		err := handle(w, req)
		if err == nil {
			return nil
		}
		if back := new(store.SetBack); errors.As(err, &back) {
			return stopped(back)
		}
		if req.Context().Err() == nil && r.monitor.Failed(err) {
			r.cfg.Log.Error("couldn't answer", "error", err)
			return r.monitor.TurnAway(problem.Overloaded)
		}
		return err
	})
}

// stopped returns the problem of a relay where something was set back.
func stopped(back *store.SetBack) error {
	return problem.New(problem.SetBack, "%s", back.Cause).Retry(setBackRetry)
}

// ended returns the problem of an epoch that the operator has ended: nothing further comes of it, and nobody
// can say what has come.
func ended() error { return problem.New(problem.EpochEnded, "") }

// setBackRetry is when to ask a relay again that was set back: people must come first.
const setBackRetry = 10 * time.Minute

// open is answer for what pages of any origin may read, and no cache keeps.
func (r *Relay) open(handle service.Handler) http.HandlerFunc {
	return r.answer(func(w http.ResponseWriter, req *http.Request) error {
		service.AllowOrigins(w)
		return handle(w, req)
	})
}

func (r *Relay) handleTask(w http.ResponseWriter, req *http.Request) error {
	var bundle []byte
	s, err := service.PathTask(req, r.hosted().tasks)
	if err == nil {
		bundle = s.bundle
	} else if t := r.streamTask(req); t != nil {
		bundle = t.Raw
	} else {
		return err
	}
	return service.Write(w, mediaType, bundle)
}

func (r *Relay) handleKeys(w http.ResponseWriter, _ *http.Request) error {
	return service.Write(w, mediaType, r.hosted().keyLists)
}

// batchOf returns what a pull or confirmation is about.
func (r *Relay) batchOf(req *http.Request) (b batchRef, err error) {
	e, err := r.epochOf(req)
	if err != nil {
		return b, err
	}
	seq, err := service.PathBatch(req, e.Task)
	return e.Ref(seq), err
}

// epochOf returns what a question for the end of an epoch is about.
func (r *Relay) epochOf(req *http.Request) (e hostedEpoch, err error) {
	s, err := service.PathTask(req, r.hosted().tasks)
	if err != nil {
		return e, err
	}
	epoch, err := service.PathEpoch(req, s.Task)
	return s.Epoch(epoch), err
}

// signed checks that the next hop signed a request, and that the request has not come before.
func (r *Relay) signed(req *http.Request, s *hostedTask, purpose signing.Purpose, body []byte) error {
	next := s.Party(s.hop + 1).SignKey
	nonce, ok := handover.Verify(next, purpose, body, req.Header.Get(handover.Header))
	if !ok {
		return problem.New(problem.Unauthorized, "")
	}
	return r.fresh(req.Context(), next, nonce)
}

// rangeStart returns the first byte that a request asks for, which the longest batch has.
func (s *hostedTask) rangeStart(req *http.Request) (uint64, error) {
	header := req.Header.Get("Range")
	if header == "" {
		return 0, nil
	}
	text := strings.TrimSuffix(strings.TrimPrefix(header, "bytes="), "-")
	from, err := strconv.ParseUint(text, 10, 63)
	if err != nil || header != "bytes="+strconv.FormatUint(from, 10)+"-" {
		return 0, problem.New(problem.Malformed, "a range other than bytes=N-")
	}
	if most := uint64(handover.MaxBatch(s.Task, s.layout, s.hop)); from >= most {
		return 0, problem.New(problem.Malformed, "a range from byte %d: want one below %d", from, most)
	}
	return from, nil
}

func (r *Relay) handlePull(w http.ResponseWriter, req *http.Request) error {
	ref, err := r.batchOf(req)
	if err != nil {
		return err
	}
	from, err := ref.rangeStart(req)
	if err != nil {
		return err
	}
	before, err := handover.ParseBefore(req.Header.Get(handover.BeforeHeader))
	if err != nil {
		return problem.New(problem.Malformed, "%s: %s", handover.BeforeHeader, err)
	}
	body := handover.Body(ref.hostedTask.ID, ref.Number, ref.Seq, from, before)
	if err := r.signed(req, ref.hostedTask, signing.Pull, body); err != nil {
		return err
	}
	r.monitor.AskedNow(ref.name())
	if ref.owner == nil { // see meet
		start, _ := ref.Window()
		r.clock.Told(start.Add(-maxSkew)) // it has begun there
	}
	if err := r.checkBefore(req.Context(), ref, before); err != nil {
		return err
	}
	if !r.handouts.take(ref.hostedTask) {
		return r.monitor.TurnAway(problem.Overloaded)
	}
	defer r.handouts.leave(ref.hostedTask)
	b, err := r.sealed(req, ref)
	if err != nil {
		return err
	}
	// Again: it and the one before may have been made since, and only now is there what to compare.
	if err := r.checkBefore(req.Context(), ref, before); err != nil {
		return err
	}
	if b.Confirmed {
		return problem.New(problem.Confirmed, "")
	}
	patience := service.WriteTimeout + time.Duration(b.Content.Size())*time.Second/(64<<10) // at 64 kB/s
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", mediaType)
	http.ServeContent(w, req, "", time.Time{}, b.Content) // a range, where a transfer broke off
	return nil
}

// sealed returns a sealed batch, or the problem that says whether it may come yet.
func (r *Relay) sealed(req *http.Request, b batchRef) (*store.Sealed, error) {
	// before looking, lest one comes in between
	over := b.State() >= store.StateComplete
	if b.State() == store.StateEnded {
		return nil, ended()
	}
	found, err := r.store.Batch(req.Context(), b.BatchID())
	if errors.Is(err, store.ErrUncut) {
		return nil, problem.New(problem.NotSealed, "").Retry(r.cfg.PullInterval)
	}
	if !errors.Is(err, store.ErrNoBatch) {
		return found, err
	}
	if over {
		return nil, problem.New(problem.Complete, "")
	}
	if err := r.checkBehind(req.Context(), b); err != nil {
		return nil, err
	}
	return nil, problem.New(problem.NotSealed, "").Retry(r.cfg.PullInterval)
}

// handleEnd answers the next hop with the signed end of an epoch that has no further batch here.
func (r *Relay) handleEnd(w http.ResponseWriter, req *http.Request) error {
	e, err := r.epochOf(req)
	if err != nil {
		return err
	}
	if err := r.signed(req, e.hostedTask, signing.AskEnd, handover.EndBody(e.hostedTask.ID, e.Number)); err != nil {
		return err
	}
	if err := r.goesOn(e); err != nil {
		return err
	}
	end, err := r.store.End(req.Context(), e.ID())
	if err != nil {
		return err
	}
	if end == nil {
		return problem.New(problem.NotSealed, "").Retry(r.cfg.PullInterval)
	}
	w.Header().Set("Cache-Control", "no-store")
	return service.Write(w, mediaType, end)
}

// goesOn is the problem of an epoch of which nothing is handed out or forgotten any more: something was set
// back, or the operator has ended it.
func (r *Relay) goesOn(e hostedEpoch) error {
	if back := r.store.SetBack(); back != nil {
		return back
	}
	return e.CheckServable()
}

// handleTime signs what this relay's clock says, also for a task that was dropped: a party that has no later task yet
// asks by it.
func (r *Relay) handleTime(w http.ResponseWriter, req *http.Request) error {
	now := r.clock.Read().Now
	s, err := service.PathTask(req, r.hosted().tasks)
	if err == nil {
		return service.WriteTime(w, req, s.sign, s.ID, s.hop, now)
	}
	t := r.streamTask(req)
	if t == nil || r.hopOf(t.Open) < 0 {
		return err
	}
	hop := r.hopOf(t.Open)
	return service.WriteTime(w, req, r.signers.Of(t.Relays[hop].SignKey), t.ID, hop, now)
}

func (r *Relay) handleConfirm(w http.ResponseWriter, req *http.Request) error {
	b, err := r.batchOf(req)
	if err != nil {
		return err
	}
	manifest, confirmed, err := r.store.Manifest(req.Context(), b.BatchID())
	missing := errors.Is(err, store.ErrNoBatch)
	if err != nil && !missing {
		return err
	}
	// Also where there is nothing to confirm: strangers learn what exists neither by the answer nor by how long
	// a signature takes to check.
	body := handover.ConfirmBody(b.hostedTask.ID, b.Number, b.Seq, manifest)
	if err := r.signed(req, b.hostedTask, signing.Confirm, body); err != nil {
		return err
	}
	if err := r.goesOn(b.hostedEpoch); err != nil && !errors.Is(err, ended()) {
		return err
	}
	if missing {
		return problem.New(problem.Unauthorized, "")
	}
	if !confirmed {
		if err := r.store.Confirm(req.Context(), b.BatchID()); err != nil {
			return err
		}
		r.monitor.Logged(req.Context(), "couldn't destroy keys", r.settle(req.Context()))
		r.scrubSoon()
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
