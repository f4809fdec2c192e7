package tasks

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
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

// OwnerSource approves an owner and limits its tasks. Its fields are as in relay.OwnerConfig.
type OwnerSource struct {
	Owner      string
	Folder     string
	Tasks      int
	Suspended  bool
	Recovery   string
	Candidates []string
	OwnerLimits
}

// Config configures a registry and its host. The fields are as in relay.Config.
type Config struct {
	Tasks        []Source
	Owners       []OwnerSource
	Sets         []SetSource
	Signers      *keyfile.Signers
	Outgoing     http.RoundTripper // carries all requests that the relay sends
	Skew         time.Duration
	PullInterval time.Duration
	Retention    time.Duration
	Clock        func() time.Time
	Log          *slog.Logger

	// Fits returns an error if the memory limit is too small for the largest report of every task at once, for up to
	// limit tasks. A table's reports are the submissions of its set.
	Fits func(all []*Hosted, sets []*HostedSet, limit int) error
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
	Order    []*Hosted              // configured tasks, each stream in order, then tasks added later
	streams  map[task.ID]*stream    // by first task; includes streams that this relay waits to join
	sets     map[task.ID]*HostedSet // by id
	tables   map[task.ID]*HostedSet // by task of a table
	keyLists func() ([]byte, error) // answer to GET /v1/keys
	slots    func() int             // number of tasks that are not withdrawn; a stream counts as one

	mu     sync.Mutex                    // guards the rest
	dueAt  []time.Time                   // for each task in Order: see Due
	shared map[[2]task.SignKey][]*Hosted // see SharedWith
}

// newSet returns a set. It encodes the key lists only when a party first asks for them, because with many tasks that
// takes longer than adding a task. It counts slots once.
func newSet(order []*Hosted, streams map[task.ID]*stream, sets map[task.ID]*HostedSet) *Set {
	next := &Set{ByID: map[task.ID]*Hosted{}, Order: order, streams: streams, sets: map[task.ID]*HostedSet{},
		tables: map[task.ID]*HostedSet{}}
	for _, s := range order {
		next.ByID[s.ID] = s
	}
	for _, s := range sets {
		next.keepSet(s)
	}
	next.keyLists = sync.OnceValues(func() ([]byte, error) {
		lists := codec.AppendArray(nil, len(next.Order))
		for _, s := range next.Order {
			list, err := s.KeyLists[s.Hop].Head()
			if err != nil {
				return nil, err
			}
			lists = append(lists, list...)
		}
		return lists, nil
	})
	next.slots = sync.OnceValue(func() int {
		slots := map[task.ID]bool{}
		for _, s := range next.Order {
			if !s.IsWithdrawn() {
				slots[s.Slot()] = true
			}
		}
		return len(slots)
	})
	return next
}

// add adds a task, and its stream if it is in one, to a set that no other goroutine uses yet.
func (n *Set) add(s *Hosted) {
	n.ByID[s.ID], n.Order = s, append(n.Order, s)
	n.addStream(s)
}

func (n *Set) addStream(s *Hosted) {
	if s.stream != nil {
		n.streams[s.stream.root.ID] = s.stream
	}
}

// SharedWith returns the tasks in which this relay has the key own, and its next hop the key hop.
func (n *Set) SharedWith(own, hop task.SignKey) []*Hosted {
	n.mu.Lock()
	defer n.mu.Unlock()
	pair := [2]task.SignKey{own, hop}
	found, known := n.shared[pair]
	if known {
		return found
	}
	for _, s := range n.Order {
		if s.Relays[s.Hop].SignKey == own && s.Party(s.Hop+1).SignKey == hop {
			found = append(found, s)
		}
	}
	if len(found) == 0 { // anybody may ask with any keys
		return nil
	}
	if n.shared == nil {
		n.shared = map[[2]task.SignKey][]*Hosted{}
	}
	n.shared[pair] = found
	return found
}

// Hosted returns the current set.
func (r *Registry) Hosted() *Set { return r.serving.Load() }

// Due returns the tasks that may need work by the clock: an epoch to end, erase or expire, or the task to drop. latest
// is [clock.Reading.Latest]. For each task it remembers the moment before which nothing can be due, so that an idle
// relay reads none of the tasks. That moment does not depend on a clock, and is never too late: see nextDue.
func (r *Registry) Due(latest time.Time) (due []*Hosted) {
	set := r.Hosted()
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.dueAt == nil {
		set.dueAt = make([]time.Time, len(set.Order))
	}
	for i, s := range set.Order {
		if latest.Before(set.dueAt[i]) {
			continue
		}
		if set.dueAt[i] = s.nextDue(r.cfg.Retention); !latest.Before(set.dueAt[i]) {
			due = append(due, s)
		}
	}
	return due
}

