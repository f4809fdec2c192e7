package correlated_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/correlated"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

const (
	repeats    = 2000 * stattest.Times
	deviations = 5   // Allowed for a mean. It fails by chance with 6·10⁻⁷ for each entry of each case.
	quantile   = 4.9 // Standard deviations allowed for a sample variance.
	kurtosis   = 6   // Largest kurtosis of an estimate here: that of the discrete Laplace distribution.
)

// draft returns an uncalibrated task of the protocol. All n clients are honest.
func draft(query task.Query, padding task.Padding, n uint64, eps, delta string, params ...task.Param) *task.Task {
	t := &task.Task{
		Name: "test", Query: query, Protocol: correlated.Name, Rule: correlated.RuleMoments, Params: params,
		Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1)},
		Claim: task.NewClaim(eps, delta),
		Batch: task.Batch{Size: n, Honest: randomizer.NewRational(1, 1), Min: n},
		Slots: task.Slots{Padding: padding}, Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
		KEM: task.KEMX25519,
	}
	if query == task.Histogram {
		t.Input.Bins, t.Input.Labels = 8, true
	}
	if query == task.Vector {
		t.Input.Bins = 8
	}
	return t
}

func whole(key string, v int64) task.Param {
	return task.Param{Key: key, Value: randomizer.NewRational(v, 1)}
}

func calibrated(t *testing.T, d *task.Task, o correlated.Options) *correlated.Mechanism {
	t.Helper()
	start := time.Now()
	require.NoError(t, correlated.CalibrateWith(d, o))
	took := time.Since(start)
	require.NoError(t, d.ValidateDraft())
	m, err := new(correlated.Protocol).Open(d)
	require.NoError(t, err)
	start = time.Now()
	require.NoError(t, m.CheckClaim())
	t.Logf("%s, padding %s, n=%d: calibrated in %v, checked in %v", d.Query, d.Slots.Padding, d.Batch.Size, took,
		time.Since(start))
	return m.(*correlated.Mechanism)
}

func TestDelta16(t *testing.T) {
	for _, padding := range []task.Padding{task.PaddingNone, task.PaddingFull} {
		d := draft(task.Sum, padding, 1e6, "1", "1e-6", whole("max", 16))
		m := calibrated(t, d, correlated.Options{})
		zeroSum, central := m.Messages()
		t.Logf("zero-sum messages per user %.4f, central %.2g, B = %d", zeroSum, central, d.Slots.PerLane)
		if padding == task.PaddingNone {
			require.LessOrEqual(t, zeroSum, 0.3)
		} else {
			require.LessOrEqual(t, zeroSum, 1.0)
			require.LessOrEqual(t, d.Slots.PerLane, uint64(450))
		}
		p := math.Exp(-0.9 / 16)
		require.InEpsilon(t, (2*p/((1-p)*(1-p))+1e6/4)/(16*16), m.Worst().Variance*1e6, 1e-6)
	}
}

func spread(n int, value func(i int) []float64) [][]float64 {
	out := make([][]float64, n)
	for i := range out {
		out[i] = value(i)
	}
	return out
}

func TestEstimatesAreUnbiasedWithThePredictedVariance(t *testing.T) {
	const n = 60
	number := func(i int) []float64 { return []float64{float64(i%17) / 16} }
	cases := []struct {
		name    string
		query   task.Query
		padding task.Padding
		max     int64
		value   func(i int) []float64
	}{
		{"sum", task.Sum, task.PaddingNone, 8, number},
		{"mean", task.Mean, task.PaddingFull, 5, number},
		{"count", task.Count, task.PaddingFull, 1, func(i int) []float64 { return []float64{float64(i % 2)} }},
		{"histogram", task.Histogram, task.PaddingNone, 1, func(i int) []float64 { return []float64{float64(i % 8)} }},
		{"sparse vectors", task.Vector, task.PaddingNone, 2, func(i int) []float64 {
			v := make([]float64, 8)
			v[i%8] = float64(i%5) / 4
			return v
		}},
	}
	for _, c := range cases {
		for _, honest := range []randomizer.Rational{randomizer.NewRational(1, 1), randomizer.NewRational(4, 5)} {
			t.Run(c.name+", h = "+honest.String(), func(t *testing.T) {
				d := draft(c.query, c.padding, n, "3", "1e-3", whole("max", c.max))
				d.Batch.Honest, d.Batch.Min = honest, honest.MulFloor(n)
				m := calibrated(t, d, correlated.Options{Share: 0.6})
				out, err := planner.Trial{Repeats: repeats}.Run(d, m, spread(n, c.value))
				require.NoError(t, err)
				for j, truth := range out.Truth {
					require.InDelta(t, truth, out.Estimate[j], deviations*math.Sqrt(out.PredictedVariance[j]/repeats),
						"bias of entry %d", j)
					require.InEpsilon(t, out.PredictedVariance[j], out.Variance[j],
						quantile*math.Sqrt((kurtosis-1)/float64(repeats)), "variance of entry %d", j)
				}
				zeroSum, central := m.Messages()
				require.InDelta(t, zeroSum+central+1, out.MessagesPerUser, 0.55,
					"messages per user; under padding full, value 0 has no message")
				t.Logf("bias %.3g, variance %.4g of predicted %.4g, %.1f messages per user, B = %d",
					out.Estimate[0]-out.Truth[0], out.Variance[0], out.PredictedVariance[0], out.MessagesPerUser,
					d.Slots.PerLane)
			})
		}
	}
}

