package main

import "context"

// firstReport is the time from the start of a navigation to the acknowledgement of a report,
// with nothing cached and with everything the site allows. Both pages name the files that their scripts
// will want (www/sdk/README.md, "The first visit"); plain ones, with nothing cached either, do not.
var firstReport = Group{
	Names: []string{
		"client/first-report/loopback/cold/ms", "client/first-report/loopback/cached/ms",
		"client/first-report/loopback/plain/ms", "client/first-report/10mbit-40ms/plain/ms",
		"client/first-report/10mbit-40ms/cold/ms", "client/first-report/10mbit-40ms/cached/ms",
	},
	Run: measureFirst,
}

// states are the tasks of the rows, so that the ledger of one does not hold up the next.
var states = []string{"plain", "cold", "cached"}

// visits is how often a first report is measured; each in a fresh browser profile.
const visits = 20

func measureFirst(ctx context.Context, s *Setup) ([]Row, error) {
	v, err := s.Server(ctx)
	if err != nil {
		return nil, err
	}
	tasks := map[string]any{}
	for _, name := range states {
		tasks[name] = map[string]string{"task": v.relay + v.tasks[name].Path(), "owner": v.tasks[name].OwnerText()}
	}
	var rows []Row
	for _, network := range []string{"loopback", "10mbit-40ms"} {
		progress("client/first-report/%s", network)
		var got map[string]struct {
			Ours, Peer []float64
			Phases     map[string]float64 // when each file was there, medians
		}
		request := map[string]any{"tasks": tasks, "peer": s.Peers(ctx), "network": network, "visits": visits}
		if err := s.script(ctx, "first.mjs", request, &got); err != nil {
			return nil, err
		}
		for _, state := range states {
			row := newRow("client/first-report/"+network+"/"+state+"/ms", "ms", lower, got[state].Ours...)
			rows = append(rows, row.against(peerName, got[state].Peer...))
			progress("client/first-report/%s/%s: %v", network, state, got[state].Phases)
		}
	}
	return rows, nil
}
