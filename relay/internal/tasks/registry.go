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

// Source names one task that the operator has agreed to serve: a relay.TaskConfig.
type Source struct {
	File       string
	Owner      string
	Recovery   string
	Candidates []string
	HPKEKeys   string
	Successors string
	IssuerKeys string
}

// OwnerSource approves an owner for some tasks at a time: a relay.OwnerConfig.
type OwnerSource struct {
	Owner      string
	Folder     string
	Tasks      int
	Recovery   string
	Candidates []string
}

// Config is what a registry and its host are told: the fields are as in relay.Config.
type Config struct {
	Tasks        []Source
	Owners       []OwnerSource
	Signers      *keyfile.Signers
	Outgoing     http.RoundTripper // of all requests that the relay makes
	Skew         time.Duration
	PullInterval time.Duration
	Retention    time.Duration
	Clock        func() time.Time
	Log          *slog.Logger

	// Fits is an error where some tasks' largest reports would not find room at a time.
	Fits func(all []*Hosted) error
}

// Registry knows the tasks that a relay hosts, their streams and the owners who hand tasks over. It is safe for
// concurrent use.
type Registry struct {
	cfg     Config
	serving atomic.Pointer[Set]
	owners  []*owner // who hand tasks over; immutable
}

// Load loads all tasks that are configured, those that followed in their streams, and those of approved owners.
func Load(cfg Config) (*Registry, error) {
	r := &Registry{cfg: cfg}
	return r, r.loadTasks()
}

// Set is what a relay hosts. It is never changed, but replaced where a task joins or is dropped.
type Set struct {
	ByID     map[task.ID]*Hosted
	Order    []*Hosted           // the same: as configured, each stream's in order, then what has joined
	streams  map[task.ID]*stream // by their first tasks, also those that the relay may only be about to join
	keyLists []byte              // answer to GET /v1/keys
}

// Hosted returns what the relay hosts now.
func (r *Registry) Hosted() *Set { return r.serving.Load() }

// serve adds a task to those that are served, and its stream.
func (r *Registry) serve(s *Hosted) error {
	streams := maps.Clone(r.Hosted().streams)
	if s.stream != nil {
		streams[s.stream.root.ID] = s.stream
	}
	return r.serveOnly(append(slices.Clone(r.Hosted().Order), s), streams)
}

// serveOnly replaces what is served.
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
	files := map[string]bool{} // of keys, and folders
	// An empty array of lists: it may only be about to join a stream.
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

// loadTask loads a task, and what follows it in its stream. files are those that others use.
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

// loadFirst prepares to serve a task that is no successor, and its stream if it begins one.
func (r *Registry) loadFirst(c Source, raw []byte, open *taskfile.Open, o *owner) (*Hosted, error) {
	s, err := r.loadOpen(raw, open, c.HPKEKeys, c.IssuerKeys)
	if err != nil {
		return nil, err
	}
	if s.owner = o; o != nil && open.Stream == nil {
		return s, nil // what is configured of its owner's streams is for others
	}
	if s.stream, err = r.newStream(c, raw, open); s.stream != nil {
		s.stream.owner = o
	}
	return s, err
}

// resolved returns the one path of a folder that need not exist.
func resolved(folder string) string {
	if path, err := filepath.EvalSymlinks(folder); err == nil {
		folder = path
	}
	if path, err := filepath.Abs(folder); err == nil {
		folder = path
	}
	return folder
}

// mayJoin says whether a task is the first of a stream in which this relay may take the place of one of its relays.
func (r *Registry) mayJoin(c Source, open *taskfile.Open) bool {
	return r.hopOf(open) < 0 && c.Successors != "" && open.Stream != nil &&
		slices.Contains(open.Stream.Allow, "relays.signKey")
}

// loadOpen prepares to serve a task with the keys in some files.
func (r *Registry) loadOpen(raw []byte, open *taskfile.Open, keys, issuerKeys string) (*Hosted, error) {
	s := &Hosted{Open: open, bundle: raw, skew: r.cfg.Skew,
		openers: map[uint64]*onion.Opener{}, tokens: map[uint64]*TokenKey{},
		states: map[uint64]store.State{}, batches: map[uint64]uint64{},
		behind: map[uint64]bool{}}
	if s.Hop = r.hopOf(open); s.Hop < 0 {
		return nil, r.notInTask()
	}
	s.Sign = r.cfg.Signers.Of(s.Relays[s.Hop].SignKey)
	s.Upstream = handover.NewClient(s.Sign, r.cfg.Outgoing)
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

// notInTask is the error of a task that names other relays.
func (r *Registry) notInTask() error {
	return fmt.Errorf("couldn't serve the task: its relays do not include this one, %s",
		taskfile.FormatKey(r.cfg.Signers.Public()[0]))
}

// hopOf returns at which hop of a task this relay is, below 0 if it is no relay of it.
func (r *Registry) hopOf(open *taskfile.Open) int {
	return slices.IndexFunc(open.Relays, func(p task.Party) bool { return r.cfg.Signers.Of(p.SignKey) != nil })
}

// client asks other parties for what any party may have.
func (r *Registry) client() *handover.Client {
	return handover.NewClient(r.cfg.Signers.Newest, r.cfg.Outgoing)
}

// ClientOf asks other parties with one of this relay's keys.
func (r *Registry) ClientOf(own task.SignKey) *handover.Client {
	return handover.NewClient(r.cfg.Signers.Of(own), r.cfg.Outgoing)
}

// loadBundle reads the task, which must be its configured owner's.
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

// Named is a store that keys are tied to by its name.
type Named interface {
	Name(ctx context.Context) (string, error)
}

// Bind checks the tasks' keys against the store by do, which ties them to it, or only looks whether they
// could be. A store that is new, where the old one was lost, has none of the replay sets of the epochs that
// have begun, and must not be used with their keys.
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

// Watch has a vault hold the store against the marks in the tasks' key files, too.
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

// Reached takes note of how far epochs have come, through whichever process.
func (r *Registry) Reached(all []store.Progress) {
	for _, p := range all {
		if s := r.Hosted().ByID[p.ID.Task]; s != nil {
			s.Epoch(p.ID.Epoch).Reached(p.State)
			s.Epoch(p.ID.Epoch).SetSealed(p.Next - uint64(len(p.Open)))
		}
	}
}

// LoadStates takes note of how far the epochs have come, and demands the key of the one that is open now.
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

// ManyEnd says whether more than one epoch of a task that is open here ends between two moments.
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

// ShortestEpoch returns the length of the shortest epoch, in seconds, also of streams that this relay is about to join.
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
