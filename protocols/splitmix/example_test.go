package splitmix_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/doona-dp/doona/protocols/splitmix"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Each client splits its noisy value, the shuffler mixes all shares, and the analyzer adds them up.
func Example() {
	t := &task.Task{
		Name: "page load", Query: task.Mean, Protocol: splitmix.Name, Rule: splitmix.RuleComponents,
		KEM:   task.KEMX25519,
		Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(10, 1)},
		Claim: task.NewClaim("1", "1e-8"),
		Batch: task.Batch{Size: 10000, Honest: randomizer.NewRational(1, 1), Min: 10000},
	}
	var protocol splitmix.Protocol
	if err := protocol.Calibrate(t); err != nil {
		panic(err)
	}
	m, err := protocol.Open(t)
	if err != nil {
		panic(err)
	}
	fmt.Println(t.Slots.PerLane, "messages of", t.Slots.MessageBytes, "bytes per client")

	// Clients: values from 2.5 to 3.5 seconds.
	src := randomizer.NewSource()
	var messages [][]byte
	for i := range 10000 {
		lanes, err := m.Randomize(src, []float64{2.5 + float64(i%11)/10})
		if err != nil {
			panic(err)
		}
		messages = append(messages, lanes[0]...)
	}

	// Shuffler.
	rand.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })

	// Analyzer: the standard error of the mean is 0.0014.
	agg := m.Aggregate()
	for _, message := range messages {
		if err := agg.Add(0, message); err != nil {
			panic(err)
		}
	}
	agg.AddUsers(10000)
	fmt.Printf("mean about %.1f seconds\n", math.Round(agg.Total()[0]*10/float64(agg.Reports()))/10)
	// Output:
	// 8 messages of 3 bytes per client
	// mean about 3.0 seconds
}
