package verifier

// Contact is the state of a verifier's contact with the last relay, from which it pulls.
type Contact string

// States of contact.
const (
	ContactNone  Contact = "none"  // No pull yet.
	ContactThere Contact = "there" // The last pull was answered.
	ContactAway  Contact = "away"  // The last pull got no answer, or was rejected.
	ContactOver  Contact = "over"  // All epochs have ended; nothing is left to pull.
)

// Progress is how far a verifier that pulls has come.
type Progress struct {
	Contact     Contact  `json:"contact"`
	LastContact uint64   `json:"last_contact"` // Unix seconds of the last answer; 0: none since the start.
	Epochs      uint64   `json:"epochs"`       // Number of epochs that have begun.
	Ended       uint64   `json:"ended"`        // Number of epochs whose signed end and batches were received.
	Late        []uint64 `json:"late"`         // Epochs whose signed end is overdue, ascending.
	Unconfirmed uint64   `json:"unconfirmed"`  // Stored batches not yet confirmed to the relay.
}

// ShowProgress makes reports include the collector's progress. Call it before the first report.
func (v *Verifier) ShowProgress(progress func() Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.progress = progress
}
