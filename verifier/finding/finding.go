// Package finding names what does not add up among the batches of a task. The verifier finds, and its reports, the
// server's metrics and the programs show, what is named here. Findings tell of accuracy: privacy does not rest on them.
package finding

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/doona-dp/doona/internal/display"
)

// Name says what did not add up.
type Name string

// The names of findings about slots.
const (
	Dropped     Name = "dropped"       // A relay dropped it as unreadable or repeated.
	Unreadable  Name = "unreadable"    // The verifier's key does not open it.
	Malformed   Name = "malformed"     // It opens to no message and no cover.
	OutOfDomain Name = "out-of-domain" // Its message is none of the protocol's in that lane.
	Repeated    Name = "repeated"      // It is there before, in this batch or one that counts.
)

// The names of findings about batches that their relays have signed.
const (
	Destroyed Name = "destroyed" // A relay destroyed it for being too small; no remainder.
	// Too few for the promise; withheld, and its clients are over-exposed.
	TooFew       Name = "too-few"
	Incomplete   Name = "incomplete"   // Not all of its shares are there; withheld.
	Equivocation Name = "equivocation" // The last relay signed two of one number; neither counts.
	Duplicate    Name = "duplicate"    // It came again, and counts once.
	Gap          Name = "gap"          // Nothing came of a number below the highest.
	AfterLast    Name = "after-last"   // It follows one of fewer than n clients, to which relays added noise.
	Erased       Name = "erased"       // The key that opens it is erased.
)

// The names of findings about files and answers that count for nothing.
const (
	Truncated Name = "truncated" // It ends early.
	Tampered  Name = "tampered"  // Its ciphertexts are not those of its manifest.
	Signature Name = "signature" // The last relay has not signed its manifest.
	Foreign   Name = "foreign"   // It is not of this task.
	Counts    Name = "counts"    // Its manifests do not add up.
	Chain     Name = "chain"     // A manifest of an earlier relay is not as that one signed it.
	Unread    Name = "unread"    // The file cannot be read.
	Refused   Name = "refused"   // The last relay signed it, and it is not as it should be.
	Missing   Name = "missing"   // The last relay did not hand it over.
	End       Name = "end"       // An epoch's signed end tells of fewer, or a relay gave up on it.
	Spoilt    Name = "spoilt"    // So many batches came without slots that no further one is asked for.
	Ended     Name = "ended"     // The last relay's operator has ended the epoch after a set-back.

	Quarantined Name = "quarantined" // A kept file that is not what its name says, put aside.
)

// meanings say what findings mean.
var meanings = map[Name]string{
	Dropped:     "slots that a relay dropped as unreadable or repeated",
	Unreadable:  "slots that the verifier’s key does not open",
	Malformed:   "slots that open to neither message nor cover",
	OutOfDomain: "messages that are none of the protocol’s",
	Repeated:    "slots that were there before",
	Destroyed: "batches that a relay destroyed for being too small, and that are not what was left of " +
		"an epoch",
	TooFew:       "batches with too few valid slots: withheld, and the promise does not hold for their clients",
	Incomplete:   "batches without all their shares, withheld",
	Equivocation: "numbers for which the last relay signed two batches; neither counts",
	Duplicate:    "batches that came again, and count once",
	Gap:          "numbers of which no batch came",
	AfterLast:    "batches of an epoch after its last one, which had fewer than n clients",
	Erased:       "batches whose key is erased",
	Truncated:    "batches that end early",
	Tampered:     "batches whose ciphertexts were changed",
	Signature:    "batches that their last relay did not sign",
	Foreign:      "batches that are not of this task",
	Counts:       "batches whose manifests do not add up",
	Chain:        "batches with a manifest that an earlier relay did not sign so",
	Unread:       "files that cannot be read",
	Refused:      "batches that are not as their relays signed them",
	Missing:      "batches that the last relay did not hand over",
	End:          "epochs that did not end as their relays should have signed",
	Spoilt: "epochs of which so many batches were destroyed, or not as they should be, that no further one is " +
		"taken",
	Ended:       "epochs that the last relay’s operator has ended: nothing more of them comes",
	Quarantined: "kept files that were damaged, put aside and asked for anew",
}

// Names returns the names of all findings that there may be.
func Names() []Name { return slices.Sorted(maps.Keys(meanings)) }

// Finding is something that did not add up.
type Finding struct {
	Name     Name       `json:"name"`
	Count    uint64     `json:"count"`              // Slots, batches or files, as the name says.
	Meaning  string     `json:"meaning"`            // What was found.
	Example  string     `json:"example"`            // Where the first one was.
	Evidence []Evidence `json:"evidence,omitempty"` // Of every equivocation.
}

// Note is the stored form of findings of one name. Without a place, Epoch and Seq are [math.MaxUint64].
type Note struct {
	Name       string
	Count      uint64
	Epoch, Seq uint64 // The first place.
	Text       string // Describes the first place.
}

// Evidence is what proves that the last relay equivocated: two manifests or more of one number.
type Evidence struct {
	Epoch     uint64   `json:"epoch"`
	Batch     uint64   `json:"batch"`
	Manifests []string `json:"manifests"` // Signed manifests as unpadded base64url, of their msgpack form.
}

// Fault says whether a finding means that something is wrong with what the verifier was given. Slots
// that a relay drops are none: any client can send two alike.
func (f Finding) Fault() bool { return f.Name != Dropped }

// Line says what was found, how often and where first.
func (f Finding) Line() string {
	return fmt.Sprintf("%s (%s): %s; first in %s", f.Name, display.Number(float64(f.Count)), f.Meaning, f.Example)
}

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

// Meaning says what was found, "" of a name that none of the findings has.
func (n Name) Meaning() string { return meanings[n] }
