package planner

import "github.com/doona-dp/doona/wire/task"

// What a message costs a server, in seconds of one core of an x86-64 machine, as `make bench` found on 2026-11-22 at
// 100,000 clients of one slot each: 264 µs a client of the first relay, 43 µs of the next and 36 µs of the verifier
// (rows relay/noise/*/cpu), 102 µs for a dummy's two layers, of which four key exchanges are 94 µs (relay/noise).
const (
	perReport = 244e-6 // Of the first relay, for a client: a key exchange, HTTP, limits and receipts on disk.
	perSlot   = 20e-6  // Of the first relay, for each slot: what the next takes, less a key exchange.
	perHop    = 43e-6  // Of a later relay, for each slot.
	perOpened = 36e-6  // Of the verifier, for each slot.
	perSealed = 51e-6  // Of a relay, for each layer of a dummy.
)

// ServerSeconds returns what a million clients cost each party, in seconds of one core: "relay 1", … and "verifier". It
// is an estimate, for comparison: from the number of slots and dummies.
func (w *Way) ServerSeconds(hops int) map[string]float64 {
	const clients = 1e6
	slots := w.Messages
	if w.Padding == task.PaddingFull {
		slots = float64(w.Task.Slots.PerLane * w.Task.Slots.Lanes)
	}
	slots *= clients
	dummies := w.Dummies * clients / float64(w.Task.Batch.Size) // Of each relay.
	out := map[string]float64{"relay 1": clients*perReport + slots*perSlot + dummies*float64(hops)*perSealed}
	for hop := 1; hop < hops; hop++ {
		out[relayName(hop)] = (slots+dummies*float64(hop))*perHop + dummies*float64(hops-hop)*perSealed
	}
	out["verifier"] = (slots + dummies*float64(hops)) * perOpened
	return out
}

func relayName(hop int) string { return "relay " + string(rune('1'+hop)) }
