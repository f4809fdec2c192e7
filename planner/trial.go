package planner

import (
	"cmp"
	"math"
	"runtime"
	"sync"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Outcome compares estimates with the truth over repetitions of a simulation. Slices have the shape of the query's
// answer, in its units.
type Outcome struct {
	Truth             []float64 // Exact answer for the values, after clipping.
	Estimate          []float64 // Mean of the estimates over the repetitions.
	Variance          []float64 // Sample variance of the estimates; nil with fewer than two repetitions.
	VarianceError     []float64 // Standard error of Variance, from the fourth moment; nil if Variance is.
	PredictedVariance []float64 // Exact variance of an estimate for these values.
	// The part of PredictedVariance that comes from sampling, because clients report only some coordinates. nil if they
	// report all.
	SamplingVariance []float64
	RMSE             float64 // Root mean square error over repetitions and entries.
	MessagesPerUser  float64 // Mean number of a client's messages, without covers.
	// The error of each entry divided by the standard error from the data: root mean square over usable repetitions.
	// nil if [Trial.Confidences] is empty.
	Z        []float64
	Coverage []Coverage // One for each of [Trial.Confidences].
	// Share of repetitions without a usable answer because of losses. They claim nothing, so they count as covering the
	// truth.
	Unusable float64
	Repeats  int
}

// Coverage is in which share of repetitions intervals from the data contain the truth.
type Coverage struct {
	Confidence float64
	Entries    []float64 // Share of repetitions in which an entry's interval contains the truth.
	Width      []float64 // Mean width of an entry's intervals in usable repetitions, in the query's units.
	Band       float64   // Share in which the band (Bonferroni, as in reports) contains all entries' truth.
}

// Mean returns the mean of Entries.
func (c Coverage) Mean() float64 {
	total := 0.0
	for _, share := range c.Entries {
		total += share
	}
	return total / float64(len(c.Entries))
}

// Trial runs a task's randomizer and aggregate on many simulated clients in one process, without encryption or relays.
// It compares the estimate's error with its prediction. It spends no privacy budget.
type Trial struct {
	Repeats     int       // Number of batches to simulate, at least 1.
	Malicious   int       // Number of clients that attack, from the end of the list of values.
	Attack      string    // A constant of package protocols. Required if Malicious is above 0.
	Fast        bool      // Draw the honest clients' aggregate instead of their messages, if possible.
	Confidences []float64 // Confidences of the intervals to check, each in (0, 1). May be empty.
	Lost        Lost      // Which messages are lost in transit; nil: none. Not with Fast.
	Progress    func()    // Called after every repetition, concurrently. May be nil.

	// Called with every batch that [Trial.Run] draws, concurrently. May be nil.
	Visit func(protocols.Aggregate)

	// Only for [Trial.Batches]: makes batches reproducible. nil: the platform's random source.
	Source *randomizer.Source
}

// Lost reports whether a client's slot is lost. Clients are numbered from 0. It is called concurrently.
type Lost func(src *randomizer.Source, client int, message task.Message) bool

// Run simulates batches of clients with the given values, one row per client, in the shape of
// [protocols.Mechanism.Randomize]. The truth and the prediction assume that all clients are honest. So an attack shows
// as a bias and a different variance.
//
// It returns an [invalid.FieldError] if the protocol does not have the attack, or if it does not support Fast
// ([protocols.Capabilities]).
func (tr Trial) Run(t *task.Task, m protocols.Mechanism, values [][]float64) (*Outcome, error) {
	if err := t.Input.CheckEntries(); err != nil {
		return nil, err
	}
	out := &Outcome{Repeats: tr.Repeats}
	if err := out.predict(t, m, values); err != nil {
		return nil, err
	}
	b, err := tr.newBatches(t, m, values)
	if err != nil {
		return nil, err
	}
	parts := make([]*sums, min(runtime.GOMAXPROCS(0), tr.Repeats))
	var wg sync.WaitGroup
	for i := range parts {
		parts[i] = newSums(out.Truth, tr.Confidences)
		share := tr.Repeats / len(parts)
		if i < tr.Repeats%len(parts) {
			share++
		}
		wg.Go(func() { parts[i].run(t, b, share, tr) })
	}
	wg.Wait()
	for _, p := range parts[1:] {
		parts[0].merge(p)
	}
	if parts[0].err != nil {
		return nil, parts[0].err
	}
	out.summarize(parts[0], len(values))
	return out, nil
}

// Batches draws batches one after another, as [Trial.Run] does. It calls visit with each batch's aggregate.
func (tr Trial) Batches(t *task.Task, m protocols.Mechanism, values [][]float64,
	visit func(protocols.Aggregate)) error {
	b, err := tr.newBatches(t, m, values)
	if err != nil {
		return err
	}
	src := cmp.Or(tr.Source, randomizer.NewSource())
	for range tr.Repeats {
		d, err := b.next(src, false)
		if err != nil {
			return err
		}
		visit(d.aggregate)
		if tr.Progress != nil {
			tr.Progress()
		}
	}
	return nil
}

// predict sets the truth and the predicted variance.
func (o *Outcome) predict(t *task.Task, m protocols.Mechanism, values [][]float64) error {
	for first := 0; first < len(values); {
		end := first + 1
		for end < len(values) && shared(values[first], values[end]) {
			end++
		}
		if err := o.expect(m, values[first], float64(end-first)); err != nil {
			return err
		}
		first = end
	}
	for j, variance := range dummyVariance(t, m) {
		o.PredictedVariance[j] += variance
	}
	scale := protocols.Scale(t.Query, uint64(len(values)))
	for j := range o.Truth {
		o.Truth[j] *= scale
		o.PredictedVariance[j] *= scale * scale
	}
	for j := range o.SamplingVariance {
		o.SamplingVariance[j] *= scale * scale
	}
	return nil
}

// shared reports whether two clients have the same slice of values in memory, as when all have the worst-case value.
func shared(a, b []float64) bool { return len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] }

