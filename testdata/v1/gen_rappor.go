//go:build ignore

package main

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

func rapporVectors() vectorSet {
	return vectorSet{
		protocol: "rappor",
		samples: []sample{
			{
				name: "twenty levels", query: task.Mean, rule: "others", claim: one, batch: honest(500),
				input: between(-2, 3), params: "f=1/8 k=20", slots: full(1, 20, 1), blocks: 128,
				values:  numbers(-2, 3, 0, 0.6, 2.99, -1.9),
				batches: []batch{{users: 2, lanes: protocols.Messages{{{0}, {19}, {19}}}}},
			},
			{
				name: "count", query: task.Count, rule: "others", claim: one, batch: honest(5000),
				input: between(0, 1), params: "f=1/16 k=1", slots: full(1, 1, 1),
				values: numbers(0, 1, 1, 0, 1, 0),
			},
			{
				// Set bits often do not fit into the slots, and are drawn again.
				name: "few slots", query: task.Sum, rule: "others", claim: one, batch: honest(500),
				unproven: "claim.delta",
				input:    between(0, 300), params: "f=3/8 k=6", slots: full(1, 3, 1), blocks: 128,
				values: numbers(0, 300, 150, 50, 25, 299),
			},
		},
		tasks: []badTask{
			{"f_half", "params.f", "f 1/2, which says nothing", param("f", "1/2")},
			{"k_large", "params.k", "4097 levels", param("k", "4097")},
			{"rule", "rule", "rule exact", func(t *task.Task) { t.Rule = "exact" }},
			{"slots", "slots.perLane", "more slots than levels", func(t *task.Task) { t.Slots.PerLane = 21 }},
		},
		values: []badValue{{"value_small", "a value below the range", []float64{-2.5}}},
		messages: []badMessage{
			{"message_large", "place 20 of twenty", 0, []byte{20}},
			{"message_long", "a place of two bytes", 0, []byte{0, 0}},
		},
	}
}
