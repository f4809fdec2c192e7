//go:build ignore

package main

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// one is the claimed (ε, δ) of most samples.
var one = task.NewClaim("1", "1e-6")

// numbers returns values that consist of one number each.
func numbers(xs ...float64) (out [][]float64) {
	for _, x := range xs {
		out = append(out, []float64{x})
	}
	return out
}

// oneLane returns a batch in which each client sends one message in the only lane.
func oneLane(messages ...string) batch {
	b := batch{users: uint64(len(messages)), lanes: protocols.Messages{nil}}
	for _, m := range messages {
		b.lanes[0] = append(b.lanes[0], []byte(m))
	}
	return b
}

func categories(n uint64, labels bool, lo, hi int64) task.Input {
	in := between(lo, hi)
	in.Bins, in.Labels = n, labels
	return in
}

func histogramVectors() vectorSet {
	clipped := categories(300, false, -5, 10)
	clipped.Clip = true
	return vectorSet{
		protocol: "histogram",
		samples: []sample{
			{
				name: "four labels", query: task.Histogram, rule: "exact", claim: one, batch: honest(5000),
				input: categories(4, true, 0, 1), params: "gamma=1/2", slots: full(1, 1, 1),
				values:  numbers(0, 1, 2, 3, 3, 3, 0, 1),
				batches: []batch{oneLane("\x00", "\x00", "\x03", "\x02")},
			},
			{
				name: "bins of a range, clipped", query: task.Histogram, rule: "revealed", claim: one,
				batch: honest(100000),
				input: clipped, params: "gamma=5/8", slots: full(1, 1, 2),
				values:  numbers(-5, 10, -4.95, 0, 9.95, 9.949999999, -7, 1e300, 3.3),
				batches: []batch{oneLane("\x00\x00", "\x01\x2b")},
			},
		},
		tasks: []badTask{
			{"gamma_denominator", "params.gamma", "gamma 1/3, whose denominator is no power of two",
				param("gamma", "1/3")},
			{"gamma_one", "params.gamma", "gamma 1", param("gamma", "1")},
			{"message_bytes", "slots", "symbols of two bytes where one is enough",
				func(t *task.Task) { t.Slots.MessageBytes = 2 }},
		},
		values: []badValue{
			{"value_large", "category 4 of four", []float64{4}},
			{"value_fraction", "a category that is no whole number", []float64{1.5}},
		},
		messages: []badMessage{
			{"message_large", "symbol 4 of four", 0, []byte{4}},
			{"message_long", "a symbol of two bytes", 0, []byte{0, 1}},
			{"message_lane", "a message in lane 1", 1, []byte{1}},
		},
	}
}

func realsumVectors() vectorSet {
	clipped := between(0, 10)
	clipped.Clip = true
	return vectorSet{
		protocol: "realsum",
		samples: []sample{
			{
				name: "mean", query: task.Mean, rule: "exact", claim: one, batch: honest(5000),
				input: between(-3, 10), params: "gamma=1/2 k=6", slots: full(1, 1, 1),
				values:  numbers(-3, 10, 0, 3.5, 3.4999999, 9.99, -2.5, 1.0/3),
				batches: []batch{oneLane("\x00", "\x06", "\x06")},
			},
			{
				name: "count", query: task.Count, rule: "others", claim: one, batch: honest(5000),
				input: between(0, 1), params: "gamma=1/4 k=1", slots: full(1, 1, 1),
				values: numbers(0, 1, 1, 0, 1, 0, 0, 1, 1, 1),
			},
			{
				name: "sum, clipped", query: task.Sum, rule: "theorem1", claim: one, batch: honest(5000000),
				input: clipped, params: "gamma=3/4 k=300", slots: full(1, 1, 2),
				values:  numbers(0, 10, 11, -1, 0.1, 5e-324, 9.999999999999998, 7),
				batches: []batch{oneLane("\x01\x2c")},
			},
			{
				name: "256 symbols, one byte", query: task.Sum, rule: "exact", claim: one, batch: honest(1000000),
				input: between(0, 1), slots: full(1, 1, 1), params: "gamma=1/2 k=255", values: numbers(0, 1, 0.5),
			},
			{
				name: "65536 symbols, two bytes", query: task.Sum, rule: "exact", claim: one, batch: honest(100000000),
				input: between(0, 1), slots: full(1, 1, 2), params: "gamma=1/2 k=65535", values: numbers(0, 1, 0.5),
			},
			{
				name: "four bytes", query: task.Sum, rule: "exact", claim: task.NewClaim("12", "1e-6"),
				batch: honest(1000000000), input: between(-1, 1), slots: full(1, 1, 4),
				params: "gamma=4503599627370497/9007199254740992 k=65536",
				values: numbers(-1, 1, 0, 0.999969482421875, 1e-9), batches: []batch{oneLane("\x00\x01\x00\x00")},
			},
		},
		tasks: []badTask{
			{"gamma_long", "params.gamma", "a numerator of 2^53", param("gamma", "9007199254740993/18014398509481984")},
			{"k_zero", "params.k", "no level above 0", param("k", "0")},
			{"query", "query", "query histogram", func(t *task.Task) { t.Query, t.Input.Bins = task.Histogram, 7 }},
			{"padding", "slots", "padding none", func(t *task.Task) { t.Slots.Padding = task.PaddingNone }},
		},
		values: []badValue{
			{"value_large", "a value above the range of a task that does not clip", []float64{10.000001}},
			{"value_two", "two numbers", []float64{1, 2}},
		},
		messages: []badMessage{
			{"message_large", "level 7 of 6", 0, []byte{7}},
			{"message_empty", "no byte", 0, nil},
		},
	}
}

func vectorgridVectors() vectorSet {
	grid := between(0, 2)
	grid.Bins = 2
	ball := between(-1, 1)
	ball.Bins, ball.Clip = 3, true
	return vectorSet{
		protocol: "vectorgrid",
		samples: []sample{
			{
				name: "two coordinates", query: task.Vector, rule: "exact", claim: one, batch: honest(5000),
				input: grid, params: "gamma=1/2 r=3", slots: full(1, 1, 1),
				values:  [][]float64{{0, 0}, {2, 2}, {0.5, 1.5}, {1, 0.1}, {2, 0}},
				batches: []batch{oneLane("\x0f", "\x04", "\x01")},
			},
			{
				name: "the ball", query: task.VectorMean, rule: "exact", claim: one, batch: honest(50000),
				input: ball, params: "gamma=1/2 r=6", slots: full(1, 1, 2),
				values: [][]float64{
					{0, 0, 0}, {1, 0, 0}, {0.6, -0.8, 0}, {3, 4, 12}, {0.9, 0.5, 0.1}, {-1e200, 1e200, 0},
					{1.7e308, 1.7e308, 0}, {0.1, 0.2, 0.3},
				},
			},
		},
		tasks: []badTask{
			{"r_large", "params.r", "a grid of more than 2^32-1 points", param("r", "65535")},
			{"query", "query", "query mean", func(t *task.Task) { t.Query, t.Input.Bins = task.Mean, 0 }},
			{"gamma_zero", "params.gamma", "gamma 0", param("gamma", "0")},
		},
		values: []badValue{
			{"value_short", "one number for two coordinates", []float64{1}},
			{"value_negative", "a coordinate below the range", []float64{1, -0.25}},
		},
		messages: []badMessage{{"message_large", "point 16 of 16", 0, []byte{16}}},
	}
}
