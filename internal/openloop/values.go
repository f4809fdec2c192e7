package openloop

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/doona-dp/doona/internal/table"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	texts "github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/wire/task"
)

// Values is a function that returns the value of client i ≥ 0. It returns the same value for the same i. It is safe for
// concurrent use.
type Values func(i int) []float64

// The names of distributions, for [NewValues].
const (
	Worst   = "worst"   // All clients have the value for which the answer's error is largest.
	Uniform = "uniform" // Uniform over values, bins or coordinates.
	Zipf    = "zipf"    // The k-th bin or level has a probability proportional to 1/k.
)

// levels is how many different numbers Zipf's law draws, from the lowest to the highest.
const levels = 100

// NewValues returns the clients' values for a task. name is a distribution or the path of a file: CSV with one row per
// client (the column that f names or, for vectors, all columns), or for texts one text per line. If there are more
// clients than rows, the rows repeat.
func NewValues(t *task.Task, name string, f table.Format) (Values, error) {
	info := t.Query.Info()
	switch name {
	case Worst:
		m, err := registry.Open(t)
		if err != nil {
			return nil, err
		}
		value := m.Worst().Value
		return func(int) []float64 { return value }, nil
	case Uniform, Zipf:
		if info.Shape == task.PerText {
			return nil, fmt.Errorf("invalid values %s: want a file with one text per line, for a task for strings",
				name)
		}
		return newLaw(t, name == Zipf).value, nil
	}
	rows, err := readValues(info.Shape, name, f)
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("couldn't read %s: it has no row", name)
	}
	if err != nil {
		return nil, err
	}
	return func(i int) []float64 { return rows[i%len(rows)] }, nil
}

func readValues(shape task.Shape, path string, f table.Format) (rows [][]float64, err error) {
	switch shape {
	case task.PerVector:
		return table.ReadRows(path, f, 0)
	case task.PerText:
		lines, err := table.ReadLines(path, f.Notes)
		for _, line := range lines {
			rows = append(rows, texts.Value(line))
		}
		return rows, err
	}
	numbers, err := table.Read(path, f, 0)
	if err != nil {
		return nil, err
	}
	for _, x := range numbers {
		rows = append(rows, []float64{x})
	}
	return rows, nil
}

// law draws random values that a task allows.
type law struct {
	in     task.Input
	info   task.QueryInfo
	sparse bool      // At most one coordinate of a vector is not 0.
	sums   []float64 // Cumulative sums of the weights of Zipf's law; nil for the uniform law.
}

func newLaw(t *task.Task, zipf bool) *law {
	l := &law{in: t.Input, info: t.Query.Info()}
	for _, p := range registry.All() {
		l.sparse = l.sparse || p.ProtocolName() == t.Protocol && p.Row().Sparse
	}
	if zipf {
		sum := 0.0
		for k := range l.choices() {
			sum += 1 / float64(k+1)
			l.sums = append(l.sums, sum)
		}
	}
	return l
}

// choices returns from how many values, or levels of a number, the law chooses.
func (l *law) choices() int {
	switch {
	case l.info.Shape == task.PerBin:
		return int(l.in.Bins)
	case l.info.YesNo():
		return 2
	}
	return levels
}

// value returns the value of client i. It is always the same, because i seeds the random numbers.
func (l *law) value(i int) []float64 {
	random := rand.New(rand.NewPCG(1, uint64(i)))
	if l.info.Shape != task.PerVector {
		return []float64{l.number(random)}
	}
	out := make([]float64, l.in.Bins)
	if l.sparse {
		out[random.IntN(len(out))] = l.number(random)
		return out
	}
	for j := range out {
		if out[j] = l.number(random); l.info.Ball() { // scaled, so that the longest vector has norm 1
			out[j] /= math.Sqrt(float64(len(out)))
		}
	}
	return out
}

// number draws a value, or one coordinate of a vector.
func (l *law) number(random *rand.Rand) float64 {
	lo, hi := l.in.Lo.Float64(), l.in.Hi.Float64()
	n := l.choices()
	numeric := n == levels && l.info.Shape != task.PerBin
	if l.sums == nil && numeric {
		return lo + (hi-lo)*random.Float64()
	}
	at := random.IntN(n)
	if l.sums != nil {
		at, _ = slices.BinarySearch(l.sums, random.Float64()*l.sums[n-1])
	}
	switch {
	case numeric:
		return lo + (hi-lo)*float64(at)/(levels-1)
	case l.info.Shape == task.PerBin && !l.in.Labels:
		return lo + (hi-lo)*(float64(at)+.5)/float64(n) // the middle of a bin
	}
	return float64(at)
}

// Truth computes the exact answer to a task from the clients' values, after clipping. It is safe for concurrent use.
type Truth struct {
	query     task.Query
	mechanism protocols.Mechanism

	mu      sync.Mutex // guards the rest
	clients uint64
	sum     []float64
	failed  error
}

// NewTruth returns a Truth without clients. It returns an error for strings, whose answer is a list.
func NewTruth(t *task.Task) (*Truth, error) {
	if t.Query.Info().Shape == task.PerText {
		return nil, errors.New("couldn't compute the answer: a task for strings has a list as its answer")
	}
	m, err := registry.Open(t)
	return &Truth{query: t.Query, mechanism: m}, err
}

// Add adds one client's value.
func (t *Truth) Add(value []float64) {
	total, _, err := t.mechanism.Exact(value)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed = err
		return
	}
	if t.clients++; t.sum == nil {
		t.sum = make([]float64, len(total))
	}
	for j := range total {
		t.sum[j] += total[j]
	}
}

// Answer returns the exact answer and its number of clients.
func (t *Truth) Answer() (answer []float64, clients uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	scale := protocols.Scale(t.query, t.clients)
	for _, x := range t.sum {
		answer = append(answer, x*scale)
	}
	return answer, t.clients, t.failed
}
