package handover

import (
	"strconv"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// Load is the size of a batch.
type Load struct {
	Clients float64
	Reports float64 // Of all batches of the epoch together, as far as the task bounds them; at least Clients.
	Slots   float64 // Of all clients, in all lanes.
	Dummies float64 // Of each relay.
}

// FullLoad returns the largest load of a batch: clients send as many slots and every relay adds as many dummies as the
// task allows.
func FullLoad(t *task.Task) Load {
	l := Load{Clients: float64(t.Batch.Size), Reports: float64(t.Batch.Size)}
	l.Slots = float64(t.MostSlots()) * float64(t.Slots.Lanes)
	if t.Noise != nil {
		_, most := t.Noise.Support()
		l.Dummies = float64(most) * float64(t.Slots.Lanes)
		if t.SaysBatches() {
			l.Reports *= float64(t.MostBatches())
		}
	}
	return l
}

// Need is what a batch costs a party, as [Needs] estimates it.
type Need struct {
	Memory  float64 `json:"memory"`  // Bytes of the process: this batch, and the reports of its epoch.
	Disk    float64 `json:"disk"`    // Most bytes at one time.
	Seconds float64 `json:"seconds"` // Of one core.
}

// String returns the need as a sentence.
func (n Need) String() string {
	memory, disk, core := n.Words()
	return memory + " of memory, " + disk + " of disk and " + core + " of a core"
}

// Words returns memory, disk and time with their units.
func (n Need) Words() (memory, disk, core string) {
	return quantity(n.Memory, "B"), quantity(n.Disk, "B"), quantity(n.Seconds, "s")
}

// quantity formats a number with two or three digits and a unit prefix.
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

// Costs of a party, measured on an x86-64 machine. A verifier's memory was measured with `verifier analyze` at 10⁶
// slots (row verifier/memory of bench: 68 MB; at 10⁷ see docs/results.json). Times are from `make bench` on 2026-11-22 at
// 100,000 clients of one slot each: 264 µs a client at the first relay, 43 µs at the next and 36 µs at the verifier
// (rows relay/noise/*/cpu), 102 µs for a dummy's two layers (relay/noise).
const (
	// KnownMemory is what a first relay with an SQLite store keeps in memory for each report of an open epoch, in
	// bytes: the client's name and the report's. If a task does not bound the batches of an epoch, [Needs] counts one
	// batch.
	KnownMemory = 25

	relayMemory    = 256e6 // At any size: 64 MiB of slots, reports in flight, the store. Measured: 169 MB at 10⁵.
	verifierMemory = 80e6  // At any size: slots, chunks and the process.
	markMemory     = 20    // Of a verifier, for each slot: its mark in the replay sets of the batch and of the epoch.

	rowDisk  = 100 // Of a relay, for each slot: what the rows of slot and tag add to the slot's bytes.
	keptDisk = 9   // Of a verifier, for each slot: what a record adds to the message's bytes.

	perReport = 244e-6 // Of the first relay, for each client: a key exchange, HTTP, limits and durable receipts.
	perSlot   = 20e-6  // Of the first relay, for each slot: perHop without a key exchange.
	perHop    = 43e-6  // Of a later relay, for each slot.
	perOpened = 36e-6  // Of the verifier, for each slot.
	perSealed = 51e-6  // Of a relay, for each layer of a dummy.
)

// Needs estimates what a batch costs each relay, in order, and the verifier. Plans, new tasks, check-config and
// docs/costs.md use it. A relay's disk holds a slot's row, the permutation file and the sealed batch at the same
// time. A verifier's disk holds the batch, its record, and what does not fit in memory.
func Needs(t *task.Task, l Load) ([]Need, error) {
	layout, err := onion.NewLayout(t)
	if err != nil {
		return nil, err
	}
	hops := len(t.Relays)
	out := make([]Need, hops+1)
	for hop := range hops {
		slots := l.Slots + l.Dummies*float64(hop+1)
		copies := 2. // The peeled slots are stored twice: permuted and sealed.
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

// Worst returns the largest memory and disk of any need, and the sum of the seconds.
func Worst(needs []Need) (n Need) {
	for _, one := range needs {
		n = Need{max(n.Memory, one.Memory), max(n.Disk, one.Disk), n.Seconds + one.Seconds}
	}
	return n
}
