// Package store keeps what a relay must not lose, in SQLite or PostgreSQL: the slots of open batches,
// replay sets, counts per client, sealed batches, and how far each epoch has come.
//
// A [Store] is what a relay serves from; a [Reader] is the part of it that only looks, also beside a
// relay that runs. Every row about a client is encrypted or hashed under a key of the [Vault], a file
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
	Content   *Content // onion.Batch; nil once confirmed
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

// Reader is a store that is only looked at.
type Reader interface {
	// Name returns the name that the store was given when it was made, which no other has: none
	// where it has not been made yet.
	Name(ctx context.Context) (string, error)

	// OtherSecret says whether the store was made with another secret than a vault's.
	OtherSecret(ctx context.Context, v *Vault) (bool, error)

	// Progress lists the epochs that have seen anything, by id.
	Progress(ctx context.Context) ([]Progress, error)

	// Findings lists what Note has kept.
	Findings(ctx context.Context) ([]Finding, error)

	// Tallies lists the counts that Tally has kept.
	Tallies(ctx context.Context) ([]Tally, error)

	// Equivocations lists the numbers of which Witness has seen two manifests.
	Equivocations(ctx context.Context) ([]Equivocation, error)

	// Behind compares the store with the marks in the key files, and returns what was set back, if
	// anything.
	Behind(ctx context.Context, v *Vault) (*SetBack, error)

	// Joins is what [Store.Joining] says of the process with a vault, but that it takes all members for running.
	Joins(ctx context.Context, v *Vault) (Joining, error)

	Close() error
}

// SealFunc makes a batch of the rows of so many submissions, which come in any order, once.
type SealFunc func(submissions uint64, rows iter.Seq2[Row, error], put Put) (*Made, error)

// MixFunc makes a batch of the slots whose tags are fresh.
type MixFunc func(fresh *Fresh, put Put) (*Made, error)

