package relay

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay/internal/storage"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
	"github.com/doona-dp/doona/wire/taskfile"
)

// hostedTask is one task as this relay serves it.
type hostedTask struct {
	*taskfile.Open
	bundle []byte // answer to GET /v1/tasks/{id}
	hop    int
	layout onion.Layout
	skew   time.Duration // by which clients' clocks may differ

	sign     ed25519.PrivateKey // the key of this relay that the task names
	upstream *handover.Client   // asks the relay before with it

	keys   *keyfile.HPKE
	sealer *onion.Sealer // of dummies

	// Draws the cells of the dummies for one batch; nil if the task has none.
	draw func(*randomizer.Source) ([]uint64, error)

	stream *stream // that it is in; nil: none
	owner  *owner  // who handed it over, or the first of its stream; nil: the operator configured that

	made  had // what this relay has made
	taken had // what it has had of the relay before

	polling polling // of the upstream relay

	mu      sync.Mutex // guards the rest
	openers map[uint64]*onion.Opener
	tokens  map[uint64]*tokenEpoch // by epoch; of a first relay of a task with tokens
	states  map[uint64]store.State // a copy of the store's, so that a report costs no query
	batches map[uint64]uint64      // that are sealed, likewise
	behind  map[uint64]bool        // epochs of which the next hop knows more than the store
}

// hostedEpoch is one epoch of a task that this relay serves.
type hostedEpoch struct {
	*hostedTask
	Number uint64
}

// Epoch returns an epoch of the task.
func (s *hostedTask) Epoch(number uint64) hostedEpoch { return hostedEpoch{s, number} }

// EachEpoch returns the task's epochs, the first one first.
func (s *hostedTask) EachEpoch() iter.Seq[hostedEpoch] {
	return func(yield func(hostedEpoch) bool) {
		for number := range s.Epochs.Count {
			if !yield(s.Epoch(number)) {
				return
			}
		}
	}
}

// ID names the epoch in the store.
func (e hostedEpoch) ID() store.EpochID { return store.EpochID{Task: e.hostedTask.ID, Epoch: e.Number} }

// Context is what this relay's signatures about the epoch are bound to.
func (e hostedEpoch) Context() onion.Context {
	return onion.Context{TaskID: e.hostedTask.ID, Epoch: e.Number, Hop: e.hop}
}

// upstreamContext is what the upstream relay's signatures about the epoch are bound to.
func (e hostedEpoch) upstreamContext() onion.Context {
	return onion.Context{TaskID: e.hostedTask.ID, Epoch: e.Number, Hop: e.hop - 1}
}

// Window returns when the epoch takes reports.
func (e hostedEpoch) Window() (start, end time.Time) {
	end = time.Unix(int64(e.Epochs.End(e.Number)), 0)
	start = end.Add(-time.Duration(e.Epochs.Length) * time.Second)
	return start.Add(-e.skew), end.Add(e.skew)
}

// Ref refers to a batch of the epoch.
func (e hostedEpoch) Ref(seq uint64) batchRef { return batchRef{e, seq} }

// batchRef refers to one batch of an epoch, which may not be there yet.
type batchRef struct {
	hostedEpoch
	Seq uint64
}

// BatchID names the batch in the store.
func (b batchRef) BatchID() store.BatchID { return b.ID().Batch(b.Seq) }

// hostedTasks is what a relay serves. It is never changed, but replaced where a task joins or is dropped.
type hostedTasks struct {
	tasks    map[task.ID]*hostedTask
	order    []*hostedTask       // the same: as configured, each stream's in order, then what has joined
	streams  map[task.ID]*stream // by their first tasks, also those that the relay may only be about to join
	keyLists []byte              // answer to GET /v1/keys
}

func (r *setup) hosted() *hostedTasks { return r.serving.Load() }

// serve adds a task to those that are served, and its stream.
func (r *setup) serve(s *hostedTask) error {
	streams := maps.Clone(r.hosted().streams)
	if s.stream != nil {
		streams[s.stream.root.ID] = s.stream
	}
	return r.serveOnly(append(slices.Clone(r.hosted().order), s), streams)
}

// serveOnly replaces what is served.
func (r *setup) serveOnly(order []*hostedTask, streams map[task.ID]*stream) error {
	next := &hostedTasks{tasks: map[task.ID]*hostedTask{}, order: order, streams: streams}
	lists := []*onion.SignedKeyList{}
	for _, t := range order {
		next.tasks[t.ID] = t
		lists = append(lists, t.KeyLists[t.hop])
	}
	var err error
	if next.keyLists, err = codec.Marshal(&lists); err == nil {
		r.serving.Store(next)
	}
	return err
}

