package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/onion"
)

// relayNoiseCPU is what noise by two relays costs each party: microseconds of its process's CPU time for each of 10⁵
// clients in one batch of a histogram of 256 bins, through a whole deployment. The comparison is the same histogram
// without dummies, whose clients randomize.
var relayNoiseCPU = Group{
	Names: noiseCPUNames, Run: measureNoiseCPU,
}

var noiseCPUNames = []string{"relay/noise/first/cpu", "relay/noise/later/cpu", "relay/noise/verifier/cpu"}

// mixing is what a later relay spends on a slot of a batch of 10⁵ without dummies, in a whole deployment: to pull and
// open it, check that it is no replay, permute, store and pass it on. The limit is the least that opening a slot and
// sealing it for the disk takes.
var mixing = Group{Names: []string{"relay/mix"}, Run: measureMix}

func measureMix(ctx context.Context, s *Setup) ([]Row, error) {
	dir, w, err := s.programs(ctx)
	if err != nil {
		return nil, err
	}
	var ours, least []float64
	for run := range noiseCPURuns { // by turns
		progress("relay/mix %d of %d", run+1, noiseCPURuns)
		got, err := newTrip(ctx, dir, filepath.Join(dir, fmt.Sprint("mix", run)), usual(usualClients))
		if err != nil {
			return nil, err
		}
		layout, err := onion.NewLayout(got.task)
		if err != nil {
			return nil, err
		}
		bare, err := w.openAndSeal(layout.SlotSize(2))
		if err != nil {
			return nil, err
		}
		ours, least = append(ours, got.cpu[1]), append(least, bare)
	}
	return []Row{newRow("relay/mix", "us/slot", lower, ours...).
		within("circl's x25519, HKDF and AES, and AES for the disk", median(least))}, nil
}

// noiseCPURuns is how often each side is measured, in turn.
const noiseCPURuns = 3

func measureNoiseCPU(ctx context.Context, s *Setup) ([]Row, error) {
	dir, _, err := s.programs(ctx)
	if err != nil {
		return nil, err
	}
	noises := []*planner.RelayNoise{nil, {}}
	var spent [2][3][]float64 // By noise and party.
	for run := range noiseCPURuns {
		for side := range noises {
			side = (side + run) % len(noises) // by turns, so that neither is always first
			progress("a batch of %d clients, %d of %d", usualClients, 2*run+1, 2*noiseCPURuns)
			who := usual(usualClients)
			who.Relays = noises[side]
			got, err := newTrip(ctx, dir, filepath.Join(dir, fmt.Sprint("noise", run, side)), who)
			if err != nil {
				return nil, err
			}
			for i := range noiseCPUNames {
				spent[side][i] = append(spent[side][i], got.cpu[i])
			}
		}
	}
	var rows []Row
	for i, name := range noiseCPUNames {
		row := newRow(name, "us/client", lower, spent[1][i]...)
		rows = append(rows, row.against("the same without dummies", spent[0][i]...))
	}
	return rows, nil
}