// serve adds a task and its stream, if it is in one, to the set.
func (r *Registry) serve(s *Hosted) {
	now := r.Hosted()
	next := newSet(append(slices.Clone(now.Order), s), maps.Clone(now.streams), now.sets)
	next.addStream(s)
	r.publish(next)
}

// publish replaces the current set of tasks.
func (r *Registry) publish(next *Set) {
	next.nameSeries()
	r.serving.Store(next)
}

func (r *Registry) loadTasks() error {
	set := newSet(nil, map[task.ID]*stream{}, nil)
	r.serving.Store(set) // nobody else has the registry yet
	var all []*loading
	for _, c := range r.cfg.Tasks {
		all = append(all, &loading{Source: c})
	}
	owned, err := r.loadOwners()
	if err != nil {
		return err
	}
	all = append(all, owned...)
	r.readAll(all)
	for _, l := range all {
		if err := r.addTask(set, l, r.paths); err != nil {
			return fmt.Errorf("%s: %w", l.File, err)
		}
	}
	if err := r.loadSets(set); err != nil {
		return err
	}
	set.nameSeries()
	r.limit.Store(int64(r.limitWith(r.approved())))
	return r.cfg.Fits(set.Order, set.Sets(), r.TaskLimit())
}

// TaskLimit returns how many tasks the relay may have at the same time. If the operator has lowered a limit below what
// the relay has, it returns that number. A stream counts as one task, because its tasks follow each other.
func (r *Registry) TaskLimit() int { return max(int(r.limit.Load()), r.Hosted().slots()) }

// limitWith returns what TaskLimit returns with other owners.
func (r *Registry) limitWith(owners []*owner) int {
	n := len(r.cfg.Tasks)
	for _, o := range owners {
		n += o.source.Load().Tasks
	}
	return n
}

// loading is a task that is being loaded at the start. readAll sets the fields after owner.
type loading struct {
	Source
	owner  *owner  // the approved owner; nil if the operator configured the task
	root   task.ID // the task's id
	first  *Hosted // the task, if this relay is in it
	joins  *stream // otherwise the stream that this relay waits to join
	failed error   // why the task cannot be loaded
}

// readAll reads the files of tasks and checks their signatures and keys, on all cores.
func (r *Registry) readAll(all []*loading) {
	var next atomic.Int64
	var reading sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(all)) {
		reading.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				all[i].failed = r.readTask(all[i])
			}
		})
	}
	reading.Wait()
}

func (r *Registry) readTask(l *loading) error {
	raw, open, err := loadBundle(l.Source)
	if err != nil {
		return err
	}
	l.root = open.ID
	if r.mayJoin(l.Source, open) {
		l.joins, err = r.newStream(l.Source, raw, open)
	} else {
		l.first, err = r.loadFirst(l.Source, raw, open, l.owner)
	}
	return err
}

// addTask adds a task that was read, and its successors, to the set. files holds the paths that are already in use.
func (r *Registry) addTask(set *Set, l *loading, files map[string]bool) error {
	if l.failed != nil {
		return l.failed
	}
	if l.Successors != "" {
		folder := resolved(l.Successors)
		if files[folder] {
			return invalid.Field("successors", l.Successors, "a separate folder for each stream")
		}
		files[folder] = true
	}
	if l.owner == nil {
		for _, o := range r.approved() {
			if err := o.checkWithdrawn(l.root); err != nil {
				return err
			}
		}
	}
	if set.streams[l.root] != nil {
		return invalid.Field("tasks", l.root.String(), "each task only once")
	}
	if l.joins != nil {
		set.streams[l.root] = l.joins
		return r.loadSuccessors(set, l.joins)
	}
	keys, err := filepath.EvalSymlinks(l.HPKEKeys)
	if err != nil || files[keys] || set.ByID[l.root] != nil {
		return invalid.Field("hpke_keys", l.HPKEKeys, "a separate file for each task, and each task only once")
	}
	files[keys] = true
	set.add(l.first)
	if l.first.stream == nil {
		return nil
	}
	return r.loadSuccessors(set, l.first.stream)
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
		openers: map[uint64]*onion.Opener{}, setOpeners: map[uint64]*onion.Opener{}, tokens: map[uint64]*TokenKey{},
		states: map[uint64]store.State{}, batches: map[uint64]uint64{},
		rolledBack: map[uint64]bool{}}
	if s.Hop = r.hopOf(open); s.Hop < 0 {
		return nil, r.notInTask()
	}
	if s.Hop > 0 {
		s.PulledNow()
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

// Reached copies the epochs' progress from the store, also progress that another process made, and counts what each
// owner uses.
func (r *Registry) Reached(all []store.Progress) {
	r.countPending(all)
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

// ManyEnd reports whether more than one incomplete epoch of the same task ends between from and to. A withdrawn task's
// epochs do not end by the clock.
func (r *Registry) ManyEnd(from, to time.Time) bool {
	for _, s := range r.Hosted().Order {
		ends := 0
		if s.IsWithdrawn() {
			continue
		}
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
