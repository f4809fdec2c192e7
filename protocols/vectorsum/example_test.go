package vectorsum_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/doona-dp/doona/protocols/vectorsum"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Each client reports one random coordinate of its vector, and the analyzer adds up all coordinates.
func Example() {
	t := &task.Task{
		Name: "seconds by step", Query: task.Vector, Protocol: vectorsum.Name, Rule: "exact", KEM: task.KEMX25519,
		Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1), Bins: 3},
		Claim: task.NewClaim("1", "1e-6"),
		Batch: task.Batch{Size: 100000, Honest: randomizer.NewRational(9, 10), Min: 90000},
	}
	var protocol vectorsum.Protocol
	if err := protocol.Calibrate(t); err != nil {
		panic(err)
	}
	m, err := protocol.Open(t)
	if err != nil {
		panic(err)
	}
	fmt.Println(t.Slots.PerLane, "message of", t.Slots.MessageBytes, "byte per client")

	// Clients: their vectors differ only in the last coordinate.
	src := randomizer.NewSource()
	var messages [][]byte
	for i := range 100000 {
		lanes, err := m.Randomize(src, []float64{0.1, 0.5, float64(i%11) / 10})
		if err != nil {
			panic(err)
		}
		messages = append(messages, lanes[0]...)
	}

	// Shuffler.
	rand.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })

	// Analyzer: the standard error of each sum is about 225.
	agg := m.Aggregate()
	for _, message := range messages {
		if err := agg.Add(0, message); err != nil {
			panic(err)
		}
	}
	agg.AddUsers(100000)
	for l, sum := range agg.Total() {
		fmt.Printf("step %d: about %d thousand seconds\n", l, 5*int(math.Round(sum/5000)))
	}
	// Output:
	// 1 message of 1 byte per client
	// step 0: about 10 thousand seconds
	// step 1: about 50 thousand seconds
	// step 2: about 50 thousand seconds
}
