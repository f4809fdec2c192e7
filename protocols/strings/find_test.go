package strings_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

const alphabet40 = "abcdefghijklmnopqrstuvwxyz0123456789-/._"

// setting describes batches to search, and what the search must find in them. Two relays add dummies, unless PerClient
// is below 0.
type setting struct {
	Name      string  `json:"name"`
	Users     uint64  `json:"users"`
	PerClient float64 `json:"dummiesPerClientAndRelay"` // Below 0: clients randomize instead.
	Share     float64 `json:"share"`                    // Fraction of the clients that hold each planted text.
	Planted   int     `json:"plantedPerRun"`            // Number of texts that the search must find.
	Length    uint64  `json:"length"`
	Alphabet  string  `json:"alphabet,omitempty"` // Characters of texts. Empty: all of UTF-8.
	Heads     int     `json:"heads"`              // Number of very frequent texts: held by 10 %, 5 %, 3.3 %, …
	Prefixes  int     `json:"prefixes"`           // Number of prefixes. Each text begins with one, half its length.
	Malicious int     `json:"malicious"`          // Number of clients who know the hashes and plant one text.
	Plot      string  `json:"plot,omitempty"`     // How they choose the text and messages: one of the plots below.
	Least     float64 `json:"leastFound"`         // Least fraction of the planted texts that must be found.
	Runs      int     `json:"runs"`
	short     int     // Number of runs in CI.
}

// The plots of malicious clients, who agree on one text. all tables: a text of their own, whose cells in all tables
// they fill as evenly as possible. checks: the same, but only in the checks, which decide. beside a head: a text that
// differs from the most frequent one in its last character. where others are: of 2,000 texts, the one whose cells
// honest clients fill most; the attackers know all texts.
const (
	plotTables = "all tables"
	plotChecks = "checks"
	plotBeside = "beside a head"
	plotFull   = "where others are"
)

// settings are the rows that the search must pass. All texts that a row does not mention have one client each.
var settings = []setting{
	{Name: "a million", Users: 1e6, PerClient: .7, Share: .00025, Planted: 100, Length: 8, Heads: 5, Least: .98,
		Runs: 20},
	{Name: "a million, fewer dummies", Users: 1e6, PerClient: .18, Share: .0004, Planted: 100, Length: 8, Heads: 5,
		Least: .98, Runs: 20},
	{Name: "100,000", Users: 1e5, PerClient: .9, Share: .0025, Planted: 20, Length: 8, Heads: 5, Least: .98, Runs: 200},
	{Name: "10,000", Users: 1e4, PerClient: 1.1, Share: .025, Planted: 10, Length: 8, Heads: 5, Least: .98, Runs: 800,
		short: 1},
	{Name: "noise by clients", Users: 1e5, PerClient: -1, Share: .004, Planted: 20, Length: 8, Heads: 5, Least: .98,
		Runs: 200},
	{Name: "24 characters", Users: 1e5, PerClient: .9, Share: .004, Planted: 20, Length: 24, Alphabet: alphabet40,
		Heads: 5, Least: .95, Runs: 100},
	{Name: "24 characters, 30 prefixes", Users: 1e5, PerClient: .9, Share: .004, Planted: 20, Length: 24,
		Alphabet: alphabet40, Heads: 5, Prefixes: 30, Least: .95, Runs: 100},
	{Name: "just found", Users: 1e4, PerClient: 1.1, Share: .0185, Planted: 10, Length: 8, Runs: 200},
	{Name: "all unique", Users: 1e4, PerClient: 1.1, Length: 8, Runs: 200},
	{Name: "all unique, 100,000", Users: 1e5, PerClient: .9, Length: 8, Runs: 200},
	{Name: "all unique, 30 prefixes", Users: 1e4, PerClient: 1.1, Length: 24, Alphabet: alphabet40, Prefixes: 30,
		Runs: 200},
	{Name: "all unique, 30 prefixes, 100,000", Users: 1e5, PerClient: .9, Length: 24, Alphabet: alphabet40,
		Prefixes: 30, Runs: 200},
	{Name: "heads alone", Users: 1e4, PerClient: 1.1, Length: 8, Heads: 5, Runs: 200},
	{Name: "malicious, all tables", Users: 1e4, PerClient: 1.1, Length: 8, Heads: 5, Malicious: 100,
		Plot: plotTables, Runs: 200},
	{Name: "malicious, checks alone", Users: 1e4, PerClient: 1.1, Length: 8, Heads: 5, Malicious: 100,
		Plot: plotChecks, Runs: 200},
	{Name: "malicious, beside a head", Users: 1e4, PerClient: 1.1, Length: 8, Heads: 5, Malicious: 100,
		Plot: plotBeside, Runs: 200},
	{Name: "malicious, where others are", Users: 1e4, PerClient: 1.1, Length: 8, Heads: 5, Malicious: 100,
		Plot: plotFull, Runs: 200},
}

