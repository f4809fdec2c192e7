package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// monthFiles holds the questions that a simulated site asks under one privacy budget. set.json is the site owner's
// file. The planner made the tasks from it; as this takes minutes, they are committed.
//
//go:generate go run ../doona plan --set month/set.json --out month
//go:embed month
var monthFiles embed.FS

type question struct {
	name    string
	weight  float64
	entries []string                   // Names of the answer's entries; nil for a number.
	value   func(v *visitor) (at uint) // The entry that a visitor reports; for a count, 1 is yes.

	task      *task.Task
	mechanism protocols.Mechanism
}

// month is what a site owner knows after a month of private statistics, and the true answers, which only a simulation
// knows.
type month struct {
	Seed      uint64        `json:"seed"`
	Made      string        `json:"made"` // How it was simulated, in words.
	Questions []string      `json:"questions"`
	From      string        `json:"from"`
	To        string        `json:"to"`
	Reports   uint64        `json:"reports_per_question"`
	Visits    *monthVisits  `json:"visits"`
	Pages     *monthList    `json:"pages"`
	Referrers *monthList    `json:"referrers"`
	Countries *monthList    `json:"countries"`
	Speed     *monthSpeed   `json:"speed"`
	Budget    *monthBudget  `json:"budget"`
	Coverage  monthCoverage `json:"coverage"`
	Elapsed   float64       `json:"elapsed_seconds"`
}

const monthMade = "The demo drew every visitor's message with the randomizer of the pipeline, and every dummy as relays draw " +
	"it. The verifier's analysis counted them. Nothing was encrypted, sent or shuffled, because no figure depends " +
	"on that. The seed determines all randomness, so the month can be made again. A deployment never uses a seed."

// monthCoverage counts, for single days and for the month, how many intervals contain the true answer.
type monthCoverage struct {
	Days  heldCount `json:"days"`
	Month heldCount `json:"month"`
}

// heldCount counts intervals, and how many of them contain the true answer.
type heldCount struct {
	Intervals uint64 `json:"intervals"`
	Held      uint64 `json:"held"`
}

func (c *heldCount) add(interval [2]float64, truth float64) {
	c.Intervals++
	if interval[0] <= truth && truth <= interval[1] {
		c.Held++
	}
}

