package handover

import (
	"strconv"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// Load is the size of a batch whose cost [Needs] estimates.
type Load struct {
	Clients float64
	Reports float64 // Reports of the whole epoch, if the task limits its batches; otherwise equal to Clients.
	Slots   float64 // Slots of all clients, in all lanes together.
	Dummies float64 // Dummies of one relay, in all lanes together.
}

// FullLoad returns the largest load of a batch: all clients send as many slots, and every relay adds as many dummies,
// as the task allows.
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

// Need is what one batch costs one party, as [Needs] estimates it.
type Need struct {
	Memory  float64 `json:"memory"`  // Bytes of memory: for this batch, and for the reports of its epoch.
	Disk    float64 `json:"disk"`    // Largest number of bytes on disk at one time.
	Seconds float64 `json:"seconds"` // Processor time of one core.
}

// String returns the need as text, such as "256 MB of memory, 1.2 GB of disk and 30 s of a core".
func (n Need) String() string {
	memory, disk, core := n.Words()
	return memory + " of memory, " + disk + " of disk and " + core + " of a core"
}

// Words returns memory, disk space and processor time with their units.
func (n Need) Words() (memory, disk, core string) {
	return quantity(n.Memory, "B"), quantity(n.Disk, "B"), quantity(n.Seconds, "s")
}

// quantity formats a number with two or three digits and a unit. Bytes get a prefix from k to P.
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

// Costs of a party, measured on an x86-64 machine. The verifier's memory is from `verifier analyze` at 10⁶ slots (row
// verifier/memory of bench: 68 MB; for 10⁷ see docs/results.json). Times are from `make bench` on 2026-11-22, with
// 100,000 clients of one slot each. A client costs 264 µs at the first relay, 43 µs at the next and 36 µs at the
// verifier (rows relay/noise/*/cpu). The two layers of a dummy cost 102 µs (relay/noise).
const (
	// KnownMemory is what a first relay with an SQLite store keeps in memory for each report of an open epoch, in
	// bytes: the client's name and the report's. If a task does not bound the batches of an epoch, [Needs] counts one
	// batch.
	KnownMemory = 25

	relayMemory    = 256e6 // A relay at any size: 64 MiB of slots, reports in flight, store. Measured: 169 MB at 10⁵.
	verifierMemory = 80e6  // A verifier at any size: slots, chunks and the process.
	markMemory     = 20    // A verifier per slot: the slot's entries in the replay sets of batch and epoch.

	rowDisk  = 100 // A relay per slot: what the rows of slot and tag take beyond the slot's bytes.
	keptDisk = 9   // A verifier per slot: what a record takes beyond the message's bytes.

	perReport = 244e-6 // First relay per client: a key exchange, HTTP, limits and durable receipts.
	perSlot   = 20e-6  // First relay per slot: the work of perHop without its key exchange.
	perHop    = 43e-6  // Later relay per slot.
	perOpened = 36e-6  // Verifier per slot.
	perSealed = 51e-6  // A relay per layer of a dummy.
)

// Needs estimates what a batch costs each relay, in order, and last the verifier. Plans, new tasks, check-config and
// docs/costs.md use it. A relay's disk holds the rows of slots, the permutation file and the sealed batch at the same
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
		copies := 2. // A relay stores the peeled slots twice: permuted and sealed.
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

// Worst returns the largest memory and the largest disk space of all needs, and the sum of their seconds.
func Worst(needs []Need) (n Need) {
	for _, one := range needs {
		n = Need{max(n.Memory, one.Memory), max(n.Disk, one.Disk), n.Seconds + one.Seconds}
	}
	return n
}
