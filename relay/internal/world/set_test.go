package world_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
)

// A world with a set has four tables of three clocks: two of days, one of weeks and one of months. The parties' clocks
// run so fast that a day lasts a minute. Browsers send one submission a day through the network's faults and their own.
// Two processes of a browser, like two tabs, share its ledger. What left a browser is opened with all parties' keys.

const (
	setSpeed     = 24 * 60 // a day lasts a minute
	setLead      = time.Minute
	setName      = "site"
	setTotalDays = 30
	setGiveUp    = 20 * 24 * time.Hour
	setChecks    = 3 * worldLength
	setPull      = 10*time.Second + 13*time.Millisecond
	setBrowsers  = 3
	setTabs      = 2

	// setSeconds is how long a browser tries to send.
	setSeconds = 12 * time.Second
)

// setTables are the names of the tables.
var setTables = []string{"capped", "rare", "week", "month"}

// setDays returns the number of days, and of whole months after the first.
func setDays() (days, months uint64) {
	if stattest.Long {
		return 365, 11
	}
	return 60, 1
}

// setLayout writes a deployment with a set. Its total is the smallest ε, in hundredths, that its tables need.
func setLayout() (*quickstart.Deployment, error) {
	days, months := setDays()
	begin := func(day int) uint64 { return uint64(beginning.AddDate(0, 0, day).Unix()) }
	set := quickstart.Set{Name: setName, Set: tableset.Set{Name: "a site", Total: tableset.Total{
		Epsilon: task.NewEpsilon("1000"), Delta: task.NewDelta("1e-5"), Days: setTotalDays}}}
	for _, epochs := range []task.Epochs{
		{Start: begin(1), Length: 86400, Count: days, Cap: task.Cap{Reports: 8, Window: 20}},
		{Start: begin(1), Length: 86400, Count: days, Events: task.Events{Most: 1, Window: 9, Default: usualLetter}},
		{Start: begin(2), Length: 7 * 86400, Count: (days - 1) / 7, Cap: task.Cap{Reports: 2, Window: 3},
			Pace: task.Cap{Reports: 1, Window: 2}},
		{Start: uint64(beginning.AddDate(0, 1, 0).Unix()), Length: task.Month, Count: months},
	} {
		table := fixture.Table(4, epochs)
		name := setTables[len(set.Tables)]
		table.Name, table.Clients.Quota, table.Claim = name, 1, task.NewClaim("2", "1e-8")
		if err := registry.CalibrateRelayNoise(table, protocols.NoiseOptions{}); err != nil {
			return nil, err
		}
		set.Tables = append(set.Tables, table)
		set.Set.Tables = append(set.Set.Tables, tableset.Table{Name: name})
	}
	if err := setTotal(&set); err != nil {
		return nil, err
	}
	return writeLayout(5*time.Minute, nil, set)
}

// setTotal sets the ε of a set's total.
func setTotal(set *quickstart.Set) error {
	laws, err := lawsOf(set.Tables)
	if err != nil {
		return err
	}
	copies := (&tableset.Open{Set: &set.Set, Tasks: set.Tables}).Copies()
	delta := set.Set.Total.Delta.Value()
	hundredths := 1 + sort.Search(10_000, func(n int) bool {
		return compose.Delta(observations(laws, copies), float64(n+1)/100, delta) <= delta
	})
	set.Set.Total.Epsilon = task.NewEpsilon(strconv.FormatFloat(float64(hundredths)/100, 'f', -1, 64))
	return nil
}

func lawsOf(tables []*task.Task) (laws []*compose.Law, err error) {
	for _, t := range tables {
		m, err := registry.Open(t)
		if err != nil {
			return nil, err
		}
		law, err := m.Law()
		if err != nil {
			return nil, err
		}
		laws = append(laws, law)
	}
	return laws, nil
}

