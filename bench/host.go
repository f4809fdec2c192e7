package main

import (
	"context"
	"encoding/json"
	"fmt"
)

// hostPage is what the SDK does to the page around it: the longest time for which it takes the page's
// thread, on a first visit with the largest reports, and the page's largest paint and slowest
// interaction beside those of the same page without the SDK.
var hostPage = Group{
	Names: []string{
		"client/main-thread/histogram256/ms", "client/main-thread/vector1000/ms",
		"client/host-page/lcp/ms", "client/host-page/inp/ms",
	},
	Run: measureHost,
}

// longTask is the length of what the Long Tasks API calls one, in milliseconds.
const longTask = 50

// measuredPage is what one visit measured, in milliseconds.
type measuredPage struct{ LCP, INP, Blocked float64 }

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
	var rows []Row
	for _, kind := range []string{"histogram256", "vector1000"} {
		row := newRow("client/main-thread/"+kind+"/ms", "ms", lower, each(got[kind].Ours, measuredPage.blocked)...)
		rows = append(rows, row.within("a long task", longTask))
	}
	ours, peer := got["vector1000"].Ours, got["vector1000"].Peer
	beside := func(name string, value func(measuredPage) float64) Row {
		return newRow(name, "ms", lower, each(ours, value)...).against("the page without the SDK", each(peer, value)...)
	}
	return append(rows, beside("client/host-page/lcp/ms", measuredPage.lcp), beside("client/host-page/inp/ms", measuredPage.inp)), nil
}

func (m measuredPage) lcp() float64     { return m.LCP }
func (m measuredPage) inp() float64     { return m.INP }
func (m measuredPage) blocked() float64 { return m.Blocked }

func each(pages []measuredPage, value func(measuredPage) float64) (out []float64) {
	for _, p := range pages {
		out = append(out, value(p))
	}
	return out
}
