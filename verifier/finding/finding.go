// Package finding names what can fail to add up among a task's batches. Package verifier makes the findings. Reports,
// the server's metrics and the programs show them. Findings protect accuracy; clients' privacy does not depend on them.
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

// Names of findings about a slot.
const (
	Dropped     Name = "dropped"       // A relay dropped the slot as unreadable or repeated.
	Unreadable  Name = "unreadable"    // The verifier's key does not open it.
	Malformed   Name = "malformed"     // It opens to bytes that are neither a message nor a cover.
	OutOfDomain Name = "out-of-domain" // The protocol does not allow its message in its lane.
	Repeated    Name = "repeated"      // The same slot came earlier, in this batch or in another that counts.
)

// Names of findings about a batch that its relays signed.
const (
	Destroyed Name = "destroyed" // A relay destroyed it as too small, although it was not the last of its epoch.
	// It has too few valid slots for the guarantee. It is withheld, and its clients are over-exposed.
	TooFew       Name = "too-few"
	Incomplete   Name = "incomplete"   // Messages of its clients are missing, so it is withheld.
	Equivocation Name = "equivocation" // The last relay signed two batches with its number; neither counts.
	Duplicate    Name = "duplicate"    // It was received several times. It counts once.
	Gap          Name = "gap"          // It was not received, although a later batch or the signed end was.
	AfterLast    Name = "after-last"   // It follows a batch with fewer than n clients, which ends an epoch if relays add noise.
	Erased       Name = "erased"       // The key that would open it is erased.
)

// Names of findings about a file or a relay's answer, which does not count.
const (
	Truncated        Name = "truncated"          // It ends too early.
	Tampered         Name = "tampered"           // Its ciphertexts differ from its manifest.
	Signature        Name = "signature"          // The last relay did not sign its manifest.
	Foreign          Name = "foreign"            // It belongs to another task.
	Counts           Name = "counts"             // The counts in its manifests do not add up.
	Chain            Name = "chain"              // A manifest in its chain differs from the one that its relay signed.
	Unread           Name = "unread"             // The verifier cannot read the file.
	Refused          Name = "refused"            // The last relay signed it, but it fails the checks.
	Missing          Name = "missing"            // The last relay did not send it, saying that it was confirmed.
	End              Name = "end"                // The signed end contradicts batches, or a relay gave up the epoch.
	TooManyDestroyed Name = "too-many-destroyed" // Too many batches had no slots, so the verifier pulls no more.
	Ended            Name = "ended"              // The last relay's operator ended the epoch after a state rollback.

	Quarantined Name = "quarantined" // A stored file did not match its name and was moved to quarantine.
)

// meanings has each finding's description for people.
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
	Count    uint64     `json:"count"`              // Number of slots, batches or files, depending on the name.
	Meaning  string     `json:"meaning"`            // What was found, in words.
	Example  string     `json:"example"`            // Where the first one was found.
	Evidence []Evidence `json:"evidence,omitempty"` // Only for finding Equivocation.
}

// Note is the stored form of all findings of one name. If they belong to no batch, Epoch and Seq are [math.MaxUint64].
type Note struct {
	Name       string
	Count      uint64
	Epoch, Seq uint64 // Epoch and batch number of the first.
	Text       string // Describes where the first was found.
}

// Evidence proves that the last relay equivocated: at least two manifests that it signed for one batch number.
type Evidence struct {
	Epoch     uint64   `json:"epoch"`
	Batch     uint64   `json:"batch"`
	Manifests []string `json:"manifests"` // Signed manifests: msgpack in unpadded base64url.
}

// Fault reports whether a finding means that the verifier's input is wrong. Slots that a relay drops are no fault,
// because any client can send the same slot twice.
func (f Finding) Fault() bool { return f.Name != Dropped }

// Line describes the finding in a line, with its count and where the first was found.
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

// Meaning returns the description of a finding, or "" if the name is unknown.
func (n Name) Meaning() string { return meanings[n] }
