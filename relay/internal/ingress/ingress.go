// Package ingress accepts clients' reports at the first relay of a task. It checks limits, tokens and the replay set.
// It acknowledges a report only when the report is on disk.
//
// Package relay routes requests to an [Ingress] and runs its loops. The ingress stores many reports in one durable
// transaction, in random order. When the relay stops, it still answers the reports in the queue.
package ingress

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/clock"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/problem"
)

// Config limits an ingress. Fields without a comment are those of relay.Config.
type Config struct {
	Proxies       service.Proxies
	Outgoing      http.RoundTripper // sends the requests to issuers
	MaxConcurrent int
	MaxMemory     int64
	Group         int
	KeyInterval   time.Duration // longest time between two attempts to fetch an issuer's keys
}

// Ingress accepts clients' reports: see the package comment. Its handlers are safe for concurrent use.
type Ingress struct {
	*tasks.Registry
	Store Store
	Clock *clock.Guard

	cfg       Config
	vault     *store.Vault
	monitor   *monitor.Monitor
	wakeEpoch func() // called when a batch is full

	admission *admission
	queue     chan *pending // submissions for CommitLoop
	ending    sync.RWMutex  // guards ended
	ended     bool          // the queue accepts nothing more
}

// New returns the ingress of a registry's tasks. It calls wake when a batch is full. The caller sets Store and Clock.
func New(r *tasks.Registry, cfg Config, vault *store.Vault, monitor *monitor.Monitor,
	wake func()) *Ingress {
	return &Ingress{Registry: r, cfg: cfg, vault: vault, monitor: monitor, wakeEpoch: wake,
		queue:     make(chan *pending, cfg.MaxConcurrent),
		admission: newAdmission(room{cfg.MaxConcurrent, cfg.MaxMemory}, r.TaskLimit)}
}

// Load says how much of its limits an ingress uses now.
type Load struct {
	Queued   int   // reports waiting to be committed
	InFlight int   // reports being read, decrypted or stored
	Bytes    int64 // bytes of memory reserved for reports in flight
}

// Load returns the current load.
func (in *Ingress) Load() Load {
	left := in.admission.left()
	return Load{len(in.queue), in.cfg.MaxConcurrent - left.reports, in.cfg.MaxMemory - left.bytes}
}

// Store is the part of the store that an Ingress calls.
type Store interface {
	Commit(ctx context.Context, group []*store.Submission) (full bool, err error)
	StateRollback() *store.StateRollbackError
}

// HandleReport accepts one client's report: cheap checks first, then a reservation of memory, then the only public-key
// operation, then the store. The answer 201 means that the report is on disk.
//
// It checks the origin (the page that sends) before anything that depends on earlier reports. Otherwise any page could
// learn, through its visitors' browsers, whether their networks have reported.
func (in *Ingress) HandleReport(w http.ResponseWriter, req *http.Request) error {
	return in.handleReport(w, req, in.reportTask)
}

// HandleSetReport accepts a submission of a set. It is HandleReport for the set's first table, except how the body is
// opened.
func (in *Ingress) HandleSetReport(w http.ResponseWriter, req *http.Request) error {
	return in.handleReport(w, req, in.reportSet)
}

func (in *Ingress) handleReport(w http.ResponseWriter, req *http.Request, find findTarget) error {
	s, err := find(req)
	if err != nil {
		service.AllowOrigins(w)
		return err
	}
	if err := service.CheckOrigin(w, req, s.Clients); err != nil {
		in.tallyForeign(req, s)
		return err
	}
	if back := in.Store.StateRollback(); back != nil {
		return back
	}
	e, err := in.reportEpoch(req, s)
	if err != nil {
		return err
	}
	if err := in.takeReport(w, req, e); err != nil {
		var p *problem.Problem
		if errors.As(err, &p) {
			in.monitor.Tally(e.ID(), string(p.Name), 1)
		}
		return err
	}
	w.WriteHeader(http.StatusCreated) // no cache keeps it: it answers a POST and has no lifetime
	return nil
}

