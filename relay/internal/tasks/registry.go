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

// Source names one task that the operator has agreed to serve. Its fields are those of relay.TaskConfig.
type Source struct {
	File       string
	Owner      string
	Recovery   string
	Candidates []string
	HPKEKeys   string
	Successors string
	IssuerKeys string
}

// OwnerSource approves an owner and limits its tasks. Its fields are those of relay.OwnerConfig.
type OwnerSource struct {
	Owner      string
	Folder     string
	Tasks      int
	Suspended  bool
	Recovery   string
	Candidates []string
}

// Config configures a registry and its host. The fields are as in relay.Config.
type Config struct {
	Tasks        []Source
	Owners       []OwnerSource
	Signers      *keyfile.Signers
	Outgoing     http.RoundTripper // carries all requests that the relay sends
	Skew         time.Duration
	PullInterval time.Duration
	Retention    time.Duration
	Clock        func() time.Time
	Log          *slog.Logger

	// Fits returns an error if the memory limit is too small for the largest report of every task at once, for up to
	// limit tasks.
	Fits func(all []*Hosted, limit int) error
}

// Registry holds the tasks that a relay serves, their streams, and the approved owners. It is safe for concurrent use.
type Registry struct {
	cfg     Config
	serving atomic.Pointer[Set]
	owners  atomic.Pointer[[]*owner] // approved by the operator
	limit   atomic.Int64             // see TaskLimit
	paths   map[string]bool          // key files and folders in use; [Host.SetOwners] guards it after the start
}

// Load loads all configured tasks, their successors, and the tasks of approved owners.
func Load(cfg Config) (*Registry, error) {
	r := &Registry{cfg: cfg, paths: map[string]bool{}}
	return r, r.loadTasks()
}

// Set is an immutable set of hosted tasks. The registry replaces the whole set when a task is added or dropped.
type Set struct {
	ByID     map[task.ID]*Hosted
	Order    []*Hosted           // configured tasks, each stream in order, then tasks added later
	streams  map[task.ID]*stream // by first task; includes streams that this relay waits to join
	slots    int                 // a stream counts as one
	keyLists []byte              // answer to GET /v1/keys
}

// Hosted returns the current set.
func (r *Registry) Hosted() *Set { return r.serving.Load() }

// serve adds a task and its stream, if it is in one, to the set.
func (r *Registry) serve(s *Hosted) error {
	streams := maps.Clone(r.Hosted().streams)
	if s.stream != nil {
		streams[s.stream.root.ID] = s.stream
	}
	return r.serveOnly(append(slices.Clone(r.Hosted().Order), s), streams)
}

// serveOnly replaces the set of hosted tasks.
func (r *Registry) serveOnly(order []*Hosted, streams map[task.ID]*stream) error {
	next := &Set{ByID: map[task.ID]*Hosted{}, Order: order, streams: streams}
	lists, slots := []*onion.SignedKeyList{}, map[task.ID]bool{}
	for _, t := range order {
		next.ByID[t.ID] = t
		slots[t.Slot()] = true
		lists = append(lists, t.KeyLists[t.Hop])
	}
	next.slots = len(slots)
	var err error
	if next.keyLists, err = codec.Marshal(&lists); err == nil {
		r.serving.Store(next)
	}
	return err
}

func (r *Registry) loadTasks() error {
	// An empty MessagePack array of key lists: the relay may have no task yet, only a stream to join.
	r.serving.Store(&Set{streams: map[task.ID]*stream{}, keyLists: []byte{0x90}})
	for _, c := range r.cfg.Tasks {
		if err := r.loadTask(c, nil, r.paths); err != nil {
			return fmt.Errorf("%s: %w", c.File, err)
		}
	}
	if err := r.loadOwners(); err != nil {
		return err
	}
	r.limit.Store(int64(r.limitWith(r.approved())))
	return r.cfg.Fits(r.Hosted().Order, r.TaskLimit())
}

// TaskLimit returns how many tasks the relay may have at the same time. If the operator has lowered a limit below what
// the relay has, it returns that number. A stream counts as one task, because its tasks follow each other.
func (r *Registry) TaskLimit() int { return max(int(r.limit.Load()), r.Hosted().slots) }

// limitWith returns what TaskLimit returns with other owners.
func (r *Registry) limitWith(owners []*owner) int {
	n := len(r.cfg.Tasks)
	for _, o := range owners {
		n += o.source.Load().Tasks
	}
	return n
}

// loadTask loads a task and its successors. files holds the paths that are already in use.
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

// loadFirst loads a task that is no successor, and opens the stream that the task begins, if it begins one.
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

// resolved returns the absolute path of a folder, without symbolic links. The folder need not exist.
func resolved(folder string) string {
	if path, err := filepath.EvalSymlinks(folder); err == nil {
		folder = path
	}
	if path, err := filepath.Abs(folder); err == nil {
		folder = path
	}
	return folder
}

// mayJoin reports whether this relay is not in the task but may join its stream: a later task may replace a relay by
// this relay.
func (r *Registry) mayJoin(c Source, open *taskfile.Open) bool {
	return r.hopOf(open) < 0 && c.Successors != "" && open.Stream != nil &&
		slices.Contains(open.Stream.Allow, "relays.signKey")
}

// loadOpen loads a task with the keys in the given files, ready to be served.
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

// notInTask returns the error for a task that does not name this relay.
func (r *Registry) notInTask() error {
	return fmt.Errorf("couldn't serve the task: its relays do not include this one, %s",
		taskfile.FormatKey(r.cfg.Signers.Public()[0]))
}

// hopOf returns this relay's hop in a task, or a negative number if the task does not name this relay.
func (r *Registry) hopOf(open *taskfile.Open) int {
	return slices.IndexFunc(open.Relays, func(p task.Party) bool { return r.cfg.Signers.Of(p.SignKey) != nil })
}

// client returns a requester for requests that any party may make.
func (r *Registry) client() *handover.Requester {
	return handover.NewRequester(r.cfg.Signers.Newest, r.cfg.Outgoing)
}

// ClientOf returns a requester that signs with this relay's key own.
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

// Named is a store that has a name. Keys are bound to that name.
type Named interface {
	Name(ctx context.Context) (string, error)
}

// Bind calls do with each task's keys and the store's name; do binds the keys to the store, or checks that they can be
// bound. If a new store replaces a lost one, the keys of epochs that have begun must not be used with it: the new store
// lacks their replay sets.
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

// Watch makes a vault also compare the store with the rollback marks in the tasks' key files.
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

// Reached copies the epochs' progress from the store, also progress that another process made.
func (r *Registry) Reached(all []store.Progress) {
	for _, p := range all {
		if s := r.Hosted().ByID[p.ID.Task]; s != nil {
			s.Epoch(p.ID.Epoch).Reached(p.State)
			s.Epoch(p.ID.Epoch).SetSealed(p.Next - uint64(len(p.Open)))
		}
	}
}

// LoadStates copies the epochs' progress from the store. It returns an error if the key of an open epoch is missing.
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

// ManyEnd reports whether more than one incomplete epoch of the same task ends between from and to.
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

// ShortestEpoch returns the length in seconds of the shortest epoch of all hosted tasks and of the streams that this
// relay waits to join.
func (r *Registry) ShortestEpoch() uint64 {
	shortest := uint64(1<<32 - 1)
	for _, s := range r.Hosted().Order {
		shortest = min(shortest, s.Epochs.Length.Shortest())
	}
	for _, l := range r.Hosted().streams {
		shortest = min(shortest, l.root.Epochs.Length.Shortest())
	}
	return shortest
}
