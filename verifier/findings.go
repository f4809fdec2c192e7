package verifier

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/doona-dp/doona/internal/look"
)

// FindingName says what did not add up.
type FindingName string

// The names of findings about slots.
const (
	FindingDropped     FindingName = "dropped"       // A relay dropped it as unreadable or repeated.
	FindingUnreadable  FindingName = "unreadable"    // The verifier's key does not open it.
	FindingMalformed   FindingName = "malformed"     // It opens to no message and no cover.
	FindingOutOfDomain FindingName = "out-of-domain" // Its message is none of the protocol's in that lane.
	FindingRepeated    FindingName = "repeated"      // It is there before, in this batch or one that counts.
)

// The names of findings about batches that their relays have signed.
const (
	FindingDestroyed FindingName = "destroyed" // A relay destroyed it for being too small; no remainder.
	// Too few for the promise; withheld, and its clients are over-exposed.
	FindingTooFew       FindingName = "too-few"
	FindingIncomplete   FindingName = "incomplete"   // Not all of its shares are there; withheld.
	FindingEquivocation FindingName = "equivocation" // The last relay signed two of one number; neither counts.
	FindingDuplicate    FindingName = "duplicate"    // It came again, and counts once.
	FindingGap          FindingName = "gap"          // Nothing came of a number below the highest.
	FindingAfterLast    FindingName = "after-last"   // It follows one of fewer than n clients, to which relays added noise.
	FindingErased       FindingName = "erased"       // The key that opens it is erased.
)

// The names of findings about files and answers that count for nothing.
const (
	FindingTruncated FindingName = "truncated" // It ends early.
	FindingTampered  FindingName = "tampered"  // Its ciphertexts are not those of its manifest.
	FindingSignature FindingName = "signature" // The last relay has not signed its manifest.
	FindingForeign   FindingName = "foreign"   // It is not of this task.
	FindingCounts    FindingName = "counts"    // Its manifests do not add up.
	FindingChain     FindingName = "chain"     // A manifest of an earlier relay is not as that one signed it.
	FindingUnread    FindingName = "unread"    // The file cannot be read.
	FindingRefused   FindingName = "refused"   // The last relay signed it, and it is not as it should be.
	FindingMissing   FindingName = "missing"   // The last relay did not hand it over.
	FindingEnd       FindingName = "end"       // An epoch's signed end tells of fewer, or a relay gave up on it.
	FindingSpoilt    FindingName = "spoilt"    // So many batches came without slots that no further one is asked for.
	FindingEnded     FindingName = "ended"     // The last relay's operator has ended the epoch after a set-back.

	FindingQuarantined FindingName = "quarantined" // A kept file that is not what its name says, put aside.
)

// FindingNames returns the names of all findings that there may be.
func FindingNames() []FindingName { return slices.Sorted(maps.Keys(explanations)) }

// Finding is something that did not add up.
type Finding struct {
	Name     FindingName `json:"name"`
	Count    uint64      `json:"count"`              // Slots, batches or files, as the name says.
	Meaning  string      `json:"meaning"`            // What was found.
	Example  string      `json:"example"`            // Where the first one was.
	Evidence []Evidence  `json:"evidence,omitempty"` // Of every equivocation.
}

// Evidence is what proves that the last relay equivocated: two manifests or more of one number.
type Evidence struct {
	Epoch     uint64   `json:"epoch"`
	Batch     uint64   `json:"batch"`
	Manifests []string `json:"manifests"` // Signed manifests as unpadded base64url, of their msgpack form.
}

// Fault says whether a finding means that something is wrong with what the verifier was given. Slots
// that a relay drops are none: any client can send two alike.
func (f Finding) Fault() bool { return f.Name != FindingDropped }

// Faults is an error that names the findings that are faults, if there are any.
func Faults(findings []Finding) error {
	var names []string
	for _, f := range findings {
		if f.Fault() {
			names = append(names, fmt.Sprintf("%d %s", f.Count, f.Name))
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("not everything added up: %s", strings.Join(names, ", "))
}

// place is where something was found; the first of several is the least.
type place struct {
	Epoch, Seq uint64 // nowhere: the largest numbers there are
	Text       string
}

// nowhere is the place of what has no epoch and number.
func nowhere(text string) place { return place{math.MaxUint64, math.MaxUint64, text} }

// batchPlace is the place of a batch.
func batchPlace(epoch, seq uint64) place {
	return place{epoch, seq, fmt.Sprintf("epoch %d, batch %d", epoch, seq)}
}

// because adds a reason.
func (p place) because(err error) place {
	p.Text += ": " + err.Error()
	return p
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.Epoch, o.Epoch), cmp.Compare(p.Seq, o.Seq), strings.Compare(p.Text, o.Text))
}

// findings counts what was found by name. The result does not depend on the order of what is added.
type findings map[FindingName]*found

type found struct {
	count    uint64
	first    place
	evidence []Evidence
}

func (f findings) add(name FindingName, n uint64, at place) *found {
	one := f[name]
	if one == nil {
		one = &found{first: at}
		f[name] = one
	}
	one.count += n
	if at.compare(one.first) < 0 {
		one.first = at
	}
	return one
}

func (f findings) merge(other findings) {
	for name, o := range other {
		one := f.add(name, o.count, o.first)
		one.evidence = append(one.evidence, o.evidence...)
	}
}

// list returns the findings by name.
func (f findings) list() []Finding {
	out := []Finding{}
	for name, one := range f {
		out = append(out, Finding{name, one.count, explanations[name], look.Plain(one.first.Text), one.evidence})
	}
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return out
}

// evidence returns the manifests that were signed for one number.
func (n *number) evidence(epoch, seq uint64) Evidence {
	e := Evidence{Epoch: epoch, Batch: seq}
	for _, v := range n.versions {
		e.Manifests = append(e.Manifests, base64.RawURLEncoding.EncodeToString(v.record.Signed))
	}
	return e
}
