package relay

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

// maxSkew is the most by which clients' clocks may differ.
const maxSkew = 5 * time.Minute

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

// approved says whether an approved owner handed the task over, or the first of its stream: the operator has not looked
// at whom it names.
func (s *hostedTask) approved() bool { return s.owner != nil }

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
