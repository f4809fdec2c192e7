//go:build ignore

package main

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

func vectorsumVectors() vectorSet {
	four, many := between(-1, 1), between(0, 1)
	four.Bins, many.Bins, many.Clip = 5, 300, true
	values := make([][]float64, 3)
	for i := range values {
		values[i] = make([]float64, 300)
		for l := range values[i] {
			values[i][l] = float64(l*(i+1)) / 600
		}
	}
	return vectorSet{
		protocol: "vectorsum",
		samples: []sample{
			{
				name: "three lanes", query: task.Vector, rule: "exact", claim: one, batch: honest(5000),
				input: four, params: "gamma=1/2 k=4 t=3", slots: full(3, 1, 1),
				values:  [][]float64{{-1, -0.5, 0, 0.5, 1}, {1, 1, 1, 1, 1}, {0.3, -0.3, 0.1, 0, -1}, {0, 0, 0, 0, 0}},
				batches: []batch{{users: 2, lanes: protocols.Messages{{{9}, {0}}, {{10}, {19}}, {{24}, {20}}}}},
			},
			{
				name: "one lane", query: task.Vector, rule: "exact", claim: one, batch: honest(5000),
				input: many, params: "gamma=1/4 k=2 t=1", slots: full(1, 1, 2), values: values,
			},
		},
		tasks: []badTask{
			{"t_large", "params.t", "more lanes than coordinates", param("t", "6")},
			{"k_large", "params.k", "65537 levels", param("k", "65537")},
			{"lanes", "slots", "one lane of three slots", func(t *task.Task) { t.Slots.Lanes, t.Slots.PerLane = 1, 3 }},
		},
		values: []badValue{{"value_large", "a coordinate above the range", []float64{0, 0, 0, 0, 1.5}}},
		messages: []badMessage{
			{"message_large", "coordinate 5 of five", 2, []byte{25}},
			{"message_lane", "coordinate 0, which is of lane 0, in lane 1", 1, []byte{0}},
		},
	}
}