// HandlePreflight answers a browser that asks whether a page may send a report with a token.
func (in *Ingress) HandlePreflight(w http.ResponseWriter, req *http.Request) error {
	return handlePreflight(w, req, in.reportTask)
}

// HandleSetPreflight is HandlePreflight for a submission of a set.
func (in *Ingress) HandleSetPreflight(w http.ResponseWriter, req *http.Request) error {
	return handlePreflight(w, req, in.reportSet)
}

func handlePreflight(w http.ResponseWriter, req *http.Request, find findTarget) error {
	s, err := find(req)
	if err != nil {
		service.AllowOrigins(w) // so that the page can send, and read why the relay refuses
	} else if err := service.CheckOrigin(w, req, s.Clients); err != nil {
		return err
	}
	service.AllowPost(w, "Authorization, Content-Type")
	return nil
}

// tallyForeign counts a report from a foreign page among an epoch's refusals, if the epoch is current by the clock. It
// ignores the epoch's state, which the time to answer would reveal. It stores nothing of the origin.
func (in *Ingress) tallyForeign(req *http.Request, s target) {
	epoch, err := service.PathEpoch(req, s.Task)
	if err != nil {
		return
	}
	e := s.Epoch(epoch)
	start, end := e.Window()
	if now, err := in.now(); err == nil && !now.Before(start) && now.Before(end) {
		in.monitor.Tally(e.ID(), string(problem.ForeignOrigin), 1)
	}
}

// reportEpoch returns the epoch that a report is for, if it is open.
func (in *Ingress) reportEpoch(req *http.Request, s target) (e targetEpoch, err error) {
	epoch, err := service.PathEpoch(req, s.Task)
	if err != nil {
		return e, err
	}
	e = targetEpoch{s.Epoch(epoch), s.set}
	start, end := e.Window()
	now, err := in.now()
	if err != nil {
		return e, err
	}
	switch {
	case s.IsStopped():
		return e, problem.New(problem.EpochClosed, "").At(now)
	case now.Before(start):
		return e, problem.New(problem.EpochNotOpen, "").Retry(start.Sub(now)).At(now)
	case !now.Before(end) || e.State() != store.StateOpen:
		return e, problem.New(problem.EpochClosed, "").At(now)
	case e.RolledBack():
		return e, tasks.RolledBackProblem()
	case s.IsSuspended():
		return e, tasks.SuspendedProblem()
	}
	return e, nil
}

// now returns the time, or a problem if the time is in doubt.
func (in *Ingress) now() (time.Time, error) {
	read := in.Clock.Read()
	if read.Doubt != "" {
		return read.Now, service.TryLater(problem.ClockInDoubt, "")
	}
	return read.Now, nil
}

func (in *Ingress) takeReport(w http.ResponseWriter, req *http.Request, e targetEpoch) error {
	most := e.maxBody()
	if err := checkHeader(req, most); err != nil {
		return err
	}
	if limit := e.TakeReport(); limit != "" {
		in.monitor.Add(monitor.OwnerLimited, 1, e.Series().With(limit)...)
		return service.TryLater(problem.Overloaded, "")
	}
	if req.ContentLength >= 0 {
		most = req.ContentLength
	}
	client, size := service.Network(in.cfg.Proxies.Client(req)), ReportBytes(most)
	if name := in.admission.take(e.Hosted, client, size); name != "" {
		return in.monitor.TurnAway(name)
	}
	var undecided <-chan bool // of a report that the store may still take
	defer func() {
		if undecided == nil {
			in.admission.leave(e.Hosted, client, size)
			return
		}
		go func() {
			<-undecided
			in.admission.leave(e.Hosted, client, size)
		}()
	}()
	var tok []byte
	if e.WithTokens() { // before reading the body: a request without a token then uses no memory
		var err error
		if tok, err = in.checkToken(w, req, e.Epoch); err != nil {
			return err
		}
	}
	body, err := readReport(w, req, most)
	if err != nil {
		return err
	}
	sub, err := in.openReport(e, body, client, tok)
	if err != nil {
		return err
	}
	if undecided, err = in.enqueue(sub); err == nil && sub.Verdict == store.Accepted {
		e.Stored()
	}
	return err
}

