package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The simulated month is of an invented bicycle shop's site. Its visitors and what they do are invented, so the demo
// knows the true answers.
const (
	monthDays   = 30
	listedPages = 1000
	otherPages  = .06 // Fraction of visits that begin on unlisted pages.
	firstDay    = "2026-06-01"

	mostVisitors = 30000 // On one day. A batch holds at most that many reports.
)

// newsDay is the day on which a news site, otherwise a rare referrer, links to the shop.
const newsDay = 16

// visitor is what a visitor's device knows of its first visit of the day. The questions ask for it.
type visitor struct {
	stayed   bool // Whether the visit lasted ten seconds or reached a second page.
	page     int
	referrer int
	country  int
	device   int
	paint    float64 // Largest contentful paint, in seconds.
}

// devices differ in how often they visit and in how fast they show a page. The time to show a page is log-normal.
var devices = []struct {
	name           string
	share          float64
	median, spread float64
}{{"phone", .57, 2.15, .55}, {"desktop", .36, 1.35, .5}, {"tablet", .07, 1.9, .55}}

// paintEdges are the lower edges of the bins of the largest contentful paint, in seconds. Google calls a paint good up
// to 2.5 s and poor above 4 s.
var paintEdges = []float64{0, .8, 1.2, 1.6, 2, 2.5, 3, 3.5, 4, 5, 6, 8}

const (
	goodPaint = 2.5
	poorPaint = 4
)

type weighted struct {
	name   string
	weight float64
}

var referrers = []weighted{{"none: typed, or a bookmark", 30}, {"web search", 34}, {"social network", 9},
	{"newsletter", 7}, {"video site", 5}, {"advertisement", 5}, {"forum", 3}, {"partner", 2.4}, {"news site", 1.6},
	{"chat", 1.2}, {"app", .6}, {"another", 1.2}}

var countries = []weighted{{"Germany", 36}, {"Austria", 11}, {"Switzerland", 9}, {"Netherlands", 8}, {"France", 6.5},
	{"Belgium", 4.2}, {"Denmark", 3.6}, {"Poland", 3.1}, {"Italy", 2.8}, {"Czechia", 2.4}, {"United Kingdom", 2.1},
	{"Sweden", 1.8}, {"Spain", 1.6}, {"Luxembourg", 1.3}, {"Norway", 1.1}, {"United States", 1}, {"Finland", .8},
	{"Hungary", .6}, {"Slovenia", .5}, {"Ireland", .42}, {"Portugal", .35}, {"Slovakia", .3}, {"Romania", .24},
	{"Croatia", .2}, {"Estonia", .15}, {"Latvia", .12}, {"Lithuania", .1}, {"Greece", .08}, {"Bulgaria", .06},
	{"Canada", .05}, {"Japan", .03}, {"another", .5}}

// On frontPages most visits begin. Other pages' names are made from the parts below.
var (
	frontPages = strings.Fields("/ /bikes /sale /bikes/city /bikes/touring /guides/frame-size /stores /bikes/electric " +
		"/parts /repair /guides/commuting /bikes/children /gift-cards /about /contact /jobs")
	sections = strings.Fields("bikes parts wear guides repair tours stories stores")
	things   = strings.Fields("bell brake bag basket bearing bottle cable carrier cassette chain clamp crank cup fork " +
		"frame glove grip helmet hub jacket kit lamp lever light lock mirror mudguard pannier pedal pump rack rim " +
		"saddle seat shoe spoke stand stem strap tool trailer tube tyre valve vest wheel")
)

// pageNames returns the names of the listed pages, front pages first, and at the end "other".
func pageNames() []string {
	names := slices.Clone(frontPages)
	for i := 0; len(names) < listedPages; i++ {
		name := "/" + sections[i%len(sections)] + "/" + things[i/len(sections)%len(things)]
		if round := i / (len(sections) * len(things)); round > 0 {
			name += "-" + strconv.Itoa(round+1)
		}
		if !slices.Contains(frontPages, name) {
			names = append(names, name)
		}
	}
	return append(names, "other")
}

