// Package store keeps a relay's durable state in SQLite or PostgreSQL: the slots of open batches, replay sets,
// submission counts per client, sealed batches, and each epoch's state.
//
// A relay opens a [Store] with [Open] and serves from it. Commands such as `relay status` open one with [Read], also
// while a relay runs. Every row about a client is encrypted or hashed under a key of the [Vault], a file outside the
// store. The vault destroys each key as soon as its data is no longer needed. Deleted rows that remain on a disk, in a
// log or in a backup are then indistinguishable from random bytes.
//
// Guarantee: a method that returned nil has committed its work durably, as one transaction. The store neither opens
// ciphertexts nor permutes batches. The relay does so in the functions that it passes to Seal and Mix.
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

// EpochID names one epoch of one task. Submissions, replay sets and batches belong to exactly one epoch.
type EpochID struct {
	Task  task.ID
	Epoch uint64
}

// compare orders epochs. Transactions lock epoch rows in this order.
func (id EpochID) compare(other EpochID) int {
	return cmp.Or(bytes.Compare(id.Task[:], other.Task[:]), cmp.Compare(id.Epoch, other.Epoch))
}

// Batch returns the ID of the epoch's batch seq.
func (id EpochID) Batch(seq uint64) BatchID { return BatchID{id, seq} }

// BatchID names one batch of an epoch. The batch need not exist yet.
type BatchID struct {
	EpochID
	Seq uint64
}

// Short is a keyed hash cut to 64 bits: the name of a tag or a client, or a receipt. Nobody without the key can compute
// one, so false matches occur by chance only. A false match refuses a report or drops a slot: among n entries of an
// epoch, with probability n/2^64 for each.
type Short [8]byte

// State is the state of an epoch. It only grows.
type State int

// The states of an epoch, in order.
const (
	StateOpen     State = iota // Accepts submissions or batches.
	StateClosed                // First relay: accepts no more submissions; the relay seals the rest.
	StateComplete              // Has no further batch.
	StateErased                // Replay set, client rows and keys are deleted.
	StateExpired               // Batches, manifests and findings are deleted too.
	StateEnded                 // As expired, at any time: the operator ended it after a state rollback.
)

// String returns the state's name in `relay status`.
func (s State) String() string {
	return [...]string{"open", "closed", "complete", "erased", "expired", "ended"}[s]
}

// Verdict is the store's decision about a submission.
type Verdict int

// The verdicts. The relay acknowledges Accepted and Repeated submissions.
const (
	Accepted Verdict = iota
	Repeated         // The same client has sent the same envelope before.
	Replayed         // Another client has sent the envelope, or its tag.
	Limited          // The client has used up its quota.
	Late             // The epoch is over, or all its batches are full.
)

// Submission is one opened envelope that waits to be stored.
type Submission struct {
	ID      EpochID
	Size    uint64 // submissions per batch
	Quota   uint64 // submissions per client
	Batches uint64 // most batches per epoch; 0 for no limit
	Client  Short
	Tag     Short
	Receipt Short       // ties the envelope to the client
	Lanes   onion.Lanes // slots for the next hop, all of one size
	Verdict Verdict     // set by Commit
}

// OpenBatch is a batch that accepts submissions or waits to be sealed.
type OpenBatch struct {
	BatchID
	Submissions uint64
}

// Made is the result of a SealFunc or MixFunc: a batch without the pieces that it passed to [Put].
type Made struct {
	Manifest []byte
	Head     []byte // the batch's bytes before the pieces
	Withheld bool   // Mix: the batch does not contain the pieces
}

// Put appends bytes to a batch.
type Put func(piece []byte) error

// Row is one slot of an open batch.
type Row struct {
	Lane int
	Slot []byte
}

// Sealed is a batch that no longer changes.
type Sealed struct {
	Manifest  []byte
	Content   *contentReader // onion.Batch; nil once confirmed
	Confirmed bool
}

// Reason names what was wrong with another party's batch.
type Reason string

// Finding tells an operator what was wrong with another party's batches in one epoch.
type Finding struct {
	ID      EpochID
	Seq     uint64 // lowest batch number with this finding
	Reason  Reason
	Further uint64 // count of further batch numbers
	Latest  uint64 // highest batch number
}

// Tally is how many reports or slots of an epoch were refused for one reason.
type Tally struct {
	ID      EpochID
	Reason  string
	Refused uint64
}

// Progress is the state of an epoch and of its batches.
type Progress struct {
	ID    EpochID
	State State
	Next  uint64      // number of the batch that begins next
	Open  []OpenBatch // begun and not sealed, by number
	Held  []uint64    // sealed and not confirmed by the next hop, by number
}

// Errors for a batch that is not in the state that its caller expected.
var (
	ErrNoBatch = errors.New("no such batch")                   // It does not exist (yet).
	ErrMade    = errors.New("the batch has been made already") // Mix: another process made it.
	ErrOver    = errors.New("the epoch is over")               // Mix: the epoch has no further batch.
)

// SealFunc makes a batch from the rows of n submissions. rows yields them once, in any order.
type SealFunc func(submissions uint64, rows iter.Seq2[Row, error], put Put) (*Made, error)

// MixFunc makes a batch from the slots whose tags are fresh.
type MixFunc func(fresh *Fresh, put Put) (*Made, error)

// Store is a relay's store, or a read-only view of one: see [Read]. It embeds one part per subject, each in its own
// file. A caller that needs a part declares an interface of the methods that it calls.
//
// Each method is one durable transaction, except Seal, Mix and Sweep, which end in one. A method that returns nil has
// done its work durably. A method that returns an error has done nothing, unless the store failed during the commit;
// repeating the call is then harmless. All methods are safe for concurrent use, and by several processes where the
// engine allows them. They store neither times nor the order of arrival where they can avoid it.
type Store struct {
	*database   // Close, Name, OtherSecret, Probe, Scrub, StateRollback, Version
	*reports    // Commit
	*batches    // Seal, Mix, Batch, Confirm, RecordManifest, Sweep
	*epochs     // Progress, Advance, Complete, End, EndAll
	*notes      // Note and Findings, Tally and Tallies
	*nonces     // Fresh, ForgetNonces
	*reconciler // Reconcile, FindRollback
	*members    // Joining, Joins
}

// newStore returns a store over a database.
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
	// If announcing fails, the next Reconcile does it.
	d.rollbackLatch.announce = func(ctx context.Context) { _ = s.members.announceRollback(ctx) }
	return s
}

// Check returns an error unless description names a store: "sqlite:PATH" or a PostgreSQL URL.
func Check(description string) error {
	path, ok := strings.CutPrefix(description, service.SchemeSQLite)
	if ok && path != "" || isPostgres(description) {
		return nil
	}
	start := fmt.Sprintf("%.10q", description) // the rest may hold a password
	return invalid.Field("store", start, "sqlite:PATH or postgres://…")
}

// isPostgres says whether description is a PostgreSQL URL.
func isPostgres(description string) bool {
	return strings.HasPrefix(description, "postgres://") || strings.HasPrefix(description, "postgresql://")
}

// Open opens the store that description names, and creates it where there is none. description must pass [Check]. The
// caller serves from the store. The store and the vault use p's reserve from then on.
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

// errNoStore says that the store does not exist yet.
var errNoStore = errors.New("there is no store yet")

// Read opens a store read-only. A store that does not exist yet reads as empty. Read cannot return the bytes of a
// batch.
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