// expect adds clients with the same value to the truth and the prediction.
func (o *Outcome) expect(m protocols.Mechanism, value []float64, clients float64) error {
	total, variance, err := m.Exact(value)
	if err != nil {
		return err
	}
	if o.Truth == nil {
		o.Truth, o.PredictedVariance = make([]float64, len(total)), make([]float64, len(total))
	}
	for j := range total {
		o.Truth[j] += clients * total[j]
		o.PredictedVariance[j] += clients * variance[j]
	}
	can := protocols.CapabilitiesOf(m)
	if can.Sampling == nil {
		return nil
	}
	sampling, err := can.Sampling(value)
	if err != nil {
		return err
	}
	if o.SamplingVariance == nil {
		o.SamplingVariance = make([]float64, len(sampling))
	}
	for j := range sampling {
		o.SamplingVariance[j] += clients * sampling[j]
	}
	return nil
}

// dummyVariance returns the variance that the relays' dummies add to each entry of a batch's total.
func dummyVariance(t *task.Task, m protocols.Mechanism) []float64 {
	if t.Noise == nil {
		return nil
	}
	can := protocols.CapabilitiesOf(m)
	if can.Dummies == nil {
		return nil
	}
	dummies := can.Dummies(m.Aggregate())
	dummies.AddDummies(uint64(relays(t)), 0)
	return dummies.DummyVariance()
}

// sums accumulates the errors against the truth and their second to fourth powers.
type sums struct {
	truth, errors, squares, cubes, fourths []float64
	repeats, counted, messages             int
	z                                      []float64 // Sums of squares of errors divided by standard errors.
	covered                                []covered // By confidence.
	unusable                               int       // Repetitions that claim nothing; they count as covered.
	intervals                              protocols.Intervals
	err                                    error
}

// covered counts repetitions whose intervals contain the truth: by entry, and all entries together.
type covered struct {
	confidence float64
	entries    []int
	width      []float64
	together   int
}

func newSums(truth, confidences []float64) *sums {
	n := len(truth)
	s := &sums{truth: truth, errors: make([]float64, n), squares: make([]float64, n), cubes: make([]float64, n),
		fourths: make([]float64, n), z: make([]float64, n), intervals: protocols.Intervals{}}
	for _, c := range confidences {
		s.covered = append(s.covered, covered{confidence: c, entries: make([]int, n), width: make([]float64, n)})
	}
	return s
}

// mostCounted is the maximum number of repetitions in which one worker counts messages. For some protocols, counting
// takes most of the time.
const mostCounted = 1000

func (s *sums) run(t *task.Task, b *batches, repeats int, tr Trial) {
	src := randomizer.NewSource()
	for range repeats {
		count := s.counted < mostCounted
		d, err := b.next(src, count)
		if err != nil {
			s.err = err
			return
		}
		scale := protocols.Scale(t.Query, d.loss.Clients)
		for j, total := range d.aggregate.Total() {
			e := d.aggregate.LossEffect(d.loss, j).Estimate(total)*scale - s.truth[j]
			s.errors[j] += e
			s.squares[j] += e * e
			s.cubes[j] += e * e * e
			s.fourths[j] += e * e * e * e
		}
		if count {
			s.messages += d.messages
			s.counted++
		}
		s.repeats++
		if len(s.covered) > 0 {
			s.cover(t, d, scale)
		}
		if tr.Visit != nil {
			tr.Visit(d.aggregate)
		}
		if tr.Progress != nil {
			tr.Progress()
		}
	}
}

func (s *sums) cover(t *task.Task, d *simulatedBatch, scale float64) {
	laws := d.laws()
	if !d.usable(t, laws, s.covered[0].confidence) {
		s.unusable++
		for i := range s.covered {
			s.covered[i].addNothing()
		}
		return
	}
	totals := d.aggregate.Total()
	for j, law := range laws {
		e := d.aggregate.LossEffect(d.loss, j).Estimate(totals[j]) - s.truth[j]/scale
		s.z[j] += e * e / law.Variance()
	}
	for i := range s.covered {
		s.covered[i].add(laws, s.intervals, s.truth, scale)
	}
}

