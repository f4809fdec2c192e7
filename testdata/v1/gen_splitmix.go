//go:build ignore

package main

import (
	"encoding/binary"

	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/wire/task"
)

// shares returns messages of `size` bytes, all 0 except the first and the last.
func shares(users, messages uint64, size int, first, last uint64) batch {
	b := batch{users: users, lanes: protocols.Messages{nil}}
	for i := range messages {
		v := uint64(0)
		if i == 0 {
			v = first
		} else if i == messages-1 {
			v = last
		}
		b.lanes[0] = append(b.lanes[0], binary.BigEndian.AppendUint64(nil, v)[8-size:])
	}
	return b
}

func splitmixVectors() vectorSet {
	return vectorSet{
		protocol: "splitmix",
		samples: []sample{
			{
				name: "mean", query: task.Mean, rule: "components",
				claim: task.NewClaim("1", "0.02"), batch: honest(20),
				input: between(-2, 3), params: "m=8 p=12 q=1024 s=1/12", slots: full(1, 8, 2), blocks: 256,
				values: numbers(-2, 3, 0.5, 0, 1.0/3, 2.9, -1.9, 1),
				// With two clients, n·p = 24. The sums are the largest that is not negative, the next, one below 0, and
				// one beyond q.
				batches: []batch{
					shares(2, 16, 2, 1, 523), shares(2, 16, 2, 1, 524), shares(2, 16, 2, 1023, 0),
					shares(2, 16, 2, 1023, 30),
				},
			},
			{
				name: "count", query: task.Count, rule: "section5.1",
				claim: task.NewClaim("1", "0.02"), batch: honest(50),
				input: between(0, 1), params: "m=40 p=1 q=128 s=1", slots: full(1, 40, 1), blocks: 128,
				values: numbers(0, 1, 1, 0, 1),
			},
			{
				name: "a large modulus", query: task.Sum, rule: "components",
				claim: task.NewClaim("2", "1e-3"), batch: honest(1000),
				input: between(0, 1), params: "m=12 p=1048576 q=36028797018963969 s=1/1048576", slots: full(1, 12, 7),
				blocks: 128,
				values: numbers(0, 1, 0.1, 0.7),
			},
		},
		tasks: []badTask{
			{"q_small", "params.q", "a modulus below the sum of all clients", param("q", "200")},
			{"s_zero", "params.s", "s 0: noise without end", param("s", "0")},
			{"per_lane", "slots", "one slot fewer than messages", func(t *task.Task) { t.Slots.PerLane = 7 }},
			{"rule", "rule", "rule exact", func(t *task.Task) { t.Rule = "exact" }},
		},
		values: []badValue{{"value_large", "a value above the range", []float64{3.5}}},
		messages: []badMessage{
			{"message_large", "1024 modulo 1024", 0, []byte{4, 0}},
			{"message_short", "a share of one byte", 0, []byte{1}},
		},
		batches: []badBatch{
			{"share_missing", "two clients and 15 shares", shares(2, 15, 2, 1, 2)},
			{"share_added", "two clients and 17 shares", shares(2, 17, 2, 1, 2)},
		},
	}
}
