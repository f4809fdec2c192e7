package tasks

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/taskstream"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// stream is a series of tasks. The operator configured its first task, or an approved owner handed it over. The owner
// signs the later tasks, which may change only what the first task allows.
type stream struct {
	*taskstream.Folder
	root   *taskfile.Open
	owner  *owner        // the approved owner of the first task; nil if the operator configured it
	posted chan struct{} // holds a value while the relay handles a request of the owner
	asking chan struct{} // holds a value during catchUp; not posted, so that a slow relay delays no owner
}

// newStream opens the stream that a task begins, or returns nil if the task begins no stream.
func (r *Registry) newStream(c Source, raw []byte, s *taskfile.Open) (*stream, error) {
	switch {
	case s.Stream == nil && c.Recovery != "":
		return nil, invalid.Field("recovery", c.Recovery, "none for a task outside a stream")
	case s.Stream == nil && len(c.Candidates) > 0:
		return nil, invalid.Field("candidates", strings.Join(c.Candidates, ", "),
			"none for a task outside a stream")
	case s.Stream == nil && c.Successors == "":
		return nil, nil
	case c.Successors == "":
		return nil, invalid.Field("successors", `""`, "a folder for the first task of a stream")
	}
	recovery, err := taskfile.ParseRecovery(c.Recovery)
	if err != nil {
		return nil, err
	}
	candidates, err := parseCandidates(c.Candidates)
	if err != nil {
		return nil, err
	}
	folder, err := taskstream.Open(c.Successors, raw, recovery, candidates...)
	if err != nil {
		return nil, err
	}
	return &stream{Folder: folder, root: s, posted: make(chan struct{}, 1), asking: make(chan struct{}, 1)}, nil
}

func parseCandidates(texts []string) (candidates []task.SignKey, err error) {
	for _, text := range texts {
		key, err := taskfile.ParseKey("candidates", text)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, key)
	}
	return candidates, nil
}

// loadSuccessors adds those successors of a stream's first task that this relay serves to the set.
func (r *Registry) loadSuccessors(set *Set, l *stream) error {
	for _, t := range l.Tasks()[1:] {
		if r.hopOf(t.Open) < 0 || l.Dropped(t.Task) {
			continue
		}
		next, err := r.loadSuccessor(l, t)
		if err != nil {
			return err
		}
		set.add(next)
	}
	return nil
}

func (r *Registry) loadSuccessor(l *stream, t *taskstream.StreamTask) (*Hosted, error) {
	s, err := r.loadOpen(t.Raw, t.Open, l.Keys(t.Task), "")
	if err == nil {
		s.stream, s.owner = l, l.owner
	}
	return s, err
}

// followStreams starts to serve the successors that other processes accepted.
func (h *Host) followStreams(ctx context.Context) {
	for _, l := range h.Hosted().streams {
		h.monitor.Logged(ctx, "couldn't read successors", errors.Join(l.Refresh(), h.takeUp(ctx, l)))
	}
}

// takeUp starts to serve the tasks of a stream that this process does not serve yet.
func (h *Host) takeUp(ctx context.Context, l *stream) error {
	h.joining.Lock()
	defer h.joining.Unlock()
	for _, t := range l.Tasks()[1:] {
		if h.Hosted().ByID[t.ID] != nil || h.hopOf(t.Open) < 0 || l.Dropped(t.Task) {
			continue
		}
		s, err := h.loadSuccessor(l, t)
		if err != nil {
			return err
		}
		if err := h.begin(ctx, s); err != nil {
			return err
		}
		h.cfg.Log.Info("stream continued", "task", s.ShortID(), "position", s.Stream.Position)
	}
	return nil
}

// pathStream returns the stream that the path of a request names by its first task.
func (d *Desk) pathStream(req *http.Request) (*stream, error) {
	return service.PathTask(req, d.Hosted().streams)
}

// streamTask returns the stream's task that a request names, even if this relay no longer serves it; or nil.
func (h *Host) streamTask(req *http.Request) *taskstream.StreamTask {
	id, err := service.PathKey[task.ID](req, "task")
	if err != nil {
		return nil
	}
	for _, l := range h.Hosted().streams {
		for _, t := range l.Tasks() {
			if t.ID == id {
				return t
			}
		}
	}
	return nil
}

