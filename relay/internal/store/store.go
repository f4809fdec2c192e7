// Package store keeps a relay's durable state in SQLite or PostgreSQL: the slots of open batches, replay sets, report
// counts per client, sealed batches, and each epoch's state.
//
// A relay opens a [Store] with [Open] and serves from it. Commands such as `relay status` open one with [Read], even
// while a relay runs. Every row about a client is encrypted or hashed under a key of the [Vault], a file outside the
// store. The vault destroys each key as soon as the store no longer needs its data. Without the key, deleted rows that
// remain on a disk, in a log or in a backup are indistinguishable from random bytes.
//
// Guarantee: a method that returned nil has committed its work durably, as one transaction. The relay decrypts slots
// and shuffles batches itself, in the functions that it passes to Seal and Mix.
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

// EpochID names one epoch of one task. Each report, replay set and batch belongs to exactly one epoch.
type EpochID struct {
	Task  task.ID
	Epoch uint64
}

// compare orders epochs by task and number. Transactions lock epoch rows in this order, so that they cannot deadlock.
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

// Short is a keyed hash cut to 64 bits. It stands for a tag (which identifies an envelope or a slot), a client or a
// receipt. Only a holder of the key can compute it, so false matches occur by chance only. If an epoch has n entries,
// each new one matches falsely with probability n/2^64. The store then refuses the report or drops the slot.
type Short [8]byte

// State is the state of an epoch. An epoch never returns to an earlier state.
type State int

// The states of an epoch, in order.
const (
	StateOpen     State = iota // The relay accepts reports or batches.
	StateClosed                // The first relay accepts no more reports and seals those that it has.
	StateComplete              // The relay makes no further batch.
	StateErased                // The relay has deleted the replay set, client rows and keys.
	StateExpired               // The relay has also deleted batches, manifests and findings.
	StateEnded                 // The operator ended it after a state rollback. Its data are deleted.
)

// String returns the name that `relay status` shows for the state.
func (s State) String() string {
	return [...]string{"open", "closed", "complete", "erased", "expired", "ended"}[s]
}

// Verdict is the store's decision about a submission.
type Verdict int

// The verdicts. The relay acknowledges Accepted and Repeated submissions.
const (
	Accepted Verdict = iota
	Repeated         // The same client sent the same envelope before.
	Replayed         // The tag came before, from another client or in another envelope.
	Limited          // The client has used up its quota.
	Late             // The epoch accepts no more reports, or all its batches are full.
)

// Submission is a report that the relay has decrypted and that waits to be stored, or the submission of a set. A set's
// submission is one of the first table: that table's epoch alone decides the verdict.
type Submission struct {
	ID      EpochID
	Size    uint64 // submissions per batch
	Quota   uint64 // submissions per client
	Batches uint64 // maximum number of batches per epoch; 0 for no limit
	Client  Short
	Tag     Short
	Receipt Short       // hash of client and envelope: tells a client's retry from another client's copy
	Lanes   onion.Lanes // slots for the next hop, all of one size
	Others  []TableSlot // of a set's submission: the slots of the other tables
	Verdict Verdict     // set by Commit
}

// TableSlot is the slot of one table, except the first, in a set's submission.
type TableSlot struct {
	ID      EpochID
	Size    uint64 // submissions per batch
	Batches uint64 // maximum number of batches per epoch; 0 for no limit
	Open    bool   // the table has an epoch now; otherwise the store drops the slot
	Slot    []byte
	Stored  bool // set by Commit
}

// OpenBatch is a batch that accepts submissions or waits to be sealed.
type OpenBatch struct {
	BatchID
	Submissions uint64
}

// Made is the result of a SealFunc or MixFunc. The pieces that the function passed to [Put] are the rest of the batch.
type Made struct {
	Manifest []byte
	Head     []byte // first bytes of the batch, before the pieces
	Withheld bool   // for Mix: the relay destroys the batch's slots, so the store drops the pieces
}

// Put appends bytes to a batch.
type Put func(piece []byte) error

// Row is one slot of an open batch.
type Row struct {
	Lane int
	Slot []byte
}

// Sealed is a finished batch, for the next hop.
type Sealed struct {
	Manifest  []byte
	Content   *contentReader // encoded onion.Batch; nil if Confirmed
	Confirmed bool
}

// Reason names the kind of a finding.
type Reason string

// Finding tells the operator that something in an epoch did not add up.
type Finding struct {
	ID      EpochID
	Seq     uint64 // lowest affected batch number
	Reason  Reason
	Further uint64 // how many other batch numbers are affected
	Latest  uint64 // highest affected batch number
}

// Tally counts the reports or slots of an epoch that the relay refused for one reason.
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
	Open  []OpenBatch // batches with reports that are not sealed yet, by number
	Held  []uint64    // sealed batches that the next hop has not confirmed, by number
}

// Errors of methods whose batch is not in the state that they require.
var (
	ErrNoBatch = errors.New("no such batch")                   // There is no such batch, or not yet.
	ErrMade    = errors.New("the batch has been made already") // Mix: another relay process made the batch.
	ErrOver    = errors.New("the epoch is over")               // Mix: the epoch is complete and has no further batch.
)

// SealFunc makes a batch from the slots of a number of submissions. It may iterate over rows once; their order is
// arbitrary.
type SealFunc func(submissions uint64, rows iter.Seq2[Row, error], put Put) (*Made, error)

// MixFunc makes a batch from the slots whose tags no earlier batch had. [Fresh.Take] tells which.
type MixFunc func(fresh *Fresh, put Put) (*Made, error)

// Store is a relay's store, or a read-only view of one: see [Read]. It embeds one part per subject, each in its own
// file. A caller declares an interface with only the methods that it calls.
//
// Each method is one durable transaction; Seal, Mix and Sweep run several, of which the last completes the work. A
// method that returns nil has done its work durably. After an error the store is unchanged, unless the commit itself
// failed; the caller may then safely repeat the call. All methods are safe for concurrent use, with PostgreSQL also by
// several processes. They avoid storing times and the order of arrival.
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
	// If this fails, the next Reconcile announces the rollback to the other processes.
	d.rollbackLatch.announce = func(ctx context.Context) { _ = s.members.announceRollback(ctx) }
	return s
}

// Check returns an error unless description has the form of a store: "sqlite:PATH" or a PostgreSQL URL.
func Check(description string) error {
	path, ok := strings.CutPrefix(description, service.SchemeSQLite)
	if ok && path != "" || isPostgres(description) {
		return nil
	}
	start := fmt.Sprintf("%.10q", description) // the rest may hold a password
	return invalid.Field("store", start, "sqlite:PATH or postgres://…")
}

func isPostgres(description string) bool {
	return strings.HasPrefix(description, "postgres://") || strings.HasPrefix(description, "postgresql://")
}

// Open opens a store for the process that serves from it, or creates it. description must pass [Check]. From then on
// the store and the vault use p's disk reserve.
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

var errNoStore = errors.New("there is no store yet")

// Read opens a store read-only, without its keys, so it cannot return the content of a batch. A store that does not
// exist yet reads as empty.
func Read(description string) (s *Store, err error) {
	if isPostgres(description) {
		s, err = readPostgres(description)
	} else {
		s, err = readSQLite(strings.TrimPrefix(description, service.SchemeSQLite))
	}
	if errors.Is(err, errNoStore) {
		s, err = emptySQLite()
	}
	if err == nil && isPostgres(description) {
		s.server = description
	}
	return s, err
}
