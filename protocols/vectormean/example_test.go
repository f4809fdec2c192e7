package vectormean_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/doona-dp/doona/protocols/vectormean"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Each client sends the units of its vector's coordinates among random other messages. The analyzer counts every kind.
func Example() {
	t := &task.Task{
		Name: "gradient", Query: task.VectorMean, Protocol: vectormean.Name, Rule: vectormean.Rule, KEM: task.KEMX25519,
		Input: task.Input{Lo: randomizer.NewRational(-1, 1), Hi: randomizer.NewRational(1, 1), Bins: 4},
		Claim: task.NewClaim("1", "1e-6"),
		Batch: task.Batch{Size: 10000, Honest: randomizer.NewRational(9, 10), Min: 9000},
	}
	var protocol vectormean.Protocol
	if err := protocol.Calibrate(t); err != nil {
		panic(err)
	}
	m, err := protocol.Open(t)
	if err != nil {
		panic(err)
	}
	fmt.Println("messages of", t.Slots.MessageBytes, "byte")

	// Clients: all hold the same unit vector.
	src := randomizer.NewSource()
	var messages [][]byte
	for range 10000 {
		lanes, err := m.Randomize(src, []float64{0.1, 0.5, -0.5, 0.7})
		if err != nil {
			panic(err)
		}
		messages = append(messages, lanes[0]...)
	}

	// Shuffler.
	rand.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })

	// Analyzer: the standard error of each coordinate of the mean is about 0.002.
	agg := m.Aggregate()
	for _, message := range messages {
		if err := agg.Add(0, message); err != nil {
			panic(err)
		}
	}
	agg.AddUsers(10000)
	for l, sum := range agg.Total() {
		fmt.Printf("coordinate %d: about %.1f\n", l, sum/10000)
	}
	// Output:
	// messages of 1 byte
	// coordinate 0: about 0.1
	// coordinate 1: about 0.5
	// coordinate 2: about -0.5
	// coordinate 3: about 0.7
}
