package verifier

import "github.com/doona-dp/doona/protocols"

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
func findTexts(a Answer, m protocols.Mechanism, agg protocols.Aggregate) *Texts {
	find := protocols.CapabilitiesOf(m).Find
	if find == nil || !a.Usable && a.Override == "" || agg.Reports() == 0 {
		return nil
	}
	f := find(agg, Confidence)
	out := &Texts{List: []TextCount{}, FoundDownTo: f.Least, Threshold: f.Threshold, FalseChance: f.FalseChance,
		PlantedByRelay: f.PlantedByRelay}
	for _, c := range f.List {
		out.List = append(out.List, TextCount{c.Text, c.Clients, [2]float64{c.Lo, c.Hi}})
	}
	return out
}
