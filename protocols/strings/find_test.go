package strings_test

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/randomizer"
)

const alphabet40 = "abcdefghijklmnopqrstuvwxyz0123456789-/._"

// setting is a row of what the search must hold, with two relays that add dummies.
type setting struct {
	Name      string  `json:"name"`
	Users     uint64  `json:"users"`
	PerClient float64 `json:"dummiesPerClientAndRelay"` // Below 0: clients randomize instead.
	Share     float64 `json:"share"`                    // Of the clients, that have each planted text.
	Planted   int     `json:"plantedPerRun"`            // Texts.
	Length    uint64  `json:"length"`
	Alphabet  string  `json:"alphabet,omitempty"` // None: of all bytes that are UTF-8.
	Heads     int     `json:"heads"`              // Texts of 10 %, 5 %, 3.3 %, …
	Prefixes  int     `json:"prefixes"`           // One of which is the first half of each text.
	Malicious int     `json:"malicious"`          // Clients who send the cells of one text, and as evenly as can be.
	Least     float64 `json:"leastFound"`         // Share of the planted texts.
	Runs      int     `json:"runs"`
	short     int     // Runs in CI.
}

// settings are the acceptance rows. Other texts are each client's own.
var settings = []setting{
	{Name: "a million", Users: 1e6, PerClient: .7, Share: .00025, Planted: 100, Length: 8, Heads: 5, Least: .98,
		Runs: 20},
	{Name: "a million, fewer dummies", Users: 1e6, PerClient: .18, Share: .0004, Planted: 100, Length: 8, Heads: 5,
		Least: .98, Runs: 20},
	{Name: "100,000", Users: 1e5, PerClient: .9, Share: .0025, Planted: 20, Length: 8, Heads: 5, Least: .98, Runs: 100},
	{Name: "10,000", Users: 1e4, PerClient: 1.1, Share: .025, Planted: 10, Length: 8, Heads: 5, Least: .98, Runs: 200,
		short: 1},
	{Name: "noise by clients", Users: 1e5, PerClient: -1, Share: .004, Planted: 20, Length: 8, Heads: 5, Least: .98,
		Runs: 100},
	{Name: "24 characters", Users: 1e5, PerClient: .9, Share: .004, Planted: 20, Length: 24, Alphabet: alphabet40,
		Heads: 5, Least: .95, Runs: 100},
	{Name: "24 characters, 30 prefixes", Users: 1e5, PerClient: .9, Share: .004, Planted: 20, Length: 24,
		Alphabet: alphabet40, Heads: 5, Prefixes: 30, Least: .95, Runs: 100},
	{Name: "all unique", Users: 1e4, PerClient: 1.1, Length: 8, Runs: 200},
	{Name: "all unique, 30 prefixes", Users: 1e4, PerClient: 1.1, Length: 24, Alphabet: alphabet40, Prefixes: 30,
		Runs: 200},
	{Name: "heads alone", Users: 1e4, PerClient: 1.1, Length: 8, Heads: 5, Runs: 200},
	{Name: "malicious clients", Users: 1e4, PerClient: 1.1, Length: 8, Heads: 5, Malicious: 100, Runs: 200},
}

// text returns one of the setting's texts.
func (s setting) text(src *randomizer.Source, prefixes []string) string {
	out := make([]byte, s.Length)
	for {
		for i := range out {
			if s.Alphabet != "" {
				out[i] = s.Alphabet[src.Below(uint64(len(s.Alphabet)))]
			} else {
				out[i] = byte(1 + src.Below(255))
			}
		}
		if len(prefixes) > 0 {
			copy(out, prefixes[src.Below(uint64(len(prefixes)))])
		}
		if utf8.Valid(out) {
			return string(out)
		}
	}
}

// outcome is what a setting came to.
type outcome struct {
	setting
	Strings      int     `json:"planted"`
	Found        int     `json:"found"`
	Covered      int     `json:"covered"` // Of those found, by their 95 % intervals.
	Heads        int     `json:"headsPlanted"`
	HeadsFound   int     `json:"headsFound"`
	HeadsCovered int     `json:"headsCovered"`
	False        int     `json:"false"`
	Seconds      float64 `json:"secondsPerSearch"`
	FoundDownTo  float64 `json:"foundDownTo"` // Clients.
}

