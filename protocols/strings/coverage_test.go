package strings_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// caseTask returns the task of a case.
func caseTask(t testing.TB, c planner.TextCase) *task.Task {
	t.Helper()
	d, err := planner.Draft(c.Query())
	require.NoError(t, err)
	return d
}

// byLaw draws a batch with new hashes by the law of the counts. It draws the cell of each message, but no text that one
// client has: the cells of such a text are uniform.
func byLaw(c planner.TextCase, m *strings.Mechanism, d *task.Task, src *rand.Rand) (agg *strings.Aggregate,
	held map[string]int, asked []string) {
	m = m.WithSeed(src.Uint64())
	held, asked = c.Texts(src.Uint64N)
	agg = m.Aggregate().(*strings.Aggregate)
	counts, left := agg.Counts(), int(c.Users)
	levels, checks := m.Tables()
	tables, gamma := levels+checks, m.Gamma()
	each := uint64(len(counts) / tables)
	cells := make([]uint64, tables)
	for text, clients := range held {
		for table := range cells {
			cells[table] = m.Cell(table, text)
		}
		for range clients {
			y := cells[src.IntN(tables)]
			if gamma > 0 && src.Float64() < gamma {
				y = y/each*each + src.Uint64N(each)
			}
			counts[y]++
		}
		left -= clients
	}
	if d.Noise != nil {
		left += 2 * int(d.Noise.Pool)
		agg.AddDummies(2, 2*d.Noise.Pool)
	}
	for range left {
		counts[src.IntN(len(counts))]++
	}
	return agg, held, asked
}

// measured is the coverage of a case, with what tells whether it is that of the intervals that are printed.
type measured struct {
	*planner.TextCoverage
	from    float64 // See [strings.Aggregate.Hold].
	Printed int     `json:"printed"` // Batches of which the printed intervals are computed.
	Differ  int     `json:"differ"`  // Texts of these batches for which the test of the truth says otherwise.
}

// printEach is the number of batches of which one computes the printed intervals.
const printEach = 20

// add adds one batch.
func (m *measured) add(agg *strings.Aggregate, held map[string]int, asks []string) {
	listed, asked, none, off := agg.Hold(m.from, held, asks, .95, false)
	if m.Batches%printEach == 0 {
		printed, printedAsked, printedNone, _ := agg.Hold(m.from, held, asks, .95, true)
		m.Printed++
		m.Differ += differences(listed, printed) + differences(asked, printedAsked) + max(none-printedNone,
			printedNone-none)
		listed, asked = printed, printedAsked
	}
	m.Add(listed, asked, none, off)
}

// differences returns how many texts have other values in two maps.
func differences(x, y map[string]bool) (n int) {
	for text, holds := range x {
		if other, ok := y[text]; !ok || other != holds {
			n++
		}
	}
	return n
}

// merge adds the batches of another measurement.
func (m *measured) merge(o *measured) {
	m.Merge(o.TextCoverage)
	m.Printed += o.Printed
	m.Differ += o.Differ
}

// measure returns the coverage over batches drawn by the law.
func measure(t *testing.T, c planner.TextCase, batches int) *measured {
	out, d := &measured{TextCoverage: &planner.TextCoverage{TextCase: c}}, caseTask(t, c)
	m := open(t, d)
	from := m.ProposedFrom(2)
	var lock sync.Mutex
	var wait sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wait.Go(func() {
			one := &measured{TextCoverage: &planner.TextCoverage{}, from: from}
			src := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
			for range (batches + w) / workers {
				agg, held, asked := byLaw(c, m, d, src)
				one.add(agg, held, asked)
			}
			lock.Lock()
			defer lock.Unlock()
			out.merge(one)
		})
	}
	wait.Wait()
	return out
}

// excess returns by how much the number of found texts of a batch whose interval misses the truth exceeds a share of
// all found texts, on average, and the standard error of that.
func excess(c *measured, share float64) (mean, deviation float64) {
	n, rate, squares := float64(c.Batches), float64(c.Found-c.Covered)/float64(c.Batches), 0.
	for missed, batches := range c.Missed {
		squares += float64(missed*missed) * float64(batches)
	}
	return rate - share*float64(c.Found)/n, math.Sqrt(max(squares/n-rate*rate, .01) / n)
}

