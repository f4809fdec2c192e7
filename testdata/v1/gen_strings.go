//go:build ignore

package main

import "github.com/doona-dp/doona/wire/task"

// textOf returns a text as a client's value: a number for each byte.
func textOf(text string) []float64 {
	out := make([]float64, len(text))
	for i := range len(text) {
		out[i] = float64(text[i])
	}
	return out
}

func stringsVectors() vectorSet {
	texts := between(0, 1)
	texts.Bins = 5
	values := [][]float64{textOf(""), textOf("a"), textOf("/cart"), textOf("/checkout"), textOf("café"), textOf("😀😀")}
	loose := task.NewClaim("7", "0.3")
	return vectorSet{
		protocol: "strings",
		samples: []sample{
			{
				name: "noise by relays", query: task.Strings, rule: "pool", claim: loose, batch: honest(5),
				input: texts, params: "b=20 checks=2 levels=3", slots: full(1, 1, 1), values: values,
				noise:   &task.Noise{Kind: task.NoisePool, Cells: 100, Pool: 30},
				batches: []batch{withDummies(2, 2, 3, "\x00", "\x63", "\x14", "\x00", "\x62")},
			},
			{
				name: "noise by clients", query: task.Strings, rule: "exact", claim: loose, batch: honest(5),
				input: texts, params: "b=52 checks=1 gamma=1/4 levels=5", slots: full(1, 1, 2), values: values,
				batches: []batch{oneLane("\x00\x00", "\x01\x37", "\x00\x01")},
			},
		},
		tasks: []badTask{
			{"rule", "rule", "a rule of clients", func(t *task.Task) { t.Rule = "exact" }},
			{"min_honest", "claim.assumption", "a claim that needs honest clients",
				func(t *task.Task) { t.Claim.Assumption = task.MinHonest }},
			{"cells", "noise", "a pool over the levels alone", func(t *task.Task) { noise := *t.Noise; noise.Cells, t.Noise = 60, &noise }},
			{"levels", "params.levels", "more levels than bits", func(t *task.Task) { t.Params[2].Value = rational("26") }},
			{"gamma", "params", "noise by clients and by relays", func(t *task.Task) {
				t.Params = []task.Param{t.Params[0], t.Params[1], {Key: "gamma", Value: rational("1/4")}, t.Params[2]}
			}},
			{"query", "query", "query count", func(t *task.Task) { t.Query, t.Input.Bins = task.Count, 0 }},
		},
		values: []badValue{
			{"value_zero", "a zero byte", []float64{97, 0}},
			{"value_large", "256", []float64{256}},
			{"value_half", "half a character", []float64{0xc3}},
		},
		messages: []badMessage{
			{"message_large", "cell 100 of 100", 0, []byte{100}},
			{"message_long", "two bytes", 0, []byte{0, 1}},
		},
	}
}
