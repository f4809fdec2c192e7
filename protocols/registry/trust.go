package registry

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Trust says which relay must be honest for a task's claim to hold (docs/proofs/slots.md).
type Trust string

// The relays that must be honest.
const (
	TrustAny   Trust = "any"   // Any one relay must be honest, whatever the others do.
	TrustWhole Trust = "whole" // Any one relay; and the first relay must put all slots of a client into one batch.
	TrustFirst Trust = "first" // The first relay must be honest.
)

// TrustOf returns which relay must be honest for the task's claim to hold. On an error it returns TrustFirst.
func TrustOf(t *task.Task) (Trust, error) {
	p, err := find(t)
	if err != nil {
		return TrustFirst, err
	}
	return trust(p.Row(), t), nil
}

// trust returns which relay must be honest for the claim of a task of protocol r. Under padding none, the number of a
// client's slots reveals the client's noise to the first relay, so that relay must be honest. If each client has one
// slot in a lane, a first relay cannot split a client's slots between batches.
func trust(r protocols.Row, t *task.Task) Trust {
	switch {
	case t.Slots.Padding == task.PaddingNone || r.NeedsFirst && t.Slots.PerLane > 1:
		return TrustFirst
	case t.Slots.PerLane > 1:
		return TrustWhole
	}
	return TrustAny
}