func questions() ([]*question, error) {
	out := []*question{
		{name: "visits", value: func(v *visitor) uint {
			if v.stayed {
				return 1
			}
			return 0
		}},
		{name: "pages", entries: pageNames(), value: func(v *visitor) uint { return uint(v.page) }},
		{name: "referrers", entries: names(referrers), value: func(v *visitor) uint { return uint(v.referrer) }},
		{name: "countries", entries: names(countries), value: func(v *visitor) uint { return uint(v.country) }},
		{name: "speed", entries: pairNames(), value: func(v *visitor) uint {
			return uint(v.device*len(paintEdges) + paintBin(v.paint))
		}},
	}
	set, err := readMonthSet()
	if err != nil {
		return nil, err
	}
	for i, q := range out {
		if q.weight = set.Queries[i].Weight; set.Queries[i].Name != q.name {
			return nil, fmt.Errorf("couldn't read month/set.json: query %d is %q, want %q", i, set.Queries[i].Name, q.name)
		}
		if err := q.open(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// monthSet is the part of set.json that the page shows.
type monthSet struct {
	Epsilon float64 `json:"total_epsilon"`
	Delta   float64 `json:"total_delta"`
	Queries []struct {
		Name   string  `json:"name"`
		Weight float64 `json:"weight"`
	} `json:"queries"`
}

func readMonthSet() (set monthSet, err error) {
	raw, err := monthFiles.ReadFile("month/set.json")
	if err == nil {
		err = json.Unmarshal(raw, &set)
	}
	return set, err
}

// open reads the question's task and checks its claimed (ε, δ).
func (q *question) open() error {
	raw, err := monthFiles.ReadFile("month/" + q.name + ".json")
	if err != nil {
		return err
	}
	if q.task, _, err = taskfile.ParseJSON(raw); err != nil {
		return fmt.Errorf("couldn't read the task %s: %w", q.name, err)
	}
	if q.mechanism, err = registry.Open(q.task); err != nil {
		return err
	}
	return q.mechanism.CheckClaim()
}

func names(entries []weighted) (names []string) {
	for _, p := range entries {
		names = append(names, p.name)
	}
	return names
}

// pairNames returns the names of the joint cells: each device combined with each bin.
func pairNames() (names []string) {
	for _, d := range devices {
		for _, bin := range paintNames() {
			names = append(names, d.name+", "+bin)
		}
	}
	return names
}

// answered holds what the verifier counts for one question, and the true answer.
type answered struct {
	aggregate protocols.Aggregate
	truth     []float64
}

// ask simulates that all visitors of a day answer a question.
func (q *question) ask(visitors []visitor, src *randomizer.Source) (a answered, err error) {
	a.truth = make([]float64, max(len(q.entries), 1))
	values, rows := make([]float64, len(visitors)), make([][]float64, len(visitors))
	for i := range visitors {
		at := q.value(&visitors[i])
		values[i] = float64(at)
		rows[i] = values[i : i+1]
		if q.entries != nil {
			a.truth[at]++
		} else {
			a.truth[0] += float64(at)
		}
	}
	trial := planner.Trial{Repeats: 1, Source: src}
	return a, trial.Batches(q.task, q.mechanism, rows, func(agg protocols.Aggregate) { a.aggregate = agg })
}

// monthSource returns the random bytes for a question on a day. Whoever knows the seed knows all noise, so only
// simulated visitors may use it.
func monthSource(seed uint64, day, question int) *randomizer.Source {
	var key [32]byte
	copy(key[:], "doona demo month")
	binary.BigEndian.PutUint64(key[16:], seed)
	binary.BigEndian.PutUint32(key[24:], uint32(day))
	binary.BigEndian.PutUint32(key[28:], uint32(question))
	stream := rand.NewChaCha8(key)
	return randomizer.NewSourceFrom(func(p []byte) { stream.Read(p) }) // Read never fails
}

// monthSteps is how often [makeMonth] calls done: once per day, and once for the results.
const monthSteps = monthDays + 1

// diary holds the answers of the month, by day and question.
type diary struct {
	questions []*question
	visitors  [monthDays]uint64
	answers   [monthDays][]answered
}

// playDays simulates all days, several at a time. Each day has its own random bytes, so the order of days does not
// matter. It calls done after each day, from several goroutines.
func playDays(ctx context.Context, seed uint64, done func()) (*diary, error) {
	of, err := questions()
	if err != nil {
		return nil, err
	}
	d := &diary{questions: of}
	days, failed := make(chan int, monthDays), make(chan error, monthDays)
	for day := range monthDays {
		days <- day
	}
	close(days)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for day := range days {
				if err := d.play(ctx, seed, day); err != nil {
					failed <- err
					return
				}
				done()
			}
		})
	}
	wg.Wait()
	close(failed)
	return d, <-failed
}

// play simulates that the visitors of a day answer all questions.
func (d *diary) play(ctx context.Context, seed uint64, day int) error {
	visitors := newSite(seed, day).visitors(day)
	d.visitors[day] = uint64(len(visitors))
	for i, q := range d.questions {
		if err := ctx.Err(); err != nil {
			return err
		}
		a, err := q.ask(visitors, monthSource(seed, day, i))
		if err != nil {
			return fmt.Errorf("couldn't simulate day %d, question %s: %w", day+1, q.name, err)
		}
		d.answers[day] = append(d.answers[day], a)
	}
	return nil
}

// total returns the sum of a question's answers over all days, and the number of reports.
func (d *diary) total(question int) (sum answered, users uint64, err error) {
	q := d.questions[question]
	sum = answered{q.mechanism.Aggregate(), make([]float64, max(len(q.entries), 1))}
	for day := range monthDays {
		of := d.answers[day][question]
		if err := sum.aggregate.Merge(of.aggregate); err != nil {
			return sum, 0, err
		}
		for j, x := range of.truth {
			sum.truth[j] += x
		}
		users += d.visitors[day]
	}
	return sum, users, nil
}

