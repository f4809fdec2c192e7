// Package tasks holds what a relay hosts: its tasks with their keys, their streams, and the owners whom the operator
// approved.
//
// The relay's other stages ask the [Registry] which tasks there are. They ask a [Hosted] task for the keys and the
// state of an [Epoch]. The [Host] adds and drops tasks while the relay runs: package relay starts it, and the epochs
// stage calls it on each tick. The [Desk] answers owners' requests, and requests for tasks, keys and the time.
//
// Order of steps: the relay stores an owner's task on disk and binds the task's keys to the store before it serves the
// task. It erases a key in the key file before it erases the key in memory.
package tasks

import (
	"crypto/ed25519"
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Hosted is a task that this relay serves.
type Hosted struct {
	*taskfile.Open
	bundle []byte // answer to GET /v1/tasks/{id}
	Hop    int
	Layout onion.Layout
	skew   time.Duration // tolerated error of clients' clocks

	Sign     ed25519.PrivateKey  // this relay's signing key in the task
	Upstream *handover.Requester // sends requests to the upstream relay, signed with Sign

	Keys   *keyfile.HPKE
	Sealer *onion.Sealer // seals this relay's dummies

	// Draw draws the cells of the dummies for one batch. It is nil if this relay adds no dummies in the task.
	Draw func(*randomizer.Source) ([]uint64, error)

	stream *stream // nil if the task is in no stream
	owner  *owner  // approved owner of the task or its stream; nil if the operator configured it

	Made  ManifestHashes // hashes of the manifests that this relay made
	Taken ManifestHashes // hashes of the manifests that the upstream relay sent

	pulled, asked atomic.Int64           // see LastPull and LastAsked
	series        atomic.Pointer[string] // of a set's table: the name of the set's series; see Series

	mu         sync.Mutex // guards the rest
	openers    map[uint64]*onion.Opener
	setOpeners map[uint64]*onion.Opener // only at the first relay, of the first table of a set
	tokens     map[uint64]*TokenKey     // by epoch; only at the first relay of a task with tokens
	states     map[uint64]store.State   // by epoch; a copy of the store's states, so that a report costs no query
	batches    map[uint64]uint64        // sealed batches by epoch; also a copy of the store's numbers
	rolledBack map[uint64]bool          // epochs of which the next hop has a batch that the store lost
}

// Epoch is one epoch of a hosted task.
type Epoch struct {
	*Hosted
	Number uint64
}

func (s *Hosted) Epoch(number uint64) Epoch { return Epoch{s, number} }

// EachEpoch returns the task's epochs in order.
func (s *Hosted) EachEpoch() iter.Seq[Epoch] {
	return func(yield func(Epoch) bool) {
		for number := range s.Epochs.Count {
			if !yield(s.Epoch(number)) {
				return
			}
		}
	}
}

// ID names the epoch in the store.
func (e Epoch) ID() store.EpochID { return store.EpochID{Task: e.Hosted.ID, Epoch: e.Number} }

// Context returns the task, epoch and hop to which this relay's signatures about the epoch are bound.
func (e Epoch) Context() onion.Context {
	return onion.Context{TaskID: e.Hosted.ID, Epoch: e.Number, Hop: e.Hop}
}

// UpstreamContext returns the task, epoch and hop to which the upstream relay's signatures about the epoch are bound.
func (e Epoch) UpstreamContext() onion.Context {
	return onion.Context{TaskID: e.Hosted.ID, Epoch: e.Number, Hop: e.Hop - 1}
}

// Window returns when the epoch accepts reports: its start and end, widened by the clock tolerance. If the owner has
// withdrawn the task, the epoch ends then, even if that is before its start.
func (e Epoch) Window() (start, end time.Time) {
	start, end = time.Unix(int64(e.Epochs.Begin(e.Number)), 0), time.Unix(int64(e.Epochs.End(e.Number)), 0)
	return start.Add(-e.skew), e.EndsBy(end.Add(e.skew))
}

func (e Epoch) Ref(seq uint64) BatchRef { return BatchRef{e, seq} }

// BatchRef refers to one batch of an epoch. The batch need not exist yet.
type BatchRef struct {
	Epoch
	Seq uint64
}

// BatchID names the batch in the store.
func (b BatchRef) BatchID() store.BatchID { return b.ID().Batch(b.Seq) }

// loadNoise prepares to add this relay's dummies, if the task has any.
func (s *Hosted) loadNoise() (err error) {
	if s.Noise == nil {
		return nil
	}
	s.Draw = dummies.New(s.Noise).Draw
	if _, err := s.Draw(randomizer.NewSource()); err != nil { // a draw that always fails would block all tasks
		return err
	}
	s.Sealer, err = onion.NewSealer(s.Task, s.ID, s.KeyLists)
	return err
}

// loadKeys loads the task's HPKE keys and checks them against the key list that the task names.
func (s *Hosted) loadKeys(path string) (err error) {
	if path == "" {
		return invalid.Field("hpke_keys", `""`, "a key file for the task or for the relay")
	}
	if s.Keys, err = keyfile.LoadHPKE(path); err != nil {
		return err
	}
	return s.Keys.Check(s.Task, s.KeyLists[s.Hop])
}

// Opener returns the opener of the epoch's ciphertexts, or [keyfile.ErrErased] if its key is erased.
func (e Epoch) Opener() (*onion.Opener, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opener(e.openers, e.Hosted.ID)
}

// SetOpener is Opener for the submissions of a set whose first table is this task.
func (e Epoch) SetOpener(s *HostedSet) (*onion.Opener, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.opener(e.setOpeners, s.ID)
}

// opener returns the opener for ciphertexts under an id. It keeps the opener in made.
func (e Epoch) opener(made map[uint64]*onion.Opener, id task.ID) (*onion.Opener, error) {
	if o := made[e.Number]; o != nil {
		return o, nil
	}
	key, err := e.Keys.Key(e.Number)
	if err != nil {
		return nil, err
	}
	o, err := onion.NewOpener(e.Task, id, e.Hop, e.Number, key)
	if err == nil {
		made[e.Number] = o
	}
	return o, err
}

// EraseKey erases the epoch's private key, first in the key file, then in memory. In the other order, a late report
// could load the key from the file again.
func (e Epoch) EraseKey() error {
	if err := e.Keys.Erase(e.Number); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.openers, e.Number)
	delete(e.setOpeners, e.Number)
	delete(e.tokens, e.Number)
	return nil
}