// checkCoverage requires that the intervals contain the truth in 94.5 to 98 % of all cases, and that nearly all texts
// have one. The fast test of the truth may differ from the printed interval in one batch of 500: where a cap changes at
// an interval's end, the two may look for the end from different sides. Each check of a share fails by chance once in
// 10⁶ runs, at 5 standard deviations.
func checkCoverage(t *testing.T, c *measured) {
	n := float64(c.Batches)
	least := .945*n - 5*math.Sqrt(n*.945*.055) - 1
	require.GreaterOrEqual(t, float64(c.Rest), least)
	require.NotZero(t, c.Printed)
	require.LessOrEqual(t, c.Differ, c.Printed/500,
		"texts whose printed interval differs from the test of the truth")
	require.LessOrEqual(t, float64(c.None), .05*n+10, "texts without an interval")
	if c.Asking {
		require.GreaterOrEqual(t, float64(c.Together), least)
		require.LessOrEqual(t, float64(c.Together), .98*n+5*math.Sqrt(n*.98*.02)+1)
		return
	}
	require.NotZero(t, c.Found)
	over, deviation := excess(c, 1-.945)
	require.LessOrEqual(t, over, 5*deviation)
	under, deviation := excess(c, 1-.98)
	require.GreaterOrEqual(t, under, -5*deviation)
}

// TestTextIntervals checks the coverage of cases by the law of the counts. The long form (make test-full PART=strings)
// has 20,000 batches of every case, or $DOONA_RUNS, and writes the figures. A new run of the same code continues with
// the missing batches.
func TestTextIntervals(t *testing.T) {
	path, batches, cases := "", 40, planner.TextCases()
	if !stattest.Long {
		cases = []planner.TextCase{cases[0], cases[2], cases[13], cases[18]}
	}
	const chunk = 100
	kept, done := &stattest.Rows[*measured]{}, map[string]*measured{}
	if stattest.Long {
		path, batches = os.Getenv("DOONA_FIGURES"), textBatches(t)
		kept = stattest.ReadRows[*measured](t, path, textCode(t))
		for _, c := range kept.Rows {
			done[c.Name] = c
		}
	}
	for _, one := range cases {
		t.Run(one.Name, func(t *testing.T) {
			c := done[one.Name]
			if c == nil {
				c = &measured{TextCoverage: &planner.TextCoverage{TextCase: one}}
				done[one.Name] = c
			}
			for c.Batches < batches {
				c.merge(measure(t, one, min(chunk, batches-c.Batches)))
				kept.Rows = nil // in the order of the cases
				for _, one := range planner.TextCases() {
					if c := done[one.Name]; c != nil {
						kept.Rows = append(kept.Rows, c)
					}
				}
				kept.Write(t, path)
			}
			t.Logf("%.2f %% hold, %d found; of the others %.2f %%; %d without an interval; %d of %d batches differ",
				100*c.Share(), c.Found, 100*float64(c.Rest)/float64(c.Batches), c.None, c.Differ, c.Printed)
			checkCoverage(t, c)
		})
	}
}

// textCode returns the hash of the code that decides whether intervals of texts hold.
func textCode(t *testing.T) string {
	return stattest.CodeHash(t, "*.go", "coverage_test.go", "-../row.go", "../*.go", "../../planner/texts.go")
}

// textBatches returns the number of batches of a case in the long form.
func textBatches(t *testing.T) int {
	text := os.Getenv("DOONA_RUNS")
	if text == "" {
		return 20_000
	}
	batches, err := strconv.Atoi(text)
	require.NoError(t, err)
	require.Positive(t, batches)
	return batches
}