// observations returns a number of copies of each law.
func observations(laws []*compose.Law, copies []uint64) (seen []compose.Observation) {
	for i, n := range copies {
		if n > 0 {
			seen = append(seen, laws[i].Observation(n))
		}
	}
	return seen
}

// drawSetFaults draws faults in which no party lies, for all days: up to 8 in each four minutes, and one wrong clock.
func (w *world) drawSetFaults(rng *rand.Rand) (out []fault) {
	for at := time.Duration(0); at < w.end()-4*time.Minute; at += 4 * time.Minute {
		for _, f := range drawFaults(rng, false, []string{faultNetwork, faultCrash, faultFull}) {
			f.at += at
			out = append(out, f)
		}
	}
	clock := drawClock(rng, false)
	clock.at += between(rng, 0, w.end()-4*time.Minute)
	return append(out, clock)
}

// submission is a submission that left a browser.
type submission struct {
	browser *browser
	day     uint64
	tables  []*sent // nil if the table is not open
	acked   bool
}

// browser is one person's device for all days of a set, with two processes.
type browser struct {
	device
	world  *world
	number int
	tabs   [setTabs]*shufflerclient.SetClient
	left   map[string]*submission // by body
	days   []*submission          // in the order in which they left
	tags   map[[onion.TagSize]byte]bool
	forget func(line *shufflerclient.Line) // a planted fault, at each start of a process

	resent, instead, claimed, lost int
}

func (w *world) drawBrowsers(rng *rand.Rand, running *sync.WaitGroup) (out []event) {
	for i := range setBrowsers {
		b := &browser{world: w, device: device{t: w.t, rng: rand.New(rand.NewPCG(w.seed, uint64(i)+1))},
			number: i, left: map[string]*submission{}, tags: map[[onion.TagSize]byte]bool{},
			forget: forgets[w.bug.name]}
		w.browsers = append(w.browsers, b)
		visits := between(rng, 0, 30*time.Second)
		out = append(out, event{0, func() { running.Go(func() { b.live(visits) }) }})
	}
	return out
}

// live plays all days. The browser comes at some time after each one has begun.
func (b *browser) live(visits time.Duration) {
	folder := filepath.Join(b.world.Dir, fmt.Sprintf("browser%d", b.number))
	require.NoError(b.t, os.Mkdir(folder, 0o700))
	b.folder = filepath.Join(folder, "none")
	b.move(0)
	defer func() { b.disk.Remove() }()
	for day := range b.world.Open.Epochs.Count {
		time.Sleep(setLead + time.Duration(day)*worldLength + visits - b.world.since())
		b.fault(3, 24*time.Hour)
		if b.rng.IntN(8) > 0 {
			b.visit()
		}
		b.offset = 0
		switch b.rng.IntN(12) {
		case 0:
			b.crashes++
			b.restart()
		case 1:
			b.cuts++
			b.move(b.cuts)
			b.restart()
		}
	}
}

// restart ends the processes. Each starts again when it is needed.
func (b *browser) restart() {
	b.disk.Revive()
	b.tabs = [setTabs]*shufflerclient.SetClient{}
	if b.forget != nil {
		b.edit(b.forget)
	}
}

// tab returns the client of a process, or nil if the relay cannot be reached.
func (b *browser) tab(i int) *shufflerclient.SetClient {
	if b.tabs[i] != nil {
		return b.tabs[i]
	}
	set := b.world.OpenSet()
	client, err := shufflerclient.ConnectSet(b.t.Context(), shufflerclient.Options{
		Task: set.URL(), Owner: b.world.Owner,
		HTTP: &setTransport{clientTransport{network: b.world.network, from: relaytest.Network(b.number)}, b},
		Budget: shufflerclient.Budget{Epsilon: set.Total.Epsilon.Value(), Delta: set.Total.Delta.Value(),
			Days: setTotalDays},
		Ledger: shufflerclient.LedgerFile(b.path("ledger.json")),
		Usual:  map[string][]float64{"capped": {0}, "week": {0}, "month": {0}},
		Pause: func(ctx context.Context, _ time.Duration) error {
			time.Sleep(4 * time.Second)
			return ctx.Err()
		}})
	if err != nil {
		return nil
	}
	b.tabs[i] = client
	return client
}

