package planner

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// Shared says how many visitors share one network in an epoch, and which share of them comes after the network's quota
// is used up.
type Shared struct {
	Visitors uint64  `json:"visitors"`
	ShutOut  float64 `json:"shut_out"`
}

// QuotaCost is the effect of the quota of reports per network and epoch: on visitors who share a network, and on how
// far malicious networks can move the answer.
type QuotaCost struct {
	Least  uint64   `json:"least"` // A network's quota in an epoch is drawn from Least to Most.
	Most   uint64   `json:"most"`
	Shared []Shared `json:"shared"`
	// How far malicious networks can move an entry of the answer of a full batch, in the query's units.
	OneNetwork     float64 `json:"one_network"`
	TwentyNetworks float64 `json:"twenty_networks"`
}

// NewQuotaCost returns the effect of a task's quota on networks that 2, 10 or 100 visitors share.
func NewQuotaCost(t *task.Task, m protocols.Mechanism) (QuotaCost, error) {
	one, err := shift(t, m)
	if err != nil {
		return QuotaCost{}, err
	}
	return quotaCost(t, one, m), nil
}

// quotaCost does what [NewQuotaCost] does. one is how far one client can move an entry.
func quotaCost(t *task.Task, one float64, m protocols.Mechanism) QuotaCost {
	c := QuotaCost{Least: t.Clients.Quota, Most: 2*t.Clients.Quota - 1}
	for _, visitors := range []uint64{2, 10, 100} {
		c.Shared = append(c.Shared, Shared{visitors, c.shutOut(visitors)})
	}
	if protocols.CapabilitiesOf(m).OneSetsAll {
		c.OneNetwork, c.TwentyNetworks = one, one
		return c
	}
	c.OneNetwork = float64(min(c.Most, t.Batch.Size)) * one
	c.TwentyNetworks = float64(min(20*c.Most, t.Batch.Size)) * one
	return c
}

// shutOut returns the expected share of visitors who come after their network has used up its quota, which is uniform.
func (c QuotaCost) shutOut(visitors uint64) float64 {
	over := 0.0
	for quota := c.Least; quota <= c.Most && quota < visitors; quota++ {
		over += float64(visitors - quota)
	}
	return over / float64(c.Most-c.Least+1) / float64(visitors)
}

// QuotaCost returns the effect of the quota of the way's task.
func (w *Way) QuotaCost() QuotaCost {
	return quotaCost(w.Task, w.Shift, w.Mechanism)
}
