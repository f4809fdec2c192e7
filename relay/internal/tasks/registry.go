package tasks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Source names one task that the operator has agreed to serve, as relay.TaskConfig does.
type Source struct {
	File       string
	Owner      string
	Recovery   string
	Candidates []string
	HPKEKeys   string
	Successors string
	IssuerKeys string
}

// OwnerSource approves an owner and limits its tasks, as relay.OwnerConfig does.
type OwnerSource struct {
	Owner      string
	Folder     string
	Tasks      int
	Recovery   string
	Candidates []string
}

// Config configures a registry and its host. The fields are as in relay.Config.
type Config struct {
	Tasks        []Source
	Owners       []OwnerSource
	Signers      *keyfile.Signers
	Outgoing     http.RoundTripper // of all requests that the relay sends
	Skew         time.Duration
	PullInterval time.Duration
	Retention    time.Duration
	Clock        func() time.Time
	Log          *slog.Logger

	// Fits returns an error if the largest reports of all these tasks together exceed the memory limit.
	Fits func(all []*Hosted) error
}

// Registry knows the tasks that a relay hosts, their streams, and the owners who hand tasks over. It is safe for
// concurrent use.
type Registry struct {
	cfg     Config
	serving atomic.Pointer[Set]
	owners  []*owner // approved by the operator; immutable
}

// Load loads all configured tasks, their successors, and the tasks of approved owners.
func Load(cfg Config) (*Registry, error) {
	r := &Registry{cfg: cfg}
	return r, r.loadTasks()
}

// Set is an immutable set of hosted tasks. The registry replaces it when a task is added or dropped.
type Set struct {
	ByID     map[task.ID]*Hosted
	Order    []*Hosted           // tasks as configured, each stream in order, then those added later
	streams  map[task.ID]*stream // by first task; includes streams that this relay has yet to join
	keyLists []byte              // answer to GET /v1/keys
}

// Hosted returns the current set.
func (r *Registry) Hosted() *Set { return r.serving.Load() }

// serve adds a task and its stream to the set.
func (r *Registry) serve(s *Hosted) error {
	streams := maps.Clone(r.Hosted().streams)
	if s.stream != nil {
		streams[s.stream.root.ID] = s.stream
	}
	return r.serveOnly(append(slices.Clone(r.Hosted().Order), s), streams)
}

// serveOnly replaces the set.
func (r *Registry) serveOnly(order []*Hosted, streams map[task.ID]*stream) error {
	next := &Set{ByID: map[task.ID]*Hosted{}, Order: order, streams: streams}
	lists := []*onion.SignedKeyList{}
	for _, t := range order {
		next.ByID[t.ID] = t
		lists = append(lists, t.KeyLists[t.Hop])
	}
	var err error
	if next.keyLists, err = codec.Marshal(&lists); err == nil {
		r.serving.Store(next)
	}
	return err
}

func (r *Registry) loadTasks() error {
	files := map[string]bool{} // used key files and folders
	// An empty MessagePack array of key lists: the relay may have no task yet, only a stream to join.
	r.serving.Store(&Set{streams: map[task.ID]*stream{}, keyLists: []byte{0x90}})
	for _, c := range r.cfg.Tasks {
		if err := r.loadTask(c, nil, files); err != nil {
			return fmt.Errorf("%s: %w", c.File, err)
		}
	}
	if err := r.loadOwners(files); err != nil {
		return err
	}
	return r.cfg.Fits(r.Hosted().Order)
}

