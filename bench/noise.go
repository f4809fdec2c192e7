package main

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/doona-dp/doona/internal/fixture"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
)

// relayNoise is what the first of two relays spends on one dummy of a histogram of 256 bins: its part of the
// draw, and its seals for the relay and the verifier behind. Beside it is the standard library's bare public-key work
// of these two layers, a new key and a shared secret each.
var relayNoise = Group{
	Names: []string{"relay/noise"},
	Run: func(context.Context, *Setup) ([]Row, error) {
		f, err := noisyTask()
		if err != nil {
			return nil, err
		}
		open, err := f.Bundle.Open(nil)
		if err != nil {
			return nil, err
		}
		sealer, err := onion.NewSealer(open.Task, open.ID, open.KeyLists)
		if err != nil {
			return nil, err
		}
		law, src := dummies.New(open.Noise), randomizer.NewSource()
		var ours, bare []float64
		for range 7 { // by turns, so that both meet the same machine
			spent, err := dilute(law, src, sealer)
			if err != nil {
				return nil, err
			}
			layers, err := bareLayers(2)
			if err != nil {
				return nil, err
			}
			ours, bare = append(ours, spent), append(bare, layers)
		}
		return []Row{newRow("relay/noise", "us", lower, ours...).against("crypto/ecdh's x25519 of the layers", bare...)}, nil
	},
}

// noisyTask signs a task of two relays that add noise to a histogram of 256 bins.
func noisyTask() (*fixture.Task, error) {
	draft, err := planner.Draft(planner.Query{Name: "noise", Query: task.Histogram, Bins: 256, Labels: true,
		Batch: 1e5, Honest: 1, Epsilon: 1, Delta: 1e-6, Relays: &planner.RelayNoise{}})
	if err != nil {
		return nil, err
	}
	return fixture.Sign(draft, []string{"http://127.0.0.1:1", "http://127.0.0.1:2"},
		task.Epochs{Start: uint64(time.Now().Unix()), Length: 3600, Count: 1})
}

// dilute draws and seals what a relay adds to a batch, and returns the microseconds for each.
func dilute(law *dummies.Law, src *randomizer.Source, sealer *onion.Sealer) (float64, error) {
	begun := time.Now()
	cells, err := law.Draw(src)
	if err != nil {
		return 0, err
	}
	for _, cell := range cells {
		if _, err := sealer.SealSlot(0, 1, 0, []byte{byte(cell)}); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(begun).Microseconds()) / float64(len(cells)), nil
}

// bareLayers returns the microseconds of a new key and a shared secret for each of some layers.
func bareLayers(layers int) (float64, error) {
	to, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return 0, fmt.Errorf("couldn't generate a key: %w", err)
	}
	const times = 5000
	begun := time.Now()
	for range times * layers {
		key, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			return 0, fmt.Errorf("couldn't generate a key: %w", err)
		}
		if _, err := key.ECDH(to.PublicKey()); err != nil {
			return 0, fmt.Errorf("couldn't agree on a secret: %w", err)
		}
	}
	return float64(time.Since(begun).Microseconds()) / times, nil
}