// Store is a store that a relay serves from. Every method but Seal, Mix and Sweep, which end in one, is one durable
// transaction: when it returns nil, what it did survives the machine; when it does not, it was not done, but where
// the store broke off while committing, and then doing it again does no harm. Implementations must be safe for
// concurrent use, by several processes if they say so, and must keep neither times nor an order of arrival where they
// can avoid it.
type Store interface {
	Reader

	// Commit decides on each submission and stores the slots of the accepted ones. It says whether
	// a batch became full.
	Commit(ctx context.Context, group []*Submission) (full bool, err error)

	// Seal replaces the rows of an open batch that takes no more by the batch that build makes of them, or returns
	// ErrNoBatch where another process has done so. Meanwhile others may write.
	Seal(ctx context.Context, b BatchID, build SealFunc) error

	// Mix stores batch seq, which must be the next of the epoch, else ErrMade, and the epoch not
	// complete, else ErrOver. fresh tells build whose tags are not in the replay set, and which of equal ones
	// is taken; all of them are in the set afterwards. Where build fails, they are fresh for the same number
	// once more. tags is the store's then. Meanwhile others may write.
	Mix(ctx context.Context, b BatchID, tags []Short, build MixFunc) error

	// Next returns the number of the batch that Mix would take.
	Next(ctx context.Context, id EpochID) (uint64, error)

	// Destroyed returns how many of the batches of Mix were withheld.
	Destroyed(ctx context.Context, id EpochID) (uint64, error)

	// SealedBelow says whether all numbers below seq were begun, and none of them is open.
	SealedBelow(ctx context.Context, b BatchID) (bool, error)

	// Batch returns a sealed batch, or ErrNoBatch.
	Batch(ctx context.Context, b BatchID) (*Sealed, error)

	// Manifest returns a sealed batch's manifest and whether the batch is confirmed,
	// without its ciphertexts, or ErrNoBatch.
	Manifest(ctx context.Context, b BatchID) (manifest []byte, confirmed bool, err error)

	// Confirm deletes the ciphertexts of a sealed batch, which the next hop has. Confirming twice
	// is no error.
	Confirm(ctx context.Context, b BatchID) error

	// Witness keeps the manifest that the relay before has signed for a number, before its first slot is
	// read. It is ErrEquivocation where another is kept already; both are, then. Of a batch that Mix has made it is
	// ErrMade: that has the manifest in its own, and it is kept nowhere else.
	Witness(ctx context.Context, b BatchID, s *onion.SignedManifest) error

	// Witnessed returns the number after the highest one of which there is a manifest, 0 where there is none.
	Witnessed(ctx context.Context, id EpochID) (uint64, error)

	// Untold lists the batches of Mix whose source the relay before has not been told to
	// delete, and Told says that it has. What Untold lists is cut in the marks of this process.
	Untold(ctx context.Context, id EpochID) ([]uint64, error)
	Told(ctx context.Context, b BatchID) error

	// Complete raises the state of an epoch to StateComplete and stores its signed end, unless it has
	// come that far already.
	Complete(ctx context.Context, id EpochID, end []byte) error

	// End returns the end that Complete stored, nil where there is none.
	End(ctx context.Context, id EpochID) ([]byte, error)

	// Advance raises the state of an epoch. StateErased deletes its replay set and client rows,
	// StateExpired its batches, confirmed or not, its findings, manifests and tallies.
	Advance(ctx context.Context, id EpochID, to State) error

	// Note keeps what was found of a number, in one row for each reason and epoch, and returns of how many numbers
	// it was found: 0 where it is not new.
	Note(ctx context.Context, b BatchID, why Reason) (times uint64, err error)

	// Tally adds to the counts of what was refused in an epoch, by reason, unless it is expired; doing
	// it again counts again.
	Tally(ctx context.Context, id EpochID, refused map[string]uint64) error

	// Follow is Progress that compares the store with the marks in the key files, and takes note there of
	// what a crash kept out, or another process has made. It must be called before anything else, and again
	// and again. Where something was set back its error is a [SetBack], and from then on that of all
	// methods that change the store or hand out a batch.
	Follow(ctx context.Context) ([]Progress, error)

	// EndAll is the operator's word after a set-back: it deletes all that is kept about epochs, raises them to
	// StateEnded and notes a finding on those that were not expired. Of strange ones, which their tasks do not have,
	// nothing is left. It alone works on a store that was set back, and with it the store goes on.
	EndAll(ctx context.Context, ids, strange []EpochID, why Reason) error

	// Fresh takes note of the nonce of a request that a key has signed, and says whether it is new to all processes
	// that share the store: of the last [KeptNonces] of each key. Where one process has the store, it is always true:
	// that process knows by itself.
	Fresh(ctx context.Context, key task.SignKey, nonce onion.Nonce) (bool, error)

	// ForgetNonces forgets what [Store.Fresh] was told of a key, which no task names any more.
	ForgetNonces(ctx context.Context, key task.SignKey) error

	// SetBack returns what has been found to be set back, nil for nothing.
	SetBack() *SetBack

	// Version returns a number that is another one when the store may be another than it was: 0, for good, where other
	// processes change it too.
	Version() uint64

	// Joining says why this process, among those that share the store, hands out nothing; "" where it does.
	Joining() Joining

	// Sweep deletes, bit by bit, what is left of batches that were made or confirmed.
	Sweep(ctx context.Context) error

	// Probe writes 1 MiB, and deletes it: it fails where Commit would for want of room.
	Probe(ctx context.Context) error

	// Scrub removes what deleted rows leave behind in logs, as far as the store can.
	Scrub(ctx context.Context) error
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

// Open opens the store of a description that passes [Check], and creates it where there is none.
func Open(description string, v *Vault) (Store, error) {
	if isPostgres(description) {
		return openPostgres(description, v)
	}
	return openSQLite(strings.TrimPrefix(description, service.SchemeSQLite), v)
}

// errNoStore is returned where there is no store yet.
var errNoStore = errors.New("there is no store yet")

// Read opens a store to look at it, and changes nothing. One that has not been made yet is empty.
func Read(description string) (Reader, error) {
	r, err := readDatabase(description)
	if errors.Is(err, errNoStore) {
		return empty{}, nil
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// readDatabase opens a database to look at it, or returns errNoStore. It cannot return the bytes of a
// batch.
func readDatabase(description string) (*database, error) {
	if isPostgres(description) {
		return readPostgres(description)
	}
	return readSQLite(strings.TrimPrefix(description, service.SchemeSQLite))
}

// empty is the [Reader] of a store that has not been made yet.
type empty struct{}

func (empty) Name(context.Context) (string, error)         { return "", nil }
func (empty) Progress(context.Context) ([]Progress, error) { return nil, nil }
func (empty) Findings(context.Context) ([]Finding, error)  { return nil, nil }
func (empty) Tallies(context.Context) ([]Tally, error)     { return nil, nil }
func (empty) Close() error                                 { return nil }

func (empty) OtherSecret(context.Context, *Vault) (bool, error) { return false, nil }

func (empty) Joins(context.Context, *Vault) (Joining, error) { return "", nil }

func (empty) Equivocations(context.Context) ([]Equivocation, error) { return nil, nil }

func (empty) Behind(_ context.Context, v *Vault) (*SetBack, error) {
	for _, g := range v.guards() {
		if s := g.State(); s != nil && len(s.Entries) > 0 {
			return &SetBack{g.storeBehind(), "there is no store"}, nil
		}
	}
	return nil, nil
}
