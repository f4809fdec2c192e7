package verifier

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/doona-dp/doona/wire/handover"
)

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

// seen is what a puller remembers for [Progress].
type seen struct {
	contact Contact
	at      uint64          // Of the last answer, Unix seconds.
	ended   map[uint64]bool // By epoch.
	failing bool            // The last pull met an error of the file system.
	pending int             // Batches not yet confirmed.
}

// Progress says how far the puller has come. It is safe for concurrent use.
func (p *Puller) Progress() Progress {
	epochs, now := p.verifier.open.Epochs, uint64(max(p.Clock().Unix(), 0))
	p.mu.Lock()
	defer p.mu.Unlock()
	out := Progress{Contact: p.seen.contact, LastContact: p.seen.at, Ended: uint64(len(p.seen.ended)), Late: []uint64{},
		Unconfirmed: uint64(p.seen.pending)}
	if out.Ended == epochs.Count && out.Unconfirmed == 0 {
		out.Contact = ContactOver
	}
	if now >= epochs.Start {
		out.Epochs = min((now-epochs.Start)/epochs.Length+1, epochs.Count)
	}
	for epoch := range out.Epochs {
		if end := epochs.End(epoch); !p.seen.ended[epoch] && now >= end && now-end >= uint64(p.Late/time.Second) {
			out.Late = append(out.Late, epoch)
		}
	}
	return out
}

// Failing says whether something could not be written down at the last pull: the disk is full, or broken.
func (p *Puller) Failing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.failing
}

// noteContact takes the outcome of a pull. Who is asked and says that there is nothing yet has answered.
func (p *Puller) noteContact(err error) {
	answered := err == nil || handover.Foreign(err) != nil || errors.As(err, new(*handover.Refused)) ||
		errors.Is(err, handover.ErrNotSealed) || errors.Is(err, handover.ErrEpochComplete) ||
		errors.Is(err, handover.ErrConfirmed) || errors.Is(err, errEnded) || errors.Is(err, errTwice)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !answered {
		p.seen.contact = ContactAway
		return
	}
	p.seen.contact, p.seen.at = ContactThere, uint64(max(p.Clock().Unix(), 0))
}

func (p *Puller) noteEnded(epoch uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.ended[epoch] = true
}

func (p *Puller) noteDisk(failing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.failing = failing
}

// ofDisk says whether an error is one of the file system.
func ofDisk(err error) bool {
	return errors.As(err, new(*fs.PathError)) || errors.As(err, new(*os.LinkError))
}

// notePending counts the batches that are not yet confirmed.
func (p *Puller) notePending() {
	n := 0
	for _, c := range p.cursors {
		n += len(c.pending)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.pending = n
}
