// Package report shows a verifier's report: on a terminal, as CSV, as a page, and on a site of several tasks. All show
// the same words and numbers. The programs and the verifier's server call it. It changes nothing in the verifier, and
// takes only its own locks.
package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/ledger"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// pageModel is a report in words and tables for people. The page and the terminal both show it, so that their words and
// numbers are the same.
type pageModel struct {
	*verifier.Report
	Main      *tile  // The answer, if it is a single number.
	Tiles     []tile // Other important numbers.
	One       *table // The answer, if it is a single number.
	Entries   *table // The entries of an answer with several.
	Found     *table // The texts found, for a task for strings.
	Hidden    int    // Number of entries that only CSV and JSON show.
	Possible  *table // The post-processed answer.
	Quantiles *table // Only for a histogram over a range.
	Hops      *table
	Epochs    *table // One row per epoch, newest first; nil if there are none.
	Costs     []fact // Terms of the guarantee and the ledger.
	LastRelay []fact // State of the pulling from the last relay; nil if the verifier does not pull.
	rows      []epochRow
}

// tile is an important number with its description.
type tile struct{ Figure, Words string }

type fact struct{ Term, Text string }

// table has a heading for each column. The first cell of each row is the row's name.
type table struct {
	Head []string
	Rows [][]cell
}

// cell is a cell's text and, if the JSON report has the number, its exact value.
type cell struct {
	Text  string
	Value *float64
}

func text(s string) cell { return cell{Text: s} }

func whole(n uint64) cell { return text(count(n)) }

func count(n uint64) string { return display.Number(float64(n)) }

// figure returns a cell with a number, with as many decimals as its error justifies. An infinite number is the end of
// an interval that is none.
func figure(x, err float64) cell {
	if math.IsInf(x, 0) {
		return text("none")
	}
	return cell{display.Figure(x, err), &x}
}

// plain returns a cell with a number that has no error.
func plain(x float64) cell { return cell{display.Number(x), &x} }

// epochRow is one epoch of the ledger. spent is the ε of this and all earlier epochs, or nil if it has no bound.
type epochRow struct {
	verifier.EpochReport
	start string
	one   *estimate
	spent *float64
}

// estimate is a number with its interval and its standard error.
type estimate struct {
	value, lo, hi, err float64
	bars               []float64   // Standard errors, from the data and in the worst case; empty for a quantile.
	wide               *[2]float64 // The band over epochs; nil unless the number is about one epoch.
}

// cells returns the cells of an estimate, in the order of [pageModel.answerHead].
func (e estimate) cells() []cell {
	out := []cell{figure(e.value, e.err), figure(e.lo, e.err), figure(e.hi, e.err)}
	for _, bar := range e.bars {
		out = append(out, plain(bar))
	}
	if e.wide != nil {
		out = append(out, figure(e.wide[0], e.err), figure(e.wide[1], e.err))
	}
	return out
}

// none reports whether the interval or the band over epochs is none.
func (e estimate) none() bool {
	return math.IsInf(e.lo, 0) || e.wide != nil && math.IsInf(e.wide[0], 0)
}

func newPageModel(r *verifier.Report) *pageModel {
	a := &pageModel{Report: r}
	a.Hidden = max(len(r.Estimate)-maxEntries, 0)
	a.One, a.Entries, a.Possible, a.Quantiles, a.Hops = a.one(), a.entries(), a.possible(), a.quantiles(), a.hops()
	a.Found = a.found()
	a.readEpochs()
	a.Epochs = a.epochs()
	a.Main, a.Tiles, a.Costs, a.LastRelay = a.headline(), a.tiles(), a.costs(), a.lastRelay()
	return a
}

// maxEntries is the maximum number of entries that a page shows.
const maxEntries = 512

// noBreak is a no-break space. [printer] writes a plain space in its place.
const noBreak = "\u00a0"

// Percent returns the confidence of intervals in percent.
func (r *pageModel) Percent() string { return display.Number(100*r.Confidence) + noBreak + "%" }

// epsilon writes a value of ε with its name, rounded up to 3 significant digits.
func epsilon(name string, x float64) string { return name + noBreak + "=" + noBreak + decimal.Up(x, 3) }

