package crosstab_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/verifier/crosstab"
)

const speedShape = `dimensions:
  - {name: device, categories: [phone, desktop, "=1+1"]}
  - {name: lcp, edges: [0, 1000, 2500, .inf], unit: ms}
`

func readShape(t *testing.T, text string) *crosstab.Shape {
	t.Helper()
	s, err := crosstab.ReadShape(strings.NewReader(text))
	require.NoError(t, err)
	return s
}

// TestShapeIsChecked: what is wrong with a table's dimensions is said with its place.
func TestShapeIsChecked(t *testing.T) {
	for text, want := range map[string]string{
		"":                "invalid dimensions 0 of them: want 1 to 8",
		"dimensions: 5\n": "couldn't read the table's dimensions",
		"dimensions: [{name: a, categories: [x, y], colour: red}]":                               `unknown field "colour"`,
		"dimensions: [{name: a, categories: [x]}]":                                               "want two values or more",
		"dimensions: [{name: a}]":                                                                "want either categories or edges",
		"dimensions: [{name: a, categories: [x, y], edges: [1, 2, 3]}]":                          "want either categories or edges",
		"dimensions: [{name: a, categories: [x, x]}]":                                            "invalid dimensions[0].categories[1]",
		"dimensions: [{name: a, categories: [x, \"y\\u202ez\"]}]":                                "invalid dimensions[0].categories[1]",
		"dimensions: [{name: a, categories: [x, '']}]":                                           "want 1 to 100 bytes of visible text",
		"dimensions: [{name: a, edges: [0, 2, 1]}]":                                              "invalid dimensions[0].edges[2]",
		"dimensions: [{name: a, edges: [0, .nan, 1]}]":                                           "invalid dimensions[0].edges[1]",
		"dimensions: [{name: a, edges: [0, .inf, 1]}]":                                           "invalid dimensions[0].edges[1]",
		"dimensions: [{name: a, categories: [x, y]}, {name: a, categories: [x, y]}]":             "invalid dimensions[1].name",
		"dimensions: [" + strings.Repeat("{name: a, categories: [x, y]}, ", 9) + "]":             "want 1 to 8",
		"dimensions: [{name: a, edges: [" + strings.Repeat("0, ", 4<<20) + "]}]":                 "want at most 8 MB",
		"dimensions: [{name: a, edges: [0, 1, 2]}, {name: b, edges: [" + numbers(60_000) + "]}]": "more than 100,000 cells",
	} {
		_, err := crosstab.ReadShape(strings.NewReader(text))
		require.ErrorContains(t, err, want, "%.60s", text)
	}
	s := readShape(t, `{"dimensions": [{"name": "toString", "categories": ["__proto__", "näher \"so\""]}]}`)
	require.Equal(t, 2, s.Cells(), "JSON is read, too")
}

// numbers returns the numbers below n as a list.
func numbers(n int) string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = strconv.Itoa(i)
	}
	return strings.Join(texts, ", ")
}

