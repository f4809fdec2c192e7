package planner

import (
	"math"
	"runtime"
	"sync"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Outcome compares estimates with the truth over repetitions. Slices have the shape of the
// query's answer, in its units.
type Outcome struct {
	Truth             []float64 // Exact answer over the values, after clipping.
	Estimate          []float64 // Mean of the estimates over the repetitions.
	Variance          []float64 // Sample variance of the estimates; nil below two repetitions.
	VarianceError     []float64 // Standard error of Variance, from the fourth moment; nil with it.
	PredictedVariance []float64 // Exact variance for these values.
	// The part of it due to clients reporting some coordinates only; nil where they report all.
	SamplingVariance []float64
	RMSE             float64   // Root mean square error over repetitions and entries.
	MessagesPerUser  float64   // Mean number of messages of a client, covers not counted.
	Coverage         []float64 // How often each entry's interval held the truth; nil without [Trial.Confidence].
	BandCoverage     float64   // How often the band held all of them.
	// How often there was no usable answer, for what was lost. Such a run covers the truth: it claims nothing.
	Unusable float64
	Repeats  int
}

// Trial runs a task's randomizer and aggregate on many clients in one process, without encryption or
// relays, to compare the estimate's error with its prediction. It burns no privacy budget: the clients
// are synthetic.
type Trial struct {
	Repeats    int     // Batches to simulate. ≥ 1.
	Malicious  int     // Clients that attack: the last ones. At most all of them.
	Attack     string  // What they do; one of the constants of package protocols. Required with Malicious.
	Fast       bool    // Draw the aggregate of the honest clients, where the protocol can; not their messages.
	Confidence float64 // Of intervals that are compared with the truth. 0: none are.
	Lost       Lost    // What is lost on the way. nil: nothing. Not with Fast.
	Progress   func()  // Called after every repetition, from several goroutines. May be nil.
}

// Lost says whether a slot of a client, numbered from 0, is lost. It is called from several goroutines.
type Lost func(src *randomizer.Source, client int, message task.Message) bool

// Run simulates batches of clients with the given values, one row per client, of the shape
// [protocols.Mechanism.Randomize] takes. The truth and the prediction are those of honest clients
// with these values, so that an attack shows as a bias and as another variance.
//
// It is an [invalid.FieldError] to ask a protocol for an attack it does not know, or for speed where
// it is no [protocols.FastSimulator].
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
		parts[i] = newSums(out.Truth)
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
	if tr.Confidence > 0 {
		out.Coverage, out.BandCoverage = parts[0].coverage()
		out.Unusable = float64(parts[0].unusable) / float64(out.Repeats)
	}
	return out, nil
}

// sampler is a mechanism whose clients report a sample of their coordinates.
type sampler interface {
	// Split returns the two parts of the variance that one client's value adds to the estimated total:
	// of the noise, and of the sampling.
	Split(value []float64) (noise, sampling []float64, err error)
}

