package figures

import (
	"bytes"
	_ "embed"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/doona-dp/doona/accountant"
	"github.com/doona-dp/doona/internal/table"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// beatsCSV holds 439 heart beats as gzipped CSV (testdata/README.md names source and licence).
//
//go:embed testdata/ecg-beats.csv.gz
var beatsCSV []byte

// beats returns the heart beats. Each is a row of 187 samples in [0, 1].
func beats() ([][]float64, error) {
	return table.ParseRows(bytes.NewReader(beatsCSV), table.Format{}, 1000)
}

const scm21Y = "squared error of the average vector"

// scm21Caption is the end of the caption of every experiment.
const scm21Caption = " Data are heart beats (MIT-BIH record 208). Except for the axis, d = 100 samples, n = " +
	"50,000, k = 3, t = 1, ε = 0.95. The paper's lines have its δ = 0.5, a meaningless guarantee: at 10⁻⁶ its γ " +
	"would exceed 1. Ours has the exact γ at 10⁻⁶."

// scm21Figures returns the figures of [SCM21], which adds up vectors in the shuffle model.
//
// [SCM21]: https://arxiv.org/abs/2112.05464
func scm21Figures() []Figure {
	linear := func(name, what, title, x, caption string, points []float64, set func(*scm21, float64),
		slopes ...Slope) Figure {
		return Figure{Name: name, Paper: "SCM21", What: what, Title: title, X: x, Y: scm21Y, LinearX: len(slopes) == 0,
			Caption: caption + scm21Caption, Slopes: slopes, Slow: name != "scm21-3a",
			compute: func(quick bool) (*Table, error) { return scm21Table(name, points, quick, set) }}
	}
	const measured, ours = "paper's γ, δ = 0.5, measured", "ours, δ = 10⁻⁶"
	const fixed = "The experiment fixes k at 3. The theorem takes the best k for each point: see Theorem 4.6"
	const steep = "γ is proportional to dk/(nε²) and comes near 1 at one end. The error has a factor 1/(1−γ)². " +
		"And k is fixed at 3"
	return []Figure{
		linear("scm21-1a", "Figure 1 (a)", "How many coordinates to send", "coordinates sent t",
			"Each user sends t of its coordinates. The paper divides by (n/d)² for every t, though tn/d reports "+
				"are added. The third line divides by (tn/d)².",
			[]float64{1, 2, 3, 4, 5, 6, 8}, func(e *scm21, x float64) { e.t = x }),
		linear("scm21-1b", "Figure 1 (b)", "How finely to round", "levels above zero k",
			"Values are rounded to k+1 levels. With the paper's γ, which grows with k, few levels are best. "+
				"With the exact γ more levels are best.",
			[]float64{1, 2, 3, 4, 5, 6, 8, 10}, func(e *scm21, x float64) { e.k = x }),
		linear("scm21-2a", "Figure 2 (a)", "The error against the dimension", "dimension d",
			"One of the first d samples of each beat is sent. The theorem says d^(8/3).",
			[]float64{20, 40, 60, 80, 100, 140, 180},
			func(e *scm21, x float64) { e.d = x }, Slope{Series: measured, Theory: 8. / 3},
			Slope{Series: ours, Theory: 2, Why: "Late samples of a beat are often 0, which rounds without an " +
				"error"}),
		linear("scm21-2b", "Figure 2 (b)", "The error against the number of users", "users n",
			"Users are drawn with replacement from the beats. The theorem says n^(−5/3). The paper fits "+
				"n^(−7/6).",
			[]float64{12000, 20000, 30000, 50000, 70000, 100000},
			func(e *scm21, x float64) { e.n = x }, Slope{Series: measured, Theory: -5. / 3, Why: steep},
			Slope{Series: ours, Theory: -5. / 3, Why: fixed}),
		linear("scm21-3a", "Figure 3 (a)", "The error against ε below 1", "ε",
			"Stronger privacy is to the left. The theorem says ε^(−4/3).",
			[]float64{.4, .5, .6, .7, .8, .9, .95}, func(e *scm21, x float64) { e.eps = x },
			Slope{Series: measured, Theory: -4. / 3, Why: steep}, Slope{Series: ours, Theory: -4. / 3, Why: fixed}),
		linear("scm21-3b", "Figure 3 (b)", "The error against ε from 1 to 6", "ε",
			"Privacy is weaker to the right, where only the rounding error remains. The theorem says ε^(−4/3).",
			[]float64{1, 1.5, 2, 3, 4, 5, 5.9}, func(e *scm21, x float64) { e.eps = x },
			Slope{Series: measured, Theory: -4. / 3, Why: steep}, Slope{Series: ours, Theory: -4. / 3, Why: fixed}),
		{
			Name: "scm21-46n", Paper: "SCM21", What: "Theorem 4.6, against n", Title: "The error at the best k",
			X: "users n", Y: scm21Y,
			Caption: "The worst values at d = 100, ε = 0.95 and δ = 10⁻⁶, with the best k at each point. The " +
				"paper's γ has a factor d: it takes each coordinate to be hidden only among the users who send " +
				"it. It is hidden among all, because nobody knows which coordinate a user sends. The last line " +
				"adds the error that the paper leaves out: only n/d users report each coordinate.",
			Slopes: []Slope{{Series: "paper's γ", From: 1e6, Theory: -5. / 3},
				{Series: "exact γ", From: 1e6, Theory: -5. / 3},
				{Series: "exact γ, with sampling", From: 1e6, Theory: -1}},
			compute: func(quick bool) (*Table, error) {
				return scm21Best("users", spread(1e5, 1e8, 10, quick), func(x float64) (n, d float64) { return x, 100 })
			},
		},
		{
			Name: "scm21-46d", Paper: "SCM21", What: "Theorem 4.6, against d", Title: "The error at the best k",
			X: "dimension d", Y: scm21Y,
			Caption: "The same for a hundred million users against the dimension d. The paper's d^(8/3) is d² " +
				"times the d^(2/3) of its γ. Without that factor d² remains. It also remains with the error of " +
				"sampling. A coordinate that n/d users report has an error in proportion to d, and there are d " +
				"coordinates.",
			Slopes: []Slope{{Series: "paper's γ", Theory: 8. / 3}, {Series: "exact γ", Theory: 2},
				{Series: "exact γ, with sampling", Theory: 2}},
			compute: func(quick bool) (*Table, error) {
				return scm21Best("dimension", spread(10, 1000, 9, quick),
					func(x float64) (n, d float64) { return 1e8, x })
			},
		},
	}
}

// scm21 holds the parameters of an experiment: n users with vectors of d coordinates. Each user reports t coordinates,
// rounded to k+1 levels. The claim is (eps, delta).
type scm21 struct{ n, d, k, t, eps, delta float64 }

// paperGamma returns the paper's γ, the probability of a random report: by section 4.5 if t = 1, else by Theorem 4.1.
func (e scm21) paperGamma() float64 {
	log, n := math.Log(2*e.t/e.delta), e.n-1
	switch {
	case e.t > 1 && e.eps < 1:
		return 56 * e.d * e.k * math.Log(1/e.delta) * log / (n * e.eps * e.eps)
	case e.t > 1:
		return 2016 * e.d * e.k * math.Log(1/e.delta) * log / (n * e.eps * e.eps)
	case e.eps < 1:
		return e.d * e.k * max(14*log/(n*e.eps*e.eps), 27/(n*e.eps))
	}
	return e.d * e.k * max(80*log/(n*e.eps*e.eps), 36/(11*n*e.eps))
}

// ourGamma returns the smallest γ by exact accounting. For t ≥ 2 it is the γ of protocol vectorsum, which draws one
// coordinate from each of t blocks.
func (e scm21) ourGamma() (float64, error) {
	if e.t == 1 {
		return gammaOf(accountant.Exact, uint64(e.k)+1, e.n, e.eps, e.delta), nil
	}
	t, _, err := draft(planner.Query{Query: task.Vector, Protocol: "vectorsum", Hi: 1, Dim: uint64(e.d),
		Batch:  uint64(e.n),
		Honest: 1, Epsilon: e.eps, Delta: e.delta, Params: planner.Params{"k": uint64(e.k), "t": uint64(e.t)}})
	if err != nil {
		return 0, err
	}
	gamma, _ := t.Param("gamma")
	return gamma.Float64(), nil
}

// beatUsers assigns a heart beat to each user: users holds indices into beats.
type beatUsers struct {
	beats [][]float64
	users []int
}

func newBeatUsers(n int) (*beatUsers, error) {
	all, err := beats()
	if err != nil {
		return nil, err
	}
	c, random := &beatUsers{beats: all, users: make([]int, n)}, rand.New(generator("scm21 users"))
	for i := range c.users {
		c.users[i] = random.IntN(len(all))
	}
	return c, nil
}

// moments returns averages over the users, summed over the first d coordinates x: the variance of one report of x, x²,
// and (x−½)².
func (c *beatUsers) moments(e scm21, gamma float64) (variance, square, centred float64) {
	times := make([]float64, len(c.beats))
	for _, u := range c.users {
		times[u] += 1 / float64(len(c.users))
	}
	for b, beat := range c.beats {
		for _, x := range beat[:int(e.d)] {
			variance += times[b] * protocols.RoundedVariance(gamma, uint64(e.k), x)
			square += times[b] * x * x
			centred += times[b] * (x - .5) * (x - .5)
		}
	}
	return variance, square, centred
}

// measure runs the paper's Algorithms 2 (client) and 3 (analyzer) several times. It compares the estimate of each
// coordinate with the sum over the users who sent that coordinate. It returns the mean squared error, divided by
// (n/d)².
func (c *beatUsers) measure(e scm21, gamma float64, repeats int, random *rand.Rand) (sum float64) {
	d, k := int(e.d), int(e.k)
	order, errs := make([]int, d), make([]float64, d)
	for i := range order {
		order[i] = i
	}
	for range repeats {
		clear(errs)
		for _, u := range c.users {
			for j := range int(e.t) {
				other := j + random.IntN(d-j)
				order[j], order[other] = order[other], order[j]
				x := c.beats[u][order[j]]
				errs[order[j]] += (report(random, x, k, gamma)-gamma/2)/(1-gamma) - x
			}
		}
		for _, off := range errs {
			sum += off * off
		}
	}
	return sum / float64(repeats) / (e.n / e.d) / (e.n / e.d)
}

// report randomizes x in [0, 1] as one client does. It rounds x at random to y/k, or with probability γ returns a
// random level.
func report(random *rand.Rand, x float64, k int, gamma float64) float64 {
	if random.Float64() < gamma {
		return float64(random.IntN(k+1)) / float64(k)
	}
	whole, rest := math.Modf(x * float64(k))
	if random.Float64() < rest {
		whole++
	}
	return whole / float64(k)
}

func scm21Table(name string, points []float64, quick bool, set func(*scm21, float64)) (*Table, error) {
	t := newTable(name, "paper's γ, δ = 0.5, measured", "paper's γ, δ = 0.5", "paper's γ, per report",
		"paper's γ, with sampling", "ours, δ = 10⁻⁶", "ours, with sampling")
	if quick {
		points = []float64{points[0], points[len(points)-1]}
	}
	for _, x := range points {
		e := scm21{n: 50000, d: 100, k: 3, t: 1, eps: .95, delta: .5}
		set(&e, x)
		c, err := newBeatUsers(int(e.n))
		if err != nil {
			return nil, err
		}
		gamma := e.paperGamma()
		variance, square, _ := c.moments(e, gamma)
		paper := e.t * e.d / e.n * variance / ((1 - gamma) * (1 - gamma))
		random := rand.New(generator(name + strconv.FormatFloat(x, 'g', -1, 64)))
		measured := c.measure(e, gamma, few(100, 2, quick), random)
		each, missing := paper/(e.t*e.t), (e.d/e.t-1)/e.n
		e.delta = 1e-6
		exact, err := e.ourGamma()
		if err != nil {
			return nil, err
		}
		variance, _, centred := c.moments(e, exact)
		ours := e.d / (e.t * e.n) * variance / ((1 - exact) * (1 - exact))
		t.add(x, measured, paper, each, each+missing*square, ours, ours+missing*centred)
	}
	t.X = map[string]string{"scm21-1a": "t", "scm21-1b": "k", "scm21-2a": "d", "scm21-2b": "n"}[name]
	if t.X == "" {
		t.X = "ε"
	}
	return t, nil
}

// scm21Best tabulates the error for the worst values at the best k, with the paper's γ and with the exact γ.
func scm21Best(x string, points []float64, at func(x float64) (n, d float64)) (*Table, error) {
	t := newTable(x, "Theorem 4.6, t = 1", "paper's γ", "exact γ", "exact γ, with sampling")
	for _, v := range points {
		e := scm21{t: 1, eps: .95, delta: 1e-6}
		e.n, e.d = at(v)
		printed := 2 * math.Pow(e.d, 8./3) * math.Pow(14*math.Log(1/e.delta)*math.Log(2/e.delta), 2./3) /
			(math.Pow(e.n, 5./3) * math.Pow(e.eps, 4./3))
		paper := e.best(e.paperGammaAt)
		exact := e.best(func(k float64) float64 { return gammaOf(accountant.Exact, uint64(k)+1, e.n, e.eps, e.delta) })
		t.add(v, printed, paper, exact, exact+e.d*(e.d-1)/(4*e.n))
	}
	return t, nil
}

func (e scm21) paperGammaAt(k float64) float64 {
	e.k = k
	return e.paperGamma()
}

// worstVariance returns the variance of one report for the value in [0, 1] with the largest variance.
func worstVariance(gamma float64, k uint64) float64 {
	return protocols.RoundedVariance(gamma, k, protocols.WorstRounded(gamma, k, 1, 0))
}

// best returns the least error for the worst values, over k = 1, 2, 3, 4, 6, 8, 12, …. It is NaN if γ is at least 1 for
// every k.
func (e scm21) best(gammaAt func(k float64) float64) float64 {
	best := math.NaN()
	for k, rise := 1., 0; rise < 3 && k < 1<<16; k = math.Ceil(k * 1.19) {
		gamma := gammaAt(k)
		if !(gamma < 1) {
			break
		}
		err := e.d * e.d / e.n * worstVariance(gamma, uint64(k)) / ((1 - gamma) * (1 - gamma))
		if !(err >= best) {
			best, rise = err, 0
		} else {
			rise++
		}
	}
	return best
}
