package strings_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// population describes batches whose intervals must contain the truth. The texts of all clients that it does not
// mention differ. Two relays add .7 dummies per client each at (1, 10⁻⁶), or the clients add the noise.
type population struct {
	Name      string  `json:"name"`
	Users     uint64  `json:"users"`
	ByClients bool    `json:"noise_by_clients"`
	Held      []group `json:"held"`
	Absent    int     `json:"absent_asked"` // Number of texts without clients that are asked for.
}

// group is a number of texts with a number of clients each.
type group struct {
	Texts   int  `json:"texts"`
	Clients int  `json:"clients"`
	Asked   bool `json:"asked"`
}

// populations are the settings of the coverage tests. All were chosen before the intervals were. The first five showed
// that the intervals before these did not hold: of frequent texts that nobody asked for, and of texts that are too rare
// to be found.
var populations = []population{
	{Name: "1 of 1000 beside 50 asked", Users: 1e4, Held: []group{{1, 1000, false}}, Absent: 50},
	{Name: "20 of 200 beside 100 asked", Users: 1e4, Held: []group{{20, 200, false}}, Absent: 100},
	{Name: "8 of 400, 40 of 150", Users: 1e4, Held: []group{{8, 400, false}, {40, 150, false}}},
	{Name: "10 of 400, 30 of 120", Users: 1e4, Held: []group{{10, 400, false}, {30, 120, false}}},
	{Name: "5 of 1000, 40 of 150", Users: 1e4, Held: []group{{5, 1000, false}, {40, 150, false}}},
	{Name: "3 of 500 beside 100 asked, 10 of them of 150", Users: 1e4,
		Held: []group{{3, 500, false}, {10, 150, true}}, Absent: 90},
	{Name: "40 of 150 beside 50 asked, of 1000 and 300", Users: 1e4,
		Held: []group{{40, 150, false}, {1, 1000, true}, {1, 300, true}}, Absent: 48},
	{Name: "200 of 30 beside 100 asked", Users: 1e4, Held: []group{{200, 30, false}}, Absent: 100},
	{Name: "noise by clients, 1 of 1000 beside 50 asked", Users: 1e4, ByClients: true,
		Held: []group{{1, 1000, false}, {5, 200, true}}, Absent: 45},
	{Name: "20 of 300, 40 of 80", Users: 1e4, Held: []group{{20, 300, false}, {40, 80, false}}},
	{Name: "Zipf", Users: 1e4, Held: zipf(1500, 40)},
	{Name: "noise by clients, 5 of 800, 20 of 150", Users: 1e4, ByClients: true,
		Held: []group{{5, 800, false}, {20, 150, false}}},
	{Name: "2000 clients, 2 of 400, 8 of 60", Users: 2000, Held: []group{{2, 400, true}, {8, 60, true}}, Absent: 10},
}

// zipf returns texts of which the i-th has most/i clients.
func zipf(most, texts int) (out []group) {
	for i := range texts {
		out = append(out, group{1, most / (i + 1), false})
	}
	return out
}

// people are the texts of one batch.
type people struct {
	held  map[string]int // By text: number of clients, of texts that several clients have.
	texts []string       // Texts with several clients.
	asked []string
}

// people draws the texts.
func (p population) people(draw func(n uint64) uint64) people {
	out := people{held: map[string]int{}}
	text := func() string {
		for {
			s := make([]byte, 8)
			for i := range s {
				s[i] = alphabet40[draw(40)]
			}
			if _, ok := out.held[string(s)]; !ok {
				return string(s)
			}
		}
	}
	for _, g := range p.Held {
		for range g.Texts {
			s := text()
			out.held[s] = g.Clients
			out.texts = append(out.texts, s)
			if g.Asked {
				out.asked = append(out.asked, s)
			}
		}
	}
	for range p.Absent {
		out.asked = append(out.asked, text())
	}
	return out
}

// task returns the population's task.
func (p population) task(t testing.TB) *task.Task {
	if p.ByClients {
		return draft(t, 8, p.Users, -1, nil)
	}
	return draft(t, 8, p.Users, 0, nil)
}

// byLaw draws a batch with new hashes by the law of the counts. It draws the cell of each message, but no client's text
// that others do not have: such a text's cells are uniform.
func (p population) byLaw(m *strings.Mechanism, d *task.Task, src *rand.Rand) (*strings.Aggregate, people) {
	m = m.WithSeed(src.Uint64())
	who := p.people(src.Uint64N)
	agg := m.Aggregate().(*strings.Aggregate)
	counts, left := agg.Counts(), int(p.Users)
	levels, checks := m.Tables()
	tables, gamma := levels+checks, m.Gamma()
	each := uint64(len(counts) / tables)
	cells := make([]uint64, tables)
	for _, text := range who.texts {
		for table := range cells {
			cells[table] = m.Cell(table, text)
		}
		for range who.held[text] {
			y := cells[src.IntN(tables)]
			if gamma > 0 && src.Float64() < gamma {
				y = y/each*each + src.Uint64N(each)
			}
			counts[y]++
		}
		left -= who.held[text]
	}
	if d.Noise != nil {
		left += 2 * int(d.Noise.Pool)
		agg.AddDummies(2, 2*d.Noise.Pool)
	}
	for range left {
		counts[src.IntN(len(counts))]++
	}
	return agg, who
}

