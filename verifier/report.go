package verifier

import (
	"encoding/json"
	"math"
	"time"

	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/task"
)

// Confidence is the confidence of each printed interval by itself, and of each band as a whole.
const Confidence = 0.95

// Values is the answer to a query. In JSON it is a number if it has one entry, an array if it has several, and null if
// it has none.
type Values []float64

// MarshalJSON implements [json.Marshaler].
func (v Values) MarshalJSON() ([]byte, error) {
	if len(v) == 1 {
		return json.Marshal(v[0])
	}
	return json.Marshal([]float64(v))
}

// interval is an interval from the first number to the second. One that contains every possible answer says nothing. It
// is replaced by one over all numbers, which is none: null in JSON.
type interval [2]float64

// IsNone reports whether there is no interval.
func (i interval) IsNone() bool { return math.IsInf(i[0], -1) && math.IsInf(i[1], 1) }

// MarshalJSON implements [json.Marshaler].
func (i interval) MarshalJSON() ([]byte, error) {
	if i.IsNone() {
		return []byte("null"), nil
	}
	return json.Marshal([2]float64(i))
}

// within returns the interval, or none if it contains all of the possible answers from lo to hi.
func (i interval) within(lo, hi float64) interval {
	if i[0] <= lo && hi <= i[1] {
		return noInterval()
	}
	return i
}

// noInterval returns the interval that is none.
func noInterval() interval { return interval{math.Inf(-1), math.Inf(1)} }

// Intervals has an interval for each entry. In JSON it is [lo, hi] for one entry, else an array of them.
type Intervals []interval

// MarshalJSON implements [json.Marshaler].
func (i Intervals) MarshalJSON() ([]byte, error) {
	if len(i) == 1 {
		return json.Marshal(i[0])
	}
	return json.Marshal([]interval(i))
}

// EpochReport is one epoch's cost and answer: a row of the [Ledger].
type EpochReport struct {
	Epoch         uint64    `json:"epoch"`
	Start         time.Time `json:"start"`   // UTC.
	Epsilon       *float64  `json:"epsilon"` // Null if no bound holds, for over-exposed clients.
	Spent         *float64  `json:"spent"`   // Bounds the ε of this and all earlier epochs; null as above.
	Delta         float64   `json:"delta"`
	Users         uint64    `json:"users"`
	Batches       uint64    `json:"batches"`
	HonestBatches uint64    `json:"honest_batches"` // Batches that may have n_min honest clients.
	OverExposed   uint64    `json:"over_exposed"`   // Submissions in batches that arrived although too small.
	Answer
	Distribution *Distribution `json:"distribution,omitempty"` // Only for a histogram over a range.
}

// Ledger composes the costs of all epochs, for a client who reports in each epoch. The batches of one epoch hold
// different clients, so their costs do not add up.
type Ledger struct {
	Epsilon     *float64      `json:"epsilon"` // Null if the ε of an epoch is null.
	Delta       float64       `json:"delta"`
	Composition string        `json:"composition"`
	Epochs      []EpochReport `json:"epochs"`

	// Published is the cost of all published epochs; nil if the verifier charges nothing.
	Published *ledger.Cost        `json:"published,omitempty"`
	Withheld  []uint64            `json:"withheld,omitempty"` // Epochs without a result because the budget is too small.
	Persons   *ledger.PersonCosts `json:"persons,omitempty"`  // Nil before the first epoch, and if no finite ε holds.
}

// Report is the result of an analysis.
type Report struct {
	Task     string       `json:"task"`
	Name     string       `json:"name"`
	Query    task.Query   `json:"query"`
	Protocol string       `json:"protocol"`
	Padding  task.Padding `json:"padding"`

	Measure    string   `json:"measure"`          // The estimated quantity.
	Values     string   `json:"values"`           // The values that a client may have; empty for a count.
	Entry      string   `json:"entry,omitempty"`  // Name of an entry of the answer; empty for a number.
	Labels     []string `json:"labels,omitempty"` // Names of the entries.
	From       Values   `json:"from,omitempty"`   // Lower edge of each bin of a histogram over a range.
	To         Values   `json:"to,omitempty"`     // Upper edge of each bin.
	BatchSize  uint64   `json:"batch_size"`       // Submissions that make a batch full.
	TaskEpochs uint64   `json:"task_epochs"`      // Number of the task's epochs.

	Cap     string   `json:"cap,omitempty"`     // R/W: at most R reports of a browser in any W epochs.
	Pace    string   `json:"pace,omitempty"`    // r/w: at most r in each w epochs, from a random one on.
	Counted *float64 `json:"counted,omitempty"` // Share of the epochs of a visitor who comes in each; with a cap.

	// Reports of another task that counts visits, in the epochs of this one's, and this one's reports in them.
	Visits        uint64 `json:"visits,omitempty"`
	CountedVisits uint64 `json:"counted_visits,omitempty"`

	Users         uint64 `json:"users"` // Submissions in released batches that are not a cover alone.
	Batches       uint64 `json:"batches"`
	HonestBatches uint64 `json:"honest_batches"` // Batches that may have n_min honest clients.
	Hops          int    `json:"hops"`
	Slots         uint64 `json:"slots"`
	Guarantee
	Answer
	Distribution  *Distribution     `json:"distribution,omitempty"` // Only for a histogram over a range.
	Texts         *Texts            `json:"texts,omitempty"`        // Only for a task for strings.
	MessagesSent  uint64            `json:"messages_sent"`
	CoverMessages uint64            `json:"cover_messages"`
	Verified      uint64            `json:"verified"`
	Rejected      uint64            `json:"rejected"`
	Withheld      uint64            `json:"withheld"`
	ByHop         []HopCounts       `json:"by_hop"`
	MissingByHop  []MissingAt       `json:"missing_by_hop"`
	OverExposed   uint64            `json:"over_exposed"` // Submissions in batches that arrived although too small.
	Findings      []finding.Finding `json:"findings"`
	Verdict       string            `json:"verdict"`            // In words: whether everything adds up.
	DryRun        bool              `json:"dry_run,omitempty"`  // If set, nothing was charged and there is no answer.
	Progress      *Progress         `json:"progress,omitempty"` // Only if the verifier pulls batches.
	Ledger        Ledger            `json:"ledger"`

	// Asked is the task. Packages that show the report use it.
	Asked *task.Task `json:"-"`
}

// MissingAt is the number of messages of released batches that were lost at a hop.
type MissingAt struct {
	Hop      string `json:"hop"` // "relay 1" (where clients submit), "relay 2", …, "verifier".
	Messages uint64 `json:"messages"`
}
