package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/table"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	texts "github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// textSimulation is what `doona simulate --json` prints for strings.
type textSimulation struct {
	Texts []simulatedText `json:"texts"` // Frequent or listed texts, by falling number of clients.
	// How many clients a text needs to be listed in about 98 of 100 batches. It is a mean over the batches in which
	// some number of clients is enough, and 0 if there is no such batch.
	FoundDownTo float64 `json:"found_down_to"`
	False       int     `json:"false_texts"` // How often batches listed a text that no client has.
	Coverage    float64 `json:"coverage"`    // Share of the 95 % intervals of listed texts that contained the truth.
	Users       int     `json:"users"`
	LeftOut     int     `json:"left_out"`         // Lines of the input that do not fit in a batch.
	Sample      uint64  `json:"sample,omitempty"` // Seed of --sample; omitted if the first lines are used.
	Repeats     int     `json:"repeats"`
	Fast        bool    `json:"fast"`
	Malicious   int     `json:"malicious"`
	Attack      string  `json:"attack,omitempty"`
	Unchecked   doubts  `json:"unchecked,omitempty"` // Doubts that the user waived.
}

// simulatedText describes one text over all simulated batches.
type simulatedText struct {
	Text    string  `json:"text"`
	Clients int     `json:"clients"`
	Listed  int     `json:"listed"`  // Number of batches that list it.
	Mean    float64 `json:"mean"`    // Mean of its estimated counts in the batches that have one.
	Covered int     `json:"covered"` // Number of its intervals that contained the truth.
	counted int     // number of batches that list it with an estimate and an interval
}

// simulateTexts simulates batches of a task for strings, and searches each batch for texts.
func (f *simulateFlags) simulateTexts(cmd *cobra.Command, t *task.Task) error {
	not := append([]string{"column", "central"}, cli.TableFlags...)
	if err := cli.Refuse(cmd, "for query strings", not...); err != nil {
		return err
	}
	if f.input == worst {
		return cli.Usagef("invalid input %s: want a file of texts, one in a line, for query strings", worst)
	}
	m, err := registry.Open(t)
	if err != nil {
		return err
	}
	lines, err := table.ReadLines(f.input, f.format.Notes)
	if err != nil {
		return err
	}
	lines, left := oneBatch(t, lines, f.sample)
	values, length := make([][]float64, len(lines)), int(t.Input.Bins)
	for i, line := range lines {
		values[i] = texts.Value(line)
		lines[i] = string(texts.Cut([]byte(line), length))
	}
	doubts := doubt(t, m, uint64(len(values)))
	if err := doubts.refuse(f.unchecked); err != nil {
		return err
	}
	tally := newTally(protocols.CapabilitiesOf(m).Find, lines)
	bar := cli.Progress("searching", f.options.Repeats)
	f.options.Progress = func() { bar.Add(1) }
	if err := f.options.Batches(t, m, values, tally.add); err != nil {
		return flagError(err)
	}
	out := tally.result(f.options.Repeats)
	out.LeftOut, out.Sample = left, f.sample
	out.Fast, out.Malicious, out.Unchecked = f.options.Fast, f.options.Malicious, doubts
	if out.Malicious > 0 {
		out.Attack = f.options.Attack
	}
	return cli.Print(cmd, out, func(w io.Writer) error { return out.print(w, t) })
}

type textTally struct {
	find                  func(protocols.Aggregate, float64) protocols.FoundTexts
	held                  map[string]int
	seen                  map[string]*simulatedText
	intervals, wrong, all int
	down                  float64
	enough                int // Batches in which some number of clients is enough for a text to be listed.
}

func newTally(find func(protocols.Aggregate, float64) protocols.FoundTexts, lines []string) *textTally {
	t := &textTally{find: find, held: map[string]int{}, seen: map[string]*simulatedText{}, all: len(lines)}
	for _, line := range lines {
		t.held[line]++
	}
	return t
}

// add searches one batch.
func (t *textTally) add(batch protocols.Aggregate) {
	found := t.find(batch, verifier.Confidence)
	if t.down += found.Least; found.Least > 0 {
		t.enough++
	}
	for _, c := range found.List {
		s := t.seen[c.Text]
		if s == nil {
			s = &simulatedText{Text: c.Text, Clients: t.held[c.Text]}
			t.seen[c.Text] = s
		}
		s.Listed++
		if s.Clients == 0 {
			t.wrong++
		}
		if c.Estimate() == nil { // nor an interval
			continue
		}
		s.counted++
		s.Mean += (c.Clients - s.Mean) / float64(s.counted)
		t.intervals++
		if c.Lo <= float64(s.Clients) && float64(s.Clients) <= c.Hi {
			s.Covered++
		}
	}
}

// result summarizes all batches. It also includes texts that no batch listed although at least FoundDownTo clients have
// them.
func (t *textTally) result(batches int) *textSimulation {
	out := &textSimulation{Texts: []simulatedText{}, FoundDownTo: t.down / float64(max(1, t.enough)), False: t.wrong,
		Users: t.all, Repeats: batches}
	covered := 0
	for _, s := range t.seen {
		out.Texts = append(out.Texts, *s)
		covered += s.Covered
	}
	for text, n := range t.held {
		if t.seen[text] == nil && out.FoundDownTo > 0 && float64(n) >= out.FoundDownTo {
			out.Texts = append(out.Texts, simulatedText{Text: text, Clients: n})
		}
	}
	slices.SortFunc(out.Texts, func(a, b simulatedText) int {
		if a.Clients != b.Clients {
			return b.Clients - a.Clients
		}
		return strings.Compare(a.Text, b.Text)
	})
	if t.intervals > 0 {
		out.Coverage = float64(covered) / float64(t.intervals)
	}
	return out
}

func (s *textSimulation) print(w io.Writer, t *task.Task) error {
	fmt.Fprintf(w, "strings of %d clients, (%s, %s)-DP, %d batches\n", s.Users, t.Claim.Epsilon, t.Claim.Delta,
		s.Repeats)
	printLeftOut(w, s.Users, s.LeftOut, s.Sample)
	s.Unchecked.print(w)
	if s.Malicious > 0 {
		fmt.Fprintf(w, "%d of them malicious (%s); the counts of texts assume that they are honest\n", s.Malicious,
			s.Attack)
	}
	fmt.Fprintln(w)
	tab := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tab, "text\tclients\tlisted\tmean count\tintervals right")
	for _, x := range s.Texts {
		fmt.Fprintf(tab, "%q\t%d\t%d of %d\t%.0f\t%d\n", x.Text, x.Clients, x.Listed, s.Repeats, x.Mean, x.Covered)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	down := "no text is listed reliably"
	if s.FoundDownTo > 0 {
		down = fmt.Sprintf("found down to about %.0f clients", s.FoundDownTo)
	}
	_, err := fmt.Fprintf(w, "\n%s; the truth was in %.1f %% of the 95 %% intervals; "+
		"texts that nobody has were listed %d times\n", down, 100*s.Coverage, s.False)
	return err
}