// checkHeader refuses a wrong media type or a body of more than most bytes before the body is read. A report may lack a
// media type: a browser then sends no preflight, for which a closing page has no time.
func checkHeader(req *http.Request, most int64) error {
	if header := req.Header.Get("Content-Type"); header != "" && header != codec.MediaType {
		if kind, _, err := mime.ParseMediaType(header); err != nil || kind != codec.MediaType {
			return problem.New(problem.MediaType, "")
		}
	}
	if req.ContentLength > most {
		return problem.New(problem.TooLarge, "at most %d bytes", most)
	}
	return nil
}

// readReport reads a body of at most most bytes, which may come without a length. A slow client occupies memory, so it
// has 15 s, as for every request. For a body of usualReport bytes or more it has 15 s from now, plus the body's time at
// 16 KiB/s, and then more time to read the answer. A connection without deadlines, as in tests, has none.
func readReport(w http.ResponseWriter, req *http.Request, most int64) ([]byte, error) {
	if most >= usualReport {
		patience := service.ReadTimeout + time.Duration(most)*time.Second/usualReport
		connection := http.NewResponseController(w)
		_ = connection.SetReadDeadline(time.Now().Add(patience))
		_ = connection.SetWriteDeadline(time.Now().Add(patience + service.WriteTimeout))
	}
	var body []byte
	var err error
	if req.ContentLength >= 0 {
		body = make([]byte, req.ContentLength)
		_, err = io.ReadFull(req.Body, body)
	} else {
		body, err = io.ReadAll(http.MaxBytesReader(w, req.Body, most))
	}
	if err == nil {
		return body, nil
	}
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, problem.New(problem.TooLarge, "at most %d bytes", most)
	}
	return nil, problem.New(problem.Malformed, "the body ended early")
}

// usualReport is how many bytes a slow client sends in a second. For a smaller body, setting deadlines would take
// longer than reading it.
const usualReport = 16 << 10

// openReport decrypts a report. It identifies the client by its token or, without tokens, by its network.
func (in *Ingress) openReport(e targetEpoch, body []byte, network netip.Prefix, tok []byte) (*store.Submission,
	error) {
	envelope, err := e.open(body)
	if err != nil {
		return nil, err
	}
	id := e.ID()
	key, err := in.vault.EpochKey(id)
	if errors.Is(err, store.ErrDestroyed) {
		return nil, problem.New(problem.EpochClosed, "")
	}
	if err != nil {
		return nil, err
	}
	sub := &store.Submission{
		ID: id, Size: e.Task.Batch.Size, Quota: 1, Batches: e.MostBatches(), Lanes: envelope.Lanes,
		Tag: key.Tag(envelope.Tag[:]),
	}
	if e.set != nil {
		sub.Lanes, sub.Others = in.setSlots(e, envelope.Lanes)
	}
	if tok != nil {
		sub.Client = key.Token(tok) // a token allows one report
	} else {
		sub.Client = key.Network(network)
		sub.Quota = key.Quota(sub.Client, e.Clients.Quota)
	}
	sub.Receipt = key.Receipt(sub.Client, body)
	return sub, nil
}

// pending is a submission that waits to be stored.
type pending struct {
	*store.Submission
	done chan bool // gets one value: true if the transaction was committed
}

// unstored is the answer if the store has not committed a report, or perhaps not: the client may send the same bytes
// again.
func unstored() error {
	return service.TryLater(problem.Overloaded, "not stored; send the same bytes again")
}

