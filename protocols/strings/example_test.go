package strings_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
)

// Each client sends the number of one cell of its text, two relays add dummies, and the analyzer counts given texts.
func Example() {
	t := &task.Task{
		Name: "broken links", Query: task.Strings, Protocol: strings.Name, KEM: task.KEMX25519,
		Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1), Bins: 16},
		Claim: task.NewClaim("1", "1e-6"),
		Batch: task.Batch{Size: 20000, Honest: randomizer.NewRational(1, 1), Min: 20000},
	}
	var protocol strings.Protocol
	if err := protocol.CalibrateRelayNoise(t, protocols.NoiseOptions{}); err != nil {
		panic(err)
	}
	m, err := protocol.Open(t)
	if err != nil {
		panic(err)
	}

	// Clients: four in ten found the same broken link, and each other client one that nobody else found.
	src := randomizer.NewSource()
	var messages [][]byte
	for i := range 20000 {
		text := "/old/prices"
		if i%10 >= 4 {
			text = fmt.Sprintf("/my/%d", i)
		}
		lanes, err := m.Randomize(src, strings.Value(text))
		if err != nil {
			panic(err)
		}
		messages = append(messages, lanes[0]...)
	}

	// Relays: a fixed number of dummies, each a uniform cell of all tables.
	for range 2 {
		messages = append(messages, pool(t.Noise, src)...)
		rand.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	}

	// Analyzer.
	agg := m.Aggregate()
	for _, message := range messages {
		if err := agg.Add(0, message); err != nil {
			panic(err)
		}
	}
	can := protocols.CapabilitiesOf(m)
	can.Dummies(agg).AddDummies(2, 2*t.Noise.Pool)
	counts, _, err := can.Ask(agg, []string{"/old/prices", "/new/prices"}, 0.95)
	if err != nil {
		panic(err)
	}
	for _, c := range counts {
		fmt.Printf("%s: about %d thousand\n", c.Text, int(math.Abs(math.Round(c.Clients/1000))))
	}
	// Output:
	// /old/prices: about 8 thousand
	// /new/prices: about 0 thousand
}

// pool draws the dummies of one relay: messages of two bytes.
func pool(n *task.Noise, src *randomizer.Source) (messages [][]byte) {
	cells, err := dummies.New(n).Draw(src)
	if err != nil {
		panic(err)
	}
	for _, cell := range cells {
		messages = append(messages, []byte{byte(cell >> 8), byte(cell)})
	}
	return messages
}
