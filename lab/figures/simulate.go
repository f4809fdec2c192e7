package figures

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// generator returns a random generator whose seed is the hash of a name.
func generator(name string) *rand.ChaCha8 { return rand.NewChaCha8(sha256.Sum256([]byte(name))) }

// source returns a source of randomness for protocols. Its bytes depend only on a name.
func source(name string) *randomizer.Source {
	g := generator(name)
	return randomizer.NewSourceFrom(func(p []byte) {
		if _, err := g.Read(p); err != nil {
			panic("figures: internal error: " + err.Error()) // a generator does not fail
		}
	})
}

// draft drafts the task of a query, and opens the task's mechanism.
func draft(q planner.Query) (*task.Task, protocols.Mechanism, error) {
	q.Name = "figure"
	t, err := planner.Draft(q)
	if err != nil {
		return nil, nil, err
	}
	m, err := registry.Open(t)
	return t, m, err
}

// same returns the values of n clients who all hold the same value.
func same(value []float64, n int) [][]float64 {
	values := make([][]float64, n)
	for i := range values {
		values[i] = value
	}
	return values
}

// meanSquare simulates a mechanism on clients with the given values. It returns the squared error of the estimated
// total, summed over the entries and averaged over the repetitions.
func meanSquare(name string, m protocols.Mechanism, values [][]float64, repeats int) (float64, error) {
	truth, err := total(m, values)
	if err != nil {
		return 0, err
	}
	fast := protocols.CapabilitiesOf(m).Fast
	if fast == nil {
		return 0, fmt.Errorf("figure %s: %T cannot be simulated", name, m)
	}
	draw, err := fast(values)
	if err != nil {
		return 0, err
	}
	src, sum := source(name), 0.0
	for range repeats {
		a, _ := draw(src)
		a.AddUsers(uint64(len(values)))
		for i, estimate := range a.Total() {
			sum += (estimate - truth[i]) * (estimate - truth[i])
		}
	}
	return sum / float64(repeats), nil
}

// total returns the exact total of the clients' values. It evaluates consecutive rows that share memory only once.
func total(m protocols.Mechanism, values [][]float64) (sum []float64, err error) {
	var part []float64
	for i, v := range values {
		if i == 0 || &v[0] != &values[i-1][0] {
			if part, _, err = m.Exact(v); err != nil {
				return nil, err
			}
		}
		if sum == nil {
			sum = make([]float64, len(part))
		}
		for j, x := range part {
			sum[j] += x
		}
	}
	return sum, nil
}

// predicted returns the predicted root mean square error of the total if n clients hold the worst value.
func predicted(m protocols.Mechanism, n uint64) float64 {
	return math.Sqrt(m.Worst().Variance * float64(n))
}

// spread returns numbers from lo to hi, evenly spaced by logarithm and rounded to two significant digits. A full run
// has that many points; a quick run has a quarter of them, at least 3.
func spread(lo, hi float64, points int, quick bool) (out []float64) {
	if quick {
		points = max(points/4, 3)
	}
	for i := range points {
		v := lo * math.Pow(hi/lo, float64(i)/float64(points-1))
		power := math.Pow(10, math.Floor(math.Log10(v)+1e-9)-1)
		out = append(out, math.Round(v/power)*power)
	}
	return out
}

// few returns full in a full run and quick in a quick one.
func few(full, quick int, isQuick bool) int {
	if isQuick {
		return quick
	}
	return full
}
