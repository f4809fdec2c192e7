package collect

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/handover"
)

// seen is what a puller remembers for [Progress].
type seen struct {
	contact verifier.Contact
	at      uint64          // Of the last answer, Unix seconds.
	ended   map[uint64]bool // By epoch.
	failing bool            // The last pull met an error of the file system.
	pending int             // Batches not yet confirmed.
}

// Progress says how far the puller has come. It is safe for concurrent use.
func (p *Puller) Progress() verifier.Progress {
	epochs, now := p.open.Epochs, uint64(max(p.Clock().Unix(), 0))
	p.mu.Lock()
	defer p.mu.Unlock()
	out := verifier.Progress{Contact: p.seen.contact, LastContact: p.seen.at, Ended: uint64(len(p.seen.ended)),
		Late: []uint64{}, Unconfirmed: uint64(p.seen.pending)}
	if out.Ended == epochs.Count && out.Unconfirmed == 0 {
		out.Contact = verifier.ContactOver
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
		p.seen.contact = verifier.ContactAway
		return
	}
	p.seen.contact, p.seen.at = verifier.ContactThere, uint64(max(p.Clock().Unix(), 0))
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
