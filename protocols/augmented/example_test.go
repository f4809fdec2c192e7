package augmented_test

import (
	"fmt"
	"math/rand/v2"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/augmented"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
)

// Each client sends its value unchanged, two relays add dummies, and the analyzer subtracts their mean.
func Example() {
	t := &task.Task{
		Name: "dark mode", Query: task.Count, Protocol: augmented.Name, KEM: task.KEMX25519,
		Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1)},
		Claim: task.NewClaim("1", "1e-6"),
		Batch: task.Batch{Size: 10000, Honest: randomizer.NewRational(1, 1), Min: 10000},
	}
	var protocol augmented.Protocol
	if err := protocol.Calibrate(t); err != nil {
		panic(err)
	}
	m, err := protocol.Open(t)
	if err != nil {
		panic(err)
	}

	// Clients: three in ten hold a one.
	src := randomizer.NewSource()
	var messages [][]byte
	for i := range 10000 {
		lanes, err := m.Randomize(src, []float64{float64(i % 10 / 7)})
		if err != nil {
			panic(err)
		}
		messages = append(messages, lanes[0]...)
	}

	// Relays: each draws the number of dummies of every cell; their total is fixed.
	law, added := dummies.New(t.Noise), 0
	for range 2 {
		cells, err := law.Draw(src)
		if err != nil {
			panic(err)
		}
		for _, cell := range cells {
			messages = append(messages, []byte{byte(cell)})
		}
		added += len(cells)
		rand.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	}

	// Analyzer.
	agg := m.Aggregate()
	for _, message := range messages {
		if err := agg.Add(0, message); err != nil {
			panic(err)
		}
	}
	protocols.CapabilitiesOf(m).Dummies(agg).AddDummies(2, uint64(added))
	fmt.Printf("%d clients, %d dummies, about %.0f %% hold a one\n", agg.Reports(), added, agg.Total()[0]/100)
	// Output:
	// 10000 clients, 56 dummies, about 30 % hold a one
}