func requireField(t *testing.T, err error, field string) {
	t.Helper()
	var f *invalid.FieldError
	require.ErrorAs(t, err, &f)
	require.Equal(t, field, f.Field)
	require.NotEmpty(t, f.Want)
	t.Log(err)
}

func TestImpossibleParametersAreNamed(t *testing.T) {
	requireField(t, new(correlated.Protocol).Calibrate(draft(task.Sum, "", 1000, "1", "1e-6", whole("max", 0))),
		"params.max")
	requireField(t, new(correlated.Protocol).Calibrate(draft(task.Sum, "", 1000, "1", "1e-6", whole("max", 9000))),
		"params.max")
	requireField(t, new(correlated.Protocol).Calibrate(draft(task.Count, "", 1000, "1", "1e-6", whole("max", 2))),
		"params.max")
	requireField(t, new(correlated.Protocol).Calibrate(draft(task.VectorMean, "", 1000, "1", "1e-6")), "query")
	requireField(t, new(correlated.Protocol).Calibrate(draft(task.Sum, task.PaddingFull, 2, "0.05", "1e-6",
		whole("max", 64))), "batch.size")
	requireField(t, correlated.CalibrateWith(draft(task.Sum, "", 1000, "1", "1e-6", whole("max", 4)),
		correlated.Options{Share: 1}), "share")
	d := draft(task.Sum, "", 1000, "1", "1e-6", whole("max", 4))
	d.Rule = "revealed"
	requireField(t, new(correlated.Protocol).Calibrate(d), "rule")
}

