package main

import (
	"github.com/doona-dp/doona/accountant/compose"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/verifier"
)

// monthBudget is how much privacy a visitor spends who answers every question on every day.
type monthBudget struct {
	Epsilon   float64      `json:"epsilon"` // The site owner's limit for all questions together.
	Delta     float64      `json:"delta"`
	Composed  float64      `json:"composed_epsilon"` // ε of all reports, composed, at that δ.
	Each      float64      `json:"each_composed"`    // Each question composed over its days, then added up.
	Added     float64      `json:"epsilon_sum"`      // Sum of the claimed ε of all questions and days.
	Needs     string       `json:"needs"`            // What the guarantee assumes, in words.
	Questions []monthCost  `json:"questions"`
	Days      []monthSpent `json:"days"`
}

// monthCost is how much privacy one question costs.
type monthCost struct {
	Name     string  `json:"name"`
	Weight   float64 `json:"weight"`
	Protocol string  `json:"protocol"`
	Epsilon  float64 `json:"epsilon"` // ε on one day.
	Delta    float64 `json:"delta"`
	Composed float64 `json:"composed_epsilon"` // ε over all days, composed, at an equal part of the total's δ.
	Added    float64 `json:"epsilon_sum"`      // ε over all days, added up.
}

// monthSpent is how much of the budget is spent after a day.
type monthSpent struct {
	Day      int     `json:"day"`
	Composed float64 `json:"composed_epsilon"`
	Added    float64 `json:"epsilon_sum"`
}

// newMonthBudget composes the privacy losses of all questions. The tasks are fixed before the first report, so the
// losses of all questions and days compose as one product (docs/proofs/loss-laws.md, Theorem 3: loss laws of fixed
// tasks multiply).
func newMonthBudget(of []*question) (*monthBudget, error) {
	set, err := readMonthSet()
	if err != nil {
		return nil, err
	}
	b := &monthBudget{Epsilon: set.Epsilon, Delta: set.Delta}
	if b.Needs, _, err = verifier.Needs(of[0].task); err != nil {
		return nil, err
	}
	laws := make([]*compose.Law, len(of))
	for i, q := range of {
		if laws[i], err = q.mechanism.Law(); err != nil {
			return nil, err
		}
		claim := q.task.Claim
		cost := monthCost{Name: q.name, Weight: q.weight, Protocol: q.task.Protocol, Epsilon: claim.Epsilon.Value(),
			Delta: claim.Delta.Value(), Added: protocols.AddedClaims(claim, monthDays).Epsilon}
		cost.Composed, err = compose.Epsilon([]compose.Observation{laws[i].Observation(monthDays)},
			set.Delta/float64(len(of)))
		if err != nil {
			return nil, err
		}
		b.Each += cost.Composed
		b.Questions = append(b.Questions, cost)
	}
	for day := 1; day <= monthDays; day++ {
		var seen []compose.Observation
		spent := monthSpent{Day: day}
		for i, law := range laws {
			seen = append(seen, law.Observation(uint64(day)))
			spent.Added += protocols.AddedClaims(of[i].task.Claim, uint64(day)).Epsilon
		}
		if spent.Composed, err = compose.Epsilon(seen, set.Delta); err != nil {
			return nil, err
		}
		// The sum of the claims holds at a smaller δ, so it is also an upper bound of what is spent.
		spent.Composed = min(spent.Composed, spent.Added)
		b.Days = append(b.Days, spent)
	}
	last := b.Days[monthDays-1]
	b.Composed, b.Added = last.Composed, last.Added
	return b, nil
}