// byCode draws a batch with new hashes by the code of clients and relays.
func (p population) byCode(t testing.TB, d *task.Task, src *rand.Rand) (*strings.Aggregate, people) {
	who := p.people(src.Uint64N)
	d.Name = fmt.Sprintf("task %x", src.Uint64())
	return batch(t, d, open(t, d), randomizer.NewSource(), who.held, func(int) string {
		return setting{Length: 8, Alphabet: alphabet40}.text(randomizer.NewSource(), nil)
	}), who
}

// coverage has the measured coverage of a population's intervals.
type coverage struct {
	population
	Batches  int   `json:"batches"`
	Together int   `json:"asked_together"` // Batches in which all intervals of asked texts contain the truth.
	Found    int   `json:"found"`
	Covered  int   `json:"found_covered"` // Intervals of found texts that contain the truth.
	Rests    int   `json:"rests"`         // Batches in which the interval of the clients of other texts was checked,
	Rest     int   `json:"rests_covered"` // and in which it contains the truth.
	Batch    []int `json:"-"`             // By number of found texts whose interval misses: number of batches.
}

// add adds one batch.
func (c *coverage) add(h strings.Holding) {
	c.Batches++
	together, missed := 1, 0
	for _, holds := range h.Asked {
		if !holds {
			together = 0
		}
	}
	for _, holds := range h.Listed {
		c.Found++
		if holds {
			c.Covered++
		} else {
			missed++
		}
	}
	if h.Rest {
		c.Rest++
	}
	c.Together += together
	c.Batch = append(c.Batch, make([]int, max(0, missed+1-len(c.Batch)))...)
	c.Batch[missed]++
}

func (c *coverage) merge(o *coverage) {
	c.Batches += o.Batches
	c.Together += o.Together
	c.Found += o.Found
	c.Covered += o.Covered
	c.Rest += o.Rest
	c.Rests += o.Rests
	c.Batch = append(c.Batch, make([]int, max(0, len(o.Batch)-len(c.Batch)))...)
	for i, n := range o.Batch {
		c.Batch[i] += n
	}
}

// holding returns whether the intervals that the code prints for a batch contain the truth.
func (p population) holding(t testing.TB, agg *strings.Aggregate, who people) strings.Holding {
	out := strings.Holding{Asked: map[string]bool{}, Listed: map[string]bool{}}
	counts, rest := []protocols.TextCount{}, protocols.TextCount{}
	into := out.Asked
	if len(who.asked) > 0 {
		var err error
		counts, rest, err = agg.Ask(who.asked, .95)
		require.NoError(t, err)
	} else {
		found := agg.Find(.95)
		counts, rest, into = found.List, found.Rest, out.Listed
	}
	for _, x := range counts {
		into[x.Text] = x.Lo <= float64(who.held[x.Text]) && float64(who.held[x.Text]) <= x.Hi
	}
	_ = rest
	return out
}

// restEach is of how many batches one checks the interval of the clients of other texts, to save time.
const restEach = 10

// measure returns the coverage over batches drawn by the law.
func (p population) measure(t *testing.T, batches int) *coverage {
	out := &coverage{population: p}
	d := p.task(t)
	m := open(t, d)
	var lock sync.Mutex
	var wait sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wait.Go(func() {
			c, src := &coverage{}, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
			for i := range (batches + w) / workers {
				agg, who := p.byLaw(m, d, src)
				restToo := i%restEach == 0
				if restToo {
					c.Rests++
				}
				c.add(agg.HoldAmong(who.texts, who.asked, who.held, restToo))
			}
			lock.Lock()
			defer lock.Unlock()
			out.merge(c)
		})
	}
	wait.Wait()
	return out
}

func (c *coverage) String() string {
	n, found := float64(c.Batches), float64(max(c.Found, 1))
	return fmt.Sprintf("%-50s together %5.2f %%, found %5.2f %% of %d, rest %5.2f %%", c.Name,
		100*float64(c.Together)/n, 100*float64(c.Covered)/found, c.Found, 100*float64(c.Rest)/float64(max(1, c.Rests)))
}

// TestCoverage measures the coverage of all settings.
func TestCoverage(t *testing.T) {
	batches := 20
	if stattest.Long {
		batches = 20_000
	}
	if n := os.Getenv("DOONA_BATCHES"); n != "" {
		require.NoError(t, json.Unmarshal([]byte(n), &batches))
	}
	_ = math.Pi
	for _, p := range populations {
		c := p.measure(t, batches)
		t.Log(c)
	}
}
