package shufflerclient

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Changeable lists the parts of a task that [Options.Allow] may name. The privacy loss depends on none of them.
var Changeable = []string{"clients.issuer.url", "clients.origins", "clients.quota", "name", "relays.url",
	"verifier.url"}

// Errors of a stream that contradicts what this client saw before, or that was stopped. Retrying at the same first
// relay does not help.
var (
	ErrForked   = errors.New("couldn't accept the stream: it has another task than before at a known position")
	ErrReplayed = errors.New("couldn't accept the stream: it is older than one seen before")
	ErrStopped  = errors.New("couldn't report: the stream was stopped")
)

// Seen records the newest part of a stream that a client has seen. The id of a task covers all earlier tasks, because
// each task names the previous task's id.
type Seen struct {
	Stream   string `json:"stream"`   // The id of its first task.
	Position uint64 `json:"position"` // The position of the newest task.
	Task     string `json:"task"`     // The id of the task at that position.

	Statements Said `json:"statements,omitzero"` // Zero if there were none.
}

// Said identifies the newest statement about a stream that a client has seen.
type Said struct {
	Era    uint64 `json:"era"`
	Number uint64 `json:"number"`
	Hash   string `json:"hash"` // SHA-256, in hexadecimal.
}

func (s Said) seen() taskfile.SeenStatement {
	m := taskfile.SeenStatement{Era: s.Era, Number: s.Number}
	hex.Decode(m.Hash[:], []byte(s.Hash)) // checkStreams has checked the hexadecimal form
	return m
}

func said(m taskfile.SeenStatement) Said {
	if m == (taskfile.SeenStatement{}) {
		return Said{}
	}
	return Said{m.Era, m.Number, hex.EncodeToString(m.Hash[:])}
}

// isOne reports whether s has a valid stored form: empty, or the hash of a statement. Era 0 has no statement with
// number 0.
func (s Said) isOne() bool {
	raw, err := hex.DecodeString(s.Hash)
	spoken := s.Era > 0 || s.Number > 0
	return s == Said{} || spoken && err == nil && len(raw) == 32 && s.seen().Hash != [32]byte{}
}

// Stream is a series of tasks. It is safe for concurrent use.
//
//	stream, err := shufflerclient.Follow(ctx, shufflerclient.Options{Stream: url, Owner: owner, MaxEpsilon: 10})
//	client, epoch, err := stream.At(ctx, time.Now())
//	report, err := client.Report(epoch, []float64{12.5})
//
// Stream checks what the first relay serves against the first task, whose hash is in the URL, and against what it saw
// before: in the ledger, if there is one, otherwise since Follow. A program without a ledger accepts whichever side
// of a forked stream it is served first.
type Stream struct {
	options Options
	trust   taskfile.Trust

	mu      sync.Mutex // guards the fields below
	tasks   []*taskfile.Open
	stopped bool
	fetched time.Time
	seen    Seen    // what was seen of the stream; used without a ledger
	client  *Client // client of the task that At returned last
}

// Follow fetches a stream from its first relay and checks it as [Stream.At] does.
func Follow(ctx context.Context, o Options) (*Stream, error) {
	owner, err := taskfile.ParseKey("owner", o.Owner)
	if err != nil {
		return nil, err
	}
	at := strings.LastIndexByte(o.Stream, '/')
	raw, err := hex.DecodeString(o.Stream[at+1:])
	if err != nil || len(raw) != len(task.ID{}) || !strings.HasSuffix(o.Stream, streamPath(task.ID(raw))) {
		return nil, invalid.Field("Stream", strconv.Quote(o.Stream),
			"an address that ends in /v1/streams/ and the id of the first task")
	}
	for _, name := range o.Allow {
		if !slices.Contains(Changeable, name) {
			return nil, invalid.Field("Allow", strconv.Quote(name), "names of "+strings.Join(Changeable, ", "))
		}
	}
	if o.HTTP == nil {
		o.HTTP = defaultHTTP()
	}
	recovery, err := taskfile.ParseRecovery(o.Recovery)
	if err != nil {
		return nil, err
	}
	trust := taskfile.Trust{Root: task.ID(raw), Owner: owner, Recovery: recovery, Allow: o.Allow}
	for _, text := range o.Candidates {
		key, err := taskfile.ParseKey("Candidates", text)
		if err != nil {
			return nil, err
		}
		trust.Candidates = append(trust.Candidates, key)
	}
	s := &Stream{options: o, trust: trust}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.fetch(ctx, time.Now())
}

// At returns the client of the task that is open at a time, and the number of the epoch at that time. It fetches the
// stream once per epoch and a task's keys once, from the first relay only. It returns an error if no task has an epoch
// at that time, or if the stream or its new task breaks a rule. It returns [ErrForked] or [ErrReplayed] if the stream
// contradicts what the client saw before.
func (s *Stream) At(ctx context.Context, now time.Time) (*Client, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.current(s.fetched); at != s.current(now) || !sameEpoch(at, s.fetched, now) {
		if err := s.fetch(ctx, now); err != nil {
			return nil, 0, err
		}
	}
	if s.stopped {
		return nil, 0, ErrStopped
	}
	open := s.current(now)
	epoch, is := open.Epochs.At(unix(now))
	if !is {
		return nil, 0, invalid.Field("now", now.UTC().Format(time.RFC3339), "a time in an epoch of the stream's tasks")
	}
	if s.client == nil || s.client.open.ID != open.ID {
		client, err := s.connect(ctx, open.ID)
		if err != nil {
			return nil, 0, err
		}
		s.client = client
	}
	return s.client, epoch, nil
}

