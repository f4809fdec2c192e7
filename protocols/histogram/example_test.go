package histogram_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/doona-dp/doona/protocols/histogram"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Each client randomizes its value. The shuffler removes the link between client and message, and the analyzer counts.
func Example() {
	t := &task.Task{
		Name: "browser", Query: task.Histogram, Protocol: histogram.Name, Rule: "revealed", KEM: task.KEMX25519,
		Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1), Bins: 3, Labels: true},
		Claim: task.NewClaim("1", "1e-6"),
		Batch: task.Batch{Size: 100000, Honest: randomizer.NewRational(9, 10), Min: 90000},
	}
	var protocol histogram.Protocol
	if err := protocol.Calibrate(t); err != nil {
		panic(err)
	}
	m, err := protocol.Open(t)
	if err != nil {
		panic(err)
	}

	// Clients: 60 % hold value 0, 40 % value 1, none value 2.
	src := randomizer.NewSource()
	var messages [][]byte
	for i := range 100000 {
		value := 0.0
		if i%5 >= 3 {
			value = 1
		}
		lanes, err := m.Randomize(src, []float64{value})
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
	for value, count := range agg.Total() {
		fmt.Printf("value %d: about %d thousand\n", value, int(math.Round(count/1000)))
	}
	// Output:
	// value 0: about 60 thousand
	// value 1: about 40 thousand
	// value 2: about 0 thousand
}
