//go:build ignore

package main

import "github.com/doona-dp/doona/wire/task"

// steep rises and falls by factors of 8; uneven rises by factors of 4 and falls by 16.
var (
	steep  = []uint64{1, 8, 64, 8, 1}
	uneven = []uint64{1, 4, 16, 64, 4}
)

func augmentedVectors() vectorSet {
	labels := between(0, 1)
	labels.Bins, labels.Labels = 3, true
	yesNo, total := between(0, 1), uint64(4)
	loose := task.NewClaim("7", "0.3")
	return vectorSet{
		protocol: "augmented",
		samples: []sample{
			{
				name: "labels, a fixed total", query: task.Histogram, rule: "dummies", claim: loose, batch: honest(5),
				input: labels, slots: full(1, 1, 1), values: [][]float64{{0}, {2}, {2}, {1}},
				noise:   &task.Noise{Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{steep}, Total: &total},
				batches: []batch{withDummies(2, 2, 8, "\x00", "\x02", "\x01", "\x00", "\x02", "\x01", "\x00", "\x01", "\x02", "\x00")},
			},
			{
				name: "labels, two tables and local randomization", query: task.Histogram, rule: "dummies", claim: loose,
				batch: honest(5), input: labels, params: "gamma=1/4", slots: full(1, 1, 1),
				values: [][]float64{{0}, {1}, {2}, {2}, {0}, {1}},
				noise: &task.Noise{Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{steep, uneven},
					Which: []task.Run{{Count: 1, Table: 1}, {Count: 2, Table: 0}}},
				batches: []batch{withDummies(1, 1, 3, "\x00", "\x02", "\x01", "\x00")},
			},
			{
				name: "count", query: task.Count, rule: "dummies", claim: loose, batch: honest(5), input: yesNo,
				slots: full(1, 1, 1), values: [][]float64{{0}, {1}, {1}},
				noise:   &task.Noise{Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{uneven}, Total: &total},
				batches: []batch{withDummies(1, 2, 8, "\x00", "\x01", "\x01", "\x00", "\x01", "\x01", "\x00", "\x01", "\x00")},
			},
			{
				name: "a mean, tilted", query: task.Mean, rule: "dummies", claim: loose, batch: honest(5),
				input: between(-10, 10), params: "k=2", slots: full(1, 1, 1),
				values:  [][]float64{{-10}, {3.25}, {10}, {0.1}, {-2}},
				noise:   tilted(),
				batches: []batch{withDummies(2, 1, 3, "\x00", "\x02", "\x01", "\x01", "\x02")},
			},
			{
				name: "a mean, tilted from the middle level", query: task.Mean, rule: "dummies", claim: loose, batch: honest(5),
				input: between(-10, 10), params: "k=2", slots: full(1, 1, 1),
				values: [][]float64{{-10}, {3.25}},
				noise: &task.Noise{Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{steep},
					Tilt: &task.Tilt{Centre: 1, Zero: 1, Weights: []uint64{0, 1, 2},
						Factors: []uint64{243, 81, 27, 9, 3, 1}}},
				batches: []batch{withDummies(2, 1, 3, "\x00", "\x02", "\x01", "\x01", "\x02")},
			},
			{
				name: "a sum, tilted, with local randomization", query: task.Sum, rule: "dummies", claim: loose,
				batch: honest(5), input: between(0, 4), params: "gamma=1/8 k=2", slots: full(1, 1, 1),
				values:  [][]float64{{1}, {3.25}, {4}, {0}},
				noise:   tilted(),
				batches: []batch{withDummies(1, 2, 7, "\x00", "\x02", "\x01", "\x01", "\x02", "\x00", "\x00", "\x01")},
			},
		},
		tasks: []badTask{
			{"rule", "rule", "rule exact", func(t *task.Task) { t.Rule = "exact" }},
			{"min_honest", "claim.assumption", "a claim that needs honest clients",
				func(t *task.Task) { t.Claim.Assumption = task.MinHonest }},
			{"no_noise", "noise", "relays that add nothing",
				func(t *task.Task) { t.Noise, t.Claim.Assumption = nil, task.MinHonest }},
			{"k", "params.k", "levels of a histogram",
				func(t *task.Task) { t.Params = []task.Param{{Key: "k", Value: rational("2")}} }},
			{"query", "query", "query vector", func(t *task.Task) { t.Query, t.Input.Labels = task.Vector, false }},
		},
		values: []badValue{
			{"value_large", "label 3 of 3", []float64{3}},
			{"value_two", "two labels", []float64{1, 2}},
		},
		messages: []badMessage{
			{"message_large", "cell 3 of 3", 0, []byte{3}},
			{"message_long", "two bytes", 0, []byte{0, 1}},
		},
	}
}

// tilted is relays' noise for the levels 0, 1 and 2, which weighs levels differently.
func tilted() *task.Noise {
	return &task.Noise{Kind: task.NoiseCells, Cells: 3, Tables: [][]uint64{steep},
		Tilt: &task.Tilt{Centre: 6, Weights: []uint64{0, 1, 2}, Factors: []uint64{729, 243, 81, 27, 9, 3, 1}}}
}

// withDummies is a batch in one lane: messages of users clients, and of relays dummies messages in draws draws.
func withDummies(users, draws, dummies uint64, messages ...string) batch {
	b := oneLane(messages...)
	b.users, b.draws, b.dummies = users, draws, dummies
	return b
}
