package planner

import (
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/task"
)

// ServerSeconds estimates the time that a million clients cost each party, in seconds of one core. Its keys are "relay
// 1", … and "verifier". Use it only for comparison.
func (w *Way) ServerSeconds() map[string]float64 {
	const clients = 1e6
	out := map[string]float64{}
	for party, n := range w.ByParty() {
		out[party] = n.Seconds * clients / float64(w.Task.Batch.Size)
	}
	return out
}

// ByParty returns what a batch needs, by the name of the party: "relay 1", … and "verifier".
func (w *Way) ByParty() map[string]handover.Need {
	out, hops := map[string]handover.Need{}, len(w.Needs)-1
	for hop, n := range w.Needs[:hops] {
		out["relay "+string(rune('1'+hop))] = n
	}
	out["verifier"] = w.Needs[hops]
	return out
}

// Needs returns what a full batch of a task needs, first for each of hops relays by hop, then for the verifier. Each
// client sends messages messages, or all its slots with padding full. Each relay adds dummies dummies.
func Needs(t *task.Task, hops int, messages, dummies float64) ([]handover.Need, error) {
	load := handover.FullLoad(t)
	load.Dummies = dummies
	if t.Slots.Padding == task.PaddingNone {
		load.Slots = messages * load.Clients
	}
	return handover.Needs(withRelays(t, hops), load)
}

// MostNeeds does what [Needs] does, for the largest possible batch.
func MostNeeds(t *task.Task, hops int) ([]handover.Need, error) {
	return handover.Needs(withRelays(t, hops), handover.FullLoad(t))
}
