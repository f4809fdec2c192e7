package realsum_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/doona-dp/doona/protocols/realsum"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Each client randomizes its value. The shuffler removes the link between client and message, and the analyzer adds up.
func Example() {
	t := &task.Task{
		Name: "load time", Query: task.Sum, Protocol: realsum.Name, Rule: "revealed", KEM: task.KEMX25519,
		Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(10, 1), Clip: true},
		Claim: task.NewClaim("1", "1e-6"),
		Batch: task.Batch{Size: 100000, Honest: randomizer.NewRational(9, 10), Min: 90000},
	}
	var protocol realsum.Protocol
	if err := protocol.Calibrate(t); err != nil {
		panic(err)
	}
	m, err := protocol.Open(t)
	if err != nil {
		panic(err)
	}

	// Clients: each has a load time of 2.5 seconds.
	src := randomizer.NewSource()
	var messages [][]byte
	for range 100000 {
		lanes, err := m.Randomize(src, []float64{2.5})
		if err != nil {
			panic(err)
		}
		messages = append(messages, lanes[0]...)
	}

	// Shuffler.
	rand.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })

	// Analyzer.
	agg := m.Aggregate()
	for _, message := range messages {
		if err := agg.Add(0, message); err != nil {
			panic(err)
		}
	}
	fmt.Printf("mean load time about %.1f seconds\n", agg.Total()[0]/float64(agg.Reports()))
	// Output:
	// mean load time about 2.5 seconds
}
