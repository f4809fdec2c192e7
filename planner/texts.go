package planner

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// TextCase describes batches of texts in which the intervals of counts are hard to get right: other texts are frequent
// without being asked for, or are too rare to be found. The texts of all clients that it does not mention differ; with
// texts of one or two bytes it mentions all. At (1, 10⁻⁶), relays or clients add the noise.
type TextCase struct {
	Name      string      `json:"name"`
	Length    uint64      `json:"length"` // Of the texts, in bytes.
	Users     uint64      `json:"users"`
	ByClients bool        `json:"noise_by_clients"`
	Held      []TextGroup `json:"held"`
	Absent    int         `json:"absent_asked"` // Number of texts without clients that are asked for.
}

// TextGroup is a number of texts with a number of clients each.
type TextGroup struct {
	Texts   int  `json:"texts"`
	Clients int  `json:"clients"`
	Asked   bool `json:"asked"`
}

// TextCases returns the cases whose coverage tests check. If a case asks for texts, its intervals must hold together;
// otherwise each interval of a found text must hold by itself.
func TextCases() []TextCase {
	var zipf []TextGroup
	for i := range 40 {
		zipf = append(zipf, TextGroup{1, 1500 / (i + 1), false})
	}
	cases := []TextCase{
		{Name: "1 of 1000, 50 asked", Users: 1e4, Held: []TextGroup{{1, 1000, false}}, Absent: 50},
		{Name: "20 of 200, 100 asked", Users: 1e4, Held: []TextGroup{{20, 200, false}}, Absent: 100},
		{Name: "8 of 400, 40 of 150", Users: 1e4, Held: []TextGroup{{8, 400, false}, {40, 150, false}}},
		{Name: "10 of 400, 30 of 120", Users: 1e4, Held: []TextGroup{{10, 400, false}, {30, 120, false}}},
		{Name: "5 of 1000, 40 of 150", Users: 12e3, Held: []TextGroup{{5, 1000, false}, {40, 150, false}}},
		{Name: "3 of 500, 100 asked, 10 of them of 150", Users: 1e4,
			Held: []TextGroup{{3, 500, false}, {10, 150, true}}, Absent: 90},
		{Name: "40 of 150, 50 asked, 2 of them of 1000 and 300", Users: 1e4,
			Held: []TextGroup{{40, 150, false}, {1, 1000, true}, {1, 300, true}}, Absent: 48},
		{Name: "200 of 30, 100 asked", Users: 1e4, Held: []TextGroup{{200, 30, false}}, Absent: 100},
		{Name: "1 of 1000, 50 asked, 5 of them of 200", Users: 1e4, ByClients: true,
			Held: []TextGroup{{1, 1000, false}, {5, 200, true}}, Absent: 45},
		{Name: "20 of 300, 40 of 80", Users: 1e4, Held: []TextGroup{{20, 300, false}, {40, 80, false}}},
		{Name: "40 of 1500 to 37 by Zipf's law", Users: 1e4, Held: zipf},
		{Name: "5 of 800, 20 of 150", Users: 1e4, ByClients: true,
			Held: []TextGroup{{5, 800, false}, {20, 150, false}}},
		{Name: "2 of 400, 8 of 60, 20 asked, with these", Users: 2000,
			Held: []TextGroup{{2, 400, true}, {8, 60, true}}, Absent: 10},
		{Name: "length 1: 8 of 1000, 20 asked, 10 of them of 200", Length: 1, Users: 1e4,
			Held: []TextGroup{{8, 1000, false}, {10, 200, true}}, Absent: 10},
		{Name: "length 2: 4 of 1000, 20 of 150, 100 of 30, 30 asked, 5 of them of 30", Length: 2, Users: 1e4,
			Held: []TextGroup{{4, 1000, false}, {20, 150, false}, {95, 30, false}, {5, 30, true}}, Absent: 25},
		{Name: "length 2: 5 of 1000, 500 of 10", Length: 2, Users: 1e4,
			Held: []TextGroup{{5, 1000, false}, {500, 10, false}}},
		{Name: "length 32: 3 of 1000, 50 asked, 5 of them of 300", Length: 32, Users: 1e4,
			Held: []TextGroup{{3, 1000, false}, {5, 300, true}}, Absent: 45},
		{Name: "length 32: 8 of 700, 15 of 250", Length: 32, Users: 1e4,
			Held: []TextGroup{{8, 700, false}, {15, 250, false}}},
		{Name: "6 cells a table: 1 of 100, 6 asked, 2 of them of 60", Users: 400,
			Held: []TextGroup{{1, 100, false}, {2, 60, true}}, Absent: 4},
		{Name: "7 cells a table: 2 of 80, 4 asked, one of them of 120", Users: 400, ByClients: true,
			Held: []TextGroup{{2, 80, false}, {1, 120, true}}, Absent: 3},
		{Name: "10 of 1000, 100 asked, 10 of them of 150", Users: 1e5,
			Held: []TextGroup{{10, 1000, false}, {10, 150, true}}, Absent: 90},
		{Name: "20 of 1000, 100 of 150", Users: 1e5, Held: []TextGroup{{20, 1000, false}, {100, 150, false}}},
	}
	for i := range cases {
		if cases[i].Length == 0 {
			cases[i].Length = 8
		}
	}
	return cases
}

// Query returns the query of a case.
func (c TextCase) Query() Query {
	q := Query{Name: "texts", Query: task.Strings, Length: c.Length, Batch: c.Users, Honest: 1, Epsilon: 1, Delta: 1e-6}
	if !c.ByClients {
		q.Relays = &RelayNoise{}
	}
	return q
}