// laws returns the error laws of the totals over all clients; none if there are no reports.
func (d *simulatedBatch) laws() (out []protocols.ErrorLaw) {
	if d.aggregate.Reports() == 0 {
		return nil
	}
	for j, law := range d.aggregate.Errors() {
		if missing := d.aggregate.LossEffect(d.loss, j); missing.Parts > 0 {
			law = missing.Complete(law)
		}
		out = append(out, law)
	}
	return out
}

// usable reports whether a verifier would show the answer of the batch.
func (d *simulatedBatch) usable(t *task.Task, laws []protocols.ErrorLaw, confidence float64) bool {
	least, most := protocols.Contribution(t)
	for j, law := range laws {
		missing := d.aggregate.LossEffect(d.loss, j)
		if missing.Parts == 0 {
			continue
		}
		lo, hi := law.Interval(confidence)
		if missing.Uninformative(hi-lo, (most-least)*float64(d.loss.Clients)) {
			return false
		}
	}
	return len(laws) > 0
}

// add counts which intervals of a batch contain the truth. The band uses Bonferroni's correction, as in reports.
func (c *covered) add(laws []protocols.ErrorLaw, intervals protocols.Intervals, truth []float64, scale float64) {
	all, each := true, 1-(1-c.confidence)/float64(len(laws))
	for j, law := range laws {
		lo, hi := intervals.Of(law, c.confidence)
		c.width[j] += (hi - lo) * scale
		inside := holds(lo, hi, truth[j]/scale)
		if inside {
			c.entries[j]++
		}
		if len(laws) > 1 && all {
			lo, hi = intervals.Of(law, each)
			inside = holds(lo, hi, truth[j]/scale)
		}
		all = all && inside
	}
	if all {
		c.together++
	}
}

// addNothing counts a batch without a usable answer. It claims nothing, so it counts as covered.
func (c *covered) addNothing() {
	for j := range c.entries {
		c.entries[j]++
	}
	c.together++
}

// holds reports whether an interval contains a total, with some tolerance for rounding.
func holds(lo, hi, total float64) bool {
	slack := 1e-9 * (hi - lo)
	return lo-slack <= total && total <= hi+slack
}

func (c *covered) coverage(repeats, usable float64) Coverage {
	out := Coverage{Confidence: c.confidence, Band: float64(c.together) / repeats}
	for j, n := range c.entries {
		out.Entries, out.Width = append(out.Entries, float64(n)/repeats), append(out.Width, c.width[j]/usable)
	}
	return out
}

func (s *sums) merge(o *sums) {
	for j := range s.errors {
		s.errors[j] += o.errors[j]
		s.squares[j] += o.squares[j]
		s.cubes[j] += o.cubes[j]
		s.fourths[j] += o.fourths[j]
		s.z[j] += o.z[j]
	}
	for i, c := range o.covered {
		for j := range c.entries {
			s.covered[i].entries[j] += c.entries[j]
			s.covered[i].width[j] += c.width[j]
		}
		s.covered[i].together += c.together
	}
	s.repeats += o.repeats
	s.unusable += o.unusable
	s.counted += o.counted
	s.messages += o.messages
	if s.err == nil {
		s.err = o.err
	}
}

func (o *Outcome) summarize(s *sums, users int) {
	r, total := float64(s.repeats), 0.0
	o.Estimate = make([]float64, len(s.errors))
	if s.repeats > 1 {
		o.Variance, o.VarianceError = make([]float64, len(s.errors)), make([]float64, len(s.errors))
	}
	for j := range s.errors {
		mean := s.errors[j] / r
		o.Estimate[j] = o.Truth[j] + mean
		total += s.squares[j] / r
		if o.Variance != nil {
			o.Variance[j] = (s.squares[j] - r*mean*mean) / (r - 1)
			fourth := (s.fourths[j]-4*mean*s.cubes[j]+6*mean*mean*s.squares[j])/r - 3*mean*mean*mean*mean
			o.VarianceError[j] = math.Sqrt(max(fourth-o.Variance[j]*o.Variance[j], 0) / r)
		}
	}
	o.RMSE = math.Sqrt(total / float64(len(s.errors)))
	o.MessagesPerUser = float64(s.messages) / float64(s.counted) / float64(users)
	usable := r - float64(s.unusable)
	for i := range s.covered {
		o.Coverage = append(o.Coverage, s.covered[i].coverage(r, usable))
	}
	for _, squares := range s.z {
		if len(s.covered) > 0 {
			o.Z = append(o.Z, math.Sqrt(squares/usable))
		}
	}
	o.Unusable = float64(s.unusable) / r
}

// PredictedRMSE returns the square root of the mean predicted variance over the entries.
func (o *Outcome) PredictedRMSE() float64 {
	total := 0.0
	for _, v := range o.PredictedVariance {
		total += v
	}
	return math.Sqrt(total / float64(len(o.PredictedVariance)))
}