// theOne returns the answer if it is one number, or the median of a distribution; nil for other answers.
func theOne(a verifier.Answer, d *verifier.Distribution) *estimate {
	switch {
	case d != nil:
		m := d.Median()
		return &estimate{m.Estimate, m.Interval[0], m.Interval[1], errorOf(d, m), nil,
			(*[2]float64)(m.BandOverEpochs)}
	case len(a.Estimate) == 1:
		return entryOf(&a, 0)
	}
	return nil
}

// errorOf returns about the standard error of a quantile or mean: a quarter of the interval, or of the range.
func errorOf(d *verifier.Distribution, l verifier.Location) float64 {
	if l.Interval.IsNone() {
		return (d.Range[1] - d.Range[0]) / 4
	}
	return (l.Interval[1] - l.Interval[0]) / 4
}

func entryOf(a *verifier.Answer, j int) *estimate {
	e := &estimate{a.Estimate[j], a.Interval[j][0], a.Interval[j][1], a.StandardError[j],
		[]float64{a.StandardError[j], a.StandardErrorWorst[j]}, nil}
	if a.BandOverEpochs != nil {
		e.wide = (*[2]float64)(&a.BandOverEpochs[j])
	}
	return e
}

// Summary says what the task asks, and by which protocol.
func (r *pageModel) Summary() string {
	values := ""
	if r.Values != "" {
		values = ": " + r.Values
	}
	return fmt.Sprintf("%s%s. Protocol %s, padding %s, batches of %s through %s.", r.Measure, values, r.Protocol,
		r.Padding, count(r.BatchSize), plural(uint64(r.Report.Hops), "relay", "relays"))
}

// headline returns the answer as a single number, or nil if there is none.
func (a *pageModel) headline() *tile {
	if a.Texts != nil {
		found := "texts found"
		if a.Texts.FoundDownTo > 0 {
			found += ", each from about " + display.Number(a.Texts.FoundDownTo) + " clients or more"
		}
		return &tile{count(uint64(len(a.Texts.List))), found}
	}
	e := theOne(a.Answer, a.Distribution)
	if e == nil {
		return nil
	}
	if math.IsInf(e.lo, 0) {
		what := ""
		if a.Distribution != nil {
			what = "is the median, "
		}
		return &tile{display.Figure(e.value, e.err), fmt.Sprintf("%swithout an interval: with %s confidence %s", what,
			a.Percent(), saysNothing)}
	}
	what, lo, hi := "", display.Figure(e.lo, e.err), display.Figure(e.hi, e.err)
	if d := a.Distribution; d != nil {
		what = "is the median, "
		if e.lo == d.Range[0] { // values outside the range count as its ends
			lo += " or less"
		}
		if e.hi == d.Range[1] {
			hi += " or more"
		}
	}
	return &tile{display.Figure(e.value, e.err), fmt.Sprintf("%sbetween %s and %s, with %s confidence", what, lo, hi,
		a.Percent())}
}

// saysNothing explains why there is no interval.
const saysNothing = "it would contain every possible answer"

func (a *pageModel) tiles() []tile {
	clients := fmt.Sprintf("clients in %s", plural(a.Batches, "batch", "batches"))
	if a.Missing > 0 {
		clients += fmt.Sprintf(", %s reports counted", count(a.Reports))
	}
	released := uint64(0)
	for _, e := range a.Ledger.Epochs {
		if e.Batches > 0 {
			released++
		}
	}
	out := []tile{{count(a.Users), clients},
		{count(released), fmt.Sprintf("of %s released", plural(a.TaskEpochs, "epoch",
			"epochs"))}}
	switch {
	case len(a.Ledger.Epochs) == 0:
		return out
	case a.Ledger.Epsilon == nil:
		return append(out, tile{"no ε", "bounds the cost for clients whose batch was too small"})
	}
	return append(out, tile{epsilon("ε", *a.Ledger.Epsilon), "spent by a client who reported in each of them"})
}

// Waiting says what the estimate waits for. It is empty if there is an estimate, or an unusable one.
func (r *pageModel) Waiting() string {
	if r.Batches > 0 || r.Unusable() != "" {
		return ""
	}
	const first = "No batch has been released yet. The first one comes when %s clients have reported in one epoch"
	if r.NoneHonest() {
		return fmt.Sprintf(first+", or when the epoch ends.", count(r.BatchSize))
	}
	return fmt.Sprintf(first+". Relays destroy a smaller batch unopened.", count(r.BatchSize))
}