// byCode draws a batch with new hashes by the code of clients and relays, and adds what holds of what the verifier
// prints. It returns the texts that the verifier lists, too.
func byCode(t *testing.T, c planner.TextCase, d *task.Task, src *rand.Rand, found *measured) (
	agg *strings.Aggregate, held, list map[string]int, asks []string) {
	held, asks = c.Texts(src.Uint64N)
	d.Name = fmt.Sprintf("task %x", src.Uint64())
	secret := randomizer.NewSource()
	agg = batch(t, d, open(t, d), secret, held, func(int) string {
		return setting{Length: c.Length, Alphabet: alphabet40}.text(secret, nil)
	})
	out, list := agg.Find(.95), map[string]int{}
	listed, asked, none, others := map[string]bool{}, map[string]bool{}, 0, float64(c.Users)
	check := func(into map[string]bool, x protocols.TextCount) {
		if math.IsInf(x.Hi, 1) {
			none++
			return
		}
		require.LessOrEqual(t, x.Lo, x.Clients)
		require.LessOrEqual(t, x.Clients, x.Hi)
		into[x.Text] = x.Lo <= float64(held[x.Text]) && float64(held[x.Text]) <= x.Hi
	}
	for _, x := range out.List {
		list[x.Text] = held[x.Text]
		others -= float64(held[x.Text])
		if len(asks) == 0 {
			check(listed, x)
		}
	}
	if len(asks) > 0 {
		counts, rest, err := agg.Ask(asks, .95)
		require.NoError(t, err)
		require.Equal(t, out.Rest, rest)
		for _, x := range counts {
			check(asked, x)
		}
	}
	found.Add(listed, asked, none, max(0, out.Rest.Lo-others, others-out.Rest.Hi))
	return agg, held, list, asks
}

// mostMissed is the largest share of the texts that pass the checks and that the beam search still misses, over the
// cases. It is .13 with 100 texts just below the number that is found down to, and .03 at most in the other cases.
const mostMissed = .16

// TestLawIsTheCode compares batches by the law with batches by the code of clients, relays and verifier.
//
// Batches by the law do not search: they propose all texts. For the counts of the code's batches, the two must hold
// alike, and list the same if only the texts that the code lists are proposed. So the beam search only leaves texts
// out. It looks at the levels alone, and intervals come from the checks: the share of intervals that hold must not
// depend on what it leaves out.
//
// For counts by the law and by the code, the numbers of found texts, of misses and of batches without a miss must have
// the same means, within 5 standard errors: each check fails by chance once in 10⁶ runs. The long form has 200 batches
// of the code of every case.
func TestLawIsTheCode(t *testing.T) {
	cases, batches, draws := planner.TextCases(), 200, 4000
	if !stattest.Long {
		cases, batches, draws = []planner.TextCase{cases[0], cases[2]}, 1, 40
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			d, src := caseTask(t, c), rand.New(rand.NewPCG(rand.Uint64(), 1))
			code := &measured{TextCoverage: &planner.TextCoverage{}}
			same := &measured{TextCoverage: &planner.TextCoverage{}, from: open(t, d).ProposedFrom(2)}
			for range batches {
				agg, held, list, asked := byCode(t, c, d, src, code)
				same.add(agg, held, asked)
				if len(asked) == 0 {
					requireListed(t, agg, list)
				}
			}
			law := measure(t, c, draws)
			t.Logf("the code: %+v\nthe same counts: %+v\nthe law: %+v", *code.TextCoverage, *same.TextCoverage,
				*law.TextCoverage)
			few := 5*math.Sqrt(.01*float64(same.Found)) + 1
			require.LessOrEqual(t, float64(code.Found), float64(same.Found)+few)
			require.GreaterOrEqual(t, float64(code.Found), (1-mostMissed)*float64(same.Found)-few)
			require.Equal(t, same.Together, code.Together)
			require.Equal(t, same.None, code.None)
			requireAlike(t, same, law)
			misses := float64(law.Found-law.Covered) / max(1, float64(law.Found)) * float64(code.Found)
			require.InDelta(t, misses, code.Found-code.Covered, 5*math.Sqrt(2*max(misses, 1))+1)
			rest := float64(law.Rest) / float64(law.Batches) * float64(batches)
			require.InDelta(t, rest, code.Rest, 5*math.Sqrt(max(float64(batches)-rest, 1))+1)
		})
	}
}

// requireListed requires that the texts that the code lists are listed if they are proposed without a search.
func requireListed(t *testing.T, agg *strings.Aggregate, list map[string]int) {
	t.Helper()
	listed, _, none, _ := agg.Hold(0, list, nil, .95, true)
	require.Len(t, list, len(listed)+none)
}

