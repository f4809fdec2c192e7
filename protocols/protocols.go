// Package protocols defines the interface that every protocol implements: a local randomizer, an aggregate for the
// verifier, and a privacy guarantee that anyone can re-derive from a task.
//
// Each protocol has a folder with the same files: NAME.go (package comment and parameters), randomizer.go, analyzer.go,
// privacy.go, calibrate.go (parameters of new tasks, and the protocol's row), simulation.go, example_test.go. Package
// registry holds the one table of protocols. doona.wasm links all of them, so they import no fmt, no reflection and no
// math/big.
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

// Messages are one client's messages: Messages[l][i] is message i of lane l. Each is Slots.MessageBytes bytes long.
type Messages [][][]byte

// Mechanism is a protocol with the parameters of one task. It is immutable and safe for concurrent use.
type Mechanism interface {
	// Randomize draws the messages of one client. The value has shape (1,), or (dim,) for vector queries. A value
	// outside the task's input domain is an [invalid.FieldError] about "value".
	Randomize(src *randomizer.Source, value []float64) (Messages, error)

	// Aggregate returns an empty aggregate.
	Aggregate() Aggregate

	// CheckClaim re-derives the guarantee from the parameters and n_min by the task's rule. It returns an error unless
	// the guarantee is at least as strong as the task's claim. If the task claims a total over all epochs, CheckClaim
	// checks the total too.
	CheckClaim() error

	// Law returns an upper bound of the privacy cost of one epoch, as a curve δ(ε). At every ε the curve is at least
	// the δ that the task's rule derives.
	Law() (*compose.Law, error)

	// Epsilon0 returns ε₀, rounded up: the ε of one client's messages against an adversary who knows which client sent
	// which messages. It is +Inf for a protocol without local privacy.
	Epsilon0() float64

	// Exact returns what one client adds, after clipping, to the query's exact total and to the variance of the
	// estimated total. Both have the shape of the estimate. Multiply by [Scale] and its square for the query's units.
	Exact(value []float64) (total, variance []float64, err error)

	// Worst returns the largest variance that one client can add, and a value that adds it. [Aggregate.Errors] returns
	// the variance estimated from the data.
	Worst() WorstCase
}

// WorstCase is a client's value that adds the largest variance to an entry of the estimated total.
type WorstCase struct {
	Value    []float64
	Variance float64 // The variance that the client adds, in the square of the query's units.
}

// Aggregate holds what the estimate needs of the messages in a task's released batches: a few sums and counts.
type Aggregate interface {
	// Add adds a message from a slot of a lane. A malformed message is an error and changes nothing.
	Add(lane int, message []byte) error
	// AddUsers records that the messages added so far include those of n more clients. Protocols with one message per
	// client ignore it, because they count messages.
	AddUsers(n uint64)
	// Merge adds the contents of other, an aggregate of the same mechanism, to this aggregate.
	Merge(other Aggregate) error
	// Reports returns the number of clients whose messages were added.
	Reports() uint64
	// Total returns the unbiased estimate of the sum over clients: shape (1,), (bins,) or (dim,).
	Total() []float64
	// Errors returns, for each entry of Total, the probability distribution of its error. Call it only if Reports is
	// above 0.
	Errors() []ErrorLaw
	// LossEffect bounds how much lost messages changed an entry of Total.
	LossEffect(l Loss, entry int) LossEffect
	// Counters calls visit with each number that the aggregate consists of: always equally many, in the same order. The
	// visitor may change them. A store saves and restores an aggregate this way.
	Counters(visit func(*uint64))
}

// VisitAll calls visit with each of the numbers in order, for [Aggregate.Counters].
func VisitAll(numbers []uint64, visit func(*uint64)) {
	for j := range numbers {
		visit(&numbers[j])
	}
}

// VisitFloat calls visit with the bits of a float64, for [Aggregate.Counters].
func VisitFloat(number *float64, visit func(*uint64)) {
	bits := math.Float64bits(*number)
	visit(&bits)
	*number = math.Float64frombits(bits)
}

// Scale returns the factor that turns a total into a query's answer: 1/reports for a mean, else 1.
func Scale(query task.Query, reports uint64) float64 {
	if query.Info().Mean {
		return 1 / float64(max(reports, 1))
	}
	return 1
}

// unit maps a real value from the task's range to [0, 1]. It clips a value outside the range if the task says so. If
// not, such a value is an [invalid.FieldError], as NaN and ±Inf always are.
func unit(in task.Input, value []float64) (float64, error) {
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

// Category returns the bin of a value, from 0. If the task's bins are labels, the value is the bin. Otherwise the range
// is cut into Bins intervals of equal width, closed on the left; the last is closed on both sides.
func Category(in task.Input, value []float64) (uint64, error) {
	if !in.Labels {
		u, err := unit(in, value)
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
