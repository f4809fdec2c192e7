package correlated_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/doona-dp/doona/protocols/correlated"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
)

// Each client sends its value and a little noise, the shuffler mixes all messages, and the analyzer adds them up.
func Example() {
	t := &task.Task{
		Name: "clicks", Query: task.Sum, Protocol: correlated.Name, Rule: correlated.RuleMoments, KEM: task.KEMX25519,
		Input:  task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(4, 1)},
		Claim:  task.NewClaim("1", "1e-6"),
		Batch:  task.Batch{Size: 100000, Honest: randomizer.NewRational(9, 10), Min: 90000},
		Params: []task.Param{{Key: "max", Value: randomizer.NewRational(4, 1)}},
	}
	var protocol correlated.Protocol
	if err := protocol.Calibrate(t); err != nil {
		panic(err)
	}
	m, err := protocol.Open(t)
	if err != nil {
		panic(err)
	}
	fmt.Println("messages of", t.Slots.MessageBytes, "byte")

	// Clients: whole numbers from 0 to 4.
	src := randomizer.NewSource()
	var messages [][]byte
	for i := range 100000 {
		lanes, err := m.Randomize(src, []float64{float64(i % 5)})
		if err != nil {
			panic(err)
		}
		messages = append(messages, lanes[0]...)
	}

	// Shuffler.
	rand.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })

	// Analyzer: the standard error of the sum is about 7.
	agg := m.Aggregate()
	for _, message := range messages {
		if err := agg.Add(0, message); err != nil {
			panic(err)
		}
	}
	agg.AddUsers(100000)
	fmt.Printf("sum about %.0f\n", 100*math.Round(agg.Total()[0]/100))
	// Output:
	// messages of 1 byte
	// sum about 200000
}
