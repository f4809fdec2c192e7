// Package tasks keeps what a relay hosts: its tasks with their keys, the streams that they are in, and the owners whom
// the operator has approved.
//
// The other stages ask the [Registry] which tasks there are, and a [Hosted] task, by its [Epoch], for its keys and how
// far it has come. The [Host] takes tasks up and drops them while the relay runs: package relay starts it, and the
// stage of the epochs calls it in each of its turns. The [Desk] answers owners, and whoever asks for tasks, keys or the
// time.
//
// What an owner handed over is on disk before it is served, and the keys of a task are tied to the store before that. A
// key that is erased is gone from its file before it is gone here.
package tasks

import (
	"crypto/ed25519"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task/dummies"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Hosted is one task as this relay serves it.
type Hosted struct {
	*taskfile.Open
	bundle []byte // answer to GET /v1/tasks/{id}
	Hop    int
	Layout onion.Layout
	skew   time.Duration // by which clients' clocks may differ

	Sign     ed25519.PrivateKey // the key of this relay that the task names
	Upstream *handover.Client   // asks the relay before with it

	Keys   *keyfile.HPKE
	Sealer *onion.Sealer // of dummies

	// Draws the cells of the dummies for one batch; nil if the task has none.
	Draw func(*randomizer.Source) ([]uint64, error)

	stream *stream // that it is in; nil: none
	owner  *owner  // who handed it over, or the first of its stream; nil: the operator configured that

	Made  ManifestHashes // what this relay has made
	Taken ManifestHashes // what it has had of the relay before

	mu      sync.Mutex // guards the rest
	openers map[uint64]*onion.Opener
	tokens  map[uint64]*TokenKey   // by epoch; of a first relay of a task with tokens
	states  map[uint64]store.State // a copy of the store's, so that a report costs no query
	batches map[uint64]uint64      // that are sealed, likewise
	behind  map[uint64]bool        // epochs of which the next hop knows more than the store
}

// Epoch is one epoch of a task that this relay serves.
type Epoch struct {
	*Hosted
	Number uint64
}

// Epoch returns an epoch of the task.
func (s *Hosted) Epoch(number uint64) Epoch { return Epoch{s, number} }

// EachEpoch returns the task's epochs, the first one first.
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

// Context is what this relay's signatures about the epoch are bound to.
func (e Epoch) Context() onion.Context {
	return onion.Context{TaskID: e.Hosted.ID, Epoch: e.Number, Hop: e.Hop}
}

// UpstreamContext is what the upstream relay's signatures about the epoch are bound to.
func (e Epoch) UpstreamContext() onion.Context {
	return onion.Context{TaskID: e.Hosted.ID, Epoch: e.Number, Hop: e.Hop - 1}
}

// Window returns when the epoch takes reports.
func (e Epoch) Window() (start, end time.Time) {
	end = time.Unix(int64(e.Epochs.End(e.Number)), 0)
	start = end.Add(-time.Duration(e.Epochs.Length) * time.Second)
	return start.Add(-e.skew), end.Add(e.skew)
}

// Ref refers to a batch of the epoch.
func (e Epoch) Ref(seq uint64) BatchRef { return BatchRef{e, seq} }

// BatchRef refers to one batch of an epoch, which may not be there yet.
type BatchRef struct {
	Epoch
	Seq uint64
}

// BatchID names the batch in the store.
func (b BatchRef) BatchID() store.BatchID { return b.ID().Batch(b.Seq) }

// loadNoise prepares to add the task's dummies, if it has any.
func (s *Hosted) loadNoise() (err error) {
	if s.Noise == nil {
		return nil
	}
	s.Draw = dummies.New(s.Noise).Draw
	if _, err := s.Draw(randomizer.NewSource()); err != nil { // a law that no draw meets would stop all tasks
		return err
	}
	s.Sealer, err = onion.NewSealer(s.Task, s.ID, s.KeyLists)
	return err
}

// loadKeys loads the task's HPKE keys and checks them against the list that the task names.
func (s *Hosted) loadKeys(path string) (err error) {
	if path == "" {
		return invalid.Field("hpke_keys", `""`, "a key file for the task or for the relay")
	}
	if s.Keys, err = keyfile.LoadHPKE(path); err != nil {
		return err
	}
	return s.Keys.Check(s.Task, s.KeyLists[s.Hop])
}

// Opener returns what opens the epoch's ciphertexts, or [keyfile.ErrErased].
func (e Epoch) Opener() (*onion.Opener, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o := e.openers[e.Number]; o != nil {
		return o, nil
	}
	key, err := e.Keys.Key(e.Number)
	if err != nil {
		return nil, err
	}
	o, err := onion.NewOpener(e.Task, e.Hosted.ID, e.Hop, e.Number, key)
	if err == nil {
		e.openers[e.Number] = o
	}
	return o, err
}

// EraseKey erases the private key of the epoch: the file's first, or a late report could have it
// cached again.
func (e Epoch) EraseKey() error {
	if err := e.Keys.Erase(e.Number); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.openers, e.Number)
	delete(e.tokens, e.Number)
	return nil
}

// EraseKeys erases the keys of the epochs that are erased in the store, as another process may have
// done so.
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

// ShortID is how logs and metrics call the task.
func (s *Hosted) ShortID() string { return s.ID.String()[:8] }

// Approved says whether an approved owner handed the task over, or the first of its stream: the operator has not looked
// at whom it names.
func (s *Hosted) Approved() bool { return s.owner != nil }

// State returns how far the epoch has come.
func (e Epoch) State() store.State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.states[e.Number]
}

// Reached takes note that the epoch has come that far.
func (e Epoch) Reached(to store.State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.states[e.Number] = max(e.states[e.Number], to)
}

// Sealed returns how many batches of the epoch are sealed, at the last look at the store.
func (e Epoch) Sealed() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.batches[e.Number]
}

// SetSealed takes note of how many are.
func (e Epoch) SetSealed(batches uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches[e.Number] = batches
}
