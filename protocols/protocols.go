// Package protocols defines what every protocol provides: a local randomizer, an aggregate for
// the analyzer, and a guarantee that can be re-derived from a task.
//
// Each protocol has a folder of its own with the same files: NAME.go (package comment and
// parameters), randomizer.go, analyzer.go, privacy.go, calibrate.go (parameters of new tasks, and the
// protocol's row), simulation.go, example_test.go. Package registry has the one table of protocols.
// All of them are linked into doona.wasm: no fmt, no reflection, no math/big.
package protocols

import (
	"errors"
	"math"
	"strconv"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Messages are one client's messages: Messages[l][i] is number i of lane l, Slots.MessageBytes long.
type Messages [][][]byte

// Mechanism is a protocol whose parameters a task has fixed. It is immutable and safe for
// concurrent use.
type Mechanism interface {
	// Randomize draws the messages of one client with a value of shape (1,), or (dim,) for vector
	// queries. A value outside the task's input domain is an [invalid.FieldError] about "value".
	Randomize(src *randomizer.Source, value []float64) (Messages, error)

	// Aggregate returns an empty aggregate.
	Aggregate() Aggregate

	// CheckClaim re-derives the guarantee from the parameters and n_min by one evaluation of
	// the task's rule, and is an error unless it is at least as strong as the task's claim. So is what all
	// epochs add up to, where the task claims a total.
	CheckClaim() error

	// Law returns what one epoch costs at most: a law that dominates what the task's rule derives, at every ε.
	Law() (*compose.Law, error)

	// Epsilon0 returns the ε₀ of one client's messages against an adversary who knows whose
	// they are, rounded up; +Inf where the protocol has none.
	Epsilon0() float64

	// Exact returns what one client's value adds to the query's exact total, after clipping,
	// and to the variance of the estimated total; both have the shape of the estimate and add
	// up over clients. Multiply by [Scale] and its square for the query's units.
	Exact(value []float64) (total, variance []float64, err error)

	// Worst returns the worst case, where [Aggregate.Errors] is what the data show.
	Worst() WorstCase
}

// WorstCase is a value at which one client adds most to the variance of an entry of the estimated total.
type WorstCase struct {
	Value    []float64
	Variance float64 // That it adds.
}

// Aggregate is the sufficient statistic of the messages of a task's released batches.
type Aggregate interface {
	// Add adds the message a verifier found in a slot of a lane. A malformed one is an error
	// and changes nothing.
	Add(lane int, message []byte) error
	// AddUsers says that the messages of this many clients are among those added. Protocols of
	// one message per client ignore it: they count messages.
	AddUsers(n uint64)
	// Merge adds all of other, an aggregate of the same mechanism.
	Merge(other Aggregate) error
	// Reports returns the number of clients aggregated.
	Reports() uint64
	// Total returns the unbiased estimate of the sum over clients: shape (1,), (bins,) or (dim,).
	Total() []float64
	// Errors returns what is known of the error of each entry of Total. Reports must not be 0.
	Errors() []ErrorLaw
	// Missing returns what a loss can have changed in an entry of Total.
	Missing(l Loss, entry int) Missing
	// Counters visits the numbers that the statistic is made of, always as many and in the same order.
	// Who changes them all makes the aggregate another of the mechanism's: this is how it is written
	// down and read again.
	Counters(visit func(*uint64))
}

// VisitAll visits numbers one after the other, for [Aggregate.Counters].
func VisitAll(numbers []uint64, visit func(*uint64)) {
	for j := range numbers {
		visit(&numbers[j])
	}
}

// VisitFloat visits the bits of a number, for [Aggregate.Counters].
func VisitFloat(number *float64, visit func(*uint64)) {
	bits := math.Float64bits(*number)
	visit(&bits)
	*number = math.Float64frombits(bits)
}

// Scale returns the factor from totals to the units of a query over a number of clients.
func Scale(query task.Query, reports uint64) float64 {
	if query.Info().Mean {
		return 1 / float64(max(reports, 1))
	}
	return 1
}

// Unit maps a real value into [0, 1] by the task's range, clipping if the task says so. NaN, ±Inf,
// and values outside the range of a task that does not clip are an [invalid.FieldError].
func Unit(in task.Input, value []float64) (float64, error) {
	x, err := scalar(value)
	if err != nil {
		return 0, err
	}
	lo, hi := in.Lo.Float64(), in.Hi.Float64()
	if (x < lo || x > hi) && !in.Clip {
		return 0, invalid.Field("value", decimal.Format(x, -1), in.Lo.String()+" to "+in.Hi.String())
	}
	return min(max((x-lo)/(hi-lo), 0), 1), nil
}

// Category returns the bin a value falls in: the value itself for labels, else one of Bins
// intervals of equal width, closed on the left; the last is closed on both sides.
func Category(in task.Input, value []float64) (uint64, error) {
	if !in.Labels {
		u, err := Unit(in, value)
		return min(uint64(u*float64(in.Bins)), in.Bins-1), err
	}
	x, err := scalar(value)
	if err != nil {
		return 0, err
	}
	if x != math.Trunc(x) || x < 0 || x >= float64(in.Bins) {
		return 0, invalid.Field("value", decimal.Format(x, -1), "a whole number from 0 to "+
			strconv.FormatUint(in.Bins-1, 10))
	}
	return uint64(x), nil
}

func scalar(value []float64) (float64, error) {
	if len(value) != 1 {
		return 0, invalid.Field("value", strconv.Itoa(len(value))+" numbers", "one number")
	}
	if math.IsNaN(value[0]) || math.IsInf(value[0], 0) {
		return 0, invalid.Field("value", decimal.Format(value[0], -1), "a finite number")
	}
	return value[0], nil
}

// CheckSlots is an error unless the task's slots are exactly what a protocol sends.
func CheckSlots(t *task.Task, want task.Slots) error {
	if t.Slots != want {
		return invalid.Field("slots", describe(t.Slots), describe(want)+" for protocol "+t.Protocol)
	}
	return nil
}

func describe(s task.Slots) string {
	return "padding " + string(s.Padding) + ", " + strconv.FormatUint(s.Lanes, 10) + " lanes, " +
		strconv.FormatUint(s.PerLane, 10) + " per lane, " + strconv.FormatUint(s.MessageBytes, 10) + " bytes"
}

// ErrMerge is returned by [Aggregate.Merge] for an aggregate of another mechanism.
var ErrMerge = errors.New("couldn't merge aggregates of different mechanisms")
