package verifier

import (
	"fmt"
	"strconv"

	"github.com/doona-dp/doona/internal/look"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/strings"
)

// Texts are the frequent ones that a search found among all batches together.
type Texts struct {
	List []TextCount `json:"list"` // By falling number of clients.
	// How many clients a text must have to be listed in about 98 of 100 batches like this one, where others do not
	// begin as it does; 0 if no number is enough.
	FoundDownTo float64 `json:"found_down_to"`
	// How many messages of its own no listed text lacks. As many clients who agree plant one.
	Threshold float64 `json:"threshold"`
	// Of listing any text by chance that nobody has.
	FalseChance float64 `json:"false_chance"`
	// How many texts that nobody has a malicious relay can have listed, by its choice of dummies: 0 where relays add
	// none.
	PlantedByRelay uint64 `json:"planted_by_relay"`
}

// TextCount is how many of the clients that were counted have a text.
type TextCount struct {
	Text     string     `json:"text"`
	Clients  float64    `json:"clients"`
	Interval [2]float64 `json:"interval"` // Given that it was found, and by itself.
}

// findTexts returns what a search finds in an aggregate; nil for other queries, and where there is no answer.
func findTexts(a Answer, agg protocols.Aggregate) *Texts {
	found, ok := agg.(*strings.Aggregate)
	if !ok || !a.Usable && a.Override == "" || agg.Reports() == 0 {
		return nil
	}
	f := found.Find(Confidence)
	out := &Texts{List: []TextCount{}, FoundDownTo: f.Least, Threshold: f.Threshold, FalseChance: f.FalseChance,
		PlantedByRelay: f.PlantedByRelay}
	for _, c := range f.Texts {
		out.List = append(out.List, TextCount{c.Text, c.Clients, [2]float64{c.Lo, c.Hi}})
	}
	return out
}

// quoted returns a text that clients chose as it is shown: a terminal and a spreadsheet make nothing of it.
func (c TextCount) quoted() string { return strconv.Quote(c.Text) }

// found is the table of the texts that were found.
func (a *account) found() *table {
	if a.Texts == nil || len(a.Texts.List) == 0 {
		return nil
	}
	t := &table{Head: append([]string{a.Entry}, a.intervalHead("clients")...)}
	for _, c := range a.Texts.List[:min(len(a.Texts.List), maxEntries)] {
		err := (c.Interval[1] - c.Interval[0]) / 4
		t.Rows = append(t.Rows, []cell{text(c.quoted()), figure(c.Clients, err), figure(c.Interval[0], err),
			figure(c.Interval[1], err)})
	}
	return t
}

// AboutTexts says what the list holds and what it cannot; empty where there is none.
func (r *Report) AboutTexts() string {
	x := r.Texts
	if x == nil {
		return ""
	}
	out := "No text is sure to be listed of so few reports, whoever has it."
	if x.FoundDownTo > 0 {
		out = fmt.Sprintf("Texts that about %s clients or more have are listed in 98 of 100 cases like this one.",
			look.Number(x.FoundDownTo))
	}
	out += fmt.Sprintf(" By chance one that nobody has is listed in %s%s%% at most. Counts are of the reports that "+
		"came, each with an interval of its own.", look.Number(100*x.FalseChance), hard)
	out += fmt.Sprintf(" Clients who agree can have a text listed that nobody else has: %s of them.",
		look.Number(x.Threshold))
	if x.PlantedByRelay > 0 {
		out += fmt.Sprintf(" A malicious relay can plant up to %s by its choice of dummies.",
			plural(x.PlantedByRelay, "text", "texts"))
	}
	return out
}
