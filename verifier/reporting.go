package verifier

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Report returns the estimate over all batches added so far, and charges its epochs. It is cached until something is
// added. The caller must not change anything that the result points to.
func (v *Verifier) Report() (*Report, error) { return v.made(false) }

// Overview returns what [Verifier.Report] returns, except answers and all else that depends on clients' answers. So it
// charges nothing, and an operator may ask for it at any time. It is cached until something is added or charged.
func (v *Verifier) Overview() (*Report, error) { return v.made(true) }

func (v *Verifier) made(dry bool) (*Report, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	kept := &v.cached.report
	if dry {
		kept = &v.cached.overview
		charged, err := v.charger.charged()
		if err != nil {
			return nil, err
		}
		if charged != v.cached.charged {
			v.cached.overview, v.cached.charged = nil, charged
		}
	}
	if *kept == nil {
		made, err := v.report(dry)
		if err != nil {
			return nil, err
		}
		*kept = made
	}
	r := **kept
	if err := v.charger.showPublished(&r); err != nil {
		return nil, err
	}
	if err := v.costs.setPersons(&r); err != nil {
		return nil, err
	}
	if v.visits != nil {
		visits, err := v.visits()
		if err != nil {
			return nil, err
		}
		r.setVisits(visits)
	}
	if v.progress != nil {
		now := v.progress()
		r.Progress = &now
	}
	r.Verdict = r.verdict()
	return &r, nil
}

// Total returns the sum of all batches added so far.
func (v *Verifier) Total() (protocols.Aggregate, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	total := v.mechanism.Aggregate()
	for _, number := range v.epochs.sorted() {
		e := v.epochs[number]
		if err := v.adder.addUp(e); err != nil {
			return nil, err
		}
		if err := total.Merge(e.total.aggregate); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// report computes a report without the parts that change with time. A dry run charges nothing, and leaves out what
// depends on clients' answers. The caller holds v.mu.
func (v *Verifier) report(dry bool) (*Report, error) {
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
	if e := t.Epochs; !e.Cap.IsZero() {
		of := e.Cap
		r.Cap = of.String()
		if !e.Pace.IsZero() {
			of = e.Pace
			r.Pace = of.String()
		}
		counted := float64(of.Reports) / float64(of.Window)
		r.Counted = &counted
	}
	if v.edges != nil {
		r.From, r.To = v.edges[:len(v.edges)-1], v.edges[1:]
	}
	total, counts, missing := v.mechanism.Aggregate(), Counts{}, make([]uint64, r.Hops+1)
	r.ByHop = newHops(r.Hops)
	found, spent := v.findingsWithoutSlots(), spending{costs: v.costs}
	if err := v.charger.charge(v.epochs.reached(), r, dry); err != nil {
		return nil, err
	}
	for _, number := range v.epochs.sorted() {
		e := v.epochs[number]
		if err := v.adder.addUp(e); err != nil {
			return nil, err
		}
		if !r.DryRun && slices.Contains(r.Ledger.Withheld, number) {
			if err := r.Ledger.add(v.epochReport(number, e.total, v.override).withheld(), &spent); err != nil {
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
			if err := r.Ledger.add(v.epochReport(number, e.total, v.override), &spent); err != nil {
				return nil, err
			}
		}
	}
	if r.Ledger.Epsilon, r.Ledger.Delta, err = spent.total(spent.copies()); err != nil {
		return nil, err
	}
	r.Answer = answer(t.Task, v.mechanism, total, counts, v.override, 0)
	r.Distribution = distribution(t.Task, v.mechanism, r.Answer, total, counts.loss(), 0)
	if !r.DryRun {
		r.Texts = findTexts(r.Answer, v.mechanism, total)
	}
	r.MissingByHop, r.OverExposed = missingAt(missing), counts.OverExposed
	r.Users, r.Batches, r.HonestBatches = counts.Users, counts.Batches, counts.HonestBatches
	r.MessagesSent, r.CoverMessages = counts.Sent, counts.Covers
	r.Verified, r.Rejected, r.Withheld = counts.Verified, counts.Rejected, counts.Withheld
	r.Findings = found.list()
	if r.DryRun {
		r.removeAnswers()
	}
	return r, nil
}

// epochReport returns an epoch's row of the ledger. The claim does not hold for clients whose batch arrived although it
// was too small. If there are any, the row states ε₀, or null if ε₀ is infinite.
func (s subject) epochReport(number uint64, e *total, override bool) EpochReport {
	t, c := s.open.Task, e.counts
	a := answer(t, s.mechanism, e.aggregate, c, override, t.Epochs.Count)
	r := EpochReport{Epoch: number, Start: epochStart(t, number), Delta: t.Claim.Delta.Value(), Users: c.Users,
		Batches: c.Batches, HonestBatches: c.HonestBatches, OverExposed: c.OverExposed, Answer: a,
		Distribution: distribution(t, s.mechanism, a, e.aggregate, c.loss(), t.Epochs.Count)}
	epsilon := t.Claim.Epsilon.Value()
	if c.OverExposed > 0 {
		epsilon = max(epsilon, s.mechanism.Epsilon0())
	}
	if !math.IsInf(epsilon, 1) {
		r.Epsilon = &epsilon
	}
	return r
}

func (l *Ledger) add(e EpochReport, spent *spending) (err error) {
	spent.add(&e)
	if e.Spent, err = spent.boundSoFar(); err != nil {
		return err
	}
	l.Epochs = append(l.Epochs, e)
	return nil
}

// missingAt names the hops of lost messages. The last hop is the verifier.
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

func epochStart(t *task.Task, epoch uint64) time.Time {
	return time.Unix(int64(t.Epochs.Begin(epoch)), 0).UTC()
}