// storeWait is how long a report waits for a store that does not answer.
const storeWait = 8 * time.Second

// enqueue puts a submission into the queue, waits until CommitLoop has stored it, and returns the answer. The queue has
// room for all reports in flight, so it never blocks. A client that leaves meanwhile can send the same report again. If
// the store does not answer in time, enqueue refuses the report for now, and returns a channel that gets a value when
// the store has decided. The report uses memory until then.
func (in *Ingress) enqueue(sub *store.Submission) (undecided <-chan bool, err error) {
	p := &pending{sub, make(chan bool, 1)}
	if !in.hand(p) {
		return nil, in.monitor.TurnAway(problem.Overloaded)
	}
	late := time.NewTimer(storeWait)
	defer late.Stop()
	select {
	case stored := <-p.done:
		if stored {
			return nil, answer(sub)
		}
	case <-late.C:
		return p.done, unstored()
	}
	if back := in.Store.StateRollback(); back != nil {
		return nil, back
	}
	return nil, unstored()
}

// hand puts a submission into the queue and reports whether there was room. Every queued submission gets a value on
// done.
func (in *Ingress) hand(p *pending) bool {
	in.ending.RLock()
	defer in.ending.RUnlock()
	if in.ended {
		return false
	}
	select {
	case in.queue <- p:
		return true
	default:
		return false
	}
}

// answer returns the problem that a verdict means for the client; nil for an acknowledgement.
func answer(sub *store.Submission) error {
	switch sub.Verdict {
	case store.Accepted, store.Repeated:
		return nil
	case store.Replayed:
		return problem.New(problem.Replayed, "")
	case store.Limited:
		return problem.New(problem.Limit, "") // omits the quota, which would reveal how many others reported
	default:
		return problem.New(problem.EpochClosed, "")
	}
}

// CommitLoop stores submissions in groups: those that arrive while one group is written to disk share the next durable
// transaction. It ends with ctx, after the servers.
func (in *Ingress) CommitLoop(ctx context.Context) {
	defer in.endQueue()
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-in.queue:
			in.commitGroup(ctx, in.gather(first))
		}
	}
}

// endQueue answers queued and later submissions that they are not stored.
func (in *Ingress) endQueue() {
	in.ending.Lock()
	defer in.ending.Unlock()
	in.ended = true
	for {
		select {
		case p := <-in.queue:
			p.done <- false
		default:
			return
		}
	}
}

// gather returns first and the queued submissions in random order: the order of arrival must not reach the disk.
//
// It first lets other goroutines run while more reports arrive. A transaction costs several times as much as a report.
// On one processor, a committer that does not yield would starve the other reports and find only one for each group.
func (in *Ingress) gather(first *pending) []*pending {
	for waiting := -1; waiting < len(in.queue) && len(in.queue) < in.cfg.Group; {
		waiting = len(in.queue)
		runtime.Gosched()
	}
	group := []*pending{first}
	for len(group) < in.cfg.Group {
		select {
		case p := <-in.queue:
			group = append(group, p)
			continue
		default:
		}
		break
	}
	randomizer.Shuffle(randomizer.NewSource(), group)
	return group
}

func (in *Ingress) commitGroup(ctx context.Context, group []*pending) {
	subs := make([]*store.Submission, len(group))
	for i, p := range group {
		subs[i] = p.Submission
	}
	begun := time.Now()
	full, err := in.Store.Commit(ctx, subs)
	in.monitor.Since(monitor.Commit, begun)
	if err == nil {
		in.monitor.StoreWorks()
	} else {
		in.monitor.StoreFailed()
		in.monitor.Log.Error("couldn't store reports", "error", err)
	}
	for _, p := range group {
		if err == nil {
			in.tallyDropped(p.Submission)
		}
		p.done <- err == nil
	}
	if full {
		in.wakeEpoch()
	}
}