// text returns a random text of the setting: characters of its alphabet, or a uniform UTF-8 text of its length.
func (s setting) text(src *randomizer.Source, prefixes []string) string {
	out := make([]byte, 0, s.Length)
	if len(prefixes) > 0 {
		out = append(out, prefixes[src.Below(uint64(len(prefixes)))]...)
	}
	for left := s.Length - uint64(len(out)); left > 0; left = s.Length - uint64(len(out)) {
		if s.Alphabet != "" {
			out = append(out, s.Alphabet[src.Below(uint64(len(s.Alphabet)))])
		} else {
			out = utf8.AppendRune(out, character(src, left))
		}
	}
	return string(out)
}

// character returns a random first character for a text of left bytes. A text composed of such characters is uniform
// among all texts of that many bytes, at most 8.
func character(src *randomizer.Source, left uint64) rune {
	// Numbers of characters of one byte (without zero), two, three (without surrogates) and four bytes.
	sizes := [...]uint64{127, 1920, 61440, 1048576}
	texts := []uint64{1} // Numbers of texts, by size in bytes.
	for n := uint64(1); n <= left; n++ {
		sum := uint64(0)
		for i, size := range sizes[:min(n, 4)] {
			sum += size * texts[n-1-uint64(i)]
		}
		texts = append(texts, sum)
	}
	at := src.Below(texts[left])
	for i, first := range []rune{1, 0x80, 0x800, 0x10000} {
		rest := texts[left-1-uint64(i)]
		if all := sizes[i] * rest; at >= all {
			at -= all
			continue
		}
		c := first + rune(at/rest)
		if c >= 0xd800 && i == 2 {
			c += 0x800
		}
		return c
	}
	panic("unreachable")
}

// outcome is the result of all runs of a setting.
type outcome struct {
	setting
	Strings      int     `json:"planted"`
	Found        int     `json:"found"`
	Covered      int     `json:"covered"` // Found texts whose 95 % interval contains the true count.
	Heads        int     `json:"headsPlanted"`
	HeadsFound   int     `json:"headsFound"`
	HeadsCovered int     `json:"headsCovered"`
	False        int     `json:"false"`
	Seconds      float64 `json:"secondsPerSearch"`
	FoundDownTo  float64 `json:"foundDownTo"` // Average of [protocols.FoundTexts.Least], in clients.
}

// TestFind checks that the search finds frequent texts and nothing else, and that intervals contain the true numbers of
// clients. The long form (make test-full PART=strings) writes the figures of each setting when it is done. A new run
// continues with the settings that are missing.
func TestFind(t *testing.T) {
	path := os.Getenv("DOONA_FIGURES")
	full := stattest.Long && path != ""
	var rows []outcome
	if full {
		rows = readOutcomes(t, path)
	}
	before, lock := slices.Clone(rows), sync.Mutex{}
	t.Run("settings", func(t *testing.T) { // t.Run returns when all parallel settings are done
		for _, s := range settings {
			runs := s.short
			if full {
				runs = s.Runs
			}
			if runs == 0 || slices.ContainsFunc(before, func(o outcome) bool { return o.setting == s.named(runs) }) {
				continue
			}
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				o := s.run(t, runs)
				t.Logf("%+v", o)
				lock.Lock()
				defer lock.Unlock()
				rows = append(rows, o)
				if full {
					out, err := json.MarshalIndent(rows, "", "  ")
					require.NoError(t, err)
					require.NoError(t, os.WriteFile(path, out, 0o644))
				}
			})
		}
	})
	all := outcome{}
	for _, o := range rows {
		o.check(t, full)
		all.Found += o.Found
		all.Covered += o.Covered
	}
	if full && all.Found > 0 {
		slack := 5 * math.Sqrt(.95*.05/float64(all.Found)) // Fails once in 10⁶ correct runs.
		require.InDelta(t, .9525, float64(all.Covered)/float64(all.Found), .0075+slack)
	}
}

