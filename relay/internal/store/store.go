// Package store keeps what a relay must not lose, in SQLite or PostgreSQL: the slots of open batches,
// replay sets, counts per client, sealed batches, and how far each epoch has come.
//
// A relay [Open]s a [Store] and serves from it; `relay status` and those like it [Read] one, also beside a relay that
// runs. Every row about a client is encrypted or hashed under a key of the [Vault], a file
// outside the store, which destroys each key as soon as what it protects is over: what a disk, a log or
// a backup keeps of deleted rows is then random to everyone.
//
// What it promises: a method that returned nil has done its work durably, as one transaction. What it
// does not: it neither opens ciphertexts nor permutes batches, which the relay does in the functions
// that it hands to Seal and Mix.
package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// EpochID names one epoch of one task: submissions, replay sets and batches never leave theirs.
type EpochID struct {
	Task  task.ID
	Epoch uint64
}

// compare orders epochs: in this order their rows are locked.
func (id EpochID) compare(other EpochID) int {
	return cmp.Or(bytes.Compare(id.Task[:], other.Task[:]), cmp.Compare(id.Epoch, other.Epoch))
}

// Batch names a batch of the epoch.
func (id EpochID) Batch(seq uint64) BatchID { return BatchID{id, seq} }

// BatchID names one batch of an epoch, which may not be there yet.
type BatchID struct {
	EpochID
	Seq uint64
}

// Short is a keyed hash cut to 64 bits: the name of a tag or a client, or a receipt. Nobody outside
// can compute one, so false matches come by chance only. One refuses a report or drops a slot: of
// n entries in an epoch, each does with probability n/2^64.
type Short [8]byte

// State is how far an epoch has come. It only grows.
type State int

// The states of an epoch, in their order.
const (
	StateOpen     State = iota // May get submissions or batches.
	StateClosed                // First relay: no more submissions; what is left is being sealed.
	StateComplete              // There will be no further batch.
	StateErased                // Replay set, client rows and keys are gone too.
	StateExpired               // So are batches, manifests and findings.
	StateEnded                 // As expired, at any time, by the operator's command after a set-back.
)

// String returns the name by which `relay status` calls a state.
func (s State) String() string {
	return [...]string{"open", "closed", "complete", "erased", "expired", "ended"}[s]
}

// Verdict is what the store decided about a submission.
type Verdict int

// The verdicts. Accepted and Repeated submissions are acknowledged.
const (
	Accepted Verdict = iota
	Repeated         // The same envelope of the same client is stored already.
	Replayed         // Another client has sent the envelope, or its tag.
	Limited          // The client's quota is used up.
	Late             // The epoch takes no more: it is over, or all its batches are full.
)

// Submission is one opened envelope that waits to be stored.
type Submission struct {
	ID      EpochID
	Size    uint64 // submissions in a batch
	Quota   uint64 // submissions of a client
	Batches uint64 // the most batches of the epoch; 0 for no bound
	Client  Short
	Tag     Short
	Receipt Short       // ties the envelope to the client
	Lanes   onion.Lanes // slots for the next hop, all of one size
	Verdict Verdict     // set by Commit
}

// OpenBatch is a batch that still takes, or waits to be sealed with, submissions.
type OpenBatch struct {
	BatchID
	Submissions uint64
}

// Made is a batch that was made, but for the pieces that were [Put].
type Made struct {
	Manifest []byte
	Head     []byte // what stands before the pieces
	Withheld bool   // Mix: the pieces are not part of it
}

// Put takes bytes of a batch, which stand behind those that it has taken before.
type Put func(piece []byte) error

// Row is one slot of an open batch.
type Row struct {
	Lane int
	Slot []byte
}

// Sealed is a batch as it was made, for good.
type Sealed struct {
	Manifest  []byte
	Content   *contentReader // onion.Batch; nil once confirmed
	Confirmed bool
}

// Reason says what was wrong with another party's batch.
type Reason string

// Finding is something an operator should know about another party's batches, of one epoch.
type Finding struct {
	ID      EpochID
	Seq     uint64 // the first number that it was found of
	Reason  Reason
	Further uint64 // how many numbers besides
	Latest  uint64 // the last number
}

// Tally is how many reports or slots of an epoch were refused for a reason.
type Tally struct {
	ID      EpochID
	Reason  string
	Refused uint64
}

