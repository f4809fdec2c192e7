package verifier

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/onion"
)

// HopCounts counts the slots that one relay received, by their fate, from its manifests.
type HopCounts struct {
	Relay     int    `json:"relay"`     // From 1, which clients submit to.
	In        uint64 `json:"in"`        // Slots received: Out + Dropped + Destroyed.
	Out       uint64 `json:"out"`       // Slots passed on.
	Dropped   uint64 `json:"dropped"`   // Unreadable or repeated slots.
	Destroyed uint64 `json:"destroyed"` // Slots of batches destroyed for being too small.
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

// Counts counts the messages that the first relay accepted, by their fate. Each is counted once, however many hops it
// passed.
type Counts struct {
	Users         uint64 // Submissions in released batches.
	Batches       uint64 // Released batches.
	HonestBatches uint64 // Released batches that can have n_min honest clients; see [onion.HasMinClients].
	Sent          uint64 // Slots that the first relay accepted: the sum of the four below.
	Covers        uint64 // Covers, which carry no message.
	Verified      uint64 // Messages counted.
	Rejected      uint64 // Slots that a relay or the verifier dropped.
	Withheld      uint64 // Slots in batches that were withheld, or destroyed as too small.

	Lost        uint64 // Rejected slots of released batches.
	Incomplete  uint64 // Batches withheld for missing messages: [finding.Incomplete].
	OverExposed uint64 // Submissions in batches that arrived although too small: [finding.TooFew].
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

// countChain counts the slots of a batch from its relays' manifests, and adds them to hops.
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
