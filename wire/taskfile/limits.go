package taskfile

import (
	"fmt"
	"strconv"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// Largest sizes of what parties exchange (docs/SPEC.md, "Sizes"). A reader stops at these sizes.
const (
	// MaxTask is the largest number of bytes of a task's canonical form: 65535 numbers of noise with 9 bytes each, and
	// 64 KiB for the rest. Before it has checked the owner's signature, a reader reads at most this much of a bundle's
	// task.
	MaxTask = 640 << 10
	// MaxBundle is the largest number of bytes of a bundle, and so of a key list. With four parties, a year of hourly
	// epochs takes 1.2 MB under X25519, and a year of daily epochs takes 1.8 MB under the hybrid KEM.
	MaxBundle = 8 << 20
	// MaxStream is the largest number of bytes of a stream, in the form that clients fetch.
	MaxStream = 16 << 20
	// MaxTasks is the largest number of tasks of a stream: one a day for eleven years.
	MaxTasks = 1 << 12
	// MaxStatements is the largest number of statements in an era. So neither an owner nor a thief of the owner's key
	// can add statements without end.
	MaxStatements = 16
	// MaxStatement is the largest number of bytes of a signed statement.
	MaxStatement = 256
	// MaxUpstreamStatus is the largest number of bytes of a relay's status for a next hop: about 80,000 epochs.
	MaxUpstreamStatus = 4 << 20
)

// signedHead is the largest number of bytes in a bundle besides its task, key lists and keys: headers, the owner's key
// and the signature.
const signedHead = 1 + 5 + 2 + 32 + 2 + 64

// listSizes returns the size in bytes of each key list that a task names, in the order of [Bundle].
func listSizes(t *task.Task) (sizes []int) {
	for hop := range maxLists {
		if kem := kemOf(t, hop); kem != "" {
			head, _, _ := onion.KeySizes(kem, t.Epochs.Count) // an unknown KEM is found with its keys
			sizes = append(sizes, int(head))
		}
	}
	return sizes
}

// kemOf returns the KEM of the keys at a place of [Bundle].KeyLists, empty after the last.
func kemOf(t *task.Task, hop int) task.KEM {
	switch {
	case hop <= t.VerifierHop():
		return t.KEM
	case hop == t.VerifierHop()+1 && t.Clients.Kind == task.ClientToken:
		return onion.TokenKEM
	}
	return ""
}

// listsSize returns the size in bytes of what follows the signature in a task's bundle: its key lists with the keys of
// this many epochs, and a path for each.
func listsSize(t *task.Task, epochs uint64, path int) (sum uint64, err error) {
	sum = 1 + 1 + 1 // headers of both arrays, of at most ten elements; first epoch 0
	for hop, size := range listSizes(t) {
		_, keys, err := onion.KeySizes(kemOf(t, hop), epochs)
		if err != nil {
			return 0, err
		}
		sum += bytesSize(uint64(size)) + 1 + bytesSize(keys) + bytesSize(uint64(path))
	}
	return sum, nil
}

// bytesSize returns the size of a byte string of n bytes in msgpack.
func bytesSize(n uint64) uint64 { return uint64(len(codec.AppendLength(nil, n))) + n }

// CheckSize returns an error if a task's bundle would be too large. The error names the number of epochs, the KEM and
// the limit.
func CheckSize(t *task.Task) error { return checkSize(t, len(t.Canonical())) }

// checkSize is [CheckSize] for a task whose canonical form has this many bytes.
func checkSize(t *task.Task, canonical int) error {
	head := uint64(canonical + signedHead)
	if head > MaxTask+signedHead {
		return invalid.Field("task", fmt.Sprintf("of %d bytes", head-signedHead), fmt.Sprintf("at most %d bytes", MaxTask))
	}
	lists, err := listsSize(t, t.Epochs.Count, 0)
	if err != nil {
		return err
	}
	if head+lists <= MaxBundle {
		return nil
	}
	most := t.Epochs.Count * (MaxBundle - head) / lists // all epochs take equally many bytes, but for headers
	return invalid.Field("epochs.count", strconv.FormatUint(t.Epochs.Count, 10), fmt.Sprintf(
		"about %d epochs at most, with kem %s and %d parties: the bundle would have %d bytes, at most %d", most,
		t.KEM, t.VerifierHop()+1, head+lists, MaxBundle))
}

// CheckListSize is [CheckSize] for the keys of one party, for use before the task exists.
func CheckListSize(kem task.KEM, epochs uint64) error {
	head, size, err := onion.KeySizes(kem, epochs)
	if err != nil {
		return err
	}
	size += head
	if size > MaxBundle-signedHead {
		return invalid.Field("epochs.count", strconv.FormatUint(epochs, 10), fmt.Sprintf(
			"fewer epochs with kem %s: the keys of one party would have %d bytes, a bundle has at most %d", kem, size,
			MaxBundle))
	}
	return nil
}

// recentTasks is the largest number of tasks of a stream that relays serve with keys: a task that has just ended, an
// open task, and a task that has not begun.
const recentTasks = 3

// maxPath is the largest number of bytes of the path of a block of keys: a task has at most 8192 blocks.
const maxPath = 13 * 32

// CheckStreamSize returns an error if a stream would be too large for clients. tasks are all its tasks by position; the
// last three count with the keys of a block.
func CheckStreamSize(tasks []*task.Task) error {
	canonical := 0
	for _, t := range tasks {
		canonical += len(t.Canonical())
	}
	return CheckGrownStream(len(tasks), canonical, tasks)
}

// CheckGrownStream is [CheckStreamSize] for n tasks whose canonical forms have this many bytes together. last holds the
// last tasks by position, at least three of them if the stream has three.
func CheckGrownStream(n, canonical int, last []*task.Task) error {
	if n > MaxTasks {
		return invalid.Field("stream.position", strconv.Itoa(n-1),
			fmt.Sprintf("below %d: begin another stream", MaxTasks))
	}
	const heads = 1 + 3 + 3
	size := uint64(heads + MaxStatements*MaxStatement + canonical + n*signedHead)
	for _, t := range last[max(0, len(last)-recentTasks):] {
		lists, err := listsSize(t, min(t.Epochs.Count, onion.BlockEpochs), maxPath)
		if err != nil {
			return err
		}
		size += lists
	}
	if size > MaxStream {
		return invalid.Field("stream", fmt.Sprintf("of %d bytes", size), fmt.Sprintf(
			"at most %d: begin another stream", MaxStream))
	}
	return nil
}
