//go:build ignore

package main

import (
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// none returns one lane of slots under padding none.
func none(perLane, messageBytes uint64) task.Slots {
	return task.Slots{Padding: task.PaddingNone, Lanes: 1, PerLane: perLane, MessageBytes: messageBytes}
}

func correlatedVectors() vectorSet {
	sparse := between(0, 6)
	sparse.Bins = 3
	return vectorSet{
		protocol: "correlated",
		samples: []sample{
			{
				name: "mean without padding", query: task.Mean, rule: "moments", claim: one, batch: honest(50),
				input: between(-2, 6), slots: none(1502, 1), blocks: 512,
				params: "central=82463372083/274877906944 cut=11877613513/288230376151711744" +
					" level.00.jump=80 level.00.r=1151/64 level.00.s=19544276935/549755813888" +
					" level.01.jump=80 level.01.r=1151/64 level.01.s=34008178539/1099511627776" +
					" max=3 pair.jump=120 pair.r=589/32 pair.s=17164442825/1099511627776 theta=56377/512" +
					" zero.jump=240 zero.r=1151/64 zero.s=44265620249/1099511627776",
				values:  numbers(-2, 6, 0, 2.5),
				batches: []batch{{users: 3, lanes: protocols.Messages{{{0}, {5}, {2}}}}},
			},
			{
				name: "sum with padding", query: task.Sum, rule: "moments", claim: one, batch: honest(5000),
				input: between(0, 6), slots: full(1, 256, 1), blocks: 1024,
				params: "central=82463372083/549755813888 cut=35632840539/1152921504606846976" +
					" level.00.jump=9 level.00.r=5193/32 level.00.s=0 level.01.jump=9 level.01.r=1425/4 level.01.s=0" +
					" level.02.jump=9 level.02.r=50051/64 level.02.s=0 max=6 pair.jump=14 pair.r=60327/64 pair.s=0 " +
					"theta=76101/512",
				values: numbers(0, 6, 1.5),
			},
			{
				name: "count", query: task.Count, rule: "moments", claim: one, batch: honest(200),
				input: between(0, 1), slots: none(327, 1), blocks: 128,
				params: "central=494780232499/549755813888 cut=71265681079/576460752303423488 max=1" +
					" pair.jump=40 pair.r=1251/64 pair.s=11561214485/274877906944 theta=56377/512" +
					" zero.jump=80 zero.r=853/64 zero.s=32707877447/1099511627776",
				values: numbers(0, 1, 1, 0),
			},
			{
				name: "histogram", query: task.Histogram, rule: "moments", claim: one, batch: honest(200),
				input: categories(5, true, 0, 1), slots: none(583, 1), blocks: 256,
				params: "central=494780232499/1099511627776 cut=71265681079/576460752303423488 max=1" +
					" pair.jump=88 pair.r=705/32 pair.s=65788118929/1099511627776 theta=106187/1024",
				values: numbers(0, 4, 2),
			},
			{
				name: "sparse vector", query: task.Vector, rule: "moments", claim: one, batch: honest(200),
				input: sparse, slots: none(1989, 1), blocks: 512,
				params: "central=82463372083/549755813888 cut=11877613513/288230376151711744" +
					" level.00.jump=166 level.00.r=271/16 level.00.s=19679592673/549755813888" +
					" level.01.jump=166 level.01.r=271/16 level.01.s=8354156131/274877906944" +
					" max=3 pair.jump=250 pair.r=123/8 pair.s=8059614785/549755813888 theta=106187/1024" +
					" zero.jump=500 zero.r=271/16 zero.s=39719471831/1099511627776",
				values: [][]float64{{0, 0, 0}, {0, 6, 0}, {0, 0, 1.7}},
			},
			{
				name: "closed form", query: task.Sum, rule: "theorem2", claim: one, batch: honest(20000),
				input: between(-1, 2), slots: full(1, 40, 1), blocks: 512, unproven: "slots.perLane",
				params: "central=1/8 max=3", values: numbers(-1, 2, 1.9, 0),
			},
			{
				// The noise often does not fit into the slots, and is drawn again.
				name: "few slots", query: task.Vector, rule: "moments", claim: one, batch: honest(200),
				input: sparse, slots: full(1, 3, 1), blocks: 2048, unproven: "slots.perLane",
				params: "central=1/2 cut=1 level.00.r=64 level.00.s=2 max=2 pair.r=300 pair.s=1 theta=1",
				values: [][]float64{{0, 0, 0}, {0, 6, 0}, {0, 0, 1.7}, {1, 0, 0}, {0, 3, 0}, {0, 0, 0.1}, {6, 0, 0},
					{0, 0, 6}},
			},
		},
		tasks: []badTask{
			{"central_large", "params.central", "central 17", param("central", "17")},
			{"r_small", "params.pair.r", "pair.r 1/2", param("pair.r", "1/2")},
			{"level_missing", "params.level.01.r", "no noise for a level", func(t *task.Task) {
				for i, p := range t.Params {
					if p.Key == "level.01.r" {
						t.Params = append(t.Params[:i:i], t.Params[i+1:]...)
						return
					}
				}
			}},
			{"rule", "rule", "rule theorem2 under padding none", func(t *task.Task) { t.Rule = "theorem2" }},
		},
		values: []badValue{{"value_large", "a value above the range", []float64{7}}},
		messages: []badMessage{
			{"message_large", "6, which is 4 above the offset and above max 3", 0, []byte{6}},
			{"message_lane", "a message in lane 1", 1, []byte{0}},
			{"message_long", "a message of two bytes", 0, []byte{0, 0}},
		},
	}
}
