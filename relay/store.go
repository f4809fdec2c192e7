package relay

import (
	"context"
	"errors"
	"strings"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/wire/onion"
)

// epochID names one epoch of one task: submissions, replay sets and batches never leave theirs.
type epochID struct {
	task  [32]byte
	epoch uint64
}

// short is a keyed hash cut to 64 bits: the name of a tag or a client, or a receipt. Nobody outside
// can compute one, so false matches come by chance only. One refuses a report or drops a slot: of
// n entries in an epoch, each does with probability n/2^64.
type short [8]byte

// state is how far an epoch has come. It only grows.
type state int

const (
	stateOpen     state = iota // May get submissions or batches.
	stateClosed                // First relay: no more submissions; what is left is being sealed.
	stateComplete              // There will be no further batch.
	stateErased                // Replay set, client rows and keys are gone too.
	stateExpired               // So are batches, manifests and findings.
)

// verdict is what the store decided about a submission.
type verdict int

const (
	accepted verdict = iota
	repeated         // The same envelope of the same client is stored already.
	replayed         // Another client has sent the envelope, or its tag.
	limited          // The client's quota is used up.
	closed           // The epoch takes no more.
)

// submission is one opened envelope that waits to be stored.
type submission struct {
	id      epochID
	size    uint64 // submissions in a batch
	quota   uint64 // submissions of a client
	client  short
	tag     short
	receipt short      // ties the envelope to the client
	lanes   [][][]byte // slots for the next hop, all of one size
	verdict verdict    // set by commit
}

// openBatch is a batch that still takes, or waits to be sealed with, submissions.
type openBatch struct {
	id          epochID
	seq         uint64
	submissions uint64
}

// row is one slot of an open batch.
type row struct {
	lane int
	slot []byte
}

// sealed is a batch as it was made, for good.
type sealed struct {
	manifest  []byte
	bytes     []byte // onion.Batch; nil once confirmed
	confirmed bool
}

// finding is something an operator should know about another party's batch.
type finding struct {
	id     epochID
	seq    uint64
	reason string
}

// tally is how many reports or slots of an epoch were refused for a reason.
type tally struct {
	id      epochID
	reason  string
	refused uint64
}

// errNoBatch is returned for a batch that does not exist (yet).
var errNoBatch = errors.New("no such batch")

// errCursor is returned by mix where another process has made the batch already.
var errCursor = errors.New("the batch has been made already")

// errOver is returned by mix for an epoch that has no further batch.
var errOver = errors.New("the epoch is over")

// progress is how far an epoch has come.
type progress struct {
	id    epochID
	state state
	next  uint64      // number of the batch that will be begun next
	open  []openBatch // begun and not sealed, by number
	held  []uint64    // sealed and not confirmed by the next hop, by number
}

// store keeps what a relay must not lose: the slots of open batches, replay sets, counts per
// client, sealed batches, and how far each epoch has come. Every method is one durable
// transaction: when it returns nil, what it did survives the machine; when it does not, it was
// not done, but where the store broke off while committing, and then doing it again does no harm.
// Implementations must be safe for concurrent use, by several processes if they say so, and must
// keep neither times nor an order of arrival where they can avoid it.
type store interface {
	// name returns the name that the store was given when it was made: no other has it.
	name(ctx context.Context) (string, error)

	// commit decides on each submission and stores the slots of the accepted ones. It says whether
	// a batch became full.
	commit(ctx context.Context, group []*submission) (full bool, err error)

	// progress lists the epochs that have seen anything, by id.
	progress(ctx context.Context) ([]progress, error)

	// seal replaces the rows of an open batch by the batch that build makes of them, or returns
	// errNoBatch where another process has done so.
	seal(ctx context.Context, id epochID, seq uint64, build func(submissions uint64, rows []row) (*onion.Batch, error)) error

	// mix stores batch seq, which must be the next of the epoch, else errCursor, and the epoch not
	// complete, else errOver. fresh[i] tells build whether tags[i] is in neither the replay set nor
	// before it in tags; all of them are in the set afterwards.
	mix(ctx context.Context, id epochID, seq uint64, tags []short, build func(fresh []bool) (*onion.Batch, error)) error

	// next returns the number of the batch that mix would take.
	next(ctx context.Context, id epochID) (uint64, error)

	// batch returns a sealed batch, or errNoBatch.
	batch(ctx context.Context, id epochID, seq uint64) (*sealed, error)

	// manifest returns a sealed batch's manifest and whether the batch is confirmed,
	// without its ciphertexts, or errNoBatch.
	manifest(ctx context.Context, id epochID, seq uint64) (manifest []byte, confirmed bool, err error)

	// confirm deletes the ciphertexts of a sealed batch, which the next hop has. Confirming twice
	// is no error.
	confirm(ctx context.Context, id epochID, seq uint64) error

	// untold lists the batches of mix whose source the relay before has not been told to
	// delete, and told says that it has.
	untold(ctx context.Context, id epochID) ([]uint64, error)
	told(ctx context.Context, id epochID, seq uint64) error

	// advance raises the state of an epoch. stateErased deletes its replay set and client rows,
	// stateExpired its batches, confirmed or not, its findings and its tallies.
	advance(ctx context.Context, id epochID, to state) error

	// note keeps a finding and says whether it is new; findings lists them.
	note(ctx context.Context, f finding) (fresh bool, err error)
	findings(ctx context.Context) ([]finding, error)

	// tally adds to the counts of what was refused in an epoch, by reason, unless it is expired; doing
	// it again counts again. tallies lists the counts.
	tally(ctx context.Context, id epochID, refused map[string]uint64) error
	tallies(ctx context.Context) ([]tally, error)

	// probe writes 1 MiB, and deletes it: it fails where commit would for want of room.
	probe(ctx context.Context) error

	// scrub removes what deleted rows leave behind in logs, as far as the store can.
	scrub(ctx context.Context) error

	close() error
}

// openStore opens the store that a configuration describes, for slots up to a size, and creates it
// where there is none.
func openStore(description string, slot int, v *vault) (store, error) {
	if isPostgres(description) {
		return openPostgres(description, v)
	}
	return openSQLite(strings.TrimPrefix(description, service.SchemeSQLite), slot, v)
}

// errNoStore is returned where there is no store yet.
var errNoStore = errors.New("there is no store yet")

// readStore opens a store to read from it, or returns errNoStore. It changes nothing, and cannot
// return the bytes of a batch.
func readStore(description string) (store, error) {
	if isPostgres(description) {
		return readPostgres(description)
	}
	return readSQLite(strings.TrimPrefix(description, service.SchemeSQLite))
}

// wantStore says what describes a store.
const wantStore = "sqlite:PATH or postgres://…"