// site draws random visits. The popularity of pages follows Zipf's law: front pages first, then the others in an order
// unrelated to their names.
type site struct {
	random           *rand.Rand
	zipf             []float64 // Cumulative sums of the pages' weights, by rank.
	ranked           []int     // Pages by rank.
	referrer, nation []float64 // Cumulative sums of the weights.
}

// newSite returns the site on a day, counted from 0, for a seed.
func newSite(seed uint64, day int) *site {
	s := &site{random: rand.New(rand.NewPCG(seed, uint64(day))), referrer: runningSums(referrers),
		nation: runningSums(countries)}
	if day == newsDay {
		s.referrer = runningSums(newsReferrers())
	}
	sum := 0.0
	for rank := range listedPages {
		sum += 1 / float64(rank+1)
		s.zipf, s.ranked = append(s.zipf, sum), append(s.ranked, rank)
	}
	rest := s.ranked[len(frontPages):]
	order := rand.New(rand.NewPCG(seed, monthDays)) // the same order on all days of the month
	order.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return s
}

func newsReferrers() []weighted {
	entries := slices.Clone(referrers)
	for i := range entries {
		if entries[i].name == "news site" {
			entries[i].weight *= 12
		}
	}
	return entries
}

func runningSums(entries []weighted) (sums []float64) {
	sum := 0.0
	for _, p := range entries {
		sum += p.weight
		sums = append(sums, sum)
	}
	return sums
}

// pick returns a random index. The increments of sums give the probabilities.
func (s *site) pick(sums []float64) int {
	at, _ := slices.BinarySearch(sums, s.random.Float64()*sums[len(sums)-1])
	return at
}

// visitors draws the visitors of a day. There are fewer at weekends, and slightly more from week to week.
func (s *site) visitors(day int) []visitor {
	n := 20500 * (1 + .003*float64(day)) * math.Exp(.03*s.random.NormFloat64())
	if weekday := dateOf(day).Weekday(); weekday == time.Saturday || weekday == time.Sunday {
		n *= .68
	}
	if day == newsDay {
		n *= 1.2
	}
	out := make([]visitor, min(int(n), mostVisitors))
	for i := range out {
		out[i] = s.visitor()
	}
	return out
}

func (s *site) visitor() visitor {
	v := visitor{page: listedPages, referrer: s.pick(s.referrer), country: s.pick(s.nation)}
	if s.random.Float64() >= otherPages {
		v.page = s.ranked[s.pick(s.zipf)]
	}
	for u := s.random.Float64(); v.device < len(devices)-1 && u >= devices[v.device].share; v.device++ {
		u -= devices[v.device].share
	}
	d := devices[v.device]
	v.paint = d.median * math.Exp(d.spread*s.random.NormFloat64())
	v.stayed = s.random.Float64() < .78-.045*min(v.paint, 8) // slow pages lose visitors
	return v
}

// dateOf returns the date of a day, counted from 0.
func dateOf(day int) time.Time {
	first, err := time.Parse(time.DateOnly, firstDay)
	if err != nil {
		panic("demo: internal error: " + err.Error())
	}
	return first.AddDate(0, 0, day)
}

func paintBin(seconds float64) int {
	at, found := slices.BinarySearch(paintEdges, seconds)
	if !found {
		at--
	}
	return at
}

func paintNames() (names []string) {
	for i, from := range paintEdges {
		switch {
		case i == 0:
			names = append(names, fmt.Sprintf("below %g s", paintEdges[1]))
		case i == len(paintEdges)-1:
			names = append(names, fmt.Sprintf("%g s or more", from))
		default:
			names = append(names, fmt.Sprintf("%g to %g s", from, paintEdges[i+1]))
		}
	}
	return names
}
