package main

import "context"

// firstReport is the time from the start of a navigation to the acknowledgement of a report,
// with nothing cached and with everything the site allows.
var firstReport = Group{
	Names: []string{
		"client/first-report/loopback/cold/ms", "client/first-report/loopback/cached/ms",
		"client/first-report/10mbit-40ms/cold/ms", "client/first-report/10mbit-40ms/cached/ms",
	},
	Run: measureFirst,
}

// visits is how often a first report is measured; each in a fresh browser profile.
const visits = 20

func measureFirst(ctx context.Context, s *Setup) ([]Row, error) {
	v, err := s.Server(ctx)
	if err != nil {
		return nil, err
	}
	tasks := map[string]any{}
	for _, name := range []string{"cold", "cached"} {
		tasks[name] = map[string]string{"task": v.relay + v.tasks[name].Path(), "owner": v.tasks[name].OwnerText()}
	}
	var rows []Row
	for _, network := range []string{"loopback", "10mbit-40ms"} {
		progress("client/first-report/%s", network)
		var got map[string]struct{ Ours, Peer []float64 }
		request := map[string]any{"tasks": tasks, "peer": s.Peers(ctx), "network": network, "visits": visits}
		if err := s.script(ctx, "first.mjs", request, &got); err != nil {
			return nil, err
		}
		for _, state := range []string{"cold", "cached"} {
			row := newRow("client/first-report/"+network+"/"+state+"/ms", "ms", lower, got[state].Ours...)
			rows = append(rows, row.against(peerName, got[state].Peer...))
		}
	}
	return rows, nil
}
