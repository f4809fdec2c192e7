// Package protocols defines the interface of all protocols: a local randomizer, an aggregate for the analyzer, and a
// guarantee that anyone can re-derive from a task.
//
// Each protocol has a folder with the same files: NAME.go (package comment and parameters), randomizer.go,
// analyzer.go, privacy.go, calibrate.go (parameters of new tasks, and the protocol's row), simulation.go,
// example_test.go. Package registry holds the one table of protocols. All of them are linked into doona.wasm, so they
// import no fmt, no reflection and no math/big.
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

// Messages are one client's messages: Messages[l][i] is message i of lane l, Slots.MessageBytes long.
type Messages [][][]byte

// Mechanism is a protocol with the parameters of one task. It is immutable and safe for concurrent use.
type Mechanism interface {
	// Randomize draws the messages of one client with a value of shape (1,), or (dim,) for vector
	// queries. A value outside the task's input domain is an [invalid.FieldError] about "value".
	Randomize(src *randomizer.Source, value []float64) (Messages, error)

	// Aggregate returns an empty aggregate.
	Aggregate() Aggregate

	// CheckClaim re-derives the guarantee from the parameters and n_min, by one evaluation of the task's rule. It
	// returns an error unless the guarantee is at least as strong as the task's claim. If the task claims a total
	// over all epochs, it checks that too.
	CheckClaim() error

	// Law returns an upper bound of the cost of one epoch: a law that dominates what the task's rule derives, at
	// every ε.
	Law() (*compose.Law, error)

	// Epsilon0 returns ε₀, rounded up: the ε of one client's messages against an adversary who knows which messages
	// are whose. It is +Inf for a protocol without local privacy.
	Epsilon0() float64

	// Exact returns one client's contribution to the query's exact total, after clipping, and to the variance of the
	// estimated total. Both have the shape of the estimate and add up over clients. Multiply by [Scale] and its
	// square for the query's units.
	Exact(value []float64) (total, variance []float64, err error)

	// Worst returns the worst-case variance; [Aggregate.Errors] returns the variance that the data show.
	Worst() WorstCase
}

// WorstCase is a value at which one client adds most to the variance of an entry of the estimated total.
type WorstCase struct {
	Value    []float64
	Variance float64 // Variance that the client adds.
}

// Aggregate is the sufficient statistic of the messages of a task's released batches.
type Aggregate interface {
	// Add adds a message from a slot of a lane. A malformed message is an error and changes nothing.
	Add(lane int, message []byte) error
	// AddUsers records that the messages added include those of n clients. Protocols of one message per client ignore
	// it: they count messages.
	AddUsers(n uint64)
	// Merge adds all of other, an aggregate of the same mechanism.
	Merge(other Aggregate) error
	// Reports returns the number of clients aggregated.
	Reports() uint64
	// Total returns the unbiased estimate of the sum over clients: shape (1,), (bins,) or (dim,).
	Total() []float64
	// Errors returns the law of the error of each entry of Total. Reports must not be 0.
	Errors() []ErrorLaw
	// LossEffect bounds how a loss changed an entry of Total.
	LossEffect(l Loss, entry int) LossEffect
	// Counters visits the numbers of the statistic, always equally many and in the same order. The visitor may change
	// them. A store writes and reads an aggregate this way.
	Counters(visit func(*uint64))
}

// VisitAll visits numbers in order, for [Aggregate.Counters].
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

// Unit maps a real value into [0, 1] by the task's range, and clips it if the task says so. NaN, ±Inf, and values
// outside the range of a task that does not clip are an [invalid.FieldError].
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

// Category returns the bin of a value. For labels it is the value itself. Else it is one of Bins intervals of equal
// width, closed on the left; the last is closed on both sides.
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

// CheckSlots returns an error unless the task's slots are exactly those the protocol sends.
func CheckSlots(t *task.Task, want task.Slots) error {
	if t.Slots != want {
		return invalid.Field("slots", describe(t.Slots), describe(want)+" for protocol "+t.Protocol)
	}
	return nil
}

func describe(s task.Slots) string {
	return "padding " + string(s.Padding) + ", " + strconv.FormatUint(s.Lanes, 10) + " lanes, " +
		strconv.FormatUint(s.PerLane, 10) + " per lane, " + strconv.FormatUint(s.Average, 10) + " on average, " +
		strconv.FormatUint(s.MessageBytes, 10) + " bytes"
}

// ErrMerge is returned by [Aggregate.Merge] for an aggregate of another mechanism.
var ErrMerge = errors.New("couldn't merge aggregates of different mechanisms")
