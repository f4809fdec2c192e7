package vectorgrid_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/doona-dp/doona/protocols/vectorgrid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Each client reports a grid point near its vector, or a random one, and the analyzer adds up.
func Example() {
	t := &task.Task{
		Name: "direction", Query: task.VectorMean, Protocol: vectorgrid.Name, Rule: "exact", KEM: task.KEMX25519,
		Input: task.Input{Lo: randomizer.NewRational(-1, 1), Hi: randomizer.NewRational(1, 1), Bins: 2},
		Claim: task.NewClaim("1", "1e-6"),
		Batch: task.Batch{Size: 100000, Honest: randomizer.NewRational(9, 10), Min: 90000},
	}
	var protocol vectorgrid.Protocol
	if err := protocol.Calibrate(t); err != nil {
		panic(err)
	}
	m, err := protocol.Open(t)
	if err != nil {
		panic(err)
	}
	fmt.Println(t.Slots.PerLane, "message of", t.Slots.MessageBytes, "byte per client")

	// Clients: all hold the same unit vector.
	src := randomizer.NewSource()
	var messages [][]byte
	for range 100000 {
		lanes, err := m.Randomize(src, []float64{0.6, -0.8})
		if err != nil {
			panic(err)
		}
		messages = append(messages, lanes[0]...)
	}

	// Shuffler.
	rand.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })

	// Analyzer: the standard error of each coordinate of the mean is below 0.002.
	agg := m.Aggregate()
	for _, message := range messages {
		if err := agg.Add(0, message); err != nil {
			panic(err)
		}
	}
	agg.AddUsers(100000)
	for l, sum := range agg.Total() {
		fmt.Printf("coordinate %d: about %.1f\n", l, sum/100000)
	}
	// Output:
	// 1 message of 1 byte per client
	// coordinate 0: about 0.6
	// coordinate 1: about -0.8
}
