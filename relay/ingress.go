package relay

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/doona-dp/doona/keyfile"
	"github.com/doona-dp/doona/onion"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay/problem"
)

// handleReport takes one client's submission: cheap checks first, then the one public-key
// operation, then the store. 201 means that it is on disk.
func (r *Relay) handleReport(w http.ResponseWriter, req *http.Request) error {
	select {
	case r.busy <- struct{}{}:
		defer func() { <-r.busy }()
	default:
		return r.overloaded()
	}
	client := network(r.proxies.client(req))
	if !r.shares.take(client) {
		return r.overloaded()
	}
	defer r.shares.free(client)
	s, epoch, err := r.reportEpoch(req)
	if err != nil {
		return err
	}
	err = r.takeReport(w, req, s, epoch)
	var p *problem.Problem
	if errors.As(err, &p) {
		r.metrics.tally(s.epochID(epoch), string(p.Name), 1)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusCreated)
	return nil
}

// shares bounds how many places of reports in flight one network has: whoever sends slowly on
// purpose cannot take them all.
type shares struct {
	most int
	mu   sync.Mutex // guards held
	held map[netip.Prefix]int
}

// newShares gives a network an eighth of the places.
func newShares(places int) *shares {
	return &shares{most: max(places/8, 1), held: map[netip.Prefix]int{}}
}

// take takes a place and says whether the network had one left.
func (s *shares) take(client netip.Prefix) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[client] == s.most {
		return false
	}
	s.held[client]++
	return true
}

// free gives a place back.
func (s *shares) free(client netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[client]--; s.held[client] == 0 {
		delete(s.held, client)
	}
}

// reportEpoch returns the task and epoch that a submission is for, if the epoch is open.
func (r *Relay) reportEpoch(req *http.Request) (*served, uint64, error) {
	s, err := r.task(req)
	if err != nil {
		return nil, 0, err
	}
	if s.hop != 0 {
		return nil, 0, problem.New(problem.NotIngress, "reports go to %s", s.Relays[0].URL)
	}
	epoch, err := number(req, "epoch")
	if err != nil {
		return nil, 0, err
	}
	start, end, ok := r.window(s, epoch)
	now := r.cfg.Clock()
	switch {
	case !ok:
		return nil, 0, problem.New(problem.EpochNotOpen, "the task has epochs 0 to %d", s.Epochs.Count-1)
	case now.Before(start):
		return nil, 0, problem.New(problem.EpochNotOpen, "").Retry(start.Sub(now))
	case !now.Before(end) || s.state(epoch) != stateOpen:
		return nil, 0, problem.New(problem.EpochClosed, "")
	}
	return s, epoch, nil
}

// window returns when an epoch takes reports, and whether there is such an epoch.
func (r *Relay) window(s *served, epoch uint64) (start, end time.Time, ok bool) {
	if epoch >= s.Epochs.Count {
		return start, end, false
	}
	end = time.Unix(int64(s.Epochs.End(epoch)), 0)
	start = end.Add(-time.Duration(s.Epochs.Length) * time.Second)
	return start.Add(-r.cfg.Skew), end.Add(r.cfg.Skew), true
}

func (r *Relay) takeReport(w http.ResponseWriter, req *http.Request, s *served, epoch uint64) error {
	body, err := readReport(w, req, int64(s.layout.MaxBody()))
	if err != nil {
		return err
	}
	sub, err := r.openReport(req, s, epoch, body)
	if err != nil {
		return err
	}
	return r.enqueue(req.Context(), sub)
}

// readReport reads a body of at most most bytes; it may come without a length.
func readReport(w http.ResponseWriter, req *http.Request, most int64) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != mediaType {
		return nil, problem.New(problem.MediaType, "")
	}
	tooLarge := problem.New(problem.TooLarge, "at most %d bytes", most)
	if req.ContentLength > most {
		return nil, tooLarge
	}
	// A client that dawdles holds one of MaxConcurrent places: it has 15 s and what the longest
	// report takes at 16 kB/s. A connection without deadlines, as in tests, has none.
	patience := 15*time.Second + time.Duration(most)*time.Second/(16<<10)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(patience))
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, most))
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, tooLarge
	}
	if err != nil {
		return nil, problem.New(problem.Malformed, "the body ends early")
	}
	return body, nil
}

