// Package finding names what does not add up among the batches of a task. Package verifier makes the findings; reports,
// the server's metrics and the programs show them. Findings protect accuracy; privacy does not depend on them.
package finding

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/doona-dp/doona/internal/display"
)

// Name is the name of a kind of finding.
type Name string

// Names of findings about slots.
const (
	Dropped     Name = "dropped"       // A relay dropped the slot as unreadable or repeated.
	Unreadable  Name = "unreadable"    // The verifier's key does not open it.
	Malformed   Name = "malformed"     // It opens to neither message nor cover.
	OutOfDomain Name = "out-of-domain" // Its message is not valid in its lane.
	Repeated    Name = "repeated"      // It occurs earlier, in this batch or another that counts.
)

// Names of findings about batches that their relays signed.
const (
	Destroyed Name = "destroyed" // A relay destroyed it as too small, and it is not an epoch's remainder.
	// Too few valid slots for the guarantee: withheld, and its clients are over-exposed.
	TooFew       Name = "too-few"
	Incomplete   Name = "incomplete"   // Not all of its shares arrived: withheld.
	Equivocation Name = "equivocation" // The last relay signed two batches of one number; neither counts.
	Duplicate    Name = "duplicate"    // It was received several times, and counts once.
	Gap          Name = "gap"          // No batch of a number below the highest was received.
	AfterLast    Name = "after-last"   // It follows a batch of fewer than n clients, which ends an epoch if relays add noise.
	Erased       Name = "erased"       // The key that opens it is erased.
)

// Names of findings about files, and relays' answers, that do not count.
const (
	Truncated        Name = "truncated"          // It ends early.
	Tampered         Name = "tampered"           // Its ciphertexts do not match its manifest.
	Signature        Name = "signature"          // The last relay did not sign its manifest.
	Foreign          Name = "foreign"            // It belongs to another task.
	Counts           Name = "counts"             // Its manifests do not add up.
	Chain            Name = "chain"              // A manifest in its chain differs from the signed one.
	Unread           Name = "unread"             // The file cannot be read.
	Refused          Name = "refused"            // The last relay signed it, but it fails its checks.
	Missing          Name = "missing"            // The last relay did not send it.
	End              Name = "end"                // A signed end contradicts signed batches, or a relay gave up on the epoch.
	TooManyDestroyed Name = "too-many-destroyed" // The verifier pulls no further batch: too many had no slots.
	Ended            Name = "ended"              // The last relay's operator ended the epoch after a state rollback.

	Quarantined Name = "quarantined" // A stored file did not match its name and was moved to quarantine.
)

// meanings describes each finding for people.
var meanings = map[Name]string{
	Dropped:          "slots that a relay dropped as unreadable or repeated",
	Unreadable:       "slots that the verifier’s key does not open",
	Malformed:        "slots that open to neither message nor cover",
	OutOfDomain:      "messages that the protocol does not allow",
	Repeated:         "slots that occurred before",
	Destroyed:        "batches that a relay destroyed as too small, although they were not the remainder of an epoch",
	TooFew:           "batches with too few valid slots: withheld, and the guarantee does not hold for their clients",
	Incomplete:       "batches with missing shares, withheld",
	Equivocation:     "numbers for which the last relay signed two batches; neither counts",
	Duplicate:        "batches that arrived several times, and count once",
	Gap:              "numbers for which no batch arrived",
	AfterLast:        "batches after one of fewer than n clients, which must be the last of its epoch",
	Erased:           "batches whose key is erased",
	Truncated:        "batches that end early",
	Tampered:         "batches whose ciphertexts were changed",
	Signature:        "batches that their last relay did not sign",
	Foreign:          "batches that are not of this task",
	Counts:           "batches whose manifests do not add up",
	Chain:            "batches with a manifest that its relay did not sign in this form",
	Unread:           "files that cannot be read",
	Refused:          "batches that the last relay signed, but that fail their checks",
	Missing:          "batches that the last relay did not send",
	End:              "epochs whose signed end contradicts their batches, or that a relay gave up",
	TooManyDestroyed: "epochs with too many destroyed or refused batches: the verifier pulls no further one",
	Ended:            "epochs that the last relay’s operator ended after a state rollback: no further batch comes",
	Quarantined:      "stored files that were damaged: moved to quarantine and requested again",
}

// Names returns the names of all kinds of findings, sorted.
func Names() []Name { return slices.Sorted(maps.Keys(meanings)) }

// Finding is something that did not add up.
type Finding struct {
	Name     Name       `json:"name"`
	Count    uint64     `json:"count"`              // Of slots, batches or files, depending on the name.
	Meaning  string     `json:"meaning"`            // What was found, in words.
	Example  string     `json:"example"`            // Position of the first.
	Evidence []Evidence `json:"evidence,omitempty"` // Only for an equivocation.
}

// Note is the stored form of findings of one name. Without a position, Epoch and Seq are [math.MaxUint64].
type Note struct {
	Name       string
	Count      uint64
	Epoch, Seq uint64 // The first position.
	Text       string // Describes the first position.
}

// Evidence proves that the last relay equivocated: at least two signed manifests of one number.
type Evidence struct {
	Epoch     uint64   `json:"epoch"`
	Batch     uint64   `json:"batch"`
	Manifests []string `json:"manifests"` // Signed manifests: msgpack in unpadded base64url.
}

// Fault reports whether a finding means that the verifier's input is wrong. Slots that a relay drops are no fault: any
// client can send the same slot twice.
func (f Finding) Fault() bool { return f.Name != Dropped }

// Line describes the finding with its count and the position of the first.
func (f Finding) Line() string {
	return fmt.Sprintf("%s (%s): %s; first in %s", f.Name, display.Number(float64(f.Count)), f.Meaning, f.Example)
}

// Faults returns an error that names the findings that are faults; nil if there are none.
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

// Meaning returns a finding's description, or "" for an unknown name.
func (n Name) Meaning() string { return meanings[n] }
