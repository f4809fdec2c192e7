package report_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/verifier/report"
	"github.com/doona-dp/doona/wire/task"
)

// plain returns a text as words that are separated by one space each.
func plain(text string) string {
	return " " + strings.Join(strings.Fields(text), " ") + " "
}

// unmarked returns the text of a page, without its markup.
func unmarked(page string) string {
	return html.UnescapeString(regexp.MustCompile(`(?s)<title>.*?</title>|<style>.*?</style>|<[^>]*>`).ReplaceAllString(
		page, " "))
}

// object is an object in a report's JSON.
type object map[string]any

func (o object) number(name string) float64 { return o[name].(float64) }

func (o object) count(name string) string { return display.Number(o.number(name)) }

func (o object) text(name string) string { return o[name].(string) }

func (o object) list(name string) (out []object) {
	for _, one := range o[name].([]any) {
		out = append(out, one.(map[string]any))
	}
	return out
}

// numbers returns a field that is a number, an array of numbers or null.
func (o object) numbers(name string) (out []float64) {
	switch x := o[name].(type) {
	case float64:
		return []float64{x}
	case []any:
		for _, one := range x {
			out = append(out, one.(float64))
		}
	}
	return out
}

// pairs returns a field that is a pair of numbers or an array of pairs. A pair may be null: nil.
func (o object) pairs(name string) (out [][]float64) {
	all, _ := o[name].([]any)
	if all == nil {
		return [][]float64{nil}
	}
	for _, one := range all {
		if _, single := one.(float64); single {
			return [][]float64{o.numbers(name)}
		}
		out = append(out, object{"": one}.numbers(""))
	}
	return out
}

// row returns the shown numbers of one entry of an answer, without its band.
func (o object) row(j int) string {
	err := o.numbers("standard_error")[j]
	return strings.Join([]string{display.Figure(o.numbers("estimate")[j], err), ends(o.pairs("interval")[j], err),
		display.Number(err), display.Number(o.numbers("standard_error_worst")[j])}, " ")
}

// ends returns the shown ends of an interval.
func ends(interval []float64, err float64) string {
	if interval == nil {
		return "none none"
	}
	return display.Figure(interval[0], err) + " " + display.Figure(interval[1], err)
}

// overEpochs returns the shown ends of the band over epochs.
func (o object) overEpochs(j int, err float64) string {
	return ends(o.pairs("band_over_epochs")[j], err)
}

// location returns the shown numbers of a quantile or a mean of a distribution.
func (o object) location(d object) string {
	err := o.error(d)
	return display.Figure(o.number("estimate"), err) + " " + ends(o.pairs("interval")[0], err)
}

// error returns a quarter of the interval of a quantile or a mean, or of the range if there is none.
func (o object) error(d object) float64 {
	interval := o.pairs("interval")[0]
	if interval == nil {
		interval = d.numbers("range")
	}
	return (interval[1] - interval[0]) / 4
}

// medianInWords returns the headline's words about the median's interval. An end of the range also covers the values
// beyond it.
func medianInWords(d, median object) string {
	interval, ends, err := median.numbers("interval"), d.numbers("range"), median.error(d)
	if interval == nil {
		return "is the median, without an interval: with 95 % confidence it would contain every possible answer"
	}
	out := "is the median, between " + display.Figure(interval[0], err)
	if interval[0] == ends[0] {
		out += " or less"
	}
	if out += " and " + display.Figure(interval[1], err); interval[1] == ends[1] {
		out += " or more"
	}
	return out + ", with 95 % confidence"
}