// visit sends what waits on the disk, and claims today, by the device's clock, in one process or in both at once.
func (b *browser) visit() {
	if b.disk.Dead() {
		b.crashes++
		b.restart()
	}
	b.send()
	tabs := []int{b.rng.IntN(setTabs)}
	if b.rng.IntN(3) == 0 {
		tabs = []int{0, 1}
	}
	var running sync.WaitGroup
	for _, i := range tabs {
		client, values := b.tab(i), b.values()
		if client == nil {
			continue
		}
		day, ok := client.Day(b.world.now().Add(b.offset))
		if !ok {
			continue
		}
		running.Go(func() { b.report(client, i, day, values) })
	}
	running.Wait()
	b.send()
}

// values draws values; an invalid one or none must not change whether a table reports.
func (b *browser) values() map[string][]float64 {
	values := map[string][]float64{}
	for _, table := range b.world.OpenSet().Tables {
		switch b.rng.IntN(4) {
		case 0:
		case 1:
			values[table.Name] = []float64{9}
		default:
			values[table.Name] = []float64{float64(b.rng.IntN(4))}
		}
	}
	return values
}

// waits returns the file in which a process keeps the submission of a day until it is delivered.
func (b *browser) waits(tab int) string { return b.path(fmt.Sprintf("report%d.json", tab)) }

func (b *browser) report(client *shufflerclient.SetClient, tab int, day uint64, values map[string][]float64) {
	report, err := client.Report(b.t.Context(), day, values)
	b.world.account.mu.Lock()
	defer b.world.account.mu.Unlock()
	if err != nil {
		if errors.Is(err, shufflerclient.ErrClaimed) {
			b.claimed++
		}
		return
	}
	if errors.Is(report.Instead, shufflerclient.ErrAllowance) {
		b.instead++
	}
	raw, err := json.Marshal(report)
	require.NoError(b.t, err)
	if durable.WriteFile(b.waits(tab), raw, 0o600) != nil {
		b.lost++
	}
}

// send sends what waits on the disk. It stays there until it is acknowledged, or its day is over.
func (b *browser) send() {
	for i := range setTabs {
		raw, err := os.ReadFile(b.waits(i))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		require.NoError(b.t, err)
		var report shufflerclient.Report
		require.NoError(b.t, json.Unmarshal(raw, &report))
		client := b.tab(i)
		if client == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(b.t.Context(), setSeconds)
		err = client.Submit(ctx, &report)
		cancel()
		if (err == nil || errors.Is(err, problem.New(problem.EpochClosed, ""))) && !b.disk.Dead() {
			require.NoError(b.t, os.Remove(b.waits(i)))
		}
	}
}

// setTransport sends the requests of a browser's process through the network of a world, and records what leaves.
type setTransport struct {
	clientTransport
	browser *browser
}

// Do implements [shufflerclient.HTTP].
func (t *setTransport) Do(req *http.Request) (*http.Response, error) {
	b := t.browser
	var left *submission
	if req.Method == http.MethodPost {
		body, err := io.ReadAll(req.Body)
		require.NoError(b.t, err)
		req.Body = io.NopCloser(bytes.NewReader(body))
		left = b.leaves(req, body)
		t.sends = left.tables[0]
	}
	resp, err := t.clientTransport.Do(req)
	if err == nil && left != nil && resp.StatusCode == http.StatusCreated {
		left.acked = true
		for i, s := range left.tables {
			if s != nil {
				b.world.accounts[i].acknowledged(s)
			}
		}
	}
	return resp, err
}