// HandleStream answers clients with the whole stream. A request for a part of the stream would reveal when the client
// last asked.
func (d *Desk) HandleStream(w http.ResponseWriter, req *http.Request) error {
	l, err := d.pathStream(req)
	if err != nil {
		return err
	}
	// Both the client's clock and this relay's clock may be slow, by MaxSkew each.
	chain, err := l.Chain(d.unixTime(), 2*service.MaxSkew)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return service.Write(w, codec.MediaType, chain)
}

// fromOwner returns an error unless the stream's current owner signed a request and the request is no replay.
func (d *Desk) fromOwner(req *http.Request, l *stream, body []byte) error {
	now := l.Authority()
	nonce, ok := handover.Verify(now.Key, signing.Succeed, body, req.Header.Get(handover.Header))
	if now.Stopped || !ok {
		return problem.New(problem.Unauthorized, "")
	}
	return d.Fresh(req.Context(), now.Key, nonce)
}

// HandleNextKeys makes this relay's keys for the next task of a stream and returns their signed list.
func (d *Desk) HandleNextKeys(w http.ResponseWriter, req *http.Request) error {
	l, err := d.pathStream(req)
	if err != nil {
		return err
	}
	position, err := service.PathNumber(req, "position", 1, math.MaxUint32)
	if err != nil {
		return err
	}
	count, err := service.PathNumber(req, "count", 1, task.MaxEpochs)
	if err != nil {
		return err
	}
	if err := d.fromOwner(req, l, handover.NextKeysBody(l.root.ID, position, count)); err != nil {
		return err
	}
	if err := l.owner.checkSuspended(); err != nil {
		return err
	}
	d.catchUp(req.Context(), l)
	done, err := d.alone(w, l.posted)
	if err != nil {
		return err
	}
	defer done()
	var list []byte
	err = d.whileAccepted(l, func() (err error) {
		list, err = l.NextKeys(position, count, d.unixTime(), d.cfg.Signers.Newest)
		return err
	})
	if err != nil {
		return refusal(err)
	}
	w.Header().Set("Cache-Control", "no-store")
	return service.Write(w, codec.MediaType, list)
}

// joinEvery is how many pull intervals a relay waits between requests for the tasks and statements of the streams that
// it waits to join. With the default interval of 5 s that is one minute.
const joinEvery = 12

