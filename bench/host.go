package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// hostPage measures how much the SDK slows down the page that includes it, on a first visit with the largest reports.
// The peer is the page without the SDK. Row ms is the longest task by the browser's Long Tasks API, 0 if none takes
// 50 ms. Row cpu-ms is the most CPU time of one task, which other programs do not lengthen. Rows lcp and inp are the
// largest contentful paint and the slowest interaction.
var hostPage = Group{
	Names: []string{
		"client/main-thread/histogram256/ms", "client/main-thread/vector1000/ms",
		"client/main-thread/histogram256/cpu-ms", "client/main-thread/vector1000/cpu-ms",
		"client/host-page/lcp/ms", "client/host-page/inp/ms",
	},
	Run: measureHost,
}

// longTask is the shortest duration that the Long Tasks API calls a long task, in milliseconds.
const longTask = 50

// measuredPage holds the times of one visit, in milliseconds (see hostPage).
type measuredPage struct{ LCP, INP, Blocked, CPU float64 }

func measureHost(ctx context.Context, s *Setup) ([]Row, error) {
	v, err := s.Server(ctx)
	if err != nil {
		return nil, err
	}
	tasks := map[string]any{}
	for _, k := range kinds {
		if k.name != "histogram256" && k.name != "vector1000" {
			continue
		}
		value, err := json.Marshal(k.value)
		if err != nil {
			return nil, fmt.Errorf("couldn't encode the value: %w", err)
		}
		t := v.tasks[k.name]
		tasks[k.name] = map[string]string{"task": v.relay + t.Path(), "owner": t.OwnerText(), "value": string(value)}
	}
	progress("client/host-page")
	var got map[string]struct{ Ours, Peer []measuredPage }
	if err := s.script(ctx, "host.mjs", map[string]any{"tasks": tasks, "visits": visits / 2}, &got); err != nil {
		return nil, err
	}
	beside := func(name, kind string, value func(measuredPage) float64) Row {
		return newRow(name, "ms", lower, each(got[kind].Ours, value)...).against("the page without the SDK",
			each(got[kind].Peer, value)...)
	}
	return []Row{
		beside("client/main-thread/histogram256/ms", "histogram256", measuredPage.blocked).within("a long task",
			longTask),
		beside("client/main-thread/vector1000/ms", "vector1000", measuredPage.blocked).within("a long task", longTask),
		beside("client/main-thread/histogram256/cpu-ms", "histogram256", measuredPage.cpu).within("a long task",
			longTask),
		beside("client/main-thread/vector1000/cpu-ms", "vector1000", measuredPage.cpu).within("a long task", longTask),
		beside("client/host-page/lcp/ms", "vector1000", measuredPage.lcp),
		beside("client/host-page/inp/ms", "vector1000", measuredPage.inp),
	}, nil
}

func (m measuredPage) lcp() float64     { return m.LCP }
func (m measuredPage) inp() float64     { return m.INP }
func (m measuredPage) blocked() float64 { return m.Blocked }
func (m measuredPage) cpu() float64     { return m.CPU }

func each(pages []measuredPage, value func(measuredPage) float64) (out []float64) {
	for _, p := range pages {
		out = append(out, value(p))
	}
	return out
}