// Loss says how many reports were counted, and at which hops others were lost. It is empty if no report is missing.
func (r *pageModel) Loss() string {
	if r.Missing == 0 {
		return ""
	}
	return fmt.Sprintf("%s reports counted, up to %s missing. Messages lost: %s.", count(r.Reports), count(r.Missing),
		cmp.Or(r.Lost(), "none, but covers arrived instead"))
}

// Lost lists the hops that lost messages, with the numbers of messages.
func (r *pageModel) Lost() string {
	var parts []string
	for _, m := range r.MissingByHop {
		if m.Messages > 0 {
			parts = append(parts, fmt.Sprintf("%s at %s", count(m.Messages), m.Hop))
		}
	}
	return strings.Join(parts, ", ")
}

// ErrorBars explains the error bars. It is empty if there are none.
func (r *pageModel) ErrorBars() string {
	if len(r.Estimate) == 0 {
		return ""
	}
	text := "The standard error and the interval are computed from the data. The worst case is the standard error " +
		"if every client had the worst value. They describe the clients who reported, not a larger population."
	if r.Missing > 0 {
		text += " The interval also covers the largest change that the missing messages could make."
	}
	if r.NoneBecause != "" {
		text += " Where it says “none”, there is no interval: " + r.NoneBecause + "."
	}
	if len(r.Estimate) > 1 {
		text += fmt.Sprintf(" Each interval contains the true value of its entry with %s confidence. The band is "+
			"wider: it contains all true values at once with that confidence.", r.Percent())
	}
	return text
}

func (r *pageModel) intervalHead(name string) []string {
	return []string{name, r.Percent() + " from", r.Percent() + " to"}
}

func (r *pageModel) answerHead() []string {
	return append(r.intervalHead("estimate"), "standard error", "worst case")
}

// one returns the table of an answer that is a single number.
func (a *pageModel) one() *table {
	e := theOne(a.Answer, nil)
	if e == nil {
		return nil
	}
	return &table{Head: append([]string{""}, a.answerHead()...), Rows: [][]cell{append([]cell{text(string(a.Query))},
		e.cells()...)}}
}

// MoreEntries says where to find the entries that the page does not show.
func (a *pageModel) MoreEntries() string {
	return count(uint64(a.Hidden)) + " further entries are in the CSV and the JSON."
}

func (a *pageModel) entries() *table {
	if a.Entry == "" || len(a.Estimate) == 0 {
		return nil
	}
	t := &table{Head: append([]string{a.Entry}, append(a.answerHead(), "band from", "band to")...)}
	for j := range min(len(a.Estimate), maxEntries) {
		e := entryOf(&a.Answer, j)
		row := append([]cell{text(a.Labels[j])}, e.cells()...)
		t.Rows = append(t.Rows, append(row, figure(a.Band[j][0], e.err), figure(a.Band[j][1], e.err)))
	}
	return t
}