// leaves records a submission that leaves the browser: what each table gets, and all tags.
func (b *browser) leaves(req *http.Request, body []byte) *submission {
	if s := b.left[string(body)]; s != nil {
		b.resent++
		return s
	}
	w, set := b.world, b.world.OpenSet()
	s := &submission{browser: b, tables: make([]*sent, len(set.Tables))}
	for s.day = range set.Tasks[0].Epochs.Count {
		if req.URL.String() == set.ReportsURL(s.day) {
			break
		}
	}
	key, err := w.account.keys[0].Key(s.day)
	require.NoError(b.t, err)
	opener, err := onion.NewOpener(set.Tasks[0], set.ID, 0, s.day, key)
	require.NoError(b.t, err)
	layouts, err := set.Layouts()
	require.NoError(b.t, err)
	envelope, err := opener.OpenSet(body, layouts)
	require.NoError(b.t, err)
	tags := [][onion.TagSize]byte{envelope.Tag}
	for i, a := range w.accounts {
		epoch, open := set.At(i, s.day)
		second, slot, err := a.opener(1, epoch).OpenSlot(0, envelope.Lanes[i][0])
		require.NoError(b.t, err)
		third, m, err := a.opener(2, epoch).OpenMessage(0, slot)
		require.NoError(b.t, err)
		tags = append(tags, second, third)
		if !open {
			if !m.Cover {
				a.note("a report to a table that is not open", "by browser %d on day %d", b.number, s.day)
			}
			continue
		}
		s.tables[i] = &sent{client: relaytest.Network(b.number), epoch: epoch, cover: m.Cover}
		if !m.Cover {
			s.tables[i].letter = letterOf(m)
		}
		a.learn(s.tables[i], onion.Lanes{{envelope.Lanes[i][0]}})
	}
	for _, tag := range tags {
		if b.tags[tag] {
			w.account.note("a tag twice", "by browser %d on day %d", b.number, s.day)
		}
		b.tags[tag] = true
	}
	b.left[string(body)], b.days = s, append(b.days, s)
	return s
}

// checkSet checks what left the browsers, and what the verifier has.
func (w *world) checkSet(noticed []string) {
	for _, b := range w.browsers {
		w.checkLedger(b)
		days := map[uint64]bool{}
		for _, s := range b.days {
			if days[s.day] {
				w.account.note("two submissions of one day", "by browser %d on day %d", b.number, s.day)
			}
			days[s.day] = true
			w.checkWhole(s, noticed)
		}
		for i := range w.accounts {
			w.checkLimits(b, i)
		}
		if why := w.exceeds(b); why != "" {
			w.account.note("beyond the total", "by browser %d: %s", b.number, why)
		}
	}
	for i, a := range w.accounts {
		w.checkCounts(i, a, noticed)
	}
}

// starts returns when the epochs of a table begin to which a browser reported, ascending; only of events if events is
// set. An epoch with two reports is in it twice.
func (b *browser) starts(table int, events bool) (out []int64) {
	e := b.world.accounts[table].open.Epochs
	for _, s := range b.days {
		if r := s.tables[table]; r != nil && !r.cover && !(events && r.letter == e.Events.Default) {
			out = append(out, int64(e.Begin(r.epoch)))
		}
	}
	slices.Sort(out)
	return out
}

