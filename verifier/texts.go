package verifier

import "github.com/doona-dp/doona/protocols"

// Texts are the frequent texts that a search found among all batches together.
type Texts struct {
	List []TextCount `json:"list"` // By descending number of clients.
	// Number of clients with which a text is listed in about 98 of 100 batches like this one, if no other text begins
	// like it; 0 if no number is enough.
	FoundDownTo float64 `json:"found_down_to"`
	// Least number of messages of its own that a listed text has. As many colluding clients can plant a text.
	Threshold float64 `json:"threshold"`
	// Probability of listing any text that no client has.
	FalseChance float64 `json:"false_chance"`
	// Number of texts that a malicious relay can plant by its choice of dummies; 0 if relays add none.
	PlantedByRelay uint64 `json:"planted_by_relay"`
}

// TextCount estimates how many of the counted clients have a text.
type TextCount struct {
	Text     string     `json:"text"`
	Clients  float64    `json:"clients"`
	Interval [2]float64 `json:"interval"` // By itself, and given that the text was found.
}

// findTexts returns what a search finds in an aggregate; nil for other queries and without an answer.
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