// readOutcomes returns the figures of the settings that an earlier run completed.
func readOutcomes(t *testing.T, path string) (rows []outcome) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || len(text) == 0 {
		return nil
	}
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &rows))
	for i, o := range rows {
		rows[i].setting = o.named(o.Runs)
	}
	return rows
}

// named returns the setting with this number of runs and without the number for CI, as the key of stored figures.
func (s setting) named(runs int) setting {
	s.Runs, s.short = runs, 0
	return s
}

// check compares an outcome with the requirements. A short run, in CI, may fall slightly short of them.
func (o outcome) check(t *testing.T, full bool) {
	runs := max(o.Runs, 1)
	if !full {
		require.Zero(t, o.False) // Fails by chance once in some hundred runs.
		require.GreaterOrEqual(t, float64(o.HeadsFound), .7*float64(o.Heads))
		require.GreaterOrEqual(t, float64(o.Found), .8*float64(o.Strings))
		require.GreaterOrEqual(t, float64(o.Covered), .7*float64(o.Found))
		return
	}
	require.LessOrEqual(t, float64(o.False), math.Ceil(float64(runs)/100), o.Name)
	require.GreaterOrEqual(t, float64(o.Found), o.Least*float64(o.Strings), o.Name)
	if o.Found > 0 {
		slack := 5 * math.Sqrt(.95*.05/float64(o.Found)) // Fails once in 10⁶ correct runs.
		require.InDelta(t, .9525, float64(o.Covered)/float64(o.Found), .0075+slack, o.Name)
	}
}

func (s setting) run(t *testing.T, runs int) (o outcome) {
	o.setting, o.Runs = s, runs
	d := draft(t, s.Length, s.Users, s.PerClient*float64(s.Users), nil)
	m, src := open(t, d), randomizer.NewSource()
	for range runs {
		agg, held, marked := s.batch(t, d, m, src)
		before := time.Now()
		found := agg.Find(.95)
		o.Seconds += time.Since(before).Seconds() / float64(runs)
		o.FoundDownTo += found.Least / float64(runs)
		o.count(found, held, marked)
	}
	return o
}

// batch draws one batch. held is the number of clients of each text that several clients hold. marked are the texts
// that the search must find.
func (s setting) batch(t *testing.T, d *task.Task, m *strings.Mechanism, src *randomizer.Source) (
	agg *strings.Aggregate, held map[string]int, marked map[string]bool) {
	t.Helper()
	var prefixes, unique []string
	for range s.Prefixes {
		prefixes = append(prefixes, setting{Length: s.Length / 2, Alphabet: s.Alphabet}.text(src, nil))
	}
	held, marked = map[string]int{}, map[string]bool{}
	for i := range s.Heads {
		held[s.text(src, prefixes)] = int(float64(s.Users) / 10 / float64(i+1))
	}
	for range s.Planted {
		text := s.text(src, prefixes)
		held[text], marked[text] = int(s.Share*float64(s.Users)), true
	}
	agg = batch(t, d, m, src, held, func(int) string {
		text := s.text(src, prefixes)
		if s.Malicious > 0 {
			unique = append(unique, text)
		}
		return text
	})
	if s.Malicious > 0 {
		s.plant(t, src, m, agg, held, unique)
	}
	return agg, held, marked
}

// plant adds the messages of malicious clients.
func (s setting) plant(t *testing.T, src *randomizer.Source, m *strings.Mechanism, agg *strings.Aggregate,
	held map[string]int, unique []string) {
	levels, checks := m.Tables()
	first, text := 0, s.text(src, nil)
	switch s.Plot {
	case plotChecks:
		first = levels
	case plotBeside:
		text = beside(held)
	case plotFull:
		text = s.fullest(src, m, held, unique)
	}
	for i := range s.Malicious {
		require.NoError(t, agg.Add(0, m.Message(m.Cell(first+i%(levels+checks-first), text))))
	}
}