// TestSelect: the cells of some values; a range must end at edges.
func TestSelect(t *testing.T) {
	s := readShape(t, speedShape)
	require.Equal(t, 9, s.Cells())
	for _, c := range []struct {
		where crosstab.Where
		want  []int
	}{
		{nil, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{crosstab.Where{"device": {"desktop"}}, []int{3, 4, 5}},
		{crosstab.Where{"device": {"phone", "=1+1"}, "lcp": {"..1000"}}, []int{0, 6}},
		{crosstab.Where{"lcp": {"0..1000", "2500.."}}, []int{0, 2, 3, 5, 6, 8}},
		{crosstab.Where{"lcp": {".."}, "device": {"phone"}}, []int{0, 1, 2}},
	} {
		got, err := s.Select("where", c.where)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%v", c.where)
	}
	for text, where := range map[string]crosstab.Where{
		`invalid where "os": want one of device, lcp`:                       {"os": {"x"}},
		`invalid where.device "tablet": want one of the categories: phone,`: {"device": {"tablet"}},
		`invalid where.lcp "0..1200": want a range such as`:                 {"lcp": {"0..1200"}},
		`invalid where.lcp "2500..0"`:                                       {"lcp": {"2500..0"}},
		`invalid where.lcp "NaN.."`:                                         {"lcp": {"NaN.."}},
	} {
		_, err := s.Select("where", where)
		require.ErrorContains(t, err, text)
	}
}

// TestQuestions: counts, shares, differences and quantiles of a table nearly without noise equal the truth, in the
// order of the dimensions' values.
func TestQuestions(t *testing.T) {
	truth := []int{100, 300, 200, 50, 30, 20, 0, 0, 0}
	draft, m, values := tableTask(t, planner.Query{Protocol: "histogram", Epsilon: 40, Delta: 1e-4, Honest: .9}, truth)
	s := readShape(t, speedShape)
	require.NoError(t, planner.Trial{Repeats: 1}.Batches(draft, m, values, func(agg protocols.Aggregate) {
		table, err := crosstab.New(draft, m, agg)
		require.NoError(t, err)
		a, err := crosstab.Ask(table, s, crosstab.Question{By: []string{"device"}, Share: crosstab.Where{"lcp": {"..2500"}},
			Quantile: &crosstab.Quantile{Dimension: "lcp", P: .5}, Versus: []string{"desktop"}}, .95)
		require.NoError(t, err)
		require.Len(t, a.Rows, 3)
		phone, desktop, none := a.Rows[0], a.Rows[1], a.Rows[2]
		require.Equal(t, []string{"phone"}, phone.Group)
		require.InDelta(t, 600, phone.Clients.Estimate, .1)
		require.InDelta(t, 400./600, phone.Share.Estimate, 1e-3)
		require.InDelta(t, 400./600-.8, phone.Difference.Estimate, 1e-3)
		require.InDelta(t, 2000, *phone.Quantile.Estimate, 5)
		require.Nil(t, desktop.Difference)
		require.InDelta(t, 1000, *desktop.Quantile.Estimate, 5)
		require.False(t, none.Shown, "an empty group has no share")
		require.Nil(t, none.Share)
		require.Nil(t, none.Quantile)

		a, err = crosstab.Ask(table, s, crosstab.Question{By: []string{"lcp", "device"},
			Where: crosstab.Where{"device": {"phone", "desktop"}}}, .95)
		require.NoError(t, err)
		require.Len(t, a.Rows, 6, "groups that where excludes are left out")
		require.Equal(t, []string{"1000..2500 ms", "phone"}, a.Rows[2].Group)
		require.InDelta(t, 300, a.Rows[2].Clients.Estimate, .1)
		require.Equal(t, []string{"2500.. ms", "desktop"}, a.Rows[5].Group)
		require.LessOrEqual(t, a.Rows[2].Clients.Band[0], a.Rows[2].Clients.Interval[0])

		equal, ok := table.Compare(crosstab.Part{Group: []int{0, 1}, Cells: []int{0}},
			crosstab.Part{Group: []int{0, 1}, Cells: []int{0}}, .95)
		require.True(t, ok)
		require.Nil(t, equal.NeededPer, "no number of clients shows a difference that is none")
		_, err = json.Marshal(equal)
		require.NoError(t, err)

		for text, q := range map[string]crosstab.Question{
			`invalid by "os"`: {By: []string{"os"}},
			`invalid by "lcp": want each dimension once`:       {By: []string{"lcp", "lcp"}},
			`invalid quantile "device": want a dimension with`: {Quantile: &crosstab.Quantile{Dimension: "device", P: .5}},
			`invalid quantile NaN: want a probability`:         {Quantile: &crosstab.Quantile{Dimension: "lcp", P: math.NaN()}},
			`invalid versus "phone": want a question with a`:   {By: []string{"device"}, Versus: []string{"phone"}},
			`invalid versus "tv": want one value for each`: {By: []string{"device"}, Versus: []string{"tv"},
				Share: crosstab.Where{"lcp": {".."}}},
			`invalid compare true: want a question with versus`:  {Share: crosstab.Where{"lcp": {".."}}, Compare: true},
			`invalid share "os": want one of device, lcp`:        {Share: crosstab.Where{"os": {"x"}}},
			`invalid share.lcp "7..": want a range such as 0..2`: {Share: crosstab.Where{"lcp": {"7.."}}},
		} {
			_, err := crosstab.Ask(table, s, q, .95)
			require.ErrorContains(t, err, text)
		}
		_, err = crosstab.Ask(table, readShape(t, "dimensions: [{name: a, categories: [x, y]}]"), crosstab.Question{}, .95)
		require.ErrorContains(t, err, "invalid dimensions 2 cells: want 9, the bins of the task")
	}))
}

// TestBandsHoldTogether: all rows' bands of counts and of shares hold the truth together as often as they claim, and
// every interval of a count for itself.
func TestBandsHoldTogether(t *testing.T) {
	repeats := 500
	if stattest.Long {
		repeats = 10_000
	}
	shape := readShape(t, "dimensions: [{name: page, categories: [a, b, c, d, e, f, g]}, "+
		"{name: speed, categories: [w, x, y, z]}]")
	var truth []int
	var sizes, parts []float64
	for page := range 7 {
		truth = append(truth, 5+10*page, 8, 0, page*page)
		parts = append(parts, float64(5+10*page))
		sizes = append(sizes, float64(13+10*page+page*page))
	}
	for _, name := range []string{"dummies, cell by cell", "dummies, fixed total", "randomized response"} {
		t.Run(name, func(t *testing.T) {
			draft, m, values := tableTask(t, tasks[name], truth)
			var counts, shares, all int
			trial := planner.Trial{Repeats: repeats, Fast: true}
			require.NoError(t, trial.Batches(draft, m, values, func(agg protocols.Aggregate) {
				table, err := crosstab.New(draft, m, agg)
				require.NoError(t, err)
				a, err := crosstab.Ask(table, shape, crosstab.Question{By: []string{"page"},
					Share: crosstab.Where{"speed": {"w"}}}, confidence)
				require.NoError(t, err)
				sizesHold, sharesHold := true, true
				for i, r := range a.Rows {
					within := func(ends [2]float64, x float64) bool { return ends[0] <= x && x <= ends[1] }
					if within(r.Clients.Interval, sizes[i]) {
						all++
					}
					sizesHold = sizesHold && within(r.Clients.Band, sizes[i])
					sharesHold = sharesHold && (r.Share == nil || within(r.Share.Band, parts[i]/sizes[i]))
				}
				if sizesHold {
					counts++
				}
				if sharesHold {
					shares++
				}
			}))
			t.Logf("all counts %d, all shares %d of %d; each count %d of %d", counts, shares, repeats, all, 7*repeats)
			atLeast(t, .943, counts, repeats, "all counts")
			atLeast(t, .943, shares, repeats, "all shares")
			atLeast(t, .945, all, 7*repeats, "each count")
		})
	}
}
