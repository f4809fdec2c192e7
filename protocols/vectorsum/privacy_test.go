package vectorsum_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/protocols/vectorsum"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// draft returns a task of d coordinates in [0, 1] with honest clients only.
func draft(d, users uint64, eps, delta, rule string, params ...task.Param) *task.Task {
	return &task.Task{
		Name: "test", Query: task.Vector, Protocol: vectorsum.Name, Rule: rule, KEM: task.KEMX25519, Params: params,
		Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
		Input:   task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1), Bins: d},
		Claim:   task.NewClaim(eps, delta),
		Batch:   task.Batch{Size: users, Honest: randomizer.NewRational(1, 1), Min: users},
	}
}

func whole(key string, v int64) task.Param {
	return task.Param{Key: key, Value: randomizer.NewRational(v, 1)}
}

func calibrated(t *testing.T, d *task.Task) float64 {
	t.Helper()
	require.NoError(t, new(vectorsum.Protocol).Calibrate(d))
	require.NoError(t, d.ValidateDraft())
	m, err := new(vectorsum.Protocol).Open(d)
	require.NoError(t, err)
	require.NoError(t, m.CheckClaim())
	gamma, _ := d.Param("gamma")
	return gamma.Float64()
}

// block returns the coordinates of block b when d are cut into t blocks.
func block(d, t, b int) (out []int) {
	for l := range d {
		if l*t/d == b {
			out = append(out, l)
		}
	}
	return out
}

// response returns the distribution of randomized response over k+1 symbols, as messages (l, y).
func response(d, l int, x, k uint64, gamma float64) stattest.Law {
	kinds, size := d*int(k+1), int(k+1)
	law := stattest.Law{}
	for y := range size {
		law.Mix(gamma/float64(size), stattest.OneMessage(kinds, l*size+y))
	}
	law.Mix(1-gamma, stattest.OneMessage(kinds, l*size+int(x)))
	return law
}

// reports returns the distribution of one client's messages for every input in {0, …, k}^d: one coordinate of every
// block, by randomized response. An input between these gives a mixture of them. A coordinate determines its lane, so
// the histogram of all messages also shows that of each lane.
func reports(d, t int, k uint64, gamma float64) (laws []stattest.Law) {
	for _, x := range stattest.Vectors(d, k) {
		law := stattest.NoMessage(d * int(k+1))
		for b := range t {
			law = law.Add(report(d, block(d, t, b), x, k, gamma))
		}
		laws = append(laws, law)
	}
	return laws
}

// report returns the distribution of the message about one of the given coordinates of x.
func report(d int, coordinates []int, x []uint64, k uint64, gamma float64) stattest.Law {
	law := stattest.Law{}
	for _, l := range coordinates {
		law.Mix(1/float64(len(coordinates)), response(d, l, x[l], k, gamma))
	}
	return law
}

// jointReports returns the distributions for t = d as one can read the paper: all coordinates in one message.
func jointReports(d int, k uint64, gamma float64) (laws []stattest.Law) {
	inputs := stattest.Vectors(d, k)
	for _, x := range inputs {
		law := stattest.Law{}
		for kind, y := range inputs {
			p := 1.0
			for l := range y {
				p *= gamma / float64(k+1)
				if y[l] == x[l] {
					p *= 1 + (1-gamma)*float64(k+1)/gamma
				}
			}
			law.Mix(p, stattest.OneMessage(len(inputs), kind))
		}
		laws = append(laws, law)
	}
	return laws
}

var targets = []struct {
	eps, delta string
	e, d       float64
}{{"0.5", "0.2", 0.5, 0.2}, {"1", "0.1", 1, 0.1}, {"1.5", "0.05", 1.5, 0.05}, {"2", "0.01", 2, 0.01}}