// Progress is how far an epoch has come.
type Progress struct {
	ID    EpochID
	State State
	Next  uint64      // number of the batch that will be begun next
	Open  []OpenBatch // begun and not sealed, by number
	Held  []uint64    // sealed and not confirmed by the next hop, by number
}

// What a store answers where a batch is not as its caller thought.
var (
	ErrNoBatch = errors.New("no such batch")                   // It does not exist (yet).
	ErrMade    = errors.New("the batch has been made already") // By another process, where Mix would.
	ErrOver    = errors.New("the epoch is over")               // Mix: it has no further batch.
)

// SealFunc makes a batch of the rows of so many submissions, which come in any order, once.
type SealFunc func(submissions uint64, rows iter.Seq2[Row, error], put Put) (*Made, error)

// MixFunc makes a batch of the slots whose tags are fresh.
type MixFunc func(fresh *Fresh, put Put) (*Made, error)

// Store is a store that a relay serves from, or that is only looked at: see [Read]. Its methods stand in parts by what
// they are about, each in a file of its own; who needs a part declares an interface of the methods that it calls.
//
// Every method but Seal, Mix and Sweep, which end in one, is one durable transaction: when it returns nil, what it did
// survives the machine; when it does not, it was not done, but where the store broke off while committing, and then
// doing it again does no harm. All are safe for concurrent use, by several processes where the engine says so, and keep
// neither times nor an order of arrival where they can avoid it.
type Store struct {
	*database   // Close, Name, OtherSecret, Probe, Scrub, SetBack, Version
	*reports    // Commit
	*batches    // Seal, Mix, Batch, Confirm, Witness and what they leave
	*epochs     // Progress, Advance, Complete, End, EndAll
	*notes      // Note and Findings, Tally and Tallies
	*nonces     // Fresh, ForgetNonces
	*reconciler // Follow, Behind
	*members    // Joining, Joins
}

// newStore returns the store in a database.
func newStore(d *database) *Store {
	d.reserve = noReserve{}
	s := &Store{
		database:   d,
		reports:    &reports{d},
		epochs:     &epochs{database: d},
		notes:      &notes{d},
		nonces:     &nonces{database: d},
		reconciler: &reconciler{database: d},
		members:    &members{database: d},
	}
	s.batches = &batches{d, s.reconciler, s.members}
	s.reconciler.epochs, s.reconciler.members = s.epochs, s.members
	s.epochs.members = s.members
	s.members.reconciler = s.reconciler
	d.rollbackLatch.tell = func(ctx context.Context) { _ = s.members.announceRollback(ctx) } // where that fails, the next Follow does it
	return s
}

// Check is an error unless description is of a store: "sqlite:PATH" or a PostgreSQL URL.
func Check(description string) error {
	path, ok := strings.CutPrefix(description, service.SchemeSQLite)
	if ok && path != "" || isPostgres(description) {
		return nil
	}
	start := fmt.Sprintf("%.10q", description) // the rest may hold a password
	return invalid.Field("store", start, "sqlite:PATH or postgres://…")
}

// isPostgres says whether a store's description is a PostgreSQL URL.
func isPostgres(description string) bool {
	return strings.HasPrefix(description, "postgres://") || strings.HasPrefix(description, "postgresql://")
}

// Open opens the store of a description that passes [Check], and creates it where there is none, for a process that
// serves from it. The store and the vault use its reserve from then on.
func Open(description string, v *Vault, p Process) (s *Store, err error) {
	if isPostgres(description) {
		s, err = openPostgres(description, v)
	} else {
		s, err = openSQLite(strings.TrimPrefix(description, service.SchemeSQLite), v)
	}
	if err == nil {
		p.attach(s, v)
	}
	return s, err
}

// errNoStore is returned where there is no store yet.
var errNoStore = errors.New("there is no store yet")

// Read opens a store to look at it, and changes nothing. One that has not been made yet is empty. It cannot return the
// bytes of a batch.
func Read(description string) (s *Store, err error) {
	if isPostgres(description) {
		s, err = readPostgres(description)
	} else {
		s, err = readSQLite(strings.TrimPrefix(description, service.SchemeSQLite))
	}
	if errors.Is(err, errNoStore) {
		return emptySQLite()
	}
	return s, err
}
