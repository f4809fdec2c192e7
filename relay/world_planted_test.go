package relay_test

import (
	"math/rand/v2"
	"slices"

	"github.com/doona-dp/doona/internal/faultdisk"
	"github.com/doona-dp/doona/relay"
)

// bug is something wrong with the parties of a world on purpose, to see that worlds find it. The zero value is
// none.
type bug struct {
	name   string
	tokens bool                             // only in worlds with tokens
	relay  func(r *relay.Relay, hop int)    // plants it in a relay before it runs
	add    func(rng *rand.Rand) (f []fault) // what shows it
	quiet  bool                             // no other faults
	disk   faultdisk.Broken                 // of every party
}

func (b *bug) plantRelay(r *relay.Relay, hop int) {
	if b.relay != nil {
		b.relay(r, hop)
	}
}

// faults adds what shows the bug to drawn faults.
func (b *bug) faults(rng *rand.Rand, drawn []fault) []fault {
	if b.quiet {
		drawn = nil
	}
	if b.add == nil {
		return drawn
	}
	return append(drawn, b.add(rng)...)
}

// allowed lists the faults that are drawn.
func (b *bug) allowed() (out []string) {
	for _, kind := range []string{faultRoad, faultLie, faultCrash, faultFull, faultClock, faultSetBack} {
		if !slices.Contains(notYet, kind) {
			out = append(out, kind)
		}
	}
	return out
}

// mayBeEarly is how many epochs' keys may be erased before their time: one where clocks are wrong.
func (b *bug) mayBeEarly() int {
	if slices.Contains(b.allowed(), faultClock) {
		return 1
	}
	return 0
}

func (b *bug) needsSnapshots() bool { return slices.Contains(b.allowed(), faultSetBack) }