// loadTask loads a task and its successors. files holds the paths that others use.
func (r *Registry) loadTask(c Source, o *owner, files map[string]bool) error {
	raw, open, err := loadBundle(c)
	if err != nil {
		return err
	}
	if c.Successors != "" {
		folder := resolved(c.Successors)
		if files[folder] {
			return invalid.Field("successors", c.Successors, "a separate folder for each stream")
		}
		files[folder] = true
	}
	if r.Hosted().streams[open.ID] != nil {
		return invalid.Field("tasks", open.ID.String(), "each task only once")
	}
	if r.mayJoin(c, open) {
		l, err := r.newStream(c, raw, open)
		if err != nil {
			return err
		}
		streams := maps.Clone(r.Hosted().streams)
		streams[open.ID] = l
		return errors.Join(r.serveOnly(r.Hosted().Order, streams), r.loadSuccessors(l))
	}
	s, err := r.loadFirst(c, raw, open, o)
	if err != nil {
		return err
	}
	keys, err := filepath.EvalSymlinks(c.HPKEKeys)
	if err != nil || files[keys] || r.Hosted().ByID[s.ID] != nil {
		return invalid.Field("hpke_keys", c.HPKEKeys, "a separate file for each task, and each task only once")
	}
	files[keys] = true
	if err := r.serve(s); err != nil || s.stream == nil {
		return err
	}
	return r.loadSuccessors(s.stream)
}

// loadFirst prepares to serve a task that is no successor, and opens the stream that it begins, if any.
func (r *Registry) loadFirst(c Source, raw []byte, open *taskfile.Open, o *owner) (*Hosted, error) {
	s, err := r.loadOpen(raw, open, c.HPKEKeys, c.IssuerKeys)
	if err != nil {
		return nil, err
	}
	if s.owner = o; o != nil && open.Stream == nil {
		return s, nil // the owner's stream settings do not apply to a single task
	}
	if s.stream, err = r.newStream(c, raw, open); s.stream != nil {
		s.stream.owner = o
	}
	return s, err
}

// resolved returns the canonical path of a folder, which need not exist.
func resolved(folder string) string {
	if path, err := filepath.EvalSymlinks(folder); err == nil {
		folder = path
	}
	if path, err := filepath.Abs(folder); err == nil {
		folder = path
	}
	return folder
}

// mayJoin reports whether a later task of the stream may replace one of its relays by this one.
func (r *Registry) mayJoin(c Source, open *taskfile.Open) bool {
	return r.hopOf(open) < 0 && c.Successors != "" && open.Stream != nil &&
		slices.Contains(open.Stream.Allow, "relays.signKey")
}

// loadOpen prepares to serve a task with the keys in the given files.
func (r *Registry) loadOpen(raw []byte, open *taskfile.Open, keys, issuerKeys string) (*Hosted, error) {
	s := &Hosted{Open: open, bundle: raw, skew: r.cfg.Skew,
		openers: map[uint64]*onion.Opener{}, tokens: map[uint64]*TokenKey{},
		states: map[uint64]store.State{}, batches: map[uint64]uint64{},
		rolledBack: map[uint64]bool{}}
	if s.Hop = r.hopOf(open); s.Hop < 0 {
		return nil, r.notInTask()
	}
	s.Sign = r.cfg.Signers.Of(s.Relays[s.Hop].SignKey)
	s.Upstream = handover.NewRequester(s.Sign, r.cfg.Outgoing)
	var err error
	if s.Layout, err = onion.NewLayout(s.Task); err != nil {
		return nil, err
	}
	if err := handover.CheckServable(s.Task); err != nil {
		return nil, err
	}
	if err := s.loadNoise(); err != nil {
		return nil, err
	}
	if err := s.loadIssuerKeys(issuerKeys); err != nil {
		return nil, err
	}
	return s, s.loadKeys(keys)
}

// notInTask is the error for a task that does not include this relay.
func (r *Registry) notInTask() error {
	return fmt.Errorf("couldn't serve the task: its relays do not include this one, %s",
		taskfile.FormatKey(r.cfg.Signers.Public()[0]))
}

// hopOf returns this relay's hop in a task, or a negative number if the task does not include it.
func (r *Registry) hopOf(open *taskfile.Open) int {
	return slices.IndexFunc(open.Relays, func(p task.Party) bool { return r.cfg.Signers.Of(p.SignKey) != nil })
}

