package correlated

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

func tinyTask(query task.Query, padding task.Padding, eps, delta string, n, top uint64) *task.Task {
	t := &task.Task{
		Name: "test", Query: query, Protocol: Name, Rule: RuleMoments,
		Params: []task.Param{{Key: "max", Value: randomizer.NewRational(int64(top), 1)}},
		Input:  task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1)},
		Claim:  task.NewClaim(eps, delta),
		Batch:  task.Batch{Size: n, Honest: randomizer.NewRational(1, 1), Min: n},
		Slots:  task.Slots{Padding: padding},
	}
	if sparse(t) {
		t.Input.Bins, t.Input.Labels = 2, query == task.Histogram
	}
	return t
}

// clientNoise returns the distribution of the total size of one client's jumps of a source, up to a tail below edge. It
// uses the sampler's jump rates and the recursion of compound Poisson variables (Panjer), term by term.
func clientNoise(s source, users uint64, edge float64) []float64 {
	mass, decay := float64(s.weight)/rateUnit/float64(users), math.Exp(-s.s.Float64())
	jumps := 0.0
	for k := uint64(1); k <= 10_000 && (s.jump == 0 || k <= s.jump); k++ {
		jumps += mass * math.Pow(decay, float64(k)) / float64(k)
	}
	p := []float64{math.Exp(-jumps)}
	for sum := p[0]; sum < 1-edge; {
		z := len(p)
		next := 0.0
		for k := 1; k <= z && (s.jump == 0 || k <= int(s.jump)); k++ {
			next += mass * math.Pow(decay, float64(k)) * p[z-k] / float64(z)
		}
		p = append(p, next)
		sum += next
	}
	return p
}

func convolve(a, b []float64, edge float64) []float64 {
	out := make([]float64, len(a)+len(b)-1)
	for i, x := range a {
		for j, y := range b {
			out[i+j] += x * y
		}
	}
	for tail := out[len(out)-1]; tail < edge; tail += out[len(out)-1] {
		out = out[:len(out)-1]
	}
	return out
}

// shuffledNoise returns the distribution of the histogram of all clients' noise messages, by enumeration of all
// outcomes. For every atom it convolves the clients' distributions, and over the atoms it adds up their messages. It
// also returns the probability of the tails that it cuts. The histogram has an entry for each message of
// [Mechanism.encode].
func shuffledNoise(m *Mechanism, users int, edge float64) (stattest.Law, float64) {
	kinds := int(m.values() * m.dim)
	law, cut := stattest.NoMessage(kinds), 0.0
	for _, s := range m.sources {
		coordinates := m.dim
		if s.Messages == [3]int64{} {
			coordinates = 1
		}
		one := clientNoise(s, m.task.Batch.Min, edge/1000)
		total := []float64{1}
		for range users {
			total = convolve(total, one, edge)
		}
		sum := 0.0
		for _, p := range total {
			sum += p
		}
		for at := range coordinates {
			cut += 1 - sum
			next := stattest.Law{}
			for key, p := range law {
				h := []byte(key)
				for z, q := range total {
					if z > 0 {
						for _, v := range s.Messages[:s.Size] {
							h[int(at*m.values())+int(v)+int(m.offset())]++
						}
					}
					if p*q > edge*1e-4 {
						next[string(h)] += p * q
					}
				}
			}
			law = next
		}
	}
	sum := 0.0
	for _, p := range law {
		sum += p
	}
	return law, 1 - sum
}

// shuffledDelta returns δ(ε) of the shuffled mechanism, maximised over all substitutions. The other clients' values
// shift both distributions alike and change nothing. Inputs are rounded values with their coordinate.
func shuffledDelta(m *Mechanism, users int, eps, edge float64) (worst, cut float64) {
	law, cut := shuffledNoise(m, users, edge)
	var seen []stattest.Law
	for at := range m.dim {
		for x := range m.top + 1 {
			if x == 0 && (at > 0 || m.task.Query == task.Histogram) {
				continue
			}
			moved := law
			if x > 0 || m.needsZero() {
				moved = law.Add(stattest.OneMessage(int(m.values()*m.dim), int(at*m.values()+x+m.offset())))
			}
			seen = append(seen, moved)
		}
	}
	for i := range seen {
		for j := range seen {
			if i != j {
				worst = max(worst, stattest.HockeyStick(seen[i], seen[j], eps))
			}
		}
	}
	return worst, cut
}

