package verifier

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/onion"
)

// HopCounts is what one relay's manifests say became of the slots it took in.
type HopCounts struct {
	Relay     int    `json:"relay"`     // From 1, the one clients submit to.
	In        uint64 `json:"in"`        // Slots taken in: Out + Dropped + Destroyed.
	Out       uint64 `json:"out"`       // Slots handed on.
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

// Counts says what became of the messages that the first relay accepted; each is counted once,
// however many hops it passed.
type Counts struct {
	Users    uint64 // Submissions in released batches.
	Batches  uint64 // Released batches.
	Crowded  uint64 // Released batches in which n_min clients can be honest: [onion.Crowded].
	Sent     uint64 // Slots accepted by the first relay: all of the below.
	Covers   uint64 // Covers found; they carry nothing.
	Verified uint64 // Messages aggregated.
	Rejected uint64 // Slots dropped by a relay, or by the verifier as unreadable or repeated.
	Withheld uint64 // Slots in batches that were destroyed for being too small.

	Lost        uint64 // Rejected of released batches.
	Incomplete  uint64 // Batches withheld for lacking messages: [finding.Incomplete].
	OverExposed uint64 // Submissions of batches that came here though too small: [finding.TooFew].
}

// loss is what did not come through of the released batches.
func (c *Counts) loss() protocols.Loss { return protocols.Loss{Clients: c.Users, Messages: c.Lost} }

func (c *Counts) add(o Counts) {
	c.Users += o.Users
	c.Batches += o.Batches
	c.Crowded += o.Crowded
	c.Sent += o.Sent
	c.Covers += o.Covers
	c.Verified += o.Verified
	c.Rejected += o.Rejected
	c.Withheld += o.Withheld
	c.Lost += o.Lost
	c.Incomplete += o.Incomplete
	c.OverExposed += o.OverExposed
}

// countChain counts what the relays did to a batch, from their manifests, and adds it to hops.
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