// openReport opens a submission and names its client.
func (r *Relay) openReport(req *http.Request, s *served, epoch uint64, body []byte) (*submission, error) {
	opener, err := s.opener(epoch)
	if errors.Is(err, keyfile.ErrErased) {
		return nil, problem.New(problem.EpochClosed, "")
	}
	if err != nil {
		return nil, err
	}
	envelope, err := opener.OpenEnvelope(body)
	if errors.Is(err, onion.ErrOpen) {
		return nil, problem.New(problem.DoesNotOpen, "sealed to another key, task or epoch, or damaged")
	}
	if err != nil {
		return nil, problem.New(problem.Malformed, "%v", err)
	}
	id := s.epochID(epoch)
	key, err := r.limits.key(id)
	if errors.Is(err, errLimitErased) {
		return nil, problem.New(problem.EpochClosed, "")
	}
	if err != nil {
		return nil, err
	}
	sub := &submission{
		id: id, size: s.Batch.Size, quota: s.Clients.Quota, lanes: envelope.Lanes,
		client:   clientID(key, network(r.proxies.client(req))),
		envelope: newShort(domainCiphertext, body),
		tag:      newShort(domainTag, envelope.Tag[:]),
	}
	sub.receipt = receipt(key, sub.client, sub.envelope)
	return sub, nil
}

// pending is a submission on its way to the store.
type pending struct {
	*submission
	done chan error // gets one value
}

// errUnstored is the answer where the store did not take a submission, or may not have: the same
// bytes may be sent again.
var errUnstored = problem.New(problem.Overloaded, "not stored; send the same bytes again").Retry(2 * time.Second)

// enqueue hands a submission to the committer and returns its verdict. The queue has room for
// every report that may be in flight, so it never blocks long. A client that leaves meanwhile
// will find its report stored, or not, when it sends it again.
func (r *Relay) enqueue(ctx context.Context, sub *submission) error {
	p := &pending{sub, make(chan error, 1)}
	select {
	case r.queue <- p:
	default:
		return r.overloaded()
	}
	select {
	case err := <-p.done:
		if err != nil {
			return err
		}
	case <-r.stopped:
		return errUnstored
	}
	return sub.answer()
}

// answer returns the problem that a verdict means to the client, nil for an acknowledgement.
func (sub *submission) answer() error {
	switch sub.verdict {
	case accepted, repeated:
		return nil
	case replayed:
		return problem.New(problem.Replayed, "")
	case limited:
		return problem.New(problem.Limit, "at most %d reports of a network and epoch", sub.quota)
	default:
		return problem.New(problem.EpochClosed, "")
	}
}

// commitLoop stores submissions in groups: whatever has queued up while the last group reached
// the disk shares the next durable transaction. It ends with ctx, after the servers.
func (r *Relay) commitLoop(ctx context.Context) {
	defer close(r.stopped)
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-r.queue:
			r.commitGroup(ctx, r.gather(first))
		}
	}
}

// gather returns first and what waits behind it, in a random order: neither the order of arrival
// nor that of the queue reaches the disk.
func (r *Relay) gather(first *pending) []*pending {
	group := []*pending{first}
	for len(group) < r.cfg.Group {
		select {
		case p := <-r.queue:
			group = append(group, p)
			continue
		default:
		}
		break
	}
	shuffle(randomizer.NewSource(), group)
	return group
}

func (r *Relay) commitGroup(ctx context.Context, group []*pending) {
	subs := make([]*submission, len(group))
	for i, p := range group {
		subs[i] = p.submission
	}
	begun := time.Now()
	full, err := r.store.commit(ctx, subs)
	r.metrics.commit.Observe(time.Since(begun).Seconds())
	if err != nil {
		r.cfg.Log.Error("couldn't store reports", "error", err)
		err = errUnstored
	}
	for _, p := range group {
		p.done <- err
	}
	if full {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// overloaded refuses a request for want of room.
func (r *Relay) overloaded() error {
	r.metrics.overload.Inc()
	return problem.New(problem.Overloaded, "").Retry(time.Second)
}