// makeMonth simulates a month of a site. The same seed gives the same month.
func makeMonth(ctx context.Context, seed uint64, done func()) (*month, error) {
	begin := time.Now()
	d, err := playDays(ctx, seed, done)
	if err != nil {
		return nil, err
	}
	m := &month{Seed: seed, Made: monthMade, From: dateOf(0).Format(time.DateOnly),
		To: dateOf(monthDays - 1).Format(time.DateOnly)}
	for _, q := range d.questions {
		m.Questions = append(m.Questions, q.name)
	}
	for _, n := range d.visitors {
		m.Reports += n
	}
	m.Coverage.Days = d.coverage()
	if m.Visits, err = d.visits(&m.Coverage.Month); err != nil {
		return nil, err
	}
	for _, list := range []struct {
		question int
		to       **monthList
	}{{1, &m.Pages}, {2, &m.Referrers}, {3, &m.Countries}} {
		if *list.to, err = d.list(list.question, &m.Coverage.Month); err != nil {
			return nil, err
		}
	}
	if m.Speed, err = d.speed(4, &m.Coverage.Month); err != nil {
		return nil, err
	}
	if m.Budget, err = newMonthBudget(d.questions); err != nil {
		return nil, err
	}
	done()
	m.Elapsed = time.Since(begin).Seconds()
	return m, nil
}

// coverage counts, over all questions and days, how many intervals contain the true answer.
func (d *diary) coverage() (c heldCount) {
	for day := range monthDays {
		for i, q := range d.questions {
			of := d.answers[day][i]
			answer := verifier.Estimate(q.task, q.mechanism, of.aggregate, d.visitors[day], monthDays)
			for j, interval := range answer.Interval {
				c.add(interval, of.truth[j])
			}
		}
	}
	return c
}

// monthEntry is one estimate with its intervals, and the true number.
type monthEntry struct {
	Name     string     `json:"name"`
	Estimate float64    `json:"estimate"`
	Interval [2]float64 `json:"interval"`
	Band     [2]float64 `json:"band"` // Wider interval: all entries of the list are in their bands at once.
	Truth    float64    `json:"truth"`
	// Whether the whole band is above 0. If not, the entry is below the noise floor: perhaps no visitor has it.
	Seen bool `json:"seen"`
}

// monthList is a list with the counts of its entries, sorted by falling estimate.
type monthList struct {
	Error   float64      `json:"standard_error"` // The largest standard error of an entry.
	Floor   float64      `json:"noise_floor"`    // Entries with a larger estimate are seen.
	Seen    int          `json:"seen"`
	Entries []monthEntry `json:"entries"`
}

// list returns the answer to a question over all days. It adds the answer's intervals to held.
func (d *diary) list(question int, held *heldCount) (*monthList, error) {
	sum, users, err := d.total(question)
	if err != nil {
		return nil, err
	}
	q := d.questions[question]
	answer := verifier.Estimate(q.task, q.mechanism, sum.aggregate, users, 0)
	l := &monthList{Error: slices.Max(answer.StandardError)}
	for j, name := range q.entries {
		band := answer.Band[j]
		e := monthEntry{name, answer.Estimate[j], answer.Interval[j], band, sum.truth[j], band[0] > 0}
		if held.add(e.Interval, e.Truth); e.Seen {
			l.Seen++
		}
		l.Floor = max(l.Floor, e.Estimate-e.Band[0])
		l.Entries = append(l.Entries, e)
	}
	slices.SortStableFunc(l.Entries, func(a, b monthEntry) int { return cmp.Compare(b.Estimate, a.Estimate) })
	return l, nil
}

// monthVisits counts, by day, the visits that stayed on the site.
type monthVisits struct {
	Total monthEntry `json:"total"`
	Error float64    `json:"standard_error"` // The largest standard error of a day.
	Days  []monthDay `json:"days"`
}

// monthDay is one day. Its band and those of all other days hold at once.
type monthDay struct {
	monthEntry
	Reports uint64 `json:"reports"` // Exact: the number of reports is not private.
}

func (d *diary) visits(held *heldCount) (*monthVisits, error) {
	const question = 0
	sum, users, err := d.total(question)
	if err != nil {
		return nil, err
	}
	q := d.questions[question]
	all := verifier.Estimate(q.task, q.mechanism, sum.aggregate, users, 0)
	v := &monthVisits{Total: monthEntry{"the month", all.Estimate[0], all.Interval[0], all.Band[0], sum.truth[0],
		all.Band[0][0] > 0}}
	held.add(v.Total.Interval, v.Total.Truth)
	for day := range monthDays {
		of := d.answers[day][question]
		a := verifier.Estimate(q.task, q.mechanism, of.aggregate, d.visitors[day], monthDays)
		v.Error = max(v.Error, a.StandardError[0])
		v.Days = append(v.Days, monthDay{monthEntry{dateOf(day).Format(time.DateOnly), a.Estimate[0], a.Interval[0],
			a.BandOverEpochs[0], of.truth[0], a.BandOverEpochs[0][0] > 0}, d.visitors[day]})
	}
	return v, nil
}