func TestOtherTasksAreRefused(t *testing.T) {
	base := draft(task.Sum, task.PaddingNone, 100000, "1", "1e-6", whole("max", 4))
	require.NoError(t, new(correlated.Protocol).Calibrate(base))
	at := func(d *task.Task, key string) *randomizer.Rational {
		for i := range d.Params {
			if d.Params[i].Key == key {
				return &d.Params[i].Value
			}
		}
		t.Fatal("no parameter " + key)
		return nil
	}
	for name, c := range map[string]struct {
		change func(*task.Task)
		field  string
	}{
		"Δ of 0":       {func(d *task.Task) { *at(d, "max") = randomizer.NewRational(0, 1) }, "params.max"},
		"central of 0": {func(d *task.Task) { *at(d, "central") = randomizer.NewRational(0, 1) }, "params.central"},
		"r below 1":    {func(d *task.Task) { *at(d, "pair.r") = randomizer.NewRational(1, 2) }, "params.pair.r"},
		"no level": {func(d *task.Task) { d.Params = append(d.Params[:2:2], d.Params[5:]...) },
			"params.level.00.r"},
		"one too many":    {func(d *task.Task) { d.Params = append(d.Params, whole("zzz", 1)) }, "params"},
		"theta of 0":      {func(d *task.Task) { *at(d, "theta") = randomizer.NewRational(0, 1) }, "params.theta"},
		"theta too large": {func(d *task.Task) { *at(d, "theta") = randomizer.NewRational(1e6+1, 1) }, "params.theta"},
		"two lanes":       {func(d *task.Task) { d.Slots.Lanes = 2 }, "slots"},
		"no slot for it":  {func(d *task.Task) { d.Slots.PerLane = 1 }, "slots.perLane"},
		"other size":      {func(d *task.Task) { d.Slots.MessageBytes = 9 }, "slots"},
		// Under padding full, the parameters zero.* are not allowed.
		"padding full":    {func(d *task.Task) { d.Slots.Padding = task.PaddingFull }, "params"},
		"histogram query": {func(d *task.Task) { d.Query = task.Histogram; d.Input.Bins = 3 }, "params.max"},
	} {
		t.Run(name, func(t *testing.T) {
			d := *base
			d.Params = append([]task.Param{}, base.Params...)
			c.change(&d)
			_, err := new(correlated.Protocol).Open(&d)
			requireField(t, err, c.field)
		})
	}
	for name, change := range map[string]func(*task.Task){
		"smaller δ":       func(d *task.Task) { d.Claim.Delta = task.NewDelta("9.5e-7") },
		"smaller ε":       func(d *task.Task) { d.Claim.Epsilon = task.NewEpsilon("0.995") },
		"fewer slots":     func(d *task.Task) { d.Slots.PerLane = d.Slots.PerLane * 9 / 10 },
		"less pair noise": func(d *task.Task) { at(d, "pair.r").Num = at(d, "pair.r").Num * 9 / 10 },
		"less of 0":       func(d *task.Task) { at(d, "zero.s").Num *= 2 },
		"other θ":         func(d *task.Task) { at(d, "theta").Num *= 3 },
	} {
		t.Run(name, func(t *testing.T) {
			d := *base
			d.Params = append([]task.Param{}, base.Params...)
			change(&d)
			m, err := new(correlated.Protocol).Open(&d)
			require.NoError(t, err)
			err = m.CheckClaim()
			require.Error(t, err)
			t.Log(err)
		})
	}
}

func TestValuesAndMessages(t *testing.T) {
	src := randomizer.NewSource()
	d := draft(task.Vector, task.PaddingNone, 1000, "3", "1e-3", whole("max", 3))
	m := calibrated(t, d, correlated.Options{})
	_, err := m.Randomize(src, []float64{0, 0.5, 0, 0, 0, 0.1, 0, 0})
	requireField(t, err, "value")
	_, err = m.Randomize(src, []float64{0, 1.5, 0, 0, 0, 0, 0, 0})
	requireField(t, err, "value")
	a, b := m.Aggregate(), m.Aggregate()
	for _, bad := range []struct {
		lane    int
		message []byte
	}{{0, nil}, {1, []byte{0}}, {0, []byte{200}}, {0, []byte{0, 0}}, {0, []byte{2 + 6}}} {
		require.Error(t, a.Add(bad.lane, bad.message), "%v", bad)
	}
	require.NoError(t, a.Add(0, []byte{2}))     // value 0
	require.NoError(t, a.Add(0, []byte{6 + 5})) // value 3 for coordinate 1
	require.NoError(t, b.Add(0, []byte{6 + 1})) // value -1 for coordinate 1
	a.AddUsers(2)
	b.AddUsers(1)
	require.NoError(t, a.Merge(b))
	require.EqualValues(t, 3, a.Reports())
	require.InDelta(t, 2.0/3, a.Total()[1], 1e-12)
	other := calibrated(t, draft(task.Sum, task.PaddingNone, 1000, "3", "1e-3", whole("max", 3)), correlated.Options{})
	require.ErrorIs(t, a.Merge(other.Aggregate()), protocols.ErrMerge)
	require.True(t, math.IsInf(m.Epsilon0(), 1))
}

// Under padding none a client sends one message more than its noise messages, whatever its value.
func TestTheNumberOfMessagesDoesNotDependOnTheValue(t *testing.T) {
	m := calibrated(t, draft(task.Sum, task.PaddingNone, 1000, "3", "1e-3", whole("max", 3)), correlated.Options{})
	for _, x := range []float64{0, 0.2, 1} {
		stream := uint64(7)
		src := randomizer.NewSourceFrom(func(p []byte) {
			for i := range p {
				stream = stream*6364136223846793005 + 1442695040888963407
				p[i] = byte(stream >> 56)
			}
		})
		counts := []int{}
		for range 50 {
			lanes, err := m.Randomize(src, []float64{x})
			require.NoError(t, err)
			require.NotEmpty(t, lanes[0])
			counts = append(counts, len(lanes[0]))
		}
		require.Equal(t, want(t, &seen, counts), counts)
	}
}