// Texts draws the texts of one batch: how many clients have each that several have, and which are asked for. below
// draws a whole number below n.
func (c TextCase) Texts(below func(n uint64) uint64) (held map[string]int, asked []string) {
	held = map[string]int{}
	taken := map[string]bool{}
	text := func() string {
		for {
			if s := c.text(below); !taken[s] {
				taken[s] = true
				return s
			}
		}
	}
	for _, g := range c.Held {
		for range g.Texts {
			s := text()
			if held[s] = g.Clients; g.Asked {
				asked = append(asked, s)
			}
		}
	}
	for range c.Absent {
		asked = append(asked, text())
	}
	return held, asked
}

// text draws a text.
func (c TextCase) text(below func(n uint64) uint64) string {
	const characters = "abcdefghijklmnopqrstuvwxyz0123456789-/._"
	s := make([]byte, c.Length)
	for i := range s {
		s[i] = characters[below(uint64(len(characters)))]
	}
	return string(s)
}

// TextCoverage has the measured coverage of the 95 % intervals of a case.
type TextCoverage struct {
	TextCase
	Batches  int   `json:"batches"`
	Asking   bool  `json:"asking"`   // The batches ask for texts; otherwise they list texts.
	Together int   `json:"together"` // Batches in which all intervals of asked texts contain the truth.
	Found    int   `json:"found"`
	Covered  int   `json:"covered"` // Intervals of found texts that contain the truth.
	Missed   []int `json:"missed"`  // By number of found texts in a batch whose interval misses: number of batches.
	Rest     int   `json:"rest"`    // Batches in which the interval of the clients of other texts contains the truth.
	None     int   `json:"none"`    // Texts without an interval. They are not in Found, and do not count for Together.
}

// printEach is the number of batches of which one computes the intervals that are printed. The others only test the
// true numbers, which is faster; the tests of protocol strings show that this changes nothing.
const printEach = 20

// Add adds one batch: what [protocols.Capabilities.Hold] returns.
func (c *TextCoverage) Add(listed, asked map[string]bool, none int, off float64) {
	c.Batches++
	c.None += none
	missed, together := 0, 1
	for _, holds := range asked {
		if !holds {
			together = 0
		}
	}
	c.Asking = c.Asking || len(asked) > 0
	c.Together += together
	for _, holds := range listed {
		if c.Found++; holds {
			c.Covered++
		} else {
			missed++
		}
	}
	for len(c.Missed) <= missed {
		c.Missed = append(c.Missed, 0)
	}
	c.Missed[missed]++
	if off == 0 {
		c.Rest++
	}
}

// Merge adds the batches of another measurement of the same case.
func (c *TextCoverage) Merge(o *TextCoverage) {
	c.Asking = c.Asking || o.Asking
	c.Batches += o.Batches
	c.Together += o.Together
	c.Found += o.Found
	c.Covered += o.Covered
	c.Rest += o.Rest
	c.None += o.None
	for i, n := range o.Missed {
		for len(c.Missed) <= i {
			c.Missed = append(c.Missed, 0)
		}
		c.Missed[i] += n
	}
}

// Share returns the share of what the case claims that holds: of batches if it asks for texts, otherwise of found
// texts.
func (c *TextCoverage) Share() float64 {
	if c.Asking {
		return float64(c.Together) / float64(c.Batches)
	}
	return float64(c.Covered) / float64(max(1, c.Found))
}

// Run draws batches of the case, each with new hashes, as clients and relays do. To be fast, the search considers only
// texts that several clients have, and finds long ones from a fixed number of clients on. The tests of protocol strings
// show that this changes nothing.
func (c TextCase) Run(batches int, progress func()) (*TextCoverage, error) {
	draft, err := Draft(c.Query())
	if err != nil {
		return nil, err
	}
	m, err := registry.Open(draft)
	if err != nil {
		return nil, err
	}
	hold := protocols.CapabilitiesOf(m).Hold(relays(draft))
	out, left := &TextCoverage{TextCase: c}, atomic.Int64{}
	left.Store(int64(batches))
	var failed error
	var lock sync.Mutex
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			one, src := &TextCoverage{}, randomizer.NewSource()
			err := error(nil)
			for err == nil {
				i := left.Add(-1)
				if i < 0 {
					break
				}
				var b *textBatch
				if b, err = c.next(*draft, src); err == nil {
					one.Add(hold(b.aggregate, b.held, b.asked, .95, i%printEach == 0))
				}
				progress()
			}
			lock.Lock()
			defer lock.Unlock()
			if out.Merge(one); err != nil {
				failed = err
			}
		})
	}
	wait.Wait()
	return out, failed
}

// textBatch is one batch of a case.
type textBatch struct {
	aggregate protocols.Aggregate
	held      map[string]int
	asked     []string
}

// next draws one batch.
func (c TextCase) next(t task.Task, src *randomizer.Source) (*textBatch, error) {
	t.Name = fmt.Sprintf("texts %x", src.Uint64()) // The hashes depend on the task.
	m, err := registry.Open(&t)
	if err != nil {
		return nil, err
	}
	held, asked := c.Texts(src.Below)
	values := make([][]float64, 0, c.Users)
	add := func(text string, n int) {
		value := make([]float64, len(text))
		for i := range value {
			value[i] = float64(text[i])
		}
		for range n {
			values = append(values, value)
		}
	}
	for text, n := range held {
		add(text, n)
	}
	for uint64(len(values)) < c.Users {
		add(c.text(src.Below), 1)
	}
	b, err := Trial{Fast: true}.newBatches(&t, m, values)
	if err != nil {
		return nil, err
	}
	batch, err := b.next(src, false)
	if err != nil {
		return nil, err
	}
	return &textBatch{batch.aggregate, held, asked}, nil
}