// connect fetches a task of the checked stream, with its keys, from the relay that serves the stream.
func (s *Stream) connect(ctx context.Context, id task.ID) (*Client, error) {
	base := strings.TrimSuffix(s.options.Stream, streamPath(s.trust.Root))
	open, err := fetchTask(ctx, s.options.HTTP, base+endpoint.PathOf(id), func(*taskfile.Open) error { return nil })
	if err != nil {
		return nil, err
	}
	return newClient(open, s.options, s.trust.Root, true)
}

// streamPath returns the path under which relays serve the stream with this first task.
func streamPath(root task.ID) string {
	return strings.Replace(endpoint.StreamPath, "{task}", root.String(), 1)
}

// fetch fetches the stream and checks it. The caller holds s.mu, so that concurrent calls share one request.
func (s *Stream) fetch(ctx context.Context, now time.Time) error {
	body, err := fetch(ctx, s.options.HTTP, s.options.Stream)
	if err != nil {
		return err
	}
	defer body.Close()
	chain, err := taskfile.ReadChain(body, s.trust.Root)
	if err != nil {
		return err
	}
	tasks, authority, err := chain.Open(s.trust)
	if err != nil {
		return fmt.Errorf("couldn't accept the stream: %w", err)
	}
	if err := s.remember(tasks, chain.Statements, authority); err != nil {
		return err
	}
	s.tasks, s.stopped, s.fetched = tasks, authority.Stopped, now
	return nil
}

// remember compares a fetched stream with what the client saw before, and records the newest task and statement.
func (s *Stream) remember(tasks []*taskfile.Open, statements taskfile.Statements, authority taskfile.Authority) error {
	ids := make([]string, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID.String()
	}
	raise := func(seen *Seen) error { return seen.raise(ids, statements, authority) }
	err := raise(&s.seen)
	if err != nil || s.options.Ledger == nil {
		return err
	}
	return s.options.Ledger.Update(func(l *Ledger) error { return l.see(ids[0], raise) })
}

// see lets raise update the ledger's record of a stream, and adds a record if there is none.
func (l *Ledger) see(stream string, raise func(*Seen) error) error {
	if err := l.check(); err != nil {
		return err
	}
	at := slices.IndexFunc(l.Streams, func(s Seen) bool { return s.Stream == stream })
	if at < 0 {
		l.Streams = append(l.Streams, Seen{})
		at = len(l.Streams) - 1
	}
	return raise(&l.Streams[at])
}

// raise compares a stream with the record of what was seen of it, and then records the stream's newest task and
// statement.
func (s *Seen) raise(ids []string, statements taskfile.Statements, authority taskfile.Authority) error {
	last := uint64(len(ids) - 1)
	switch {
	case s.Stream == "": // nothing was seen of this stream before
	case s.Position > last:
		return fmt.Errorf("%w: it ends at position %d, the earlier one at %d", ErrReplayed, last, s.Position)
	case s.Task != ids[s.Position]:
		return fmt.Errorf("%w: %s at position %d, now %s", ErrForked, s.Task, s.Position, ids[s.Position])
	}
	seen, err := s.Statements.seen().Raise(statements, authority)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReplayed, err)
	}
	*s = Seen{ids[0], last, ids[last], said(seen)}
	return nil
}

// checkStreams returns an error unless the ledger's records of streams are consistent.
func (l *Ledger) checkStreams() error {
	seen := map[string]bool{}
	for _, s := range l.Streams {
		if len(s.Stream) != 64 || len(s.Task) != 64 || seen[s.Stream] || s.Position == 0 && s.Task != s.Stream ||
			!s.Statements.isOne() {
			return invalid.Field("ledger", s.Stream, "streams, each once, with a position and the id of its task")
		}
		seen[s.Stream] = true
	}
	return nil
}

// current returns the newest task that has begun at a time, or the first task if none has.
func (s *Stream) current(now time.Time) *taskfile.Open {
	for _, t := range slices.Backward(s.tasks) {
		if t.Epochs.Start <= unix(now) {
			return t
		}
	}
	return s.tasks[0]
}

// sameEpoch reports whether two times are in the same epoch of a task. Outside the task's epochs, it continues them.
func sameEpoch(t *taskfile.Open, a, b time.Time) bool {
	epoch := func(at time.Time) int64 { return t.Epochs.Length.Between(int64(t.Epochs.Start), at.Unix()) }
	return epoch(a) == epoch(b)
}

func unix(t time.Time) uint64 { return uint64(max(t.Unix(), 0)) }
