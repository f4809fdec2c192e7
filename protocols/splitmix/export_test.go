package splitmix

import (
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// For tests.
var (
	StatisticalDistance = statisticalDistance
	LogExcess           = logExcess
)

// NewTiny returns the mechanism of a count-like sum with any parameters, also those that New
// refuses because the noise would wrap around too often.
func NewTiny(users, m, p, q uint64, s randomizer.Rational, rule string, claim task.Claim) *Mechanism {
	t := &task.Task{Query: task.Sum, Rule: rule, Claim: claim, Batch: task.Batch{Size: users, Min: users},
		Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1)}}
	return newMechanism(t, m, p, q, s)
}
