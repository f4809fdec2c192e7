package verifier

// Contact says whether the last relay answers a verifier that pulls batches from it.
type Contact string

// The states of a [Contact].
const (
	ContactNone  Contact = "none"  // The verifier has not pulled yet.
	ContactThere Contact = "there" // The relay answered the last pull.
	ContactAway  Contact = "away"  // The relay did not answer the last pull, or rejected it.
	ContactOver  Contact = "over"  // All epochs have ended; nothing is left to pull.
)

// Progress says how much a verifier that pulls has received so far.
type Progress struct {
	Contact     Contact  `json:"contact"`
	LastContact uint64   `json:"last_contact"` // Unix seconds of the relay's last answer; 0: none since the start.
	Epochs      uint64   `json:"epochs"`       // Number of epochs that have begun.
	Ended       uint64   `json:"ended"`        // Number of epochs whose signed end and batches were received.
	Late        []uint64 `json:"late"`         // Epochs whose signed end is overdue, in ascending order.
	Unconfirmed uint64   `json:"unconfirmed"`  // Stored batches that the verifier has not confirmed to the relay yet.
}

// ShowProgress makes reports include the progress of pulling. Call it before the first report.
func (v *Verifier) ShowProgress(progress func() Progress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.progress = progress
}