// TestFind: frequent texts are found, nothing else is, and intervals hold the numbers of clients of those found. The
// long form, make test-full PART=strings, writes its figures.
func TestFind(t *testing.T) {
	path := os.Getenv("DOONA_FIGURES")
	full := os.Getenv("DOONA_FULL") != "" && path != ""
	var rows []outcome
	for _, s := range settings {
		runs := s.short
		if full {
			runs = s.Runs
		}
		if runs == 0 {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			o := s.run(t, runs)
			t.Logf("%+v", o)
			o.check(t, full)
			rows = append(rows, o)
		})
	}
	if full {
		out, err := json.MarshalIndent(rows, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, out, 0o644))
	}
}

// check holds an outcome against what is wanted; few runs may miss a little.
func (o outcome) check(t *testing.T, full bool) {
	runs := max(o.Runs, 1)
	if !full {
		require.Zero(t, o.False) // One run in some hundred has one.
		require.GreaterOrEqual(t, float64(o.HeadsFound), .7*float64(o.Heads))
		require.GreaterOrEqual(t, float64(o.Found), .8*float64(o.Strings))
		require.GreaterOrEqual(t, float64(o.Covered), .7*float64(o.Found))
		return
	}
	require.LessOrEqual(t, float64(o.False), math.Ceil(float64(runs)/100))
	require.GreaterOrEqual(t, float64(o.Found), o.Least*float64(o.Strings))
	if o.Found > 0 {
		slack := 3 * math.Sqrt(.95*.05/float64(o.Found))
		require.InDelta(t, .9525, float64(o.Covered)/float64(o.Found), .0075+slack)
	}
}

func (s setting) run(t *testing.T, runs int) (o outcome) {
	o.setting, o.Runs = s, runs
	d := draft(t, s.Length, s.Users, s.PerClient*float64(s.Users), nil)
	m, src := open(t, d), randomizer.NewSource()
	for range runs {
		var prefixes []string
		for range s.Prefixes {
			prefixes = append(prefixes, setting{Length: s.Length / 2, Alphabet: s.Alphabet}.text(src, nil))
		}
		held, marked := map[string]int{}, map[string]bool{}
		for i := range s.Heads {
			held[s.text(src, prefixes)] = int(float64(s.Users) / 10 / float64(i+1))
		}
		for range s.Planted {
			text := s.text(src, prefixes)
			held[text], marked[text] = int(s.Share*float64(s.Users)), true
		}
		agg := batch(t, d, m, src, held, func(int) string { return s.text(src, prefixes) })
		s.plant(t, m, agg, s.text(src, prefixes))
		before := time.Now()
		found := agg.Find(.95)
		o.Seconds += time.Since(before).Seconds() / float64(runs)
		o.FoundDownTo += found.Least / float64(runs)
		o.count(found, held, marked)
	}
	return o
}

// plant adds what malicious clients send for a text: as many in each of its cells.
func (s setting) plant(t *testing.T, m *strings.Mechanism, agg *strings.Aggregate, text string) {
	levels, checks := m.Tables()
	for i := range s.Malicious {
		require.NoError(t, agg.Add(0, m.Message(m.Cell(i%(levels+checks), text))))
	}
}

// count adds one run.
func (o *outcome) count(found strings.Found, held map[string]int, marked map[string]bool) {
	o.Strings += len(marked)
	o.Heads += len(held) - len(marked)
	for _, c := range found.Texts {
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

// TestFindOverShards: what is found does not depend on how batches were divided.
func TestFindOverShards(t *testing.T) {
	d := draft(t, 4, 2000, 0, nil)
	m, src := open(t, d), randomizer.NewSource()
	one := func(text string) *strings.Aggregate {
		return batch(t, d, m, src, map[string]int{text: 1200}, func(i int) string { return strconv.Itoa(i) })
	}
	a, b := one("left"), one("né")
	before := a.Find(.95)
	require.Len(t, before.Texts, 1)
	require.Equal(t, "left", before.Texts[0].Text)
	x, y := m.Aggregate().(*strings.Aggregate), m.Aggregate().(*strings.Aggregate)
	for _, shard := range []*strings.Aggregate{a, b} {
		require.NoError(t, x.Merge(shard))
	}
	for _, shard := range []*strings.Aggregate{b, a} {
		require.NoError(t, y.Merge(shard))
	}
	both := x.Find(.95)
	require.Len(t, both.Texts, 2)
	require.Equal(t, both, y.Find(.95))
	require.Equal(t, before, a.Find(.95), "finding changes nothing")
	empty := m.Aggregate().(*strings.Aggregate).Find(.95)
	require.Empty(t, empty.Texts)
	require.Zero(t, empty.Least)
}