// possible returns the table of the post-processed answer, with at most maxEntries entries.
func (a *pageModel) possible() *table {
	p := a.Processed
	if p == nil {
		return nil
	}
	t := &table{Head: append([]string{a.Entry}, a.intervalHead("nearest possible")...)}
	if a.Entry != "" {
		t.Head = append(t.Head, "band from", "band to")
	}
	for j := range min(len(p.Estimate), maxEntries) {
		err := a.StandardError[j]
		row := []cell{text(string(a.Query)), figure(p.Estimate[j], err), figure(p.Interval[j][0], err),
			figure(p.Interval[j][1], err)}
		if a.Entry != "" {
			row[0] = text(a.Labels[j])
			row = append(row, figure(p.Band[j][0], err), figure(p.Band[j][1], err))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// AboutPossible explains post-processing and its limits. It is empty if there is no post-processed answer.
func (r *pageModel) AboutPossible() string {
	if r.Processed == nil {
		return ""
	}
	to := "each number is moved to the nearest possible one"
	if r.Processed.Method == verifier.MethodSimplex {
		to = "the counts are moved to the nearest counts that are at least 0 and add up to the number of clients"
	}
	return fmt.Sprintf("Post-processed (%s): %s. This costs no privacy and reduces the error, but it adds bias. To "+
		"average over epochs, use the estimates instead. The intervals here contain the truth at least as often as "+
		"those of the estimates.",
		r.Processed.Method, to)
}

// AboutQuantiles explains the intervals of the quantiles and the mean.
func (r *pageModel) AboutQuantiles() string {
	return "Each interval holds by itself with " + r.Percent() + " confidence. A quantile’s interval ends at edges of " +
		"bins, so it is at least one bin wide. The mean’s interval includes half a bin, because the histogram does " +
		"not show where in its bin a value lies. Values beyond the range count as its ends. Where it says “none”, " +
		"the interval would be the whole range."
}

func (a *pageModel) quantiles() *table {
	if a.Distribution == nil {
		return nil
	}
	t := &table{Head: append([]string{""}, a.intervalHead("estimate")...)}
	for _, q := range append(slices.Clone(a.Distribution.Quantiles), a.Distribution.Mean) {
		e := estimate{q.Estimate, q.Interval[0], q.Interval[1], errorOf(a.Distribution, q), nil, nil}
		t.Rows = append(t.Rows, append([]cell{text(q.Name)}, e.cells()...))
	}
	return t
}

func (a *pageModel) hops() *table {
	t := &table{Head: []string{"", "in", "out", "dropped", "destroyed"}}
	for _, h := range a.ByHop {
		t.Rows = append(t.Rows, []cell{text(fmt.Sprintf("relay %d", h.Relay)), whole(h.In), whole(h.Out),
			whole(h.Dropped),
			whole(h.Destroyed)})
	}
	return t
}

// Messages says what became of the slots that the first relay accepted.
func (r *pageModel) Messages() string {
	if r.DryRun {
		return fmt.Sprintf("Of %s slots that the first relay accepted: %s rejected, by a relay or the verifier, and %s "+
			"withheld by relays.", count(r.MessagesSent), count(r.Rejected), count(r.Withheld))
	}
	return fmt.Sprintf("Of %s slots that the first relay accepted: %s messages counted by the verifier, %s covers, "+
		"%s rejected and %s withheld, by a relay or the verifier.", count(r.MessagesSent), count(r.Verified),
		count(r.CoverMessages), count(r.Rejected), count(r.Withheld))
}

// readEpochs fills rows from the ledger, oldest epoch first.
func (a *pageModel) readEpochs() {
	for _, e := range a.Ledger.Epochs {
		a.rows = append(a.rows, epochRow{e, dated(e.Start, a.Asked.Epochs), theOne(e.Answer, e.Distribution),
			e.Spent})
	}
}

func (a *pageModel) epochs() *table {
	if len(a.rows) == 0 {
		return nil
	}
	columns := a.epochColumns()
	counts := []string{"clients", "batches"}
	lost := slices.ContainsFunc(a.rows, func(e epochRow) bool { return e.Missing > 0 })
	if lost {
		counts = append(counts, "missing")
	}
	t := &table{Head: slices.Concat([]string{"epoch", "began (UTC)"}, columns, counts, []string{"ε spent so far"})}
	for _, e := range slices.Backward(a.rows) {
		row := append([]cell{text(fmt.Sprint(e.Epoch)), text(e.start)}, e.numbers(len(columns))...)
		row = append(row, whole(e.Users), whole(e.Batches))
		if lost {
			row = append(row, whole(e.Missing))
		}
		t.Rows = append(t.Rows, append(row, e.cost()))
	}
	return t
}

// epochColumns returns the column names of an epoch's answer: a single number, or the median of a histogram over a
// range.
func (a *pageModel) epochColumns() []string {
	at := slices.IndexFunc(a.rows, func(e epochRow) bool { return e.one != nil })
	switch {
	case at < 0:
		return nil
	case a.rows[at].Distribution != nil:
		return append(a.intervalHead("median"), overEpochsHead...)
	}
	return append(a.answerHead(), overEpochsHead...)
}

// overEpochsHead has the column names of the band over epochs.
var overEpochsHead = []string{"all epochs from", "all epochs to"}

// AboutEpochs explains the bands over epochs. It is empty before the first epoch.
func (a *pageModel) AboutEpochs() string {
	if len(a.rows) == 0 {
		return ""
	}
	truth := "the true value"
	switch {
	case a.Distribution != nil:
		truth = "the true median"
	case len(a.Estimate) > 1:
		truth = "the true values of all " + count(uint64(len(a.Estimate))) + " entries"
	}
	out := fmt.Sprintf("The band over epochs contains %s in all %s of the task at once, with %s "+
		"confidence. Use it to compare epochs. It does not change when further epochs arrive.", truth,
		plural(a.TaskEpochs, "epoch", "epochs"), a.Percent())
	if slices.ContainsFunc(a.rows, func(e epochRow) bool { return e.one != nil && e.one.none() }) {
		out += " Where it says “none”, there is no band: " + saysNothing + "."
	}
	return out
}

// numbers returns the cells for the columns of [pageModel.epochColumns].
func (e epochRow) numbers(columns int) []cell {
	out := make([]cell, columns)
	if e.one != nil {
		copy(out, e.one.cells())
	} else if columns > 0 && e.IsWithheld() {
		out[0] = text("withheld")
	} else if columns > 0 && !e.IsWaiting() {
		out[0] = text("unusable")
	}
	return out
}

// cost returns the cell with the ε of this and all earlier epochs.
func (e epochRow) cost() cell {
	out := text("no bound")
	if e.spent != nil {
		out = text(display.Number(*e.spent))
	}
	if e.OverExposed > 0 {
		out.Text += fmt.Sprintf("; %s clients without the guarantee", count(e.OverExposed))
	}
	return out
}

// dated formats the start of an epoch. The shorter the epochs, the more precise is the time.
func dated(start time.Time, epochs task.Epochs) string {
	format := "2 Jan 2006"
	switch length := epochs.Length; {
	case length == task.Month:
		format = "January 2006"
	case length < 60:
		format = "15:04:05"
	case length < aDay:
		format = "2 Jan 15:04"
	}
	return start.Format(format)
}

// Honest says for which batches a smaller ε than the claim holds. It applies if the claim needs no other honest client.
func (r *pageModel) Honest() string {
	return fmt.Sprintf("holds in a batch with n_min = %s honest clients. %s of %s can have that many: they have n "+
		"submissions and enough slots.", count(r.NMin), count(r.HonestBatches), plural(r.Batches, "batch", "batches"))
}

// costs returns the terms of the guarantee and of the ledger.
func (a *pageModel) costs() []fact {
	needs := " for n_min = " + count(a.NMin) + " honest clients"
	if a.NoneHonest() {
		needs = "; no other client needs to be honest"
	}
	worst := fact{"no ε₀", a.WorstCase}
	switch {
	case a.LocalEpsilon != nil:
		worst.Term = epsilon("ε₀", *a.LocalEpsilon)
	case a.EpsilonNoHonest != nil:
		worst.Term = epsilon("ε′", *a.EpsilonNoHonest)
	}
	claimed, honest := "ε", []fact(nil)
	if a.NoneHonest() {
		claimed, honest = "ε′", []fact{{epsilon("ε", a.EpsilonHonest), a.Honest()}}
	}
	ledger := "no ε"
	if a.Ledger.Epsilon != nil {
		ledger = epsilon("ε", *a.Ledger.Epsilon)
	}
	return slices.Concat([]fact{{epsilon(claimed, a.Epsilon), fmt.Sprintf("δ = %s, for one epoch, proven by rule %s%s.",
		decimal.Format(a.Delta, -1), a.Rule, needs)}}, honest, []fact{
		worst,
	}, a.coverage(), []fact{
		{ledger, fmt.Sprintf("δ = %s: the total for a client who reported in every epoch whose batches arrived here "+
			"(%s), by %s composition. Batches of one epoch hold different clients, so their costs do not add up.",
			decimal.Up(a.Ledger.Delta, 3), count(uint64(len(a.Ledger.Epochs))), a.Ledger.Composition)},
	}, a.published(), a.persons())
}

// coverage says how much of a loyal visitor's epochs the task counts. It is empty for a task without a cap.
func (r *pageModel) coverage() []fact {
	e := r.Asked.Epochs
	if r.Counted == nil {
		return nil
	}
	most := fmt.Sprintf("The total covers at most %s of a browser in any %s %s.", plural(e.Cap.Reports, "report",
		"reports"), count(e.Cap.Window), periods(e))
	of, why := e.Cap, "by the cap"
	if !e.Pace.IsZero() {
		of, why = e.Pace, "by the pace"
	}
	var visits []fact
	if r.Visits > 0 {
		visits = []fact{{decimal.Format(100*float64(r.CountedVisits)/float64(r.Visits), 3) + noBreak + "%", fmt.Sprintf(
			"of visits are covered: %s of %s, by the task that counts them.", count(r.CountedVisits), count(r.Visits))}}
	}
	return append(visits, fact{count(of.Reports) + noBreak + "of" + noBreak + count(of.Window), fmt.Sprintf(
		"%s of a visitor who comes in each are counted, %s: %s %%. Of rarer visitors it is more. %s", periods(e), why,
		decimal.Format(100**r.Counted, 3), most)})
}

const aDay = 86400

// periods names epochs by their length.
func periods(e task.Epochs) string {
	switch e.Length {
	case aDay:
		return "days"
	case 7 * aDay:
		return "weeks"
	case task.Month:
		return "months"
	}
	return "epochs"
}

// persons says what a loyal visitor has spent, and what the published epochs cost a person in cases that the claim does
// not cover.
func (r *pageModel) persons() (out []fact) {
	p := r.Ledger.Persons
	if p == nil {
		return nil
	}
	if spent, of := r.spentOf(); of > 0 {
		out = append(out, fact{decimal.Up(spent, 2) + noBreak + "of" + noBreak + decimal.Format(of, -1), "of the budget ε: " +
			"what a visitor who came " + r.often() + " has spent."})
	}
	how := ", from the exact law"
	if !p.Exact {
		how = ", by group privacy"
	}
	wiped := "if a browser’s storage was wiped once, so that it reported twice in one epoch"
	if r.Counted != nil {
		wiped += " and its cap began anew"
	}
	return append(out,
		cost(p.Devices, "if two devices, browsers or accounts of a person answered alike in every epoch"+how),
		cost(p.Wiped, wiped),
		cost(p.Batch, "of one epoch in which two equal reports of a person were in one batch"))
}

// spentOf returns what a visitor has spent, and of how much; 0 if there is no budget.
func (r *pageModel) spentOf() (spent, of float64) {
	switch p := r.Ledger.Published; {
	case p != nil && p.Budget != nil && p.Epsilon != nil:
		return *p.Epsilon, p.Budget.Epsilon
	case p == nil && r.Ledger.Epsilon != nil && !r.Asked.Claim.Total.IsZero():
		return *r.Ledger.Epsilon, r.Asked.Claim.Total.Epsilon.Value()
	}
	return 0, 0
}

// often says how often a visitor comes who comes in every epoch.
func (r *pageModel) often() string {
	switch periods(r.Asked.Epochs) {
	case "days":
		return "daily"
	case "weeks":
		return "weekly"
	case "months":
		return "monthly"
	}
	return "in every epoch"
}

// cost returns the cost of a person in a case.
func cost(c ledger.PersonCost, of string) fact {
	if c.Epsilon == nil {
		return fact{"no ε", of + "."}
	}
	return fact{epsilon("ε", *c.Epsilon), fmt.Sprintf("δ = %s, %s.", decimal.Up(c.Delta, 3), of)}
}

// published returns the cost and the budget in the verifier's ledger.
func (r *pageModel) published() []fact {
	p := r.Ledger.Published
	if p == nil {
		return nil
	}
	term, budget := "no ε", "There is no budget."
	if p.Epsilon != nil {
		term = epsilon("ε", *p.Epsilon)
	}
	if p.Budget != nil {
		budget = fmt.Sprintf("The budget is %s at that δ.", epsilon("ε", p.Budget.Epsilon))
	}
	charged := "with published results"
	if r.DryRun {
		charged = "with published results or in this dry run"
	}
	return []fact{{term, fmt.Sprintf("δ = %s: the total of all epochs %s (%s), for a client who reported in each. "+
		"In a stream, the epochs of all its tasks count. %s", decimal.Up(p.Delta, 3), charged, count(p.Epochs),
		budget)}}
}

// WithheldNote names the epochs whose results are withheld because the budget is too small. It is empty if there are
// none.
func (r *pageModel) WithheldNote() string {
	if len(r.Ledger.Withheld) == 0 {
		return ""
	}
	return "The budget is too small for " + named(r.Ledger.Withheld) + ". Results beyond it are withheld."
}

// DryRunNote says that the report is a dry run. It is empty for other reports.
func (r *pageModel) DryRunNote() string {
	if !r.DryRun {
		return ""
	}
	return "Dry run: nothing is charged and no result is shown."
}

// Exposed says for how many clients the guarantee does not hold. It is empty if it holds for all.
func (r *pageModel) Exposed() string {
	if r.OverExposed == 0 {
		return ""
	}
	return fmt.Sprintf("The guarantee does not hold for %s clients: their batches arrived although they were too small.",
		count(r.OverExposed))
}

// lastRelay says whether the last relay answers, and what is missing or unconfirmed.
func (a *pageModel) lastRelay() []fact {
	p := a.Progress
	if p == nil {
		return nil
	}
	relay := fact{"last relay", contacts[p.Contact]}
	if p.LastContact > 0 {
		relay.Text += " It last answered at " + time.Unix(int64(p.LastContact),
			0).UTC().Format("15:04 on 2 Jan 2006, UTC.")
	}
	out := []fact{relay, {"epochs", fmt.Sprintf("%s have begun. %s of them are complete, with all batches and the "+
		"signed end.", count(p.Epochs), count(p.Ended))}}
	if len(p.Late) > 0 {
		out = append(out, fact{"late", "The signed end is overdue for " + named(p.Late) + "."})
	}
	if p.Unconfirmed > 0 {
		out = append(out, fact{"unconfirmed", plural(p.Unconfirmed, "batch is", "batches are") +
			" stored here, but not yet confirmed to the last relay."})
	}
	return out
}

var contacts = map[verifier.Contact]string{
	verifier.ContactNone:  "has not been asked yet.",
	verifier.ContactThere: "answers.",
	verifier.ContactAway:  "does not answer, or rejects this verifier.",
	verifier.ContactOver:  "has no further batch.",
}

// named lists the numbers of epochs, but only the first ten.
func named(of []uint64) string {
	const most = 10
	var parts []string
	for _, n := range of[:min(len(of), most)] {
		parts = append(parts, fmt.Sprint(n))
	}
	if len(of) > most {
		parts = append(parts, "…")
	}
	return fmt.Sprintf("%s (%s)", plural(uint64(len(of)), "epoch", "epochs"), strings.Join(parts, ", "))
}

// AboutFindings explains what findings are.
const AboutFindings = "Findings concern accuracy. Privacy does not depend on them, because each relay enforces its " +
	"own conditions."

// AboutFindings returns the text for the page.
func (a *pageModel) AboutFindings() string { return AboutFindings }

func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}

// quoted quotes a text that clients chose, so that no terminal or spreadsheet interprets characters in it.
func quoted(c verifier.TextCount) string { return strconv.Quote(c.Text) }

func (a *pageModel) found() *table {
	if a.Texts == nil || len(a.Texts.List) == 0 {
		return nil
	}
	t := &table{Head: append([]string{a.Entry}, a.intervalHead("clients")...)}
	for _, c := range a.Texts.List[:min(len(a.Texts.List), maxEntries)] {
		if c.Interval == nil {
			t.Rows = append(t.Rows, []cell{text(quoted(c)), text("–"), text("–"), text("–")})
			continue
		}
		err := (c.Interval[1] - c.Interval[0]) / 4
		t.Rows = append(t.Rows, []cell{text(quoted(c)), figure(*c.Clients, err), figure(c.Interval[0], err),
			figure(c.Interval[1], err)})
	}
	return t
}

// AboutTexts explains which texts the list has, and which it can miss. It is empty if there is no list.
func AboutTexts(r *verifier.Report) string {
	x := r.Texts
	if x == nil {
		return ""
	}
	out := "There are too few reports to list any text reliably."
	if x.FoundDownTo > 0 {
		out = fmt.Sprintf("A text that about %s clients or more have is listed with a probability of 98 %%.",
			display.Number(x.FoundDownTo))
	}
	out += fmt.Sprintf(" The probability that a text is listed that no client has is at most %s%s%%. Each count is "+
		"of the reports that arrived, and its interval holds by itself.", display.Number(100*x.FalseChance), noBreak)
	out += fmt.Sprintf(" %s colluding clients can get a text listed that nobody else has.",
		display.Number(x.Threshold))
	if r := x.Rest.Interval; r != nil {
		err := (r[1] - r[0]) / 4
		out += fmt.Sprintf(" About %s clients (%s to %s) have texts that are not listed.",
			display.Figure(*x.Rest.Clients, err), display.Figure(r[0], err), display.Figure(r[1], err))
	}
	if x.PlantedByRelay > 0 {
		out += fmt.Sprintf(" A malicious relay can plant up to %s by its choice of dummies.",
			plural(x.PlantedByRelay, "text", "texts"))
	}
	return out
}

// AboutTexts returns the text for the page.
func (a *pageModel) AboutTexts() string { return AboutTexts(a.Report) }