// client returns a client for requests that any party may make.
func (r *Registry) client() *handover.Requester {
	return handover.NewRequester(r.cfg.Signers.Newest, r.cfg.Outgoing)
}

// ClientOf returns a client that signs with one of this relay's keys.
func (r *Registry) ClientOf(own task.SignKey) *handover.Requester {
	return handover.NewRequester(r.cfg.Signers.Of(own), r.cfg.Outgoing)
}

// loadBundle reads a task and checks that its configured owner signed it.
func loadBundle(c Source) ([]byte, *taskfile.Open, error) {
	owner, err := taskfile.ParseKey("owner", c.Owner)
	if err != nil {
		return nil, nil, err
	}
	raw, err := taskfile.ReadFile(c.File)
	if err != nil {
		return nil, nil, err
	}
	bundle, err := taskfile.ParseBundle(raw)
	if err != nil {
		return nil, nil, err
	}
	open, err := bundle.Open(&owner)
	return raw, open, err
}

// Named is a store with a name, to which keys are bound.
type Named interface {
	Name(ctx context.Context) (string, error)
}

// Bind calls do with each task's keys and the store's name; do binds them, or checks whether they can be bound. A new
// store that replaces a lost one must not be used with the keys of epochs that have begun: it lacks their replay sets.
func (r *Registry) Bind(kept Named, do func(keys *keyfile.HPKE, store string) error) error {
	name, err := kept.Name(context.Background())
	if err != nil {
		return err
	}
	for _, s := range r.Hosted().Order {
		if err := do(s.Keys, name); err != nil {
			return err
		}
	}
	return nil
}

// Watch has a vault also check the store against the rollback marks in the tasks' key files.
func (r *Registry) Watch(v *store.Vault) error {
	for _, s := range r.Hosted().Order {
		keys, err := s.Keys.Mark()
		if err != nil {
			return err
		}
		v.Watch(s.ID, keys)
	}
	return nil
}

// Reached records the progress of epochs, whichever process made it.
func (r *Registry) Reached(all []store.Progress) {
	for _, p := range all {
		if s := r.Hosted().ByID[p.ID.Task]; s != nil {
			s.Epoch(p.ID.Epoch).Reached(p.State)
			s.Epoch(p.ID.Epoch).SetSealed(p.Next - uint64(len(p.Open)))
		}
	}
}

// LoadStates records the progress of epochs. It returns an error if the key of an open epoch is missing.
func (r *Registry) LoadStates(all []store.Progress) error {
	r.Reached(all)
	for _, s := range r.Hosted().Order {
		epoch, now := s.Epochs.At(uint64(r.cfg.Clock().Unix()))
		if !now || s.Epoch(epoch).State() >= store.StateClosed {
			continue
		}
		if _, err := s.Epoch(epoch).Opener(); err != nil {
			return fmt.Errorf("couldn't serve task %s in epoch %d: %w", s.ShortID(), epoch, err)
		}
	}
	return nil
}

// ManyEnd reports whether more than one incomplete epoch of the same task ends between two moments.
func (r *Registry) ManyEnd(from, to time.Time) bool {
	for _, s := range r.Hosted().Order {
		ends := 0
		for e := range s.EachEpoch() {
			_, end := e.Window()
			if end.After(to) {
				break
			}
			if end.After(from) && e.State() < store.StateComplete {
				ends++
			}
		}
		if ends > 1 {
			return true
		}
	}
	return false
}

// ShortestEpoch returns the length of the shortest epoch in seconds, including those of streams to join.
func (r *Registry) ShortestEpoch() uint64 {
	shortest := uint64(1<<32 - 1)
	for _, s := range r.Hosted().Order {
		shortest = min(shortest, s.Epochs.Length)
	}
	for _, l := range r.Hosted().streams {
		shortest = min(shortest, l.root.Epochs.Length)
	}
	return shortest
}
