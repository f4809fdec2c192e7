package verifier

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/onion"
)

// HopCounts counts the slots that one relay received, by their fate, from the relay's manifests.
type HopCounts struct {
	Relay     int    `json:"relay"`     // From 1, the relay that clients submit to.
	In        uint64 `json:"in"`        // Slots received: Out + Dropped + Destroyed.
	Out       uint64 `json:"out"`       // Slots passed on.
	Dropped   uint64 `json:"dropped"`   // Unreadable or repeated slots.
	Destroyed uint64 `json:"destroyed"` // Slots in batches that the relay destroyed because they were too small.
}

func (h *HopCounts) add(o HopCounts) {
	h.In += o.In
	h.Out += o.Out
	h.Dropped += o.Dropped
	h.Destroyed += o.Destroyed
}

func newHops(relays int) []HopCounts {
	hops := make([]HopCounts, relays)
	for i := range hops {
		hops[i].Relay = i + 1
	}
	return hops
}

// Counts counts the slots that the first relay accepted, by their fate. It counts each slot once, no matter how many
// hops the slot passed.
type Counts struct {
	Users         uint64 // Submissions in released batches, without those whose only slot is a cover.
	Batches       uint64 // Released batches.
	HonestBatches uint64 // Released batches that may have n_min honest clients; see [onion.HasMinClients].
	Sent          uint64 // Slots that the first relay accepted: Covers + Verified + Rejected + Withheld.
	Covers        uint64 // Covers, which carry no message.
	Verified      uint64 // Messages counted.
	Rejected      uint64 // Slots that a relay or the verifier dropped.
	Withheld      uint64 // Slots in batches that the verifier withheld, or that a relay destroyed.

	Lost        uint64 // Rejected slots of released batches.
	Incomplete  uint64 // Batches that are withheld because messages are missing: [finding.Incomplete].
	OverExposed uint64 // Submissions in batches that reached the verifier although too small: [finding.TooFew].
}

// loss returns the losses of the released batches.
func (c *Counts) loss() protocols.Loss { return protocols.Loss{Clients: c.Users, Messages: c.Lost} }

func (c *Counts) add(o Counts) {
	c.Users += o.Users
	c.Batches += o.Batches
	c.HonestBatches += o.HonestBatches
	c.Sent += o.Sent
	c.Covers += o.Covers
	c.Verified += o.Verified
	c.Rejected += o.Rejected
	c.Withheld += o.Withheld
	c.Lost += o.Lost
	c.Incomplete += o.Incomplete
	c.OverExposed += o.OverExposed
}

// countChain counts the slots of a batch from its relays' manifests. It also adds them to hops, per relay.
func countChain(chain []onion.Manifest, hops []HopCounts) (c Counts) {
	for hop, m := range chain {
		var h HopCounts
		for _, lane := range m.Lanes {
			if m.Destroyed() {
				h.add(HopCounts{In: lane.In, Destroyed: lane.In})
			} else {
				h.add(HopCounts{In: lane.In, Out: lane.Out, Dropped: lane.Dropped})
			}
		}
		if hop == 0 {
			c.Sent += h.In
		}
		c.Withheld += h.Destroyed
		c.Rejected += h.Dropped
		hops[hop].add(h)
	}
	return c
}
