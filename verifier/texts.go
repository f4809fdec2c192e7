package verifier

import "github.com/doona-dp/doona/protocols"

// Texts are the frequent texts that a search found among all batches together.
type Texts struct {
	List []TextCount `json:"list"` // By descending number of clients.
	// A text that this many clients have is listed in about 98 of 100 batches like this one, if no other text begins
	// with the same bytes; 0 if no number is enough.
	FoundDownTo float64 `json:"found_down_to"`
	// Each listed text has at least this many messages of its own. So this many colluding clients can plant a text.
	Threshold float64 `json:"threshold"`
	// Probability that the list has any text that no client has.
	FalseChance float64 `json:"false_chance"`
	// Clients that have no listed text.
	Rest struct {
		Clients  *float64    `json:"clients"`  // nil if there is no interval.
		Interval *[2]float64 `json:"interval"` // nil if the batches say too little.
	} `json:"rest"`
	// Number of texts that a malicious relay can get listed by its choice of dummies; 0 if relays add none.
	PlantedByRelay uint64 `json:"planted_by_relay"`
}

// TextCount estimates how many of the counted clients have a text.
type TextCount struct {
	Text    string   `json:"text"`
	Clients *float64 `json:"clients"` // nil if there is no interval.
	// Holds for this text alone, given that the search found it. nil if the batches say too little about the text.
	Interval *[2]float64 `json:"interval"`
}

// findTexts returns the texts found in an aggregate; nil for other queries and if there is no answer.
func findTexts(a Answer, m protocols.Mechanism, agg protocols.Aggregate) *Texts {
	find := protocols.CapabilitiesOf(m).Find
	if find == nil || !a.Usable && a.Override == "" || agg.Reports() == 0 {
		return nil
	}
	f := find(agg, Confidence)
	out := &Texts{List: []TextCount{}, FoundDownTo: f.Least, Threshold: f.Threshold, FalseChance: f.FalseChance,
		PlantedByRelay: f.PlantedByRelay}
	out.Rest.Clients, out.Rest.Interval = f.Rest.Estimate(), f.Rest.Interval()
	for _, c := range f.List {
		out.List = append(out.List, TextCount{c.Text, c.Estimate(), c.Interval()})
	}
	return out
}
