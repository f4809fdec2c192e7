// Package planner turns a query and a privacy target into a task. [Draft] chooses the protocol's parameters. [Trial]
// tries a task on simulated clients, to compare the errors of its estimates with their prediction. [Plan] compares all
// ways to reach a goal.
package planner

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Query is what a task owner wants to know, with the privacy target.
type Query struct {
	Name     string       // Shown to people. 1 to 64 printable ASCII characters.
	Query    task.Query   // count, sum, mean, histogram, vector, vectormean or strings. Required.
	Protocol string       // Empty: the default for the query.
	Rule     string       // Empty: the rule with the least error.
	Lo, Hi   float64      // Range of the value, Lo < Hi, within ±10⁹; ignored for a count and for vectormean.
	Bins     uint64       // Number of bins of a histogram, 2 to [task.QueryInfo.MostBins].
	Labels   bool         // For a histogram: values are the numbers 0 to Bins-1, not in a range.
	Dim      uint64       // Coordinates of a vector or vectormean, 1 to 2²⁰.
	Length   uint64       // Maximum length of a text in bytes, 1 to 128; only for strings.
	Params   Params       // Fixed protocol parameters; Draft chooses the others.
	Padding  task.Padding // full or none, if the protocol supports both. Empty: its default.
	Lanes    uint64       // 1, or one per coefficient, if the protocol supports both. 0: its default.
	Clip     bool         // Clip values to the range, or to norm 1. If false, other values are errors.
	Batch    uint64       // Batch size n, at least 1.
	Honest   float64      // Share h of clients assumed honest, in (0, 1].
	Epsilon  float64      // Claimed ε of one epoch, in (0, 100].
	Delta    float64      // Claimed δ of one epoch, in (0, 1).
	Epochs   uint64       // Number of the task's epochs, at least 1. Only used with a total.
	Cap      task.Cap     // Limits the reports of one browser, so that a total covers fewer. Zero for none.
	Pace     task.Cap     // Spreads the reports that Cap allows over time. Zero for none.
	Events   task.Events  // Limits the reports of anything but a default; a total covers only these. Zero for none.
	KEM      task.KEM     // x25519, mlkem768x25519 or mlkem768. Empty: x25519.
	Relays   *RelayNoise  // Every relay adds noise, so no other client must be honest. nil: default.

	// The claim for all epochs together, with the same allowed ranges as Epsilon and Delta; 0 for none. With a total,
	// Epsilon and Delta may be 0; Draft then derives them.
	TotalEpsilon, TotalDelta float64
}

// RelayNoise says that every relay adds noise to every batch, and how much.
type RelayNoise struct {
	protocols.NoiseOptions
	Batches uint64 // Maximum number of batches in an epoch, below 2³²; 0: no maximum.
}

// Params are protocol parameters by name, such as k, t or r. All are whole numbers.
type Params map[string]uint64

// Draft returns a calibrated task without parties and start of epochs. Its errors are [invalid.FieldError] about the
// task's fields. If no parameters are possible, the error says what would make them possible.
func Draft(q Query) (*task.Task, error) {
	if err := CheckOptions(q.Query, q.given); err != nil {
		return nil, err
	}
	claim, err := q.claim()
	if err = cmp.Or(err, q.limits().CheckLimits(), q.checkEvents()); err != nil {
		return nil, err
	}
	t := &task.Task{
		Name: q.Name, Query: q.Query, Protocol: q.Protocol, Rule: q.Rule, Claim: claim,
		Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
		KEM:     cmp.Or(q.KEM, task.KEMX25519),
	}
	if err := q.input(t); err != nil {
		return nil, err
	}
	if err := q.batch(t); err != nil {
		return nil, err
	}
	t.Slots.Padding, t.Slots.Lanes = q.Padding, q.Lanes
	for _, key := range slices.Sorted(maps.Keys(q.Params)) {
		if q.Params[key] > math.MaxInt64 {
			return nil, invalid.Field("params."+key, strconv.FormatUint(q.Params[key], 10), "a whole number below 2^63")
		}
		t.Params = append(t.Params, task.Param{Key: key, Value: randomizer.NewRational(int64(q.Params[key]), 1)})
	}
	if err := q.calibrate(t); err != nil {
		return nil, fmt.Errorf("couldn't calibrate %s for the batch: %w", cmp.Or(t.Protocol, "the task"), err)
	}
	if err := q.kept(t); err != nil {
		return nil, err
	}
	return t, t.ValidateDraft()
}

// limits returns the limits on the reports of one browser.
func (q Query) limits() task.Epochs { return task.Epochs{Cap: q.Cap, Pace: q.Pace, Events: q.Events} }

func (q Query) calibrate(t *task.Task) error {
	t.Epochs = q.limits()
	if !t.Claim.Total.IsZero() {
		t.Epochs.Count = q.Epochs
	}
	if q.Relays == nil {
		return calibrate(t, registry.Calibrate)
	}
	calibrateRelays := func(t *task.Task) error { return registry.CalibrateRelayNoise(t, q.Relays.NoiseOptions) }
	if q.Query.Info().Shape == task.PerText {
		if err := calibrate(t, calibrateRelays); err != nil {
			return err
		}
	} else if err := calibrateRelays(t); err != nil { // it derives the claim of one epoch itself
		return err
	}
	t.Noise.Batches = q.Relays.Batches
	return nil
}

