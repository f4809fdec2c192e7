// Package storage says what a relay uses of its store, by what it is for: each stage takes the parts that it needs, and
// the relay's own suites put something else in place of some. All parts are one [store.Store].
package storage

import (
	"context"

	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// Store is a relay's store by its parts.
type Store struct {
	ReportStore
	BatchStore
	MixStore
	EpochStore
	NoteStore
	NonceStore
	GuardStore
	UpkeepStore
}

// New returns a store's parts.
func New(s *store.Store) Store { return Store{s, s, s, s, s, s, s, s} }

// ReportStore takes reports.
type ReportStore interface {
	Commit(ctx context.Context, group []*store.Submission) (full bool, err error)
}

// BatchStore seals batches and keeps what was made.
type BatchStore interface {
	Seal(ctx context.Context, b store.BatchID, build store.SealFunc) error
	SealWithheld(ctx context.Context, b store.BatchID, build store.SealFunc) error
	Next(ctx context.Context, id store.EpochID) (uint64, error)
	SealedBelow(ctx context.Context, b store.BatchID) (bool, error)
	Batch(ctx context.Context, b store.BatchID) (*store.Sealed, error)
	Manifest(ctx context.Context, b store.BatchID) (manifest []byte, confirmed bool, err error)
	Confirm(ctx context.Context, b store.BatchID) error
}

// MixStore makes batches of those of the relay before.
type MixStore interface {
	Mix(ctx context.Context, b store.BatchID, tags []store.Short, build store.MixFunc) error
	MixWithheld(ctx context.Context, b store.BatchID, tags []store.Short, build store.MixFunc) error
	Destroyed(ctx context.Context, id store.EpochID) (uint64, error)
	Witness(ctx context.Context, b store.BatchID, s *onion.SignedManifest) error
	Witnessed(ctx context.Context, id store.EpochID) (uint64, error)
	Untold(ctx context.Context, id store.EpochID) ([]uint64, error)
	Told(ctx context.Context, b store.BatchID) error
}

// EpochStore knows how far epochs have come.
type EpochStore interface {
	Progress(ctx context.Context) ([]store.Progress, error)
	Advance(ctx context.Context, id store.EpochID, to store.State) error
	Complete(ctx context.Context, id store.EpochID, end []byte) error
	End(ctx context.Context, id store.EpochID) ([]byte, error)
	EndAll(ctx context.Context, ids, strange []store.EpochID, why store.Reason) error
}

// NoteStore keeps what operators should know.
type NoteStore interface {
	Note(ctx context.Context, b store.BatchID, why store.Reason) (times uint64, err error)
	Tally(ctx context.Context, id store.EpochID, refused map[string]uint64) error
	Findings(ctx context.Context) ([]store.Finding, error)
	Tallies(ctx context.Context) ([]store.Tally, error)
	Equivocations(ctx context.Context) ([]store.Equivocation, error)
}

// NonceStore knows requests again.
type NonceStore interface {
	Fresh(ctx context.Context, key task.SignKey, nonce signing.Nonce) (bool, error)
	ForgetNonces(ctx context.Context, key task.SignKey) error
}

// GuardStore holds the store against the key files, and against other processes.
type GuardStore interface {
	Follow(ctx context.Context) ([]store.Progress, error)
	SetBack() *store.SetBack
	Joining() store.Joining
	Version() uint64
}

// UpkeepStore keeps the store in order.
type UpkeepStore interface {
	Name(ctx context.Context) (string, error)
	Sweep(ctx context.Context) error
	Probe(ctx context.Context) error
	Scrub(ctx context.Context) error
	Close() error
}

// Records is what a status is made of.
type Records interface {
	Progress(ctx context.Context) ([]store.Progress, error)
	Findings(ctx context.Context) ([]store.Finding, error)
	Tallies(ctx context.Context) ([]store.Tally, error)
	Equivocations(ctx context.Context) ([]store.Equivocation, error)
}

// Named is a store that keys are tied to by its name.
type Named interface {
	Name(ctx context.Context) (string, error)
}