// EraseKeys erases the keys of the epochs that are erased in the store, where another process may have erased them.
func (s *Hosted) EraseKeys() (failed error) {
	for e := range s.EachEpoch() {
		if e.State() < store.StateErased {
			continue
		}
		if _, err := s.Keys.Key(e.Number); !errors.Is(err, keyfile.ErrErased) {
			failed = errors.Join(failed, e.EraseKey())
		}
	}
	return failed
}

// ShortID returns the first 8 hex digits of the task's id, its name in logs and metrics.
func (s *Hosted) ShortID() string { return s.ID.String()[:8] }

// Owner returns the key of the approved owner of the task or its stream, or "" if the operator configured it.
func (s *Hosted) Owner() string {
	if s.owner == nil {
		return ""
	}
	return s.owner.source.Load().Owner
}

// Series names the metrics in which the task counts. All tables of a set share one series of each metric.
func (s *Hosted) Series() monitor.Series {
	if s.owner != nil {
		return monitor.Series{Owner: ShortKey(s.Owner())}
	}
	if set := s.series.Load(); set != nil {
		return monitor.Series{Task: *set}
	}
	return monitor.Series{Task: s.ShortID()}
}

// PulledNow records that the upstream relay answered, or that no pull was due.
func (s *Hosted) PulledNow() { s.pulled.Store(time.Now().Unix()) }

// LastPull returns the Unix time of the last PulledNow. It is at first the start, and 0 at a first relay.
func (s *Hosted) LastPull() int64 { return s.pulled.Load() }

// AskedNow records that the next hop asked for a batch.
func (s *Hosted) AskedNow() { s.asked.Store(time.Now().Unix()) }

// LastAsked returns the Unix time of the last AskedNow, or 0 if there was none.
func (s *Hosted) LastAsked() int64 { return s.asked.Load() }

// Over returns the Unix time when the last epoch of the task, or of its stream's newest task, ends.
func (s *Hosted) Over() int64 {
	over := s.Epochs.Over()
	if s.stream != nil {
		tasks := s.stream.Tasks()
		over = tasks[len(tasks)-1].Epochs.Over()
	}
	return s.EndsBy(time.Unix(int64(over), 0)).Unix()
}

// Approved reports whether an approved owner handed over the task or its stream's first task. The operator has not
// checked the relays and issuers that such a task names.
func (s *Hosted) Approved() bool { return s.owner != nil }

// State returns the epoch's state.
func (e Epoch) State() store.State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.states[e.Number]
}

// Reached records that the epoch has reached a state. A state never goes back.
func (e Epoch) Reached(to store.State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.states[e.Number] = max(e.states[e.Number], to)
}

// nextDue returns the earliest moment at which the relay may have to end, erase or expire an epoch, or drop the task.
// When a state changes, that moment can only become later.
func (s *Hosted) nextDue(retention time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, last := s.Epoch(s.Epochs.Count - 1).Window()
	next := last.Add(retention) // to drop the task
	for e := range s.EachEpoch() {
		_, end := e.Window()
		if !end.Before(next) {
			break
		}
		switch state := s.states[e.Number]; {
		case state < store.StateErased:
			next = end
		case state < store.StateExpired && end.Add(retention).Before(next):
			next = end.Add(retention)
		}
	}
	return next
}

// Sealed returns how many batches of the epoch were sealed when this process last read the store.
func (e Epoch) Sealed() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.batches[e.Number]
}

// SetSealed records how many batches of the epoch are sealed.
func (e Epoch) SetSealed(batches uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches[e.Number] = batches
}