// checkEvents returns an error if events cannot help the query.
func (q Query) checkEvents() error {
	switch {
	case q.Events.IsZero():
		return nil
	case q.Relays == nil:
		return invalid.Field("events", q.Events.String(), "none, unless relays add the noise (--noise relays)")
	case q.TotalEpsilon == 0:
		return invalid.Field("events", q.Events.String(), "none without a total: they can't lower one epoch's noise")
	case q.Relays.LocalEpsilon != 0:
		return invalid.Field("events", q.Events.String(), "none with a local epsilon: a browser sends its value itself")
	}
	return q.Events.Check()
}

// claim returns the claim of one epoch, of all epochs together, or both.
func (q Query) claim() (c task.Claim, err error) {
	if q.TotalEpsilon != 0 || q.TotalDelta != 0 {
		if err := checkClaim("total-", q.TotalEpsilon, q.TotalDelta); err != nil {
			return c, err
		}
		c.SetTotal(format(q.TotalEpsilon), format(q.TotalDelta))
		if q.Epochs < 1 {
			return c, invalid.Field("epochs", "0", "at least 1, because a total of all epochs is claimed")
		}
		if q.Epsilon == 0 && q.Delta == 0 {
			return c, nil
		}
	}
	one := task.NewClaim(format(q.Epsilon), format(q.Delta))
	one.Total = c.Total
	return one, checkClaim("", q.Epsilon, q.Delta)
}

// leastDelta is the smallest δ that a task can claim. A batch's keys have a security of 128 bits: whoever guesses reads
// a report with a probability of 2⁻¹²⁸ ≈ 3·10⁻³⁹, so a smaller δ would promise nothing more.
const leastDelta = 1e-38

func checkClaim(prefix string, epsilon, delta float64) error {
	if !(epsilon > 0 && epsilon <= 100) {
		return invalid.Field(prefix+"epsilon", format(epsilon), "a number in (0, 100]")
	}
	if !(delta >= leastDelta && delta < 1) {
		return invalid.Field(prefix+"delta", format(delta), "a number from 1e-38 to below 1, such as 1e-6")
	}
	return nil
}

// kept returns an error if the protocol did not use the padding, lanes or parameters that the query asks for.
func (q Query) kept(t *task.Task) error {
	if q.Padding != "" && t.Slots.Padding != q.Padding {
		return invalid.Field("padding", strconv.Quote(string(q.Padding)),
			string(t.Slots.Padding)+" for protocol "+t.Protocol)
	}
	if q.Lanes != 0 && t.Slots.Lanes != q.Lanes {
		want := strconv.FormatUint(t.Slots.Lanes, 10)
		if q.Lanes > 1 && t.Slots.Lanes > 1 {
			want = "1, or " + want + ", one for each coefficient,"
		}
		return invalid.Field("lanes", strconv.FormatUint(q.Lanes, 10), want+" for protocol "+t.Protocol)
	}
	for key, want := range q.Params {
		if got, ok := t.Param(key); !ok || got.Den != 1 || uint64(got.Num) != want {
			return invalid.Field("params."+key, strconv.FormatUint(want, 10),
				"no such parameter: protocol "+t.Protocol+" has none of this name")
		}
	}
	return nil
}

func (q Query) input(t *task.Task) error {
	t.Input = task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1), Labels: q.Labels}
	info := q.Query.Info()
	if info.Shape == task.PerBin {
		t.Input.Bins = q.Bins
		if q.Bins < 2 || q.Bins > info.MostBins {
			return invalid.Field("bins", strconv.FormatUint(q.Bins, 10), "2 to 1048576 for a histogram")
		}
	}
	if info.Shape == task.PerVector {
		t.Input.Bins = q.Dim
		if q.Dim < 1 || q.Dim > info.MostBins {
			return invalid.Field("dim", strconv.FormatUint(q.Dim, 10), "1 to 1048576 for a "+string(q.Query))
		}
	}
	if info.Shape == task.PerText {
		t.Input.Bins = q.Length
		if q.Length < 1 || q.Length > info.MostBins {
			return invalid.Field("length", strconv.FormatUint(q.Length, 10), "1 to 128 bytes for strings")
		}
		return nil
	}
	if q.Labels || info.YesNo() {
		return nil
	}
	if info.Ball() {
		q.Lo, q.Hi = -1, 1
	}
	var okLo, okHi bool
	t.Input.Lo, okLo = randomizer.RationalFromFloat(q.Lo)
	t.Input.Hi, okHi = randomizer.RationalFromFloat(q.Hi)
	t.Input.Clip = q.Clip
	if !okLo || !okHi || !(q.Lo < q.Hi) || !(t.Input.Lo.Float64() < t.Input.Hi.Float64()) {
		return invalid.Field("range", format(q.Lo)+","+format(q.Hi),
			"LO,HI with LO below HI by 2e-9 or more, both within ±1e9")
	}
	return nil
}

func (q Query) batch(t *task.Task) error {
	honest, ok := randomizer.RationalFromFloat(q.Honest)
	if !ok || !(q.Honest > 0 && q.Honest <= 1) {
		return invalid.Field("honest", format(q.Honest), "a number in (0, 1]")
	}
	if q.Batch < 1 || q.Batch > math.MaxUint32 {
		return invalid.Field("batch", strconv.FormatUint(q.Batch, 10), "1 to 4294967295")
	}
	t.Batch = task.Batch{Size: q.Batch, Honest: honest}
	t.Batch.Min = t.Batch.DefaultMin()
	if t.Batch.Min == 0 && q.Relays != nil { // with relay noise, no other client needs to be honest
		t.Batch.Honest, t.Batch.Min = randomizer.NewRational(1, 1), q.Batch
	}
	if t.Batch.Min == 0 {
		return invalid.Field("honest", format(q.Honest),
			"at least one honest client: honest times the batch of users is below 1")
	}
	return nil
}

func format(v float64) string { return decimal.Format(v, -1) }