// Enumerates every neighbouring input of up to 6 clients. The calibrated γ, which has no factor d, must keep the claim
// because the coordinate is secret. Half the noise must break it.
func TestOneCoordinateIsPrivate(t *testing.T) {
	caught := 0
	for _, shape := range []struct {
		d     int
		k     uint64
		users []int
	}{{1, 1, []int{2, 6}}, {2, 1, []int{1, 2, 4, 6}}, {3, 1, []int{2, 3}}, {2, 2, []int{2, 3}}, {1, 3, []int{4}}} {
		for _, users := range shape.users {
			for _, target := range targets {
				for _, rule := range []string{"revealed", "exact"} {
					d := draft(uint64(shape.d), uint64(users), target.eps, target.delta, rule,
						whole("k", int64(shape.k)))
					gamma := calibrated(t, d)
					worst := stattest.Worst(reports(shape.d, 1, shape.k, gamma), users, target.e)
					require.LessOrEqual(t, worst, target.d*(1+1e-9), "d=%d k=%d n=%d %s", shape.d, shape.k, users, rule)
					if stattest.Worst(reports(shape.d, 1, shape.k, gamma/2), users, target.e) > target.d {
						caught++
					}
				}
			}
		}
	}
	require.Greater(t, caught, 60, "of 80: half the noise must be seen")
}

// The bound of rule exact is tight. If the others' blanket bits are known, some inputs must attain it, for any d.
func TestOneCoordinateBoundIsAttained(t *testing.T) {
	const gamma, users = 0.4, 4
	for _, shape := range []struct {
		d int
		k uint64
	}{{1, 1}, {2, 1}, {3, 1}, {2, 2}} {
		kinds := shape.d * int(shape.k+1)
		blanket := stattest.Law{}
		blanket.Mix(1-gamma, stattest.NoMessage(kinds)) // known, and therefore removed
		for kind := range kinds {
			blanket.Mix(gamma/float64(kinds), stattest.OneMessage(kinds, kind))
		}
		others := stattest.NoMessage(kinds)
		for range users - 1 {
			others = others.Add(blanket)
		}
		laws := reports(shape.d, 1, shape.k, gamma)
		all, none := others.Add(laws[len(laws)-1]), others.Add(laws[0]) // differ in every coordinate
		for _, eps := range []float64{0.2, 0.5, 1} {
			want, err := accountant.KRRDelta(accountant.Exact, shape.k+1, gamma, users, eps)
			require.NoError(t, err)
			require.InEpsilon(t, want, stattest.HockeyStick(all, none, eps), 1e-6, "d=%d k=%d", shape.d, shape.k)
			for _, law := range laws {
				require.LessOrEqual(t, stattest.HockeyStick(others.Add(law), none, eps), want*(1+1e-9))
			}
		}
	}
}

// The claim check refuses γ for k symbols where the domain has k+1.
func TestNoiseForTooSmallADomainIsCaught(t *testing.T) {
	const users, k = 4, 2
	d := draft(2, users, "1", "0.1", "exact", whole("k", k))
	require.LessOrEqual(t, stattest.Worst(reports(2, 1, k, calibrated(t, d)), users, 1), 0.1)
	low := draft(2, users, "1", "0.1", "exact", whole("k", k-1))
	weak := calibrated(t, low)
	require.Greater(t, stattest.Worst(reports(2, 1, k, weak), users, 1), 0.1)

	num := randomizer.NewRational(int64(weak*(1<<40)), 1<<40)
	d.Params[0].Value = num
	m, err := new(vectorsum.Protocol).Open(d)
	require.NoError(t, err)
	require.ErrorContains(t, m.CheckClaim(), "claim.delta")
}

// Enumerates every neighbouring input for t ≥ 2. δ must never be above the claim, and half the noise must break it.
func TestSeveralCoordinatesArePrivate(t *testing.T) {
	caught := 0
	for _, shape := range []struct {
		d, t  int
		k     uint64
		users []int
	}{{3, 2, 1, []int{1, 2, 3, 4}}, {2, 2, 1, []int{2, 4, 6}}, {3, 3, 1, []int{3}}, {4, 2, 1, []int{2}},
		{2, 2, 2, []int{2, 3}}} {
		for _, users := range shape.users {
			for _, target := range targets {
				d := draft(uint64(shape.d), uint64(users), target.eps, target.delta, "revealed",
					whole("k", int64(shape.k)), whole("t", int64(shape.t)))
				gamma := calibrated(t, d)
				worst := stattest.Worst(reports(shape.d, shape.t, shape.k, gamma), users, target.e)
				require.LessOrEqual(t, worst, target.d*(1+1e-9), "d=%d t=%d k=%d n=%d ε=%s", shape.d, shape.t, shape.k,
					users, target.eps)
				if stattest.Worst(reports(shape.d, shape.t, shape.k, gamma/2), users, target.e) > target.d {
					caught++
				}
			}
		}
	}
	require.Greater(t, caught, 38, "of 44: half the noise must be seen")
}

