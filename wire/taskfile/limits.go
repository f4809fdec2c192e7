package taskfile

import (
	"fmt"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// Largest sizes of what parties exchange: docs/SPEC.md, "Sizes". A reader reads no more.
const (
	// MaxTask is the most bytes of a task's canonical form: 65535 numbers of noise, of 9 bytes each, and 64 KiB for
	// everything else. A reader reads no more of a bundle before it has checked the owner's signature.
	MaxTask = 640 << 10
	// MaxBundle is the most bytes of a bundle, and so of a key list. A year of hourly epochs of four parties with
	// X25519 takes 1.2 MB; a year of daily epochs with the hybrid KEM takes 1.8 MB.
	MaxBundle = 8 << 20
	// MaxStream is the most bytes of a stream as clients fetch it.
	MaxStream = 16 << 20
	// MaxTasks is the most tasks of a stream: one a day for eleven years.
	MaxTasks = 1 << 12
	// MaxStatements is the most statements of an era, so that neither an owner nor a thief of the key can add them
	// without end.
	MaxStatements = 16
	// MaxStatement is the most bytes of a signed statement.
	MaxStatement = 256
	// MaxUpstreamStatus is the most bytes of a relay's status for a next hop: about 80,000 epochs.
	MaxUpstreamStatus = 4 << 20
)

// signedHead is the most bytes of a bundle outside its task and key lists: four heads, the owner's key and the
// signature.
const signedHead = 1 + 5 + 2 + 32 + 2 + 64 + 1

// listSizes returns the bytes of each key list that a task names, in the order of [Bundle].
func listSizes(t *task.Task) ([]uint64, error) {
	one, err := onion.KeyListSize(t.KEM, t.Epochs.Count)
	if err != nil {
		return nil, err
	}
	var sizes []uint64
	for range t.VerifierHop() + 1 {
		sizes = append(sizes, one)
	}
	if t.Clients.Kind != task.ClientToken {
		return sizes, nil
	}
	issuers, err := onion.KeyListSize(onion.TokenKEM, t.Epochs.Count)
	return append(sizes, issuers), err
}

// listsSize returns the bytes of all key lists in a task's bundle, heads included.
func listsSize(t *task.Task) (sum uint64, err error) {
	sizes, err := listSizes(t)
	for _, size := range sizes {
		sum += uint64(len(codec.AppendLength(nil, size))) + size
	}
	return sum, err
}

// CheckSize returns an error that names epochs, KEM and the maximum if a task's bundle would be too large.
func CheckSize(t *task.Task) error { return checkSize(t, len(t.Canonical())) }

// checkSize is CheckSize of a task whose canonical form has this many bytes.
func checkSize(t *task.Task, canonical int) error {
	head := uint64(canonical + signedHead)
	if head > MaxTask+signedHead {
		return invalid.Field("task", fmt.Sprintf("of %d bytes", head-signedHead), fmt.Sprintf("at most %d bytes", MaxTask))
	}
	lists, err := listsSize(t)
	if err != nil {
		return err
	}
	if head+lists <= MaxBundle {
		return nil
	}
	most := t.Epochs.Count * (MaxBundle - head) / lists // every epoch takes the same, except for a few heads
	return invalid.Field("epochs.count", strconv.FormatUint(t.Epochs.Count, 10), fmt.Sprintf(
		"about %d epochs at most, with kem %s and %d parties: the bundle would have %d bytes, at most %d", most,
		t.KEM, t.VerifierHop()+1, head+lists, MaxBundle))
}

// CheckListSize is [CheckSize] for the keys of one party, before the task exists.
func CheckListSize(kem task.KEM, epochs uint64) error {
	size, err := onion.KeyListSize(kem, epochs)
	if err != nil {
		return err
	}
	if size > MaxBundle-signedHead {
		return invalid.Field("epochs.count", strconv.FormatUint(epochs, 10), fmt.Sprintf(
			"fewer epochs with kem %s: the keys of one party would have %d bytes, a bundle has at most %d", kem, size,
			MaxBundle))
	}
	return nil
}

// recentTasks is the most tasks of a stream that come with key lists: one that has just ended, one that is open and
// one that has not begun.
const recentTasks = 3

// CheckStreamSize returns an error if a stream with these tasks, by position, and the key lists of the last three
// would be too large for clients.
func CheckStreamSize(tasks []*task.Task) error {
	canonical := 0
	for _, t := range tasks {
		canonical += len(t.Canonical())
	}
	return CheckGrownStream(len(tasks), canonical, tasks)
}

// CheckGrownStream is [CheckStreamSize] of n tasks whose canonical forms have this many bytes together. last holds
// the last tasks, at least three.
func CheckGrownStream(n, canonical int, last []*task.Task) error {
	if n > MaxTasks {
		return invalid.Field("stream.position", strconv.Itoa(n-1),
			fmt.Sprintf("below %d: begin another stream", MaxTasks))
	}
	const heads = 1 + 3 + 3
	size := uint64(heads + MaxStatements*MaxStatement + canonical + n*signedHead)
	for _, t := range last[max(0, len(last)-recentTasks):] {
		lists, err := listsSize(t)
		if err != nil {
			return err
		}
		size += lists
	}
	if size > MaxStream {
		return invalid.Field("stream", fmt.Sprintf("of %d bytes", size), fmt.Sprintf(
			"at most %d, with the keys of three tasks: fewer epochs at a time, or another stream", MaxStream))
	}
	return nil
}