// inWords returns the words and numbers that page and terminal must show for a report's JSON.
func inWords(t *testing.T, r object) (out []string) {
	t.Helper()
	add := func(words ...string) { out = append(out, strings.Join(words, " ")) }
	for _, name := range []string{"name", "measure", "values", "protocol", "padding", "verdict", "promise", "rule"} {
		add(r.text(name))
	}
	add("batches of " + r.count("batch_size"))
	add(r.count("users") + " clients in")
	labels, _ := r["labels"].([]any)
	for j := range r.numbers("estimate") {
		name := r.text("query")
		if len(labels) > 0 {
			band, err := r.pairs("band")[j], r.numbers("standard_error")[j]
			name = labels[j].(string)
			if j < 512 {
				add(name, r.row(j), ends(band, err))
			}
			continue
		}
		add(name, r.row(j))
	}
	out = append(out, processedInWords(r)...)
	if d, ok := r["distribution"].(map[string]any); ok {
		for _, q := range object(d).list("quantiles") {
			add(q.text("name"), q.location(object(d)))
			if q["p"] == 0.5 {
				add(medianInWords(object(d), q))
			}
		}
		add("mean", object(object(d)["mean"].(map[string]any)).location(object(d)))
	}
	for _, h := range r.list("by_hop") {
		add("relay "+h.count("relay"), h.count("in"), h.count("out"), h.count("dropped"), h.count("destroyed"))
	}
	add(r.count("messages_sent") + " slots")
	for _, name := range []string{"verified", "cover_messages", "rejected", "withheld"} {
		add(r.count(name))
	}
	for _, f := range r.list("findings") {
		add(f.text("name"), "("+f.count("count")+"):", f.text("meaning")+"; first in", f.text("example"))
	}
	return append(append(out, lossInWords(r)...), ledgerInWords(t, r)...)
}

func processedInWords(r object) (out []string) {
	of, ok := r["processed"].(map[string]any)
	if !ok {
		return nil
	}
	p := object(of)
	out = append(out, "Post-processed ("+p.text("method")+"):")
	labels, _ := r["labels"].([]any)
	for j, x := range p.numbers("estimate") {
		if j == 512 {
			break
		}
		err, interval := r.numbers("standard_error")[j], p.pairs("interval")[j]
		row := []string{r.text("query"), display.Figure(x, err), ends(interval, err)}
		if len(labels) > 0 {
			row[0] = labels[j].(string)
			band := p.pairs("band")[j]
			row = append(row, ends(band, err))
		}
		out = append(out, strings.Join(row, " "))
	}
	return out
}

func lossInWords(r object) (out []string) {
	if r.number("missing") > 0 {
		out = append(out, r.count("reports")+" reports counted, up to "+r.count("missing")+" missing")
		for _, m := range r.list("missing_by_hop") {
			if m.number("messages") > 0 {
				out = append(out, m.count("messages")+" at "+m.text("hop"))
			}
		}
	}
	if r["usable"] == false && r.text("unusable_because") != "no batch was released" {
		out = append(out, "Unusable: "+r.text("unusable_because"))
	}
	if r["override"] != nil {
		out = append(out, "Override: "+r.text("override"))
	}
	return out
}

func ledgerInWords(t *testing.T, r object) (out []string) {
	t.Helper()
	ledger := object(r["ledger"].(map[string]any))
	numbers := slices.ContainsFunc(ledger.list("epochs"), func(e object) bool {
		return e["estimate"] != nil && (r["entry"] == nil || e["distribution"] != nil)
	})
	for _, e := range ledger.list("epochs") {
		start, err := time.Parse(time.RFC3339, e.text("start"))
		require.NoError(t, err)
		row := []string{e.count("epoch"), start.Format("2 Jan 15:04")}
		if d, ok := e["distribution"].(map[string]any); ok {
			for _, q := range object(d).list("quantiles") {
				if q["p"] == 0.5 {
					row = append(row, q.location(object(d)), q.overEpochs(0, q.error(object(d))))
				}
			}
		} else if r["entry"] == nil && e["estimate"] != nil {
			row = append(row, e.row(0), e.overEpochs(0, e.numbers("standard_error")[0]))
		} else if numbers && e["estimate"] == nil && e.text("unusable_because") != "no batch was released" {
			row = append(row, "unusable")
		}
		row = append(row, e.count("users"), e.count("batches"))
		if r.number("missing") > 0 {
			row = append(row, e.count("missing"))
		}
		if x, bounded := e["spent"].(float64); bounded {
			row = append(row, display.Number(x))
		} else {
			row = append(row, "no bound")
		}
		if n := e.number("over_exposed"); n > 0 {
			out = append(out, display.Number(n)+" clients without the guarantee")
		}
		out = append(out, strings.Join(row, " "))
	}
	total := "no ε"
	if x, bounded := ledger["epsilon"].(float64); bounded {
		total = "ε = " + decimal.Up(x, 3)
	}
	return append(out, "ε = "+decimal.Up(r.number("epsilon"), 3), total, "n_min = "+r.count("n_min"))
}