// known returns the distribution of what an adversary sees of n clients, if it knows every other client's blanket bit
// and removes their true reports. target is the distribution of the target's messages.
func known(d, t int, k uint64, gamma float64, users int, target stattest.Law) stattest.Law {
	size := int(k + 1)
	view := target
	for b := range t {
		coordinates := block(d, t, b)
		blanket := stattest.Law{}
		blanket.Mix(1-gamma, stattest.NoMessage(d*size))
		for _, l := range coordinates {
			for y := range size {
				blanket.Mix(gamma/float64(size*len(coordinates)), stattest.OneMessage(d*size, l*size+y))
			}
		}
		for range users - 1 {
			view = view.Add(blanket)
		}
	}
	return view
}

// Two secret coordinates are exactly as private as two plain randomized responses, for any size of the blocks.
func TestSizeOfTheBlocksCancels(t *testing.T) {
	const gamma, users = 0.4, 3
	plain := reports(2, 2, 1, gamma)
	all, none := known(2, 2, 1, gamma, users, plain[3]), known(2, 2, 1, gamma, users, plain[0])
	for _, d := range []int{3, 4} {
		laws := reports(d, 2, 1, gamma)
		zero := known(d, 2, 1, gamma, users, laws[0])
		for _, eps := range []float64{0.2, 0.5, 1} {
			want := stattest.HockeyStick(all, none, eps)
			require.InEpsilon(t, want,
				stattest.HockeyStick(known(d, 2, 1, gamma, users, laws[len(laws)-1]), zero, eps), 1e-9)
			for _, law := range laws {
				require.LessOrEqual(t, stattest.HockeyStick(known(d, 2, 1, gamma, users, law), zero, eps),
					want*(1+1e-9))
			}
		}
	}
}

// Covers a dishonest first relay that puts a client's messages into different batches. Each lane of a batch has n_min =
// 2 honest messages. The test enumerates all ways to part four clients' two lanes into such batches. The claim must
// hold for all, and half the noise must break it.
func TestPartedClientsArePrivate(t *testing.T) {
	const least, users = 2, 4
	whichever := [][users]int{{0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 0}} // the batch of each client
	for _, target := range targets {
		d := draft(3, least, target.eps, target.delta, "revealed", whole("k", 1), whole("t", 2))
		gamma := calibrated(t, d)
		caught := 0.0
		for _, first := range whichever {
			for _, second := range whichever {
				parted := func(gamma float64) (clients [users][]stattest.Law) {
					for i := range users {
						clients[i] = partedReports([2]int{first[i], second[i]}, gamma)
					}
					return clients
				}
				require.LessOrEqual(t, worstSubstitution(parted(gamma), target.e), target.d*(1+1e-9), "%v %v ε=%s",
					first, second, target.eps)
				caught = max(caught, worstSubstitution(parted(gamma/2), target.e))
			}
		}
		require.Greater(t, caught, target.d, "half the noise must be seen")
	}
}

// partedReports returns the distributions of reports(3, 2, 1, gamma), with the messages of lane b in batch where[b] of
// two.
func partedReports(where [2]int, gamma float64) (laws []stattest.Law) {
	for _, x := range stattest.Vectors(3, 1) {
		law := stattest.NoMessage(12)
		for b, batch := range where {
			moved := stattest.Law{}
			for key, p := range report(3, block(3, 2, b), x, 1, gamma) {
				both := make([]byte, 12)
				copy(both[6*batch:], key)
				moved[string(both)] += p
			}
			law = law.Add(moved)
		}
		laws = append(laws, law)
	}
	return laws
}

// worstSubstitution returns the largest divergence over the inputs of client 0, if each other client holds all zeros or
// all ones.
func worstSubstitution(clients [4][]stattest.Law, eps float64) (worst float64) {
	ones := len(clients[0]) - 1
	for held := range 8 {
		others := stattest.NoMessage(12)
		for i := range 3 {
			others = others.Add(clients[i+1][ones*(held>>i&1)])
		}
		var seen []stattest.Law
		for _, law := range clients[0] {
			seen = append(seen, others.Add(law))
		}
		for _, p := range seen {
			for _, q := range seen {
				worst = max(worst, stattest.HockeyStick(p, q, eps))
			}
		}
	}
	return worst
}