// beside returns a text that nobody holds. It differs from the most frequent text only in its last character.
func beside(held map[string]int) string {
	most := ""
	for text, n := range held {
		if n > held[most] {
			most = text
		}
	}
	all := []rune(most)
	all[len(all)-1]++
	return string(all)
}

// fullest returns, of 2,000 random texts, the one whose cells honest clients fill most.
func (s setting) fullest(src *randomizer.Source, m *strings.Mechanism, held map[string]int, unique []string) string {
	levels, checks := m.Tables()
	fill := map[uint64]int{}
	add := func(text string, n int) {
		for table := range levels + checks {
			fill[m.Cell(table, text)] += n
		}
	}
	for text, n := range held {
		add(text, min(n, 100)) // At most 100, because the messages of listed texts do not count.
	}
	for _, text := range unique {
		add(text, 1)
	}
	best, most := "", 0
	for range 2000 {
		text, sum := s.text(src, nil), 0
		for table := range levels + checks {
			sum += fill[m.Cell(table, text)]
		}
		if sum > most {
			best, most = text, sum
		}
	}
	return best
}

// count adds the result of one run to the outcome.
func (o *outcome) count(found protocols.FoundTexts, held map[string]int, marked map[string]bool) {
	o.Strings += len(marked)
	o.Heads += len(held) - len(marked)
	for _, c := range found.List {
		n, ok := held[c.Text]
		covered := 0
		if c.Lo <= float64(n) && float64(n) <= c.Hi {
			covered = 1
		}
		switch {
		case !ok:
			o.False++
		case marked[c.Text]:
			o.Found++
			o.Covered += covered
		default:
			o.HeadsFound++
			o.HeadsCovered += covered
		}
	}
}

// TestFoundDownTo checks the planned least number of clients. Of texts with that many clients, a run must list nearly
// all. If no number suffices, it must list none. The long form has more runs, longer texts and small batches. It also
// runs batches whose texts begin alike, with the number that the search itself states.
func TestFoundDownTo(t *testing.T) {
	full := stattest.Long
	rows := []setting{{Name: "10,000", Users: 1e4, PerClient: 1.1, Planted: 5, Length: 8, Runs: 60, short: 4},
		{Name: "noise by clients", Users: 1e4, PerClient: -1, Planted: 5, Length: 8, Runs: 60},
		{Name: "32 characters", Users: 1000, PerClient: .7, Planted: 1, Length: 32, Alphabet: alphabet40, Runs: 60},
		{Name: "16 characters", Users: 2000, PerClient: .7, Planted: 1, Length: 16, Alphabet: alphabet40, Runs: 60},
		{Name: "24 characters", Users: 1e5, PerClient: .9, Planted: 10, Length: 24, Alphabet: alphabet40, Runs: 10},
		{Name: "24 characters, 30 prefixes", Users: 1e5, PerClient: .9, Planted: 10, Length: 24, Alphabet: alphabet40,
			Prefixes: 30, Runs: 10}}
	for _, s := range rows {
		runs := s.short
		if full {
			runs = s.Runs
		}
		if runs == 0 {
			continue
		}
		d := draft(t, s.Length, s.Users, s.PerClient*float64(s.Users), nil)
		clients := open(t, d).FoundDownTo(2)
		for s.Prefixes > 0 { // Raise clients until a batch states that this many suffice.
			s.Share = clients / float64(s.Users)
			agg, _, _ := s.batch(t, d, open(t, d), randomizer.NewSource())
			if least := agg.Find(.95).Least; least > 1.05*clients {
				clients = least
				continue
			}
			break
		}
		s.Share = clients / float64(s.Users)
		o := s.run(t, runs)
		t.Logf("%s: at %.0f clients %d of %d are listed; a batch says %.0f", s.Name, clients, o.Found, o.Strings,
			o.FoundDownTo)
		require.LessOrEqual(t, o.FoundDownTo, 1.25*clients, s.Name)
		// In small tables a plan asks for more clients than a batch.
		require.GreaterOrEqual(t, o.FoundDownTo, .6*clients, s.Name)
		slack := 5*math.Sqrt(.96*.04/float64(o.Strings)) + 2/float64(o.Strings) // Fails by chance once in 10⁵ runs.
		require.GreaterOrEqual(t, float64(o.Found)/float64(o.Strings), .96-slack, s.Name)
	}

	few := setting{Users: 400, PerClient: .7, Share: .875, Planted: 1, Length: 32, Alphabet: alphabet40}
	require.Zero(t, open(t, draft(t, few.Length, few.Users, few.PerClient*float64(few.Users), nil)).FoundDownTo(2))
	require.Zero(t, few.run(t, 2).Found)
}

