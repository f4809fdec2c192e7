package augmented_test

import (
	"testing"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/augmented"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// claims are, by kind, the tasks whose claims take a client the longest to check.
var claims = map[string]struct {
	query          task.Query
	bins           uint64
	users          uint64
	dummies        float64
	epsilon, delta string // Claimed total over all epochs.
	epochs         uint64
}{
	"count":               {query: task.Count, users: 1000},
	"256 bins":            {query: task.Histogram, bins: 256, users: 1000},
	"sum, 1,600 dummies":  {query: task.Sum, users: 1e5, dummies: 1600},
	"sum, 11,000 dummies": {query: task.Sum, users: 1e6, dummies: 11_000},
	"16 cells, 30 epochs": {query: task.Histogram, bins: 16, users: 1000, epsilon: "5.11", delta: "3e-5",
		epochs: 30},
	"16 cells, 365 epochs": {query: task.Histogram, bins: 16, users: 1000, epsilon: "3", delta: "1e-5",
		epochs: 365},
}

// BenchmarkCheckClaim measures the check that a client makes before its first report. docs/accountant.md has the
// figures in WASM.
func BenchmarkCheckClaim(b *testing.B) {
	for name, c := range claims {
		one := randomizer.NewRational(1, 1)
		draft := &task.Task{
			Name: "claim", Query: c.query, KEM: task.KEMX25519, Claim: task.NewClaim("1", "1e-6"),
			Input:   task.Input{Lo: randomizer.NewRational(0, 1), Hi: one, Bins: c.bins, Labels: c.bins > 0},
			Batch:   task.Batch{Size: c.users, Honest: one, Min: c.users},
			Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
		}
		if c.epochs > 0 {
			draft.Claim, draft.Epochs.Count = task.Claim{}, c.epochs
			draft.Claim.SetTotal(c.epsilon, c.delta)
		}
		var p augmented.Protocol
		if err := p.CalibrateRelayNoise(draft, protocols.NoiseOptions{MaxDummies: c.dummies}); err != nil {
			b.Fatal(name, err)
		}
		m, err := p.Open(draft)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := m.CheckClaim(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
