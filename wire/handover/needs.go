package handover

import (
	"strconv"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// Load is what a batch has.
type Load struct {
	Clients float64
	Reports float64 // Of its epoch's batches together, as far as the task says: at least Clients.
	Slots   float64 // Of all clients, in all lanes.
	Dummies float64 // Of each relay.
}

// FullLoad is the most that a batch of a task can have: every client as many slots as it may, every relay as many
// dummies.
func FullLoad(t *task.Task) Load {
	l := Load{Clients: float64(t.Batch.Size), Reports: float64(t.Batch.Size)}
	l.Slots = l.Clients * float64(t.Slots.PerLane*t.Slots.Lanes)
	if t.Noise != nil {
		_, most := t.Noise.Support()
		l.Dummies = float64(most) * float64(t.Slots.Lanes)
		if t.SaysBatches() {
			l.Reports *= float64(t.MostBatches())
		}
	}
	return l
}

// Need is what a batch takes of a party. It is an estimate: [Needs].
type Need struct {
	Memory  float64 `json:"memory"`  // Bytes of its process: this batch, and the reports of its epoch.
	Disk    float64 `json:"disk"`    // Bytes at once.
	Seconds float64 `json:"seconds"` // Of one core.
}

// String says it in words.
func (n Need) String() string {
	memory, disk, core := n.Words()
	return memory + " of memory, " + disk + " of disk and " + core + " of a core"
}

// Words returns memory, disk and time with their units.
func (n Need) Words() (memory, disk, core string) {
	return quantity(n.Memory, "B"), quantity(n.Disk, "B"), quantity(n.Seconds, "s")
}

// quantity writes a number with two digits or three, and a prefix of its unit.
func quantity(x float64, unit string) string {
	prefix := ""
	for _, p := range []string{"k", "M", "G", "T", "P"} {
		if x < 1000 || unit == "s" {
			break
		}
		x, prefix = x/1000, p
	}
	if x < 10 {
		return strconv.FormatFloat(x, 'f', 1, 64) + " " + prefix + unit
	}
	return strconv.FormatFloat(x, 'f', 0, 64) + " " + prefix + unit
}

// What a party takes, measured on an x86-64 machine. Memory of a verifier is that of `verifier analyze` at 10⁶ slots
// (row verifier/memory of bench: 68 MB; at 10⁷ see docs/results.json). Times are those that `make bench` found on
// 2026-11-22 at 100,000 clients of one slot each: 264 µs a client of the first relay, 43 µs of the next and 36 µs of
// the verifier (rows relay/noise/*/cpu), 102 µs for a dummy's two layers (relay/noise).
const (
	// KnownMemory is of a first relay with an SQLite store, for each report of an open epoch: its client's name, and
	// its own. Where a task does not say how many batches an epoch has at most, [Needs] counts those of one.
	KnownMemory = 25

	relayMemory    = 256e6 // Whatever the size: 64 MiB of slots, reports in flight, the store. Seen: 169 MB at 10⁵.
	verifierMemory = 80e6  // Whatever the size: slots, chunks and the process.
	markMemory     = 20    // Of a verifier, for each slot: its mark in the batch's replay set, and in the epoch's.

	rowDisk  = 100 // Of a relay, for each slot: what its row, or its tag's, has beside the slot.
	keptDisk = 9   // Of a verifier, for each slot in a record beside the message.

	perReport = 244e-6 // Of the first relay, for a client: a key exchange, HTTP, limits and receipts on disk.
	perSlot   = 20e-6  // Of the first relay, for each slot: what the next takes, less a key exchange.
	perHop    = 43e-6  // Of a later relay, for each slot.
	perOpened = 36e-6  // Of the verifier, for each slot.
	perSealed = 51e-6  // Of a relay, for each layer of a dummy.
)

// Needs returns what a batch takes: of each relay in their order, and of the verifier. This is where plans, new tasks,
// check-config and docs/costs.md have it from. On a relay's disk are at once a slot's row, the file by which it is
// permuted and the sealed batch, on a verifier's the batch, its record and what of that memory has no room for.
func Needs(t *task.Task, l Load) ([]Need, error) {
	layout, err := onion.NewLayout(t)
	if err != nil {
		return nil, err
	}
	hops := len(t.Relays)
	out := make([]Need, hops+1)
	for hop := range hops {
		slots := l.Slots + l.Dummies*float64(hop+1)
		copies := 2. // Of what it has peeled: permuted and sealed.
		n := Need{Memory: relayMemory, Seconds: l.Dummies * float64(hops-hop) * perSealed}
		if hop == 0 {
			copies = 3
			n.Memory += l.Reports * KnownMemory
			n.Seconds += l.Clients*perReport + l.Slots*perSlot
		} else {
			n.Seconds += (slots - l.Dummies) * perHop
		}
		n.Disk = slots * (copies*float64(layout.SlotSize(hop+1)) + rowDisk)
		out[hop] = n
	}
	slots := l.Slots + l.Dummies*float64(hops)
	kept := float64(keptDisk + t.Slots.MessageBytes)
	out[hops] = Need{Memory: verifierMemory + markMemory*slots,
		Disk: slots * (float64(layout.SlotSize(hops)) + 2*kept), Seconds: slots * perOpened}
	return out, nil
}

// Worst returns the most memory and disk that a party needs of some, and the seconds of all together.
func Worst(needs []Need) (n Need) {
	for _, one := range needs {
		n = Need{max(n.Memory, one.Memory), max(n.Disk, one.Disk), n.Seconds + one.Seconds}
	}
	return n
}