// mostIn returns the most of these times in a stretch of time that begins with one of them. over returns its end.
func mostIn(starts []int64, over func(start int64) int64) (most uint64) {
	for i, first := range starts {
		n := uint64(0)
		for _, at := range starts[i:] {
			if at < over(first) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// checkLimits checks that a browser reported to a table once per epoch, within its cap and its events.
func (w *world) checkLimits(b *browser, table int) {
	a := w.accounts[table]
	e := a.open.Epochs
	window := func(epochs uint64) func(int64) int64 {
		return func(start int64) int64 { return e.Length.Add(start, int64(epochs)) }
	}
	starts := b.starts(table, false)
	if most := mostIn(starts, window(1)); most > 1 {
		a.note("two reports of one epoch", "by browser %d: %d", b.number, most)
	}
	if most := mostIn(starts, window(e.Cap.Window)); !e.Cap.IsZero() && most > e.Cap.Reports {
		a.note("reports beyond the cap", "by browser %d: %d", b.number, most)
	}
	if !e.Pace.IsZero() && !keepsPace(starts, e) {
		a.note("reports beyond the pace", "by browser %d, at %v", b.number, starts)
	}
	if e.Events.IsZero() {
		return
	}
	if most := mostIn(b.starts(table, true), window(e.Events.Window)); most > e.Events.Most {
		a.note("events beyond the allowance", "by browser %d: %d", b.number, most)
	}
}

// keepsPace reports whether some blocks of a table's pace have no more of these reports than it allows.
func keepsPace(starts []int64, e task.Epochs) bool {
	for offset := range int64(e.Pace.Window) {
		blocks, keeps := map[int64]uint64{}, true
		for _, at := range starts {
			block := (e.Length.Between(int64(e.Start), at) + offset) / int64(e.Pace.Window)
			blocks[block]++
			keeps = keeps && blocks[block] <= e.Pace.Reports
		}
		if keeps {
			return true
		}
	}
	return false
}

// copies returns how many copies of each table's law cover what left a browser in the worst stretch of the total's
// days: of a table with events, those that some other events with as many days could need.
func (w *world) copies(b *browser) []uint64 {
	set := w.OpenSet()
	copies := make([]uint64, len(set.Tables))
	window := func(start int64) int64 { return start + setTotalDays*86400 }
	for i, t := range set.Tasks {
		copies[i] = mostIn(b.starts(i, false), window)
		if !t.Epochs.Events.IsZero() {
			copies[i] = min(copies[i], 2*mostIn(b.starts(i, true), window))
		}
	}
	return copies
}

// exceeds says whether what left a browser costs more than the set's total, composed again; "" if not.
func (w *world) exceeds(b *browser) string {
	set, copies := w.OpenSet(), w.copies(b)
	for i, most := range set.Copies() {
		if copies[i] > most {
			return fmt.Sprintf("%d copies of table %s, at most %d", copies[i], set.Tables[i].Name, most)
		}
	}
	laws, err := lawsOf(set.Tasks)
	require.NoError(w.t, err)
	epsilon, delta := set.Total.Epsilon.Value(), set.Total.Delta.Value()
	if spent := compose.Delta(observations(laws, copies), epsilon, delta); spent > delta {
		return fmt.Sprintf("copies %v cost delta %v", copies, spent)
	}
	return ""
}

// checkLedger checks that a browser's ledger has one line, with the set's total and every report that left.
func (w *world) checkLedger(b *browser) {
	raw, err := os.ReadFile(b.path("ledger.json"))
	require.NoError(w.t, err)
	var ledger shufflerclient.Ledger
	require.NoError(w.t, json.Unmarshal(raw, &ledger))
	total := w.OpenSet().Total
	whole := compose.Spend{Epsilon: total.Epsilon.Value(), Delta: total.Delta.Value()}
	if len(ledger.Lines) != 1 || ledger.Lines[0].Price.First != whole || ledger.Lines[0].Price.All != whole {
		w.account.note("a wrong ledger", "of browser %d: %s", b.number, raw)
		return
	}
	line := ledger.Lines[0]
	has := func(runs []shufflerclient.Run, length task.Length, start int64) bool {
		return slices.ContainsFunc(runs, func(r shufflerclient.Run) bool {
			return r.Start <= start && start < length.Add(r.Start, int64(r.Count))
		})
	}
	for _, s := range b.days {
		if !has(line.Runs, line.Length, int64(w.Open.Epochs.Begin(s.day))) {
			w.account.note("a day without an entry", "of browser %d: %d", b.number, s.day)
		}
	}
	for i, a := range w.accounts {
		for _, start := range b.starts(i, false) {
			if !has(line.Set.Tables[i].Runs, a.open.Epochs.Length, start) || !has(line.Runs, line.Length, start) {
				a.note("a report without an entry", "of browser %d at %d", b.number, start)
			}
		}
	}
}

// checkWhole checks that all tables that are open got their slots of a submission, or none did.
func (w *world) checkWhole(s *submission, noticed []string) {
	for hop, name := range relayNames {
		var got []int
		for _, r := range s.tables {
			if r != nil {
				got = append(got, r.slots[hop])
			}
		}
		slices.Sort(got)
		if all := slices.Compact(got); len(all) > 1 && len(noticed) == 0 {
			w.account.note("a submission in some tables only", "%s has %v slots of browser %d, day %d", name, got,
				s.browser.number, s.day)
		}
	}
}

// checkCounts compares what the verifier counts of a table with what the browsers sent.
func (w *world) checkCounts(table int, a *account, noticed []string) {
	values, covers := uint64(0), uint64(0)
	_, slots := a.eachKept(func(s *sent) {
		if s.cover {
			covers++
		} else {
			values++
		}
	})
	run, ok := w.parties["verifier"].run.(*pulling)
	if !ok {
		return // its start failed, which is noted elsewhere
	}
	r, err := run.verifiers[table].Report()
	require.NoError(w.t, err)
	if r.Users != values || r.CoverMessages != covers || r.Verified+covers != slots || r.Missing != 0 {
		a.note("wrong counts", "%d values and %d covers in %d slots; the verifier has %d, %d, %d, and %d missing", values,
			covers, slots, r.Users, r.CoverMessages, r.Verified, r.Missing)
	}
	acked, sent := uint64(0), uint64(0)
	for _, s := range a.reports {
		if !s.cover {
			sent++
			if s.acked {
				acked++
			}
		}
	}
	if (values < acked || values > sent) && len(noticed) == 0 {
		a.note("wrong counts", "%d values left, %d of them acknowledged, and %d are counted", sent, acked, values)
	}
	w.counted = append(w.counted, [4]uint64{sent, acked, values, covers})
}

// TestAYearWithASet plays worlds with a set, in which relays, the verifier and browsers crash, lose writes and
// requests. The short form has 60 days, the long form a year. One more report to any table in 30 days would exceed the
// total.
func TestAYearWithASet(t *testing.T) {
	seeds := uint64(1)
	if stattest.Long {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			w := playWorld(t, seed, &bug{sets: true})
			require.Empty(t, w.broken(), "%s", w.report())
			total := w.OpenSet().Total
			t.Logf("seed %d: total (%s, %s) in %d days of %v copies", seed, total.Epsilon, total.Delta, total.Days,
				w.OpenSet().Copies())
			for i, a := range w.accounts {
				n := w.counted[i]
				t.Logf("%s: %d values left, %d acknowledged, %d counted; %d covers", a.file, n[0], n[1], n[2], n[3])
				require.Greater(t, min(n[1], n[2]), uint64(0), a.file)
			}
			for _, b := range w.browsers {
				t.Logf("%d submissions left, %d again, %d claims refused, %d events became the default, copies %v; "+
					"%d crashes, %d power cuts, %d full disks, %d leaps", len(b.days), b.resent, b.claimed, b.instead,
					w.copies(b), b.crashes, b.cuts, b.full, b.leaps)
				require.Greater(t, min(b.resent, b.claimed, b.instead, b.crashes, b.cuts, b.full, b.leaps), 0)
			}
			laws, err := lawsOf(w.OpenSet().Tasks)
			require.NoError(t, err)
			for i := range laws {
				more := w.OpenSet().Copies()
				more[i]++
				spent := compose.Delta(observations(laws, more), total.Epsilon.Value(), total.Delta.Value())
				require.Greater(t, spent, total.Delta.Value(), "one more of table %d", i)
			}
		})
	}
}
