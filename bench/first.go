package main

import (
	"context"
	"fmt"
)

// firstReport measures the time from the start of a navigation until the relay acknowledges the report. In state cold
// the browser cache is empty; in state cached it holds all files that the site allows it to keep. Both pages preload
// their scripts' files (www/sdk/README.md, "The first visit"). State plain has an empty cache and no preload hints.
var firstReport = Group{Names: firstNames(), Run: measureFirst}

var firstNetworks = []string{"loopback", "10mbit-40ms", "1.6mbit-150ms"}

func firstName(network, state string) string {
	return "client/first-report/" + network + "/" + state + "/ms"
}

func firstNames() []string {
	var names []string
	for _, network := range firstNetworks {
		for _, state := range states {
			names = append(names, firstName(network, state))
		}
	}
	return names
}

// states lists the states of the browser cache that firstReport measures. Each state has its own task, because a
// visitor reports only once to a task.
var states = []string{"plain", "cold", "cached"}

// visits is how many first reports the bench measures per state, in fresh browser profiles.
const visits = 20

func measureFirst(ctx context.Context, s *Setup) ([]Row, error) {
	v, err := s.Server(ctx)
	if err != nil {
		return nil, err
	}
	tasks := map[string]any{}
	for _, name := range states {
		tasks[name] = v.offer(name)
	}
	var rows []Row
	for _, network := range firstNetworks {
		progress("client/first-report/%s", network)
		var got map[string]struct {
			Ours, Peer []float64
			Phases     map[string]float64 // by file: median time until it was loaded, in ms
		}
		request := map[string]any{"tasks": tasks, "peer": s.Peers(ctx), "network": network, "visits": visits}
		if err := s.script(ctx, "first.mjs", request, &got); err != nil {
			return nil, err
		}
		for _, state := range states {
			row := newRow(firstName(network, state), "ms", lower, got[state].Ours...)
			rows = append(rows, row.against(peerName, got[state].Peer...))
			progress("client/first-report/%s/%s: %v", network, state, got[state].Phases)
		}
	}
	return rows, nil
}

// arrives counts visits whose report reaches the relay, by length of the visit: lost reports of short visits would
// distort a statistic. For comparison, rows named beacon send a bare navigator.sendBeacon.
var arrives = Group{Names: arrivesNames(), Run: measureArrives, Long: true}

// arrivesVisits is the number of visits for each combination of network, state, kind and length.
const arrivesVisits = 10

// ofVisits is the unit of the rows of arrives: "of 10 visits".
var ofVisits = fmt.Sprintf("of %d visits", arrivesVisits)

// lengths of visits, in seconds.
var lengths = []int{1, 3, 10}

var arrivesNetworks = []string{"10mbit-40ms", "1.6mbit-150ms"}

func arrivesName(network, state, kind string, seconds int) string {
	return fmt.Sprintf("client/arrives/%s/%s/%s/%ds", network, state, kind, seconds)
}

func arrivesNames() []string {
	var names []string
	for _, network := range arrivesNetworks {
		for _, kind := range []string{"idle", "now", "beacon"} {
			for _, state := range []string{"cold", "cached"} {
				for _, seconds := range lengths {
					names = append(names, arrivesName(network, state, kind, seconds))
				}
			}
		}
	}
	return names
}

func measureArrives(ctx context.Context, s *Setup) ([]Row, error) {
	v, err := s.Server(ctx)
	if err != nil {
		return nil, err
	}
	tasks := map[string]any{"cold": v.offer("cold")}
	for _, seconds := range lengths {
		name := fmt.Sprintf("cached%d", seconds)
		tasks[name] = v.offer(name)
	}
	var rows []Row
	for _, network := range arrivesNetworks {
		progress("client/arrives/%s", network)
		var got map[string]map[string]map[string]float64
		request := map[string]any{"tasks": tasks, "peer": s.Peers(ctx), "network": network, "visits": arrivesVisits}
		if err := s.script(ctx, "arrives.mjs", request, &got); err != nil {
			return nil, err
		}
		for _, kind := range []string{"idle", "now", "beacon"} {
			for _, state := range []string{"cold", "cached"} {
				for _, seconds := range lengths {
					after := fmt.Sprint(seconds)
					row := newRow(arrivesName(network, state, kind, seconds), ofVisits, higher, got[kind][state][after])
					if peer := got["peer"]; peer != nil {
						row = row.against(peerName, peer[state][after])
					}
					rows = append(rows, row)
				}
			}
		}
	}
	return rows, nil
}