func TestShuffledMechanismIsPrivate(t *testing.T) {
	cases := []struct {
		query      task.Query
		padding    task.Padding
		eps, delta string
		users, top uint64
		share      float64
	}{
		{task.Count, task.PaddingFull, "2", "1e-3", 3, 1, 0.5},
		{task.Count, task.PaddingNone, "2", "3e-3", 6, 1, 0.5},
		{task.Sum, task.PaddingFull, "4", "1e-2", 2, 2, 0.4},
		{task.Sum, task.PaddingNone, "5", "2e-2", 4, 2, 0.4},
		{task.Histogram, task.PaddingFull, "5", "1e-2", 3, 1, 0.5},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s/%s/n=%d/Δ=%d", c.query, c.padding, c.users, c.top), func(t *testing.T) {
			d := tinyTask(c.query, c.padding, c.eps, c.delta, c.users, c.top)
			require.NoError(t, CalibrateWith(d, Options{Share: c.share}))
			opened, err := new(Protocol).Open(d)
			require.NoError(t, err)
			m := opened.(*Mechanism)
			require.NoError(t, m.CheckClaim())
			eps, delta := d.Claim.Epsilon.Value(), d.Claim.Delta.Value()
			edge := delta * 3e-4
			exact, cut := shuffledDelta(m, int(c.users), eps, edge)
			t.Logf("exact δ %.4g (tails cut %.2g) of claimed %g; B %d", exact, cut, delta, d.Slots.PerLane)
			require.LessOrEqual(t, exact, delta)
			require.Less(t, cut, delta/2)
			// The same enumeration must show that too little noise breaks the claim.
			for i := range m.sources {
				weak := *m
				weak.sources = append(append([]source{}, m.sources[:i]...), m.sources[i+1:]...)
				e, _ := shuffledDelta(&weak, int(c.users), eps, edge)
				require.Greater(t, e, 2*delta, "claim holds without atom %v", m.sources[i].Messages)
			}
			weak := *m
			weak.sources = append([]source{}, m.sources...)
			for i := range weak.sources {
				weak.sources[i].weight /= 2
			}
			e, _ := shuffledDelta(&weak, int(c.users), eps, edge)
			require.Greater(t, e, 2*delta, "half of every r")
		})
	}
}

// At Δ = 16, n = 10⁶ the paper's closed form must send over ten noise messages per user. With few levels a task can use
// it.
func TestClosedForm(t *testing.T) {
	d := tinyTask("sum", "full", "1", "1e-6", 1e6, 16)
	d.Rule = RuleTheorem2
	d.Params = append([]task.Param{{Key: "central", Value: down(0.9 / 16)}}, d.Params...)
	m, err := newMechanism(d)
	require.NoError(t, err)
	zeroSum, _ := m.Messages()
	t.Logf("closed form: %.1f zero-sum messages per user", zeroSum)
	require.InDelta(t, 14, zeroSum, 6)
	// With few levels, the closed form fits the slots of a task.
	d = tinyTask("sum", "full", "2", "1e-3", 1000, 2)
	d.Rule = RuleTheorem2
	require.NoError(t, CalibrateWith(d, Options{Share: 0.5}))
	opened, err := new(Protocol).Open(d)
	require.NoError(t, err)
	require.NoError(t, opened.CheckClaim())
	d.Claim.Epsilon = task.NewEpsilon("0.99")
	opened, err = new(Protocol).Open(d)
	if err == nil {
		err = opened.CheckClaim()
	}
	require.Error(t, err)
}