func (r *setup) loadTasks() error {
	files := map[string]bool{} // of keys, and folders
	// An empty array of lists: it may only be about to join a stream.
	r.serving.Store(&hostedTasks{streams: map[task.ID]*stream{}, keyLists: []byte{0x90}})
	for _, c := range r.cfg.Tasks {
		service.Default(&c.HPKEKeys, r.cfg.HPKEKeys)
		if err := r.loadTask(c, nil, files); err != nil {
			return fmt.Errorf("%s: %w", c.File, err)
		}
	}
	if err := r.loadOwners(files); err != nil {
		return err
	}
	return r.checkMemory()
}

// loadTask loads a task, and what follows it in its stream. files are those that others use.
func (r *setup) loadTask(c TaskConfig, o *owner, files map[string]bool) error {
	raw, open, err := loadBundle(c)
	if err != nil {
		return err
	}
	if c.Successors != "" {
		folder := resolved(c.Successors)
		if files[folder] {
			return invalid.Field("successors", c.Successors, "a folder of its own for every stream")
		}
		files[folder] = true
	}
	if r.hosted().streams[open.ID] != nil {
		return invalid.Field("tasks", open.ID.String(), "every task once")
	}
	if r.mayJoin(c, open) {
		l, err := r.newStream(c, raw, open)
		if err != nil {
			return err
		}
		streams := maps.Clone(r.hosted().streams)
		streams[open.ID] = l
		return errors.Join(r.serveOnly(r.hosted().order, streams), r.loadSuccessors(l))
	}
	s, err := r.loadFirst(c, raw, open, o)
	if err != nil {
		return err
	}
	keys, err := filepath.EvalSymlinks(c.HPKEKeys)
	if err != nil || files[keys] || r.hosted().tasks[s.ID] != nil {
		return invalid.Field("hpke_keys", c.HPKEKeys, "a file of its own for every task, and every task once")
	}
	files[keys] = true
	if err := r.serve(s); err != nil || s.stream == nil {
		return err
	}
	return r.loadSuccessors(s.stream)
}

