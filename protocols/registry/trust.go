package registry

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Trust says which relay must be honest for a task's claim to hold (docs/proofs/slots.md).
type Trust string

// The kinds of trust.
const (
	TrustAny   Trust = "any"   // Any one relay, whatever the others do.
	TrustWhole Trust = "whole" // Any one relay, as long as the first puts all slots of a client into one batch.
	TrustFirst Trust = "first" // The first relay.
)

// TrustOf returns the trust that a task needs.
func TrustOf(t *task.Task) (Trust, error) {
	p, err := find(t)
	if err != nil {
		return TrustFirst, err
	}
	return trust(p.Row(), t), nil
}

// trust returns the trust that a task of a protocol needs. Under padding none, the number of a client's slots shows
// the first relay the client's noise. If a client has one slot in a lane, a first relay cannot split them between
// batches.
func trust(r protocols.Row, t *task.Task) Trust {
	switch {
	case t.Slots.Padding == task.PaddingNone || r.NeedsFirst && t.Slots.PerLane > 1:
		return TrustFirst
	case t.Slots.PerLane > 1:
		return TrustWhole
	}
	return TrustAny
}