func TestMaliciousClients(t *testing.T) {
	const n, malicious = 40, 2
	d := draft(task.Sum, task.PaddingFull, n, "3", "1e-3", whole("max", 4))
	m := calibrated(t, d, correlated.Options{})
	values := spread(n, func(i int) []float64 { return []float64{0.5} })
	for attack, bias := range map[string]float64{
		protocols.AttackMax:           malicious * (float64(d.Slots.PerLane) - 0.5),
		protocols.AttackOneCoordinate: malicious * (float64(d.Slots.PerLane) - 0.5),
		protocols.AttackDropNoise:     0,
	} {
		out, err := planner.Trial{Repeats: 2000, Malicious: malicious, Attack: attack}.Run(d, m, values)
		require.NoError(t, err)
		require.InDelta(t, out.Truth[0]+bias, out.Estimate[0], deviations*math.Sqrt(out.PredictedVariance[0]/2000),
			attack)
	}
	_, err := planner.Trial{Repeats: 1, Malicious: 1, Attack: "none"}.Run(d, m, values)
	requireField(t, err, "attack")
}

var seen []int

func want(t *testing.T, first *[]int, counts []int) []int {
	t.Helper()
	if *first == nil {
		*first = counts
	}
	return *first
}

// TestClosedFormNextToEpsilon checks tasks whose closed form leaves so little of ε that the zero-sum noise cannot be
// drawn. The client must return an error and must not panic.
func TestClosedFormNextToEpsilon(t *testing.T) {
	d := draft(task.Count, task.PaddingFull, 1000, "1", "1e-6", whole("max", 1))
	d.Rule = correlated.RuleTheorem2
	d.Slots = task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 100, MessageBytes: 1}
	for _, below := range []int64{1, 10} {
		d.Params = []task.Param{{Key: "central", Value: randomizer.NewRational(1<<40-below, 1<<40)}, whole("max", 1)}
		_, err := new(correlated.Protocol).Open(d)
		requireField(t, err, "params.central")
	}
	d.Params[0].Value = randomizer.NewRational(1<<40-100, 1<<40)
	_, err := new(correlated.Protocol).Open(d)
	require.NoError(t, err)
}

// Calibrates and certifies the noise for Δ = 4096 and n = 10⁷. It logs the time.
func TestLargeDelta(t *testing.T) {
	start := time.Now()
	messages, derived, ok := correlated.Search(4096, 1, 1e-6, 0.9)
	took := time.Since(start)
	require.True(t, ok)
	require.LessOrEqual(t, derived, 1e-6)
	t.Logf("Δ = 4096: calibrated and certified in %v; %.2f zero-sum messages per user at n = 10⁷", took, messages/1e7)
	require.Less(t, messages/1e7, 10.0)
}

// TestNearlyCentralForManyClients checks a mean of many clients at (1, 10⁻⁸). Its error must be nearly a trusted
// curator's, with few messages on average. The bound on a batch's slots must be close to the number that arrives.
func TestNearlyCentralForManyClients(t *testing.T) {
	cases := map[uint64]float64{1e5: 60}
	if stattest.Long {
		cases[1e6], cases[1e7] = 25, 10
	}
	for n, most := range cases {
		d := draft(task.Mean, task.PaddingNone, n, "1", "1e-8")
		m := calibrated(t, d, correlated.Options{})
		zeroSum, central := m.Messages()
		messages, ratio := 1+zeroSum+central, math.Sqrt(m.Worst().Variance*float64(n))/math.Sqrt2
		t.Logf("n = %d: %.1f messages, %.3f times the central error, B = %d, at most %d slots on average", n, messages,
			ratio, d.Slots.PerLane, d.Slots.Average)
		require.LessOrEqual(t, messages, most)
		require.LessOrEqual(t, ratio, 1.25)
		require.Greater(t, float64(d.Slots.Average), messages)
		require.Less(t, float64(d.Slots.Average), 1.5*messages)
		if n == 1e5 {
			draw, err := m.Capabilities().Fast(spread(int(n), func(int) []float64 { return []float64{1} }))
			require.NoError(t, err)
			_, sent := draw(randomizer.NewSource())
			require.LessOrEqual(t, sent(), d.Slots.Average*n) // fails with a probability of 2^-40
		}
	}
}