// requireAlike requires that two measurements agree.
func requireAlike(t *testing.T, c, o *measured) {
	t.Helper()
	n, m := float64(c.Batches), float64(o.Batches)
	same := func(x, y int, spread float64) {
		rate := (float64(x) + float64(y)) / (n + m)
		require.InDelta(t, float64(x)/n, float64(y)/m, 5*math.Sqrt(max(rate, 1/n)*spread*(1/n+1/m))+1/n)
	}
	same(c.Found, o.Found, 1) // The number found varies less than a Poisson variable.
	same(c.Found-c.Covered, o.Found-o.Covered, 2)
	same(c.Together, o.Together, 1)
}

// TestNoInterval: tables of three cells cannot show that a text is there with very high confidence, so there is no
// interval. With less confidence there is one.
func TestNoInterval(t *testing.T) {
	m := open(t, draft(t, 4, 1000, 0, planner.Params{"b": 3}))
	agg := m.Aggregate().(*strings.Aggregate)
	for y := range agg.Counts() {
		agg.Counts()[y] = uint64(100 + y%2)
	}
	counts, _, err := agg.Ask([]string{"left"}, 1-1e-8)
	require.NoError(t, err)
	require.Equal(t, math.Inf(1), counts[0].Hi)
	require.Zero(t, counts[0].Lo)
	require.Nil(t, counts[0].Estimate())
	counts, _, err = agg.Ask([]string{"left"}, .95)
	require.NoError(t, err)
	require.False(t, math.IsInf(counts[0].Hi, 0))
}

// TestAskOfHugeCounts: counts of millions need a coarse grid. The interval must have about the width of a normal
// distribution's, around the truth.
func TestAskOfHugeCounts(t *testing.T) {
	const clients, mean = 4_000_000, 200_000
	m := open(t, draft(t, 8, 1e7, 0, planner.Params{"b": 2000}))
	agg, src := m.Aggregate().(*strings.Aggregate), rand.New(rand.NewPCG(1, 2))
	for y := range agg.Counts() {
		agg.Counts()[y] = uint64(mean + math.Sqrt(mean)*src.NormFloat64())
	}
	levels, checks := m.Tables()
	tables := float64(levels + checks)
	for table := range levels + checks {
		own := clients / tables
		agg.Counts()[m.Cell(table, "left")] += uint64(own + math.Sqrt(own)*src.NormFloat64())
	}
	counts, _, err := agg.Ask([]string{"left", "right"}, .95)
	require.NoError(t, err)
	k := float64(checks + 1)
	w := k / tables
	deviation := math.Sqrt(clients*w*(1-w)+k*mean) / w
	require.InDelta(t, clients, counts[0].Clients, 6*deviation)
	require.InDelta(t, 2*2.24*deviation, counts[0].Hi-counts[0].Lo, deviation)
	require.Less(t, counts[1].Hi, 6*math.Sqrt(k*mean)/w)
}

// TestAskOfShortTexts: with one level every table hashes the whole text, so all of a text's messages are in its cells.
// Without other messages, the count is exact.
func TestAskOfShortTexts(t *testing.T) {
	m := open(t, draft(t, 2, 1000, 0, nil))
	levels, checks := m.Tables()
	require.Equal(t, 1, levels)
	agg := m.Aggregate().(*strings.Aggregate)
	for i := range 50 * (levels + checks) {
		agg.Counts()[m.Cell(i%(levels+checks), "ab")]++
	}
	counts, _, err := agg.Ask([]string{"ab"}, .95)
	require.NoError(t, err)
	require.InDelta(t, 50*(levels+checks), counts[0].Clients, 1)
	require.LessOrEqual(t, counts[0].Lo, counts[0].Clients)
}

// TestRestIsAtMostAll: the clients of texts that are not listed are not more than the batch has, even if all messages
// happen to be in checks.
func TestRestIsAtMostAll(t *testing.T) {
	m := open(t, draft(t, 8, 10000, 0, nil))
	agg := m.Aggregate().(*strings.Aggregate)
	src := rand.New(rand.NewPCG(3, 4))
	for range 10000 {
		half := len(agg.Counts()) / 2
		agg.Counts()[half+src.IntN(half)]++
	}
	_, rest, err := agg.Ask([]string{"left"}, .95)
	require.NoError(t, err)
	require.EqualValues(t, 10000, agg.Reports())
	require.LessOrEqual(t, rest.Hi, 10000.)
	require.LessOrEqual(t, rest.Lo, rest.Clients)
	require.LessOrEqual(t, rest.Clients, rest.Hi)
	require.Positive(t, rest.Clients)
}
