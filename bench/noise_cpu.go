package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/onion"
)

// relayNoiseCPU measures what each party spends if two relays add the noise: CPU time of its process per client, in µs.
// A whole deployment runs one batch of 10⁵ clients for a histogram of 256 bins. The peer is the same histogram without
// dummies, where the clients randomize.
var relayNoiseCPU = Group{
	Names: noiseCPUNames, Run: measureNoiseCPU,
}

var noiseCPUNames = []string{"relay/noise/first/cpu", "relay/noise/later/cpu", "relay/noise/verifier/cpu"}

// mixing measures the CPU time that a later relay spends per slot, in µs, for a batch of 10⁵ without dummies in a whole
// deployment. The relay pulls and opens the slot, checks that it is no replay, and shuffles, stores and passes it on.
// The limit is the cryptography alone: opening a slot and encrypting it for the disk.
var mixing = Group{Names: []string{"relay/mix"}, Run: measureMix}

func measureMix(ctx context.Context, s *Setup) ([]Row, error) {
	dir, w, err := s.programs(ctx)
	if err != nil {
		return nil, err
	}
	var ours, least []float64
	for run := range noiseCPURuns {
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

// noiseCPURuns is how often each side is measured, alternately.
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
			side = (side + run) % len(noises) // every other run starts with the other side
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
