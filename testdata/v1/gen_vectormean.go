//go:build ignore

package main

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// ball returns the input of vectors of length d with norm at most 1.
func ball(d uint64, clip bool) task.Input {
	in := between(-1, 1)
	in.Bins, in.Clip = d, clip
	return in
}

func vectormeanVectors() vectorSet {
	claim := task.NewClaim("1", "2e-6")
	many := full(8, 40, 1)
	none := func(lanes, perLane uint64) task.Slots {
		return task.Slots{Padding: task.PaddingNone, Lanes: lanes, PerLane: perLane, MessageBytes: 1}
	}
	third := 0.5773502691896257
	return vectorSet{
		protocol: "vectormean",
		samples: []sample{
			{
				name: "a lane per coefficient", query: task.VectorMean, rule: "gaussian", claim: claim,
				batch: honest(250000),
				input: ball(3, false), params: "kashin=3/2 m=3 q=1805415037/4294967296 seed=1 units=37", slots: many,
				blocks: 1024,
				values: [][]float64{{0, 0, 0}, {1, 0, 0}, {-third, third, third}, {third, third, third},
					{0.5, 0.5, -0.7}},
			},
			{
				name: "one lane", query: task.VectorMean, rule: "gaussian", claim: claim, batch: honest(100000),
				input: ball(3, false), params: "m=2 q=55448795/134217728 units=9405/256", slots: full(1, 76, 1),
				blocks: 512,
				values: [][]float64{
					{0, 0, 0}, {1, 0, 0}, {0.6, -0.8, 0}, {-third, third, third}, {0.1, -0.2, 0.3}, {0.01, 0.999, 0.02},
				},
				batches: []batch{{users: 2, lanes: protocols.Messages{{{0}, {0}, {3}, {4}, {5}}}}},
			},
			{
				name: "fractions of every kind", query: task.VectorMean, rule: "gaussian", claim: claim,
				batch: honest(1000000),
				input: ball(3, false), params: "m=2 q=1/4 units=64", slots: full(1, 123, 1), blocks: 1024,
				values: fractions(),
			},
			{
				name: "one lane without padding", query: task.VectorMean, rule: "gaussian", claim: claim,
				batch:  honest(1000000),
				input:  ball(3, true),
				params: "m=2 m0=11 q=561930505/4294967296 q0=311626657/2147483648 units=18179/256",
				slots:  none(1, 146), blocks: 512,
				values:  [][]float64{{0, 0, 0}, {3, 4, 0}, {-third, -third, third}, {1.7e308, 0, 1.7e308}},
				batches: []batch{{users: 1, lanes: protocols.Messages{{{6}, {0}, {5}}}}},
			},
			{
				name: "a lane per coefficient without padding", query: task.VectorMean, rule: "gaussian",
				claim: claim, batch: honest(200),
				input:  ball(2, false),
				params: "kashin=3/2 m=7 m0=8 q=611786265/4294967296 q0=611786265/4294967296 seed=1 units=1",
				slots:  none(4, 16), blocks: 512,
				values: [][]float64{{0, 1}, {0.6, -0.8}, {0.25, 0.5}},
			},
		},
		tasks: []badTask{
			{"units_small", "params.units", "half a unit", param("units", "1/2")},
			{"q_one", "params.q", "q 1", param("q", "1")},
			{"m_zero", "params.m", "no noise", param("m", "0")},
			{"padding", "params.m0", "padding none without noise for null messages",
				func(t *task.Task) { t.Slots.Padding = task.PaddingNone }},
			{"per_lane", "slots", "a slot fewer than messages may be", func(t *task.Task) { t.Slots.PerLane-- }},
		},
		values: []badValue{{"value_long", "a vector of norm 1.1", []float64{0, 1.1, 0}}},
		messages: []badMessage{
			{"message_large", "message 8 of 8 kinds", 7, []byte{8}},
			{"message_lane", "a message of lane 0 in lane 1", 1, []byte{0}},
			{"message_lane_before", "a message of lane 1 in lane 0", 0, []byte{1}},
		},
	}
}

// fractions returns vectors whose coordinates, in units of 1/64, have fractional parts that sum to one, to less and to
// more.
func fractions() (out [][]float64) {
	for range 2 {
		out = append(out, []float64{0.5, 0.5, 32}, []float64{-0.75, 3, 0.25})
		out = append(out, []float64{0.25, -0.5, 0}, []float64{0.75, 0.5, -0.5})
	}
	for _, v := range out {
		for l := range v {
			v[l] /= 64
		}
	}
	return out
}
