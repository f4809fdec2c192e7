package main

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"time"

	"github.com/cloudflare/circl/dh/x25519"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/task/dummies"
)

// relayNoise measures the time that the first of two relays spends per dummy of a histogram of 256 bins, in µs: it
// draws the dummies and seals each for the later relay and for the verifier. Peer and limit only make a new key and a
// shared secret for each layer: the peer with the standard library, the limit with circl, as relays on amd64.
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
		exchange, err := standard()
		if err != nil {
			return nil, err
		}
		var runs [3][]float64
		for range 7 { // all three alternate, so that the machine's load affects them equally
			for i, one := range []func() (float64, error){
				func() (float64, error) { return addDummies(law, src, sealer) },
				func() (float64, error) { return bareLayers(exchange) },
				func() (float64, error) { return bareLayers(circls()) },
			} {
				spent, err := one()
				if err != nil {
					return nil, err
				}
				runs[i] = append(runs[i], spent)
			}
		}
		return []Row{newRow("relay/noise", "us", lower, runs[0]...).
			against("crypto/ecdh's x25519 of the layers", runs[1]...).
			within("circl's x25519 of the layers", median(runs[2]))}, nil
	},
}

// noisyTask signs a task for a histogram of 256 bins whose two relays add noise.
func noisyTask() (*fixture.SignedTask, error) {
	draft, err := planner.Draft(planner.Query{Name: "noise", Query: task.Histogram, Bins: 256, Labels: true,
		Batch: 1e5, Honest: 1, Epsilon: 1, Delta: 1e-6, Relays: &planner.RelayNoise{}})
	if err != nil {
		return nil, err
	}
	return fixture.Sign(draft, []string{"http://127.0.0.1:1", "http://127.0.0.1:2"},
		task.Epochs{Start: uint64(time.Now().Unix()), Length: 3600, Count: 1})
}

// addDummies draws and seals the dummies of a batch, and returns microseconds per dummy.
func addDummies(law *dummies.Law, src *randomizer.Source, sealer *onion.Sealer) (float64, error) {
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

// layers is the number of encryption layers around a dummy of the first of two relays.
const layers = 2

// bareLayers calls exchange once per layer, for 5,000 dummies. It returns the time per dummy in microseconds.
func bareLayers(exchange func() error) (float64, error) {
	const times = 5000
	begun := time.Now()
	for range times * layers {
		if err := exchange(); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(begun).Microseconds()) / times, nil
}

// standard returns a function that makes a new key and a shared secret with the standard library's X25519.
func standard() (exchange func() error, err error) {
	to, err := ecdh.X25519().GenerateKey(rand.Reader)
	return func() error {
		key, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err == nil {
			_, err = key.ECDH(to.PublicKey())
		}
		return err
	}, err
}

// circls returns a function that makes a new key and a shared secret with circl's X25519, as relays do on amd64.
func circls() func() error {
	to, secret, shared := x25519.Key{9}, x25519.Key{}, x25519.Key{}
	return func() error {
		var share x25519.Key
		rand.Read(secret[:])
		x25519.KeyGen(&share, &secret)
		x25519.Shared(&shared, &secret, &to)
		return nil
	}
}