// loadFirst prepares to serve a task that is no successor, and its stream if it begins one.
func (r *setup) loadFirst(c TaskConfig, raw []byte, open *taskfile.Open, o *owner) (*hostedTask, error) {
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
func (r *setup) mayJoin(c TaskConfig, open *taskfile.Open) bool {
	return r.hopOf(open) < 0 && c.Successors != "" && open.Stream != nil &&
		slices.Contains(open.Stream.Allow, "relays.signKey")
}

// loadOpen prepares to serve a task with the keys in some files.
func (r *setup) loadOpen(raw []byte, open *taskfile.Open, keys, issuerKeys string) (*hostedTask, error) {
	s := &hostedTask{Open: open, bundle: raw, skew: r.cfg.Skew,
		openers: map[uint64]*onion.Opener{}, tokens: map[uint64]*tokenEpoch{},
		states: map[uint64]store.State{}, batches: map[uint64]uint64{},
		behind: map[uint64]bool{}}
	s.polling.wake, s.polling.waits = make(chan struct{}, 1), map[uint64]waits{}
	if s.hop = r.hopOf(open); s.hop < 0 {
		return nil, r.notInTask()
	}
	s.sign = r.signers.Of(s.Relays[s.hop].SignKey)
	s.upstream = handover.NewClient(s.sign, r.outgoing)
	var err error
	if s.layout, err = onion.NewLayout(s.Task); err != nil {
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
func (r *setup) notInTask() error {
	return fmt.Errorf("couldn't serve the task: its relays do not include this one, %s",
		taskfile.FormatKey(r.signers.Public()[0]))
}

// hopOf returns at which hop of a task this relay is, below 0 if it is no relay of it.
func (r *setup) hopOf(open *taskfile.Open) int {
	return slices.IndexFunc(open.Relays, func(p task.Party) bool { return r.signers.Of(p.SignKey) != nil })
}

// client asks other parties for what any party may have.
func (r *setup) client() *handover.Client { return handover.NewClient(r.signers.Newest, r.outgoing) }

// loadNoise prepares to add the task's dummies, if it has any.
func (s *hostedTask) loadNoise() (err error) {
	if s.Noise == nil {
		return nil
	}
	s.draw = dummies.New(s.Noise).Draw
	if _, err := s.draw(randomizer.NewSource()); err != nil { // a law that no draw meets would stop all tasks
		return err
	}
	s.sealer, err = onion.NewSealer(s.Task, s.ID, s.KeyLists)
	return err
}

// loadBundle reads the task, which must be its configured owner's.
func loadBundle(c TaskConfig) ([]byte, *taskfile.Open, error) {
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

// loadKeys loads the task's HPKE keys and checks them against the list that the task names.
func (s *hostedTask) loadKeys(path string) (err error) {
	if path == "" {
		return invalid.Field("hpke_keys", `""`, "a file, for every task or for the relay")
	}
	if s.keys, err = keyfile.LoadHPKE(path); err != nil {
		return err
	}
	return s.keys.Check(s.Task, s.KeyLists[s.hop])
}

// bind checks the tasks' keys against the store by do, which ties them to it, or only looks whether they
// could be. A store that is new, where the old one was lost, has none of the replay sets of the epochs that
// have begun, and must not be used with their keys.
func (r *setup) bind(kept storage.Named, do func(keys *keyfile.HPKE, store string) error) error {
	name, err := kept.Name(context.Background())
	if err != nil {
		return err
	}
	for _, s := range r.hosted().order {
		if err := do(s.keys, name); err != nil {
			return err
		}
	}
	return nil
}

// watch has a vault hold the store against the marks in the tasks' key files, too.
func (r *setup) watch(v *store.Vault) error {
	for _, s := range r.hosted().order {
		keys, err := s.keys.Mark()
		if err != nil {
			return err
		}
		v.Watch(s.ID, keys)
	}
	return nil
}

// Opener returns what opens the epoch's ciphertexts, or [keyfile.ErrErased].
func (e hostedEpoch) Opener() (*onion.Opener, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o := e.openers[e.Number]; o != nil {
		return o, nil
	}
	key, err := e.keys.Key(e.Number)
	if err != nil {
		return nil, err
	}
	o, err := onion.NewOpener(e.Task, e.hostedTask.ID, e.hop, e.Number, key)
	if err == nil {
		e.openers[e.Number] = o
	}
	return o, err
}

// EraseKey erases the private key of the epoch: the file's first, or a late report could have it
// cached again.
func (e hostedEpoch) EraseKey() error {
	if err := e.keys.Erase(e.Number); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.openers, e.Number)
	delete(e.tokens, e.Number)
	return nil
}

// eraseKeys erases the keys of the epochs that are erased in the store, as another process may have
// done so.
func (s *hostedTask) eraseKeys() (failed error) {
	for e := range s.EachEpoch() {
		if e.State() < store.StateErased {
			continue
		}
		if _, err := s.keys.Key(e.Number); !errors.Is(err, keyfile.ErrErased) {
			failed = errors.Join(failed, e.EraseKey())
		}
	}
	return failed
}

// name is how logs and metrics call the task.
func (s *hostedTask) name() string { return s.ID.String()[:8] }

// State returns how far the epoch has come.
func (e hostedEpoch) State() store.State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.states[e.Number]
}

// Reached takes note that the epoch has come that far.
func (e hostedEpoch) Reached(to store.State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.states[e.Number] = max(e.states[e.Number], to)
}

// Sealed returns how many batches of the epoch are sealed, at the last look at the store.
func (e hostedEpoch) Sealed() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.batches[e.Number]
}

// SetSealed takes note of how many are.
func (e hostedEpoch) SetSealed(batches uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches[e.Number] = batches
}

// advance raises the state of an epoch, durably.
func (ep *epochs) advance(ctx context.Context, e hostedEpoch, to store.State) error {
	if err := ep.store.Advance(ctx, e.ID(), to); err != nil {
		return err
	}
	e.Reached(to)
	return nil
}

// reached takes note of how far epochs have come, through whichever process.
func (r *setup) reached(all []store.Progress) {
	for _, p := range all {
		if s := r.hosted().tasks[p.ID.Task]; s != nil {
			s.Epoch(p.ID.Epoch).Reached(p.State)
			s.Epoch(p.ID.Epoch).SetSealed(p.Next - uint64(len(p.Open)))
		}
	}
}

// loadStates takes note of how far the epochs have come, and demands the key of the one that is open now.
func (r *setup) loadStates(all []store.Progress) error {
	r.reached(all)
	for _, s := range r.hosted().order {
		epoch, now := s.Epochs.At(uint64(r.cfg.Clock().Unix()))
		if !now || s.Epoch(epoch).State() >= store.StateClosed {
			continue
		}
		if _, err := s.Epoch(epoch).Opener(); err != nil {
			return fmt.Errorf("couldn't serve task %s in epoch %d: %w", s.name(), epoch, err)
		}
	}
	return nil
}
