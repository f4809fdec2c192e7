package main

import (
	_ "embed"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/table"
	texts "github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/verifier"
)

// sitemap is the demo's input for texts: the addresses of this project's documents and packages, one per line.
//
//go:embed sitemap.txt
var sitemap string

// followsOld is the fraction of visitors without a page who follow a link to an old address, by Zipf's law. The others
// mistype an address, each in another way.
const followsOld = .6

// brokenLinks returns the addresses at which n visitors found no page. They are the same in every run.
func brokenLinks(visitors int) []string {
	pages, random := strings.Fields(sitemap), rand.New(rand.NewPCG(3, 4))
	var zipf []float64 // cumulative sums of the weights
	sum := 0.0
	for i := range pages {
		sum += 1 / float64(i+1)
		zipf = append(zipf, sum)
	}
	out := make([]string, visitors)
	for i := range out {
		if random.Float64() >= followsOld {
			page := []byte(pages[random.IntN(len(pages))])
			page[1+random.IntN(len(page)-1)] = byte('a' + random.IntN(26))
			out[i] = fmt.Sprintf("%s%d", page, random.IntN(1000))
			continue
		}
		at, _ := slices.BinarySearch(zipf, random.Float64()*sum)
		out[i] = formerly(pages[at])
	}
	return out
}

func suggestedLinks() (out []string) {
	for _, page := range strings.Fields(sitemap)[:12] {
		out = append(out, formerly(page))
	}
	return out
}

// formerly returns the old address of a page: all pages once ended in .html.
func formerly(page string) string {
	return strings.TrimSuffix(strings.TrimSuffix(page, ".md"), "/") + ".html"
}

// textValues reads the clients' texts: lines of the input, or broken links if there is no input.
func (o *options) textValues() (rows [][]float64, err error) {
	lines := brokenLinks(o.users)
	if o.input != "" {
		if lines, err = table.ReadLines(o.input, o.format.Notes); err != nil {
			return nil, err
		}
	}
	if len(lines) < o.users {
		return nil, cli.Usagef("invalid users %d: want at most %d, the lines of the input", o.users, len(lines))
	}
	for _, line := range lines[:o.users] {
		rows = append(rows, texts.Value(line))
	}
	return rows, nil
}

// trueText says how many clients have a text, which only a simulation knows, and whether the verifier listed it.
type trueText struct {
	Text     string      `json:"text"`
	Clients  int         `json:"clients"`
	Listed   bool        `json:"listed"`
	Interval *[2]float64 `json:"interval"` // Null if the verifier did not list it or has none.
}

// holders returns, for each text, how many clients have it.
func holders(values [][]float64) map[string]int {
	out := map[string]int{}
	for _, value := range values {
		text := make([]byte, len(value))
		for i, c := range value {
			text[i] = byte(c)
		}
		out[string(text)]++
	}
	return out
}

type foundText struct {
	verifier.TextCount
	Truth int `json:"truth"` // Number of simulated clients that have it.
}

// foundTexts returns the listed texts, with the true numbers of simulated clients. It is empty for other queries.
func foundTexts(found *verifier.Texts, values [][]float64) []foundText {
	out := []foundText{}
	if found == nil {
		return out
	}
	held := holders(values)
	for _, c := range found.List {
		truth := held[c.Text]
		c.Text = display.Plain(c.Text)
		if c.Interval == nil { // The page shows that any number is possible.
			c.Interval = &[2]float64{0, float64(len(values))}
		}
		out = append(out, foundText{c, truth})
	}
	return out
}

// compareTexts returns the clients' frequent texts and all listed texts, sorted by falling number of clients.
func compareTexts(found *verifier.Texts, values [][]float64) (out []trueText) {
	if found == nil {
		return nil
	}
	held := holders(values)
	listed := map[string]verifier.TextCount{}
	for _, c := range found.List {
		listed[c.Text] = c
		if held[c.Text] == 0 {
			out = append(out, trueText{c.Text, 0, true, c.Interval})
		}
	}
	for text, n := range held {
		if c, ok := listed[text]; ok {
			out = append(out, trueText{text, n, true, c.Interval})
		} else if found.FoundDownTo > 0 && float64(n) >= found.FoundDownTo {
			out = append(out, trueText{Text: text, Clients: n})
		}
	}
	slices.SortFunc(out, func(a, b trueText) int {
		if a.Clients != b.Clients {
			return b.Clients - a.Clients
		}
		return strings.Compare(a.Text, b.Text)
	})
	return out
}

func (r *result) printTexts(w io.Writer) error {
	fmt.Fprint(w, "\nThe truth, which no party of a deployment knows:\n\n")
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tab, "text\tclients\tinterval")
	inside, missed, wrong := 0, 0, 0
	for _, c := range r.TrueTexts {
		interval := "not listed"
		switch {
		case !c.Listed:
			missed++
		case c.Clients == 0:
			wrong++
		case c.Interval == nil:
			interval = "no interval"
		case c.Interval[0] <= float64(c.Clients) && float64(c.Clients) <= c.Interval[1]:
			inside++
		}
		if c.Interval != nil {
			interval = fmt.Sprintf("%.0f to %.0f", c.Interval[0], c.Interval[1])
		}
		fmt.Fprintf(tab, "%q\t%d\t%s\n", c.Text, c.Clients, interval)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	listed := len(r.Texts.List)
	_, err := fmt.Fprintf(w, "\n%d texts are listed, of which nobody has %d; %d of the intervals contain the truth. "+
		"%d frequent texts are not listed. %d clients took %.1f s.\n", listed, wrong, inside, missed, r.Reports, r.ElapsedSeconds)
	return err
}