// requireSameWords requires that page and terminal show the words and numbers of the JSON, and returns the JSON.
func requireSameWords(t *testing.T, v *verifier.Verifier) object {
	t.Helper()
	server := httptest.NewServer(report.Handler(v))
	defer server.Close()
	var r object
	require.NoError(t, json.Unmarshal([]byte(get(t, server.URL+"/api/report")), &r))
	made, err := v.Report()
	require.NoError(t, err)
	var terminal strings.Builder
	require.NoError(t, report.Print(&terminal, made))
	page := get(t, server.URL+"/")
	texts := map[string]string{"the terminal": plain(terminal.String()), "the page": plain(unmarked(page))}
	for _, words := range inWords(t, r) {
		for where, text := range texts {
			require.Contains(t, text, words, where)
		}
	}
	requireExact(t, page, r)
	return r
}

// requireExact requires that the page has the numbers of the JSON with all digits, in addition to the rounded ones.
func requireExact(t *testing.T, page string, r object) {
	t.Helper()
	shown := map[string]bool{}
	for _, found := range regexp.MustCompile(`<data value="([^"]*)">`).FindAllStringSubmatch(page, -1) {
		shown[found[1]] = true
	}
	processed, _ := r["processed"].(map[string]any)
	r = object{"estimate": r["estimate"], "standard_error": r["standard_error"],
		"standard_error_worst": r["standard_error_worst"], "processed": object(processed)["estimate"]}
	for name := range r {
		for j, x := range r.numbers(name) {
			if j == 512 {
				break
			}
			require.True(t, shown[template(x)], "%s %d: %v", name, j, x)
		}
	}
}

// template writes a number as html/template does in an attribute.
func template(x float64) string {
	return html.EscapeString(strings.ReplaceAll(fmt.Sprint(x), "+", "&#43;"))
}

// TestTheSameWordsEverywhere: page and terminal must show the words and numbers of the JSON, for every query and
// protocol: before any batch, for one epoch, and for two epochs, one with missing messages.
func TestTheSameWordsEverywhere(t *testing.T) {
	all := map[string]planner.Query{
		"range": {Query: task.Histogram, Lo: -5, Hi: 5, Bins: 8, Clip: true, Batch: 50, Epsilon: 1, Delta: 1e-6},
		"low":   {Query: task.Histogram, Lo: -5, Hi: 5, Bins: 8, Clip: true, Batch: 50, Epsilon: 4, Delta: 1e-6},
		"high":  {Query: task.Histogram, Lo: -5, Hi: 5, Bins: 8, Clip: true, Batch: 50, Epsilon: 4, Delta: 1e-6},
		"bins":  {Query: task.Histogram, Hi: 600, Bins: 600, Batch: 50, Epsilon: 4, Delta: 1e-6},
	}
	values := map[string][]float64{"range": {3}, "low": {-9}, "high": {9}, "bins": {3}}
	for name, c := range everyProtocol {
		all[name], values[name] = c.Query, c.Value
	}
	queries := map[task.Query]bool{}
	for name, q := range all {
		t.Run(name, func(t *testing.T) {
			c := oneRelay(t, q)
			v := newVerifier(t, c)
			queries[q.Query] = true
			require.Equal(t, "Nothing has been added yet.", requireSameWords(t, v)["verdict"])
			require.NoError(t, v.Add(wholeBatch(t, c, 0, 0, values[name])))
			require.Equal(t, "Everything added up.", requireSameWords(t, v)["verdict"])
			require.NoError(t, v.Add(wholeBatch(t, c, 1, 1, values[name])))
			r := requireSameWords(t, v)
			require.True(t, r.number("missing") > 0 || r["usable"] == false)
			v.Note(finding.Truncated, "a file & <b>what</b> was wrong")
			require.Equal(t, "Not everything added up.", requireSameWords(t, v)["verdict"])
		})
	}
	for _, info := range task.Queries {
		require.True(t, queries[info.Query], "no case asks for %s", info.Query)
	}
}
