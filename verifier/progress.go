package verifier

// Contact says how a verifier stands with the last relay, from which it pulls.
type Contact string

// How it stands.
const (
	ContactNone  Contact = "none"  // Nothing has been asked yet.
	ContactThere Contact = "there" // The last pull was answered.
	ContactAway  Contact = "away"  // The last pull was not answered, or turned away.
	ContactOver  Contact = "over"  // Nothing is left to ask: all epochs have ended.
)

// Progress is how far a verifier that pulls has come.
type Progress struct {
	Contact     Contact  `json:"contact"`
	LastContact uint64   `json:"last_contact"` // Unix seconds of the last answer; 0: none since the start.
	Epochs      uint64   `json:"epochs"`       // That have begun.
	Ended       uint64   `json:"ended"`        // Whose signed end is here, with the batches before it.
	Late        []uint64 `json:"late"`         // Epochs that are over for long and whose end is not here, ascending.
	Unconfirmed uint64   `json:"unconfirmed"`  // Batches kept here that the relay does not yet know are.
}

// ShowProgress has reports say how far the collector has come that adds the batches. It is called before the first
// report.
func (v *Verifier) ShowProgress(progress func() Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.progress = progress
}