// The paper's single message for all t coordinates breaks the claim with this γ, because the blanket would have to
// cover (k+1)^t symbols. Here all others hold zeros.
func TestCoordinatesInOneMessageAreNotPrivate(t *testing.T) {
	const users, eps, delta = 40, 1.0, 0.1
	d := draft(2, users, "1", "0.1", "revealed", whole("k", 1), whole("t", 2))
	gamma := calibrated(t, d)
	leak := func(laws []stattest.Law) (worst float64) {
		others := laws[0]
		for range users - 2 {
			others = others.Add(laws[0])
		}
		zero := others.Add(laws[0])
		for _, law := range laws[1:] {
			worst = max(worst, stattest.HockeyStick(others.Add(law), zero, eps),
				stattest.HockeyStick(zero, others.Add(law), eps))
		}
		return worst
	}
	require.LessOrEqual(t, leak(reports(2, 2, 1, gamma)), delta)
	require.Greater(t, leak(jointReports(2, 1, gamma)), 2*delta, "γ = %g", gamma)
}

// Checks γ for several reports per client. A second report must take less than twice the blanket. To report all
// coordinates, an earlier bound took γ = 0.165.
func TestSecondReportIsCheap(t *testing.T) {
	gamma := func(reported int64) float64 {
		return calibrated(t, draft(100, 100_000, "1", "1e-6", "exact", whole("k", 3), whole("t", reported)))
	}
	require.InDelta(t, 0.0017, gamma(1), 0.0001)
	require.InDelta(t, 0.0030, gamma(2), 0.0001)
	require.InDelta(t, 0.0139, gamma(10), 0.0001)
	require.InDelta(t, 0.113, gamma(100), 0.0005)
}

func TestNoFactorD(t *testing.T) {
	d := draft(10, 1_000_000, "0.5", "1e-6", "revealed", whole("k", 4))
	ours := calibrated(t, d)
	published := draft(10, 1_000_000, "0.5", "1e-6", vectorsum.RuleSCM21, whole("k", 4))
	theirs := calibrated(t, published)
	require.InDelta(t, 0.00068, ours, 0.00003)
	require.InDelta(t, 14*10*4*math.Log(2e6)/(999999*0.25), theirs, 1e-9)
}

func TestPublishedParameters(t *testing.T) {
	for _, c := range []struct {
		name   string
		d      *task.Task
		k      int64
		factor float64 // Expected γ(n-1).
	}{
		{"section 4.5, ε < 1", draft(100, 50_000, "0.95", "0.5", vectorsum.RuleSCM21, whole("k", 3)), 3,
			300 * 27 / 0.95},
		{"section 4.5, ε ≥ 1", draft(10, 500_000, "2", "1e-6", vectorsum.RuleSCM21, whole("k", 3)), 3,
			30 * 80 * math.Log(2e6) / 4},
		{"theorem 4.1, ε < 1", draft(2, 10_000_000, "0.5", "1e-6", vectorsum.RuleSCM21, whole("k", 3), whole("t", 2)),
			3, 56 * 6 * math.Log(1e6) * math.Log(4e6) / 0.25},
		{"theorem 4.1, ε ≥ 1", draft(2, 10_000_000, "2", "1e-6", vectorsum.RuleSCM21, whole("k", 3), whole("t", 2)), 3,
			2016 * 6 * math.Log(1e6) * math.Log(4e6) / 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.InEpsilon(t, c.factor/float64(c.d.Batch.Size-1), calibrated(t, c.d), 1e-9)
			require.Equal(t, whole("k", c.k), c.d.Params[1])
		})
	}
	// The paper's own k for its defaults at δ = 1e-6 is min{(nε²/28d·ln(2/δ))^⅓, (nε/54d)^⅓} = 1.04.
	d := draft(100, 50_000, "0.95", "1e-6", vectorsum.RuleSCM21)
	calibrated(t, d)
	require.Equal(t, whole("k", 1), d.Params[1])
	tooFew := draft(100, 1000, "0.95", "1e-6", vectorsum.RuleSCM21)
	require.ErrorContains(t, new(vectorsum.Protocol).Calibrate(tooFew), "invalid users 1000: want at least 22508")
}