// JoinLoop follows the streams that name this relay in no task yet, until ctx ends.
func (h *Host) JoinLoop(ctx context.Context) {
	tick := time.NewTicker(joinEvery * h.cfg.PullInterval)
	defer tick.Stop()
	for {
		for _, l := range h.Hosted().streams {
			if !slices.ContainsFunc(l.Tasks(), func(t *taskstream.StreamTask) bool { return h.hopOf(t.Open) >= 0 }) {
				h.catchUp(ctx, l)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// joinTime is how long catchUp waits for the other relays of a stream.
const joinTime = 30 * time.Second

// catchUp asks the other relays of a stream for its newer tasks, while this relay is not in the latest task it knows.
func (h *Host) catchUp(ctx context.Context, l *stream) {
	tasks := l.Tasks()
	if h.hopOf(tasks[len(tasks)-1].Open) >= 0 {
		return
	}
	ctx, stop := context.WithTimeout(ctx, joinTime)
	defer stop()
	select {
	case l.asking <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-l.asking }()
	serves := func(*taskstream.StreamTask) error { return nil }
	h.monitor.Logged(ctx, "couldn't follow a stream", l.Follow(ctx, h.client(), h.unixTime(), serves))
}

// HandleSuccessor accepts the next task of a stream from its owner. Status 204 means that no other task can take this
// position any more, and that the relay serves the task.
func (d *Desk) HandleSuccessor(w http.ResponseWriter, req *http.Request) error {
	l, err := d.pathStream(req)
	if err != nil {
		return err
	}
	if err := d.fromOwner(req, l, handover.SuccessorBody(l.root.ID)); err != nil {
		return err
	}
	if err := l.owner.checkSuspended(); err != nil {
		return err
	}
	done, err := d.alone(w, l.posted)
	if err != nil {
		return err
	}
	defer done()
	raw, open, err := readBundle(w, req, func(*taskfile.Open) error { return nil })
	if err != nil {
		return err
	}
	var taken error
	err = d.whileAccepted(l, func() error {
		err := d.takeSuccessor(l, raw, open)
		if err == nil {
			taken = d.takeUp(req.Context(), l)
		}
		return err
	})
	if err != nil {
		return refusal(err)
	}
	if taken != nil {
		return taken
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// readBundle reads the bundle in a request's body. It first reads the signed task and calls accept, which may refuse
// it. Then it reads the key lists.
func readBundle(w http.ResponseWriter, req *http.Request, accept func(*taskfile.Open) error) ([]byte, *taskfile.Open,
	error) {
	if req.ContentLength > taskfile.MaxBundle {
		return nil, nil, problem.New(problem.TooLarge, "at most %d bytes", taskfile.MaxBundle)
	}
	raw, open, err := taskfile.ReadBundle(http.MaxBytesReader(w, req.Body, taskfile.MaxBundle), accept)
	if err != nil {
		return nil, nil, problem.New(problem.Malformed, "%s", err)
	}
	return raw, open, nil
}

// HandleStatement accepts a signed statement about a stream: who signs its tasks from now on, or that the stream ends.
// The signature proves the author, so anyone may hand over the statement, even repeatedly. Status 204 means that the
// statement is permanently in force.
func (d *Desk) HandleStatement(w http.ResponseWriter, req *http.Request) error {
	l, err := d.pathStream(req)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, taskfile.MaxStatement))
	if err != nil {
		return problem.New(problem.TooLarge, "at most %d bytes", taskfile.MaxStatement)
	}
	changed, err := l.TakeStatement(raw)
	if err != nil {
		return refusal(err)
	}
	if now := l.Authority(); changed { // log a statement once, even if it comes repeatedly
		d.cfg.Log.Warn("stream's owner changed", "task", l.root.ID.String()[:8], "era", now.Era, "number", now.Number,
			"key", taskfile.FormatKey(now.Key), "stopped", now.Stopped)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// IsStopped reports whether the owner has stopped the task's stream or withdrawn the task, so that the relay accepts no
// more reports.
func (s *Hosted) IsStopped() bool {
	return s.IsWithdrawn() || s.stream != nil && s.stream.Authority().Stopped
}

// alone admits one request at a time: posted holds a value meanwhile. It extends the connection's deadlines to
// ownersTime, because keys for many epochs and large bundles take long.
func (d *Desk) alone(w http.ResponseWriter, posted chan struct{}) (done func(), err error) {
	select {
	case posted <- struct{}{}:
	default:
		return nil, d.monitor.TurnAway(problem.Overloaded)
	}
	connection, until := http.NewResponseController(w), time.Now().Add(ownersTime)
	_ = connection.SetReadDeadline(until) // if unsupported, the server's own deadlines apply
	_ = connection.SetWriteDeadline(until)
	return func() { <-posted }, nil
}

// ownersTime is how long an owner's request may take.
const ownersTime = 5 * time.Minute

// takeSuccessor stores a task at its position in the stream, after it has checked everything that serving the task
// needs.
func (d *Desk) takeSuccessor(l *stream, raw []byte, open *taskfile.Open) error {
	next, has, err := l.Check(raw, open, d.unixTime())
	if has || err != nil {
		return err
	}
	if d.hopOf(next.Open) < 0 { // the owner replaced this relay; clients may still ask it for the stream
		err := l.Take(next)
		if err == nil {
			d.cfg.Log.Warn("relay left a stream: the owner replaced it by another relay", "task",
				l.root.ID.String()[:8], "position", next.Stream.Position)
		}
		return err
	}
	if _, err := os.Stat(l.Keys(next.Task)); errors.Is(err, fs.ErrNotExist) {
		return invalid.Field("epochs.count", strconv.FormatUint(next.Epochs.Count, 10),
			"a count for which the owner asked this relay for keys")
	}
	if _, err := d.loadSuccessor(l, next); err != nil {
		return err
	}
	return l.Take(next)
}

// refusal returns the problem for an owner's refused request. It returns the relay's own errors unchanged: the owner
// gets no details of them.
func refusal(err error) error {
	switch {
	case errors.Is(err, taskstream.ErrTaken), errors.Is(err, taskfile.ErrStatements), errors.Is(err, errSetTaken):
		return problem.New(problem.WrongPosition, "")
	case errors.Is(err, errTaskLimit), errors.Is(err, errDummies):
		return problem.New(problem.OwnerTaskLimit, "%s", err)
	case errors.Is(err, taskstream.ErrFolder), errors.Is(err, errOwnerFolder), errors.As(err, new(*fs.PathError)),
		errors.As(err, new(*problem.Problem)): // of whileApproved
		return err
	}
	return problem.New(problem.Malformed, "%s", err)
}
