package rappor_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/rappor"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Each client flips bits and sends the indices of those that are one. The shuffler mixes them, and the analyzer adds
// them up.
func Example() {
	t := &task.Task{
		Name: "stars", Query: task.Mean, Protocol: rappor.Name, Rule: rappor.RuleOthers, KEM: task.KEMX25519,
		Input:  task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(5, 1)},
		Claim:  task.NewClaim("1", "1e-6"),
		Batch:  task.Batch{Size: 10000, Honest: randomizer.NewRational(1, 1), Min: 10000},
		Params: []task.Param{protocols.Whole("k", 5)}, // The values are whole.
	}
	var protocol rappor.Protocol
	if err := protocol.Calibrate(t); err != nil {
		panic(err)
	}
	m, err := protocol.Open(t)
	if err != nil {
		panic(err)
	}

	// Clients: each gives 0 to 5 stars, on average 2.5.
	src := randomizer.NewSource()
	var messages [][]byte
	for i := range 10000 {
		lanes, err := m.Randomize(src, []float64{float64(i % 6)})
		if err != nil {
			panic(err)
		}
		messages = append(messages, lanes[0]...)
	}

	// Shuffler.
	rand.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })

	// Analyzer: the standard error of the mean is 0.005.
	agg := m.Aggregate()
	for _, message := range messages {
		if err := agg.Add(0, message); err != nil {
			panic(err)
		}
	}
	agg.AddUsers(10000)
	fmt.Printf("mean about %.1f stars\n", math.Round(agg.Total()[0]/float64(agg.Reports())*10)/10)
	// Output:
	// mean about 2.5 stars
}
