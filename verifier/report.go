package verifier

import (
	"encoding/json"
	"time"

	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/wire/task"
)

// Confidence is the confidence of every printed interval, and of every band as a whole.
const Confidence = 0.95

// Values is the answer to a query in JSON: a number where it has one entry, else an array; null
// where there is none.
type Values []float64

// MarshalJSON implements [json.Marshaler].
func (v Values) MarshalJSON() ([]byte, error) {
	if len(v) == 1 {
		return json.Marshal(v[0])
	}
	return json.Marshal([]float64(v))
}

// Intervals is [lo, hi], or an array of them.
type Intervals [][2]float64

// MarshalJSON implements [json.Marshaler].
func (i Intervals) MarshalJSON() ([]byte, error) {
	if len(i) == 1 {
		return json.Marshal(i[0])
	}
	return json.Marshal([][2]float64(i))
}

// EpochReport is one epoch's line of the ledger: what it cost and what it gave.
type EpochReport struct {
	Epoch       uint64    `json:"epoch"`
	Start       time.Time `json:"start"`   // UTC.
	Epsilon     *float64  `json:"epsilon"` // Null: nothing bounds what the over-exposed have lost.
	Spent       *float64  `json:"spent"`   // ε of this epoch and those before, at most; null as above.
	Delta       float64   `json:"delta"`
	Users       uint64    `json:"users"`
	Batches     uint64    `json:"batches"`
	Crowded     uint64    `json:"crowd_batches"` // Of them, those in which n_min clients can be honest.
	OverExposed uint64    `json:"over_exposed"`  // Submissions of batches that came though too small.
	Answer
	Distribution *Distribution `json:"distribution,omitempty"` // Of a histogram over a range.
}

// Ledger composes what the epochs cost a client who reports in each of them. Batches of one epoch
// hold different clients and do not add up.
type Ledger struct {
	Epsilon     *float64      `json:"epsilon"` // Null where that of an epoch is.
	Delta       float64       `json:"delta"`
	Composition string        `json:"composition"`
	Epochs      []EpochReport `json:"epochs"`

	// What all published epochs cost; none where nothing is charged.
	Published *ledger.Cost `json:"published,omitempty"`
	Withheld  []uint64     `json:"withheld,omitempty"` // Epochs without a result here: the budget does not suffice.
}

// Report is what an analysis prints.
type Report struct {
	Task     string       `json:"task"`
	Name     string       `json:"name"`
	Query    task.Query   `json:"query"`
	Protocol string       `json:"protocol"`
	Padding  task.Padding `json:"padding"`

	Measure    string   `json:"measure"`          // What is estimated.
	Values     string   `json:"values"`           // Which values a client may have; empty of a count.
	Entry      string   `json:"entry,omitempty"`  // What an entry of the answer is; none of a number.
	Labels     []string `json:"labels,omitempty"` // Of the entries.
	BatchSize  uint64   `json:"batch_size"`       // Submissions that fill a batch.
	TaskEpochs uint64   `json:"task_epochs"`      // How many the task has.

	Users   uint64 `json:"users"` // Submissions in released batches.
	Batches uint64 `json:"batches"`
	Crowded uint64 `json:"crowd_batches"` // Of them, those in which n_min clients can be honest.
	Hops    int    `json:"hops"`
	Slots   uint64 `json:"slots"`
	Guarantee
	Answer
	Distribution  *Distribution     `json:"distribution,omitempty"` // Of a histogram over a range.
	Texts         *Texts            `json:"texts,omitempty"`        // Of a task for strings.
	MessagesSent  uint64            `json:"messages_sent"`
	CoverMessages uint64            `json:"cover_messages"`
	Verified      uint64            `json:"verified"`
	Rejected      uint64            `json:"rejected"`
	Withheld      uint64            `json:"withheld"`
	ByHop         []HopCounts       `json:"by_hop"`
	MissingByHop  []MissingAt       `json:"missing_by_hop"`
	OverExposed   uint64            `json:"over_exposed"` // Submissions of batches that came though too small.
	Findings      []finding.Finding `json:"findings"`
	Verdict       string            `json:"verdict"`            // Whether it all adds up, in words.
	DryRun        bool              `json:"dry_run,omitempty"`  // Nothing was charged, and there is no answer.
	Progress      *Progress         `json:"progress,omitempty"` // Of a verifier that pulls; none of files.
	Ledger        Ledger            `json:"ledger"`

	// Asked is the task, for those who show the report.
	Asked *task.Task `json:"-"`
}

// MissingAt is how many messages of released batches were lost at a hop.
type MissingAt struct {
	Hop      string `json:"hop"` // "relay 1", the one clients submit to, and so on; "verifier".
	Messages uint64 `json:"messages"`
}
