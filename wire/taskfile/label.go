package taskfile

import (
	"crypto/sha256"
	"slices"

	"github.com/doona-dp/doona/wire/task"
)

// Label identifies the task for which an owner asks a relay for keys, before the task has an id. Until a task uses
// these keys, the relay answers a request with the same label with the same keys.
type Label [sha256.Size]byte

// LabelOf returns the label of a task: a hash of the whole task except its start and the parties' key lists.
func LabelOf(t *task.Task) Label {
	bare := *t
	bare.Epochs.Start, bare.Relays = 0, slices.Clone(t.Relays)
	for hop := range bare.Relays {
		bare.Relays[hop].KeyList = task.KeyListHash{}
	}
	bare.Verifier.KeyList, bare.Clients.Issuer.KeyList = task.KeyListHash{}, task.KeyListHash{}
	return sha256.Sum256(bare.Canonical())
}