// predict fills the truth and the exact variance.
func (o *Outcome) predict(t *task.Task, m protocols.Mechanism, values [][]float64) error {
	s, samples := m.(sampler)
	for _, v := range values {
		total, variance, err := m.Exact(v)
		if err != nil {
			return err
		}
		if o.Truth == nil {
			o.Truth, o.PredictedVariance = make([]float64, len(total)), make([]float64, len(total))
		}
		for j := range total {
			o.Truth[j] += total[j]
			o.PredictedVariance[j] += variance[j]
		}
		if !samples {
			continue
		}
		_, sampling, err := s.Split(v)
		if err != nil {
			return err
		}
		if o.SamplingVariance == nil {
			o.SamplingVariance = make([]float64, len(sampling))
		}
		for j := range sampling {
			o.SamplingVariance[j] += sampling[j]
		}
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

// dummyVariance returns what relays add to the variance of each entry of one batch's total.
func dummyVariance(t *task.Task, m protocols.Mechanism) []float64 {
	if t.Noise == nil {
		return nil
	}
	diluted, ok := m.Aggregate().(protocols.Diluted)
	if !ok {
		return nil
	}
	diluted.AddDummies(uint64(relays(t)), 0)
	return diluted.DummyVariance()
}

// sums accumulates the first four powers of the errors against the truth.
type sums struct {
	truth, errors, squares, cubes, fourths []float64
	repeats, messages                      int
	covered                                []int // By each entry's interval.
	together                               int   // All entries, by the band.
	unusable                               int   // Runs that say nothing, and are covered.
	err                                    error
}

func newSums(truth []float64) *sums {
	n := len(truth)
	return &sums{truth: truth, errors: make([]float64, n), squares: make([]float64, n), cubes: make([]float64, n),
		fourths: make([]float64, n), covered: make([]int, n)}
}

func (s *sums) run(t *task.Task, b *batches, repeats int, tr Trial) {
	src := randomizer.NewSource()
	for range repeats {
		d, err := b.next(src)
		if err != nil {
			s.err = err
			return
		}
		scale := protocols.Scale(t.Query, d.loss.Clients)
		for j, total := range d.aggregate.Total() {
			e := d.aggregate.Missing(d.loss, j).Estimate(total)*scale - s.truth[j]
			s.errors[j] += e
			s.squares[j] += e * e
			s.cubes[j] += e * e * e
			s.fourths[j] += e * e * e * e
		}
		s.messages += d.messages
		s.repeats++
		if tr.Confidence > 0 {
			s.cover(t, d, scale, tr.Confidence)
		}
		if tr.Progress != nil {
			tr.Progress()
		}
	}
}

// cover counts the intervals of a batch that hold the truth. The band is Bonferroni's, as in reports.
func (s *sums) cover(t *task.Task, d *drawn, scale, confidence float64) {
	laws := d.laws()
	nothing := !d.usable(t, laws, confidence)
	if nothing {
		s.unusable++
	}
	all, each := true, 1-(1-confidence)/float64(len(s.truth))
	for j := range s.truth {
		if nothing || holds(laws[j], confidence, s.truth[j]/scale) {
			s.covered[j]++
		}
		all = all && (nothing || holds(laws[j], each, s.truth[j]/scale))
	}
	if all {
		s.together++
	}
}

// laws returns the laws of the errors of all clients' totals; none without reports.
func (d *drawn) laws() (out []protocols.ErrorLaw) {
	if d.aggregate.Reports() == 0 {
		return nil
	}
	for j, law := range d.aggregate.Errors() {
		if missing := d.aggregate.Missing(d.loss, j); missing.Parts > 0 {
			law = missing.Complete(law)
		}
		out = append(out, law)
	}
	return out
}

// usable says whether a verifier would show the answer.
func (d *drawn) usable(t *task.Task, laws []protocols.ErrorLaw, confidence float64) bool {
	least, most := protocols.Contribution(t)
	for j, law := range laws {
		lo, hi := law.Interval(confidence)
		if d.aggregate.Missing(d.loss, j).Drowns(hi-lo, (most-least)*float64(d.loss.Clients)) {
			return false
		}
	}
	return len(laws) > 0
}

// holds says whether a total is in an interval, whose ends may be the total but for rounding.
func holds(law protocols.ErrorLaw, confidence, total float64) bool {
	lo, hi := law.Interval(confidence)
	slack := 1e-9 * (hi - lo)
	return lo-slack <= total && total <= hi+slack
}

func (s *sums) coverage() (each []float64, band float64) {
	for _, n := range s.covered {
		each = append(each, float64(n)/float64(s.repeats))
	}
	return each, float64(s.together) / float64(s.repeats)
}

func (s *sums) merge(o *sums) {
	for j := range s.errors {
		s.errors[j] += o.errors[j]
		s.squares[j] += o.squares[j]
		s.cubes[j] += o.cubes[j]
		s.fourths[j] += o.fourths[j]
		s.covered[j] += o.covered[j]
	}
	s.together += o.together
	s.unusable += o.unusable
	s.repeats += o.repeats
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
	o.MessagesPerUser = float64(s.messages) / r / float64(users)
}

// MeanCoverage returns the mean over entries of [Outcome.Coverage].
func (o *Outcome) MeanCoverage() float64 {
	total := 0.0
	for _, c := range o.Coverage {
		total += c
	}
	return total / float64(len(o.Coverage))
}

// PredictedRMSE returns the root mean square over entries of the predicted standard errors.
func (o *Outcome) PredictedRMSE() float64 {
	total := 0.0
	for _, v := range o.PredictedVariance {
		total += v
	}
	return math.Sqrt(total / float64(len(o.PredictedVariance)))
}
