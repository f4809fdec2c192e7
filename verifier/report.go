package verifier

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
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

// Guarantee is what every client was promised.
type Guarantee struct {
	HonestFraction float64  `json:"honest_fraction"`
	NMin           uint64   `json:"n_min"`
	Epsilon        float64  `json:"epsilon"`
	Delta          float64  `json:"delta"`
	LocalEpsilon   *float64 `json:"local_epsilon"` // What remains if every relay colludes; null where nothing does.
	AloneEpsilon   *float64 `json:"alone_epsilon"` // ε′, what remains if no other client is honest; null as above.
	WorstCase      string   `json:"worst_case"`    // Both in words.
	CrowdEpsilon   float64  `json:"crowd_epsilon"` // ε in a batch with n_min honest clients.
	Gamma          *float64 `json:"gamma"`         // Blanket probability, where the protocol has one.
	Rule           string   `json:"rule"`
	Promise        string   `json:"promise"`
	// Assumption is "crowd", n_min honest clients in a batch, or "none": no other client need be honest.
	Assumption string `json:"assumption"`
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

// missingAt names the hops, the last of which is the verifier.
func missingAt(messages []uint64) (out []MissingAt) {
	for hop, n := range messages {
		name := "verifier"
		if hop < len(messages)-1 {
			name = fmt.Sprintf("relay %d", hop+1)
		}
		out = append(out, MissingAt{name, n})
	}
	return out
}

// Report returns the estimate over all batches added so far. It is made once, until something is added; what it
// refers to must not be changed.
func (v *Verifier) Report() (*Report, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.made == nil {
		made, err := v.report()
		if err != nil {
			return nil, err
		}
		v.made = made
	}
	r := *v.made
	if err := v.showPublished(&r); err != nil {
		return nil, err
	}
	if v.progress != nil {
		now := v.progress()
		r.Progress = &now
	}
	r.Verdict = r.verdict()
	return &r, nil
}

// Total returns what all batches added so far say together.
func (v *Verifier) Total() (protocols.Aggregate, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	total := v.mechanism.Aggregate()
	for _, number := range v.sortedEpochs() {
		e := v.epochs[number]
		if err := v.addUp(e); err != nil {
			return nil, err
		}
		if err := total.Merge(e.total.aggregate); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// report makes a report, without what tells of the moment. v.mu is held.
func (v *Verifier) report() (*Report, error) {
	t := v.open
	guarantee, err := describeGuarantee(t.Task, v.mechanism)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Task: t.ID.String(), Name: t.Name, Query: t.Query, Protocol: t.Protocol, Padding: t.Slots.Padding,
		Measure: measure(t.Task), Values: values(t.Task), Entry: EntryName(t.Task), Labels: v.labels,
		BatchSize:  t.Batch.Size,
		TaskEpochs: t.Epochs.Count, Hops: t.VerifierHop(), Slots: t.Slots.PerLane, Guarantee: *guarantee, Asked: t.Task,
		Ledger: Ledger{Composition: "exact", Epochs: []EpochReport{}},
	}
	total, counts, missing := v.mechanism.Aggregate(), Counts{}, make([]uint64, r.Hops+1)
	r.ByHop = newHops(r.Hops)
	found, spent := v.places(), spending{v: v}
	if err := v.charge(v.reachedEpochs(), r); err != nil {
		return nil, err
	}
	for _, number := range v.sortedEpochs() {
		e := v.epochs[number]
		if err := v.addUp(e); err != nil {
			return nil, err
		}
		if !r.DryRun && slices.Contains(r.Ledger.Withheld, number) {
			if err := r.Ledger.add(v.epochReport(number, e.total).withheld(), &spent); err != nil {
				return nil, err
			}
			continue
		}
		if err := total.Merge(e.total.aggregate); err != nil {
			return nil, err
		}
		found.merge(e.total.findings)
		counts.add(e.total.counts)
		for i := range r.ByHop {
			r.ByHop[i].add(e.total.hops[i])
		}
		for hop, n := range e.total.missing {
			missing[hop] += n
		}
		if e.reached() {
			if err := r.Ledger.add(v.epochReport(number, e.total), &spent); err != nil {
				return nil, err
			}
		}
	}
	if r.Ledger.Epsilon, r.Ledger.Delta, err = spent.total(spent.plain); err != nil {
		return nil, err
	}
	r.Answer = answer(t.Task, v.mechanism, total, counts, v.override, 0)
	r.Distribution = distribution(t.Task, r.Answer, total, counts.loss(), 0)
	if !r.DryRun {
		r.Texts = findTexts(r.Answer, total)
	}
	r.MissingByHop, r.OverExposed = missingAt(missing), counts.OverExposed
	r.Users, r.Batches, r.Crowded = counts.Users, counts.Batches, counts.Crowded
	r.MessagesSent, r.CoverMessages = counts.Sent, counts.Covers
	r.Verified, r.Rejected, r.Withheld = counts.Verified, counts.Rejected, counts.Withheld
	r.Findings = found.list()
	if r.DryRun {
		r.keepAnswers()
	}
	return r, nil
}

// Verdicts on a report.
const (
	verdictFaults   = "Not everything added up."
	verdictNothing  = "Nothing has been added yet."
	verdictAway     = "The last relay does not answer: whether all is here is not known."
	verdictLate     = "Epochs are over and their signed ends are late: whether all is here is not known."
	verdictBudget   = "The budget is spent: what came after is withheld."
	verdictUnusable = "Too much is missing for an estimate."
	verdictDropped  = "All batches are here as their relays signed them. Relays dropped slots that they could not " +
		"open or " +
		"had seen before."
	verdictGood = "Everything added up."
)

// verdict says whether it all adds up. That is not said before there was anything to add, nor while
// something may be missing of which nobody here can know.
func (r *Report) verdict() string {
	switch p := r.Progress; {
	case finding.Faults(r.Findings) != nil:
		return verdictFaults
	case len(r.Ledger.Withheld) > 0:
		return verdictBudget
	case r.MessagesSent == 0:
		return verdictNothing
	case p != nil && p.Contact == ContactAway:
		return verdictAway
	case p != nil && len(p.Late) > 0:
		return verdictLate
	case r.Unusable() != "":
		return verdictUnusable
	case len(r.Findings) > 0:
		return verdictDropped
	}
	return verdictGood
}

// epochReport is an epoch's line of the ledger. The claim does not stand for clients whose batch came here
// though it was too small: of their privacy, the ε₀ of a client alone remains, where there is one.
func (v *Verifier) epochReport(number uint64, e *total) EpochReport {
	t, c := v.open.Task, e.counts
	a := answer(t, v.mechanism, e.aggregate, c, v.override, t.Epochs.Count)
	r := EpochReport{Epoch: number, Start: epochStart(t, number), Delta: t.Claim.Delta.Value(), Users: c.Users,
		Batches: c.Batches, Crowded: c.Crowded, OverExposed: c.OverExposed, Answer: a,
		Distribution: distribution(t, a, e.aggregate, c.loss(), t.Epochs.Count)}
	epsilon := t.Claim.Epsilon.Value()
	if c.OverExposed > 0 {
		epsilon = max(epsilon, v.mechanism.Epsilon0())
	}
	if !math.IsInf(epsilon, 1) {
		r.Epsilon = &epsilon
	}
	return r
}

// add adds a further epoch.
func (l *Ledger) add(e EpochReport, spent *spending) (err error) {
	spent.add(&e)
	if e.Spent, err = spent.soFar(); err != nil {
		return err
	}
	l.Epochs = append(l.Epochs, e)
	return nil
}

func describeGuarantee(t *task.Task, m protocols.Mechanism) (*Guarantee, error) {
	promise, err := Promise(t)
	if err != nil {
		return nil, err
	}
	g := &Guarantee{HonestFraction: t.Batch.Honest.Float64(), NMin: t.Batch.Min, Epsilon: t.Claim.Epsilon.Value(),
		Delta: t.Claim.Delta.Value(), Rule: t.Rule, Promise: promise, Assumption: t.Claim.Assumption.String()}
	g.AloneEpsilon, g.LocalEpsilon = Alone(t, m)
	g.WorstCase, g.CrowdEpsilon = WorstCase(t, m), CrowdEpsilon(t, m)
	if gamma, ok := t.Param("gamma"); ok {
		value := gamma.Float64()
		g.Gamma = &value
	}
	return g, nil
}

// NoneHonest says whether the guarantee needs no other client to be honest.
func (g *Guarantee) NoneHonest() bool { return g.Assumption == task.NoneHonest.String() }

// Promise returns a task's guarantee in the words used wherever it is stated.
func Promise(t *task.Task) (string, error) {
	needs, caveat, err := Needs(t)
	text := "(epsilon, delta)-DP by substitution against the verifier and everyone after it, provided " + needs +
		". That a client took part is not protected."
	if caveat != "" {
		text += " " + caveat
	}
	return text, err
}

// Alone returns ε′ and ε₀: what is left of a client if no other client is honest, and if all relays collude with the
// verifier; nil for nothing.
func Alone(t *task.Task, m protocols.Mechanism) (alone, local *float64) {
	if left := m.Epsilon0(); !math.IsInf(left, 1) {
		alone, local = &left, &left
	}
	if t.Claim.Assumption == task.NoneHonest {
		claimed := t.Claim.Epsilon.Value()
		alone = &claimed
	}
	return alone, local
}

// CrowdEpsilon returns the ε of a client in a batch with n_min honest clients: what a task claims for it, or less
// where clients randomize though the claim needs none of them.
func CrowdEpsilon(t *task.Task, m protocols.Mechanism) float64 {
	if crowded, ok := m.(protocols.Crowded); ok {
		return crowded.CrowdEpsilon(t.Batch.Min, t.Claim.Delta.Value())
	}
	return t.Claim.Epsilon.Value()
}

// WithCrowd says what holds beyond the claim, which needs no other client, in a batch with n_min honest ones; empty
// where the claim needs them.
func WithCrowd(t *task.Task, m protocols.Mechanism) string {
	if t.Claim.Assumption != task.NoneHonest {
		return ""
	}
	return "With n_min = " + strconv.FormatUint(t.Batch.Min, 10) + " honest clients in a batch, epsilon is " +
		decimal.Up(CrowdEpsilon(t, m)*(1-1e-9), 3) + "."
}

// WorstCase says what remains of one client if no other client is honest, and if all relays collude: in the
// words of the SDK's explain().
func WorstCase(t *task.Task, m protocols.Mechanism) string {
	left := "nothing is left"
	if local := m.Epsilon0(); !math.IsInf(local, 1) {
		left = "epsilon " + decimal.Up(local*(1-1e-9), 3) + " is left"
	}
	alone := left
	if t.Claim.Assumption == task.NoneHonest {
		alone = "the promise holds all the same"
	}
	return "If nobody else who reports is honest, " + alone + ". If all relays work with the verifier, " + left + "."
}

// Needs returns what a task's guarantee needs, and what it rests on besides, or "" (docs/proofs/slots.md).
func Needs(t *task.Task) (needs, caveat string, err error) {
	if t.Claim.Assumption == task.NoneHonest {
		return "one relay does not collude: what it adds hides each client, and no other client need be honest",
			exactAnswers(t), nil
	}
	trust, err := registry.Trust(t)
	relay := "a first"
	if trust != protocols.TrustFirst {
		relay = "one"
	}
	if trust == protocols.TrustWhole {
		caveat = wholeClients
	}
	return "at least n_min honest clients' messages reach " + relay + " relay that does not collude", caveat, err
}

// exactAnswers says what the verifier receives where relays add the noise.
func exactAnswers(t *task.Task) string {
	if _, local := t.Param("gamma"); local {
		return "The verifier receives randomized answers, unlinked."
	}
	return "The verifier receives exact answers, unlinked, among dummies."
}

// wholeClients is what the guarantee rests on where the proofs take all messages of n_min clients in one
// batch.
const wholeClients = "Clients send several messages each: those of one client must stay in one batch, and a first " +
	"relay that deviates can part them."

// Unusable says why there is no estimate, or why one is shown all the same; empty where it is usable, and
// before there is anything to use.
func (r *Report) Unusable() string {
	if r.Usable || r.UnusableBecause == noBatch {
		return ""
	}
	out := "Unusable: " + r.UnusableBecause + "."
	if r.Override != "" {
		out += " Override: " + r.Override + "."
	}
	return out
}

// Mood is how the verdict is shown: good, bad, or wait where it is not known yet.
func (r *Report) Mood() string {
	switch {
	case finding.Faults(r.Findings) != nil || r.Unusable() != "":
		return "bad"
	case r.Verdict == verdictGood || r.Verdict == verdictDropped:
		return "good"
	}
	return "wait"
}

func epochStart(t *task.Task, epoch uint64) time.Time {
	return time.Unix(int64(t.Epochs.Start+epoch*t.Epochs.Length), 0).UTC()
}