// TestIntervalsKnowTheBar checks intervals near the bar, the number of messages that a listed text must have in levels
// and checks together. If the levels have few messages, only texts with many in the checks are listed. So the same
// number in the checks must give a lower end of the interval than if the levels have many.
func TestIntervalsKnowTheBar(t *testing.T) {
	const b, mean, inChecks = 2000, 20, 18
	m := open(t, draft(t, 4, 10_000, 0, planner.Params{"b": b}))
	levels, checks := m.Tables()
	find := func(inLevels int) protocols.FoundTexts {
		agg, y := m.Aggregate().(*strings.Aggregate), 0
		agg.Counters(func(n *uint64) {
			if y++; y <= b*(levels+checks) {
				*n = mean
			}
		})
		for table := range levels + checks {
			n := inChecks
			if table < levels {
				n = inLevels
			}
			for range n {
				require.NoError(t, agg.Add(0, m.Message(m.Cell(table, "left"))))
			}
		}
		found := agg.Find(.95)
		require.Len(t, found.List, 1)
		require.Equal(t, "left", found.List[0].Text)
		return found
	}
	much := find(30)
	need := much.Threshold - inChecks*float64(checks) // Messages in the levels that just reach the bar.
	little := find(int(math.Ceil(need / float64(levels))))
	require.InDelta(t, much.List[0].Clients, little.List[0].Clients, 1e-9)
	require.Less(t, little.List[0].Lo, much.List[0].Lo/2)
}

// TestFindWithoutABackground checks a batch in which all clients hold one text and all other cells are empty.
func TestFindWithoutABackground(t *testing.T) {
	d := draft(t, 4, 10_000, 0, nil)
	agg := batch(t, &task.Task{Batch: d.Batch}, open(t, d), randomizer.NewSource(), map[string]int{"left": 10_000}, nil)
	found := agg.Find(1 - 1e-9)
	require.Len(t, found.List, 1)
	require.LessOrEqual(t, found.List[0].Lo, 10_000.)
	require.GreaterOrEqual(t, found.List[0].Hi, 10_000.)
	require.Less(t, found.Threshold, 10_000.)
}

// TestFindOverShards checks that the result does not depend on how batches were divided into shards.
func TestFindOverShards(t *testing.T) {
	d := draft(t, 4, 2000, 0, nil)
	m, src := open(t, d), randomizer.NewSource()
	one := func(text string) *strings.Aggregate {
		return batch(t, d, m, src, map[string]int{text: 1200}, func(i int) string { return strconv.Itoa(i) })
	}
	a, b := one("left"), one("né")
	before := a.Find(.95)
	require.Len(t, before.List, 1)
	require.Equal(t, "left", before.List[0].Text)
	x, y := m.Aggregate().(*strings.Aggregate), m.Aggregate().(*strings.Aggregate)
	for _, shard := range []*strings.Aggregate{a, b} {
		require.NoError(t, x.Merge(shard))
	}
	for _, shard := range []*strings.Aggregate{b, a} {
		require.NoError(t, y.Merge(shard))
	}
	both := x.Find(.95)
	require.Len(t, both.List, 2)
	require.Equal(t, both, y.Find(.95))
	require.Equal(t, before, a.Find(.95), "finding changes nothing")
	empty := m.Aggregate().(*strings.Aggregate).Find(.95)
	require.Empty(t, empty.List)
	require.Zero(t, empty.Least)
}
