package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"

	"github.com/cloudflare/circl/vdaf/prio3/count"
	"github.com/cloudflare/circl/vdaf/prio3/histogram"
	"github.com/cloudflare/circl/vdaf/prio3/sumvec"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/task"
)

// servers measures the CPU time that two relays and a verifier together spend per client, in µs. The peer is a lower
// bound for two Prio3 aggregators: one durable upload that bench/bare opens and stores, one opening at the helper, and
// circl's preparation of both shares, with the chunk lengths of the client rows. It leaves out messages between the
// aggregators, and the helper's storage.
var servers = Group{Names: serverNames(), Run: measureServers}

// serverClients is the number of simulated clients. serverRuns is the number of runs; each measures Doona and the peer.
const (
	serverClients = 20_000
	serverRuns    = 3
)

// serverKinds lists the queries of the rows. prepare returns the work of both Prio3 aggregators on one report.
var serverKinds = []struct {
	name    string
	query   planner.Query
	prepare func() (func() error, error)
}{
	{"count", planner.Query{Query: task.Count}, func() (func() error, error) {
		v, err := count.New(2, nil)
		if err != nil {
			return nil, err
		}
		params := v.Params()
		return prepared(v, true, params.RandSize())
	}},
	{"histogram256", planner.Query{Query: task.Histogram, Bins: 256, Labels: true}, func() (func() error, error) {
		v, err := histogram.New(2, 256, 16, nil)
		if err != nil {
			return nil, err
		}
		params := v.Params()
		return prepared(v, 3, params.RandSize())
	}},
	{"vector1000", planner.Query{Query: task.Vector, Protocol: "vectorsum", Dim: 1000, Hi: 1},
		func() (func() error, error) {
			v, err := sumvec.New(2, 1000, 1, 32, nil)
			if err != nil {
				return nil, err
			}
			params := v.Params()
			return prepared(v, make([]uint64, 1000), params.RandSize())
		}},
}

func serverNames() (names []string) {
	for _, k := range serverKinds {
		names = append(names, "server/"+k.name+"/cpu")
	}
	return names
}

// vdaf is the method set that circl's types for Prio3 (count, histogram, sumvec) share.
type vdaf[Value, Input, State, Share, Out, Sum any] interface {
	Shard(Value, *count.Nonce, []byte) (count.PublicShare, []Input, error)
	PrepInit(*count.VerifyKey, *count.Nonce, uint8, count.PublicShare, Input) (*State, *Share, error)
	PrepSharesToPrep([]Share) (*count.PrepMessage, error)
	PrepNext(*State, *count.PrepMessage) (*Out, error)
	AggregateInit() Sum
	AggregateUpdate(*Sum, *Out)
}

// prepared splits a value into shares. The function that it returns does the work of both aggregators on these shares:
// prepare, verify and add up.
func prepared[Value, Input, State, Share, Out, Sum any](v vdaf[Value, Input, State, Share, Out, Sum], value Value,
	random uint) (func() error, error) {
	var key count.VerifyKey
	var nonce count.Nonce
	seed := make([]byte, random)
	rand.Read(key[:])
	rand.Read(nonce[:])
	rand.Read(seed)
	public, inputs, err := v.Shard(value, &nonce, seed)
	if err != nil {
		return nil, fmt.Errorf("couldn't share a value: %w", err)
	}
	sums := []Sum{v.AggregateInit(), v.AggregateInit()}
	return func() error {
		var states []*State
		var shares []Share
		for i, input := range inputs {
			state, share, err := v.PrepInit(&key, &nonce, uint8(i), public, input)
			if err != nil {
				return err
			}
			states, shares = append(states, state), append(shares, *share)
		}
		message, err := v.PrepSharesToPrep(shares)
		if err != nil {
			return err
		}
		for i, state := range states {
			out, err := v.PrepNext(state, message)
			if err != nil {
				return err
			}
			v.AggregateUpdate(&sums[i], out)
		}
		return nil
	}, nil
}

func measureServers(ctx context.Context, s *Setup) (rows []Row, err error) {
	dir, w, err := s.programs(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := command(ctx, "go", "build", "-o", dir+"/", "./bench/bare"); err != nil {
		return nil, err
	}
	f, err := newField(filepath.Join(dir, "field"), 1, serverClients)
	if err != nil {
		return nil, err
	}
	_, bare := f.sides(dir)
	for _, k := range serverKinds {
		if !s.wanted("server/" + k.name + "/cpu") {
			continue
		}
		var ours, peer []float64
		for run := range serverRuns {
			progress("server/%s %d of %d", k.name, run+1, serverRuns)
			folder := filepath.Join(dir, fmt.Sprint(k.name, run))
			got, err := newTrip(ctx, dir, folder, newClients(serverClients, k.query))
			if err != nil {
				return nil, err
			}
			if err := f.take(ctx, bare, intoSQLite); err != nil {
				return nil, err
			}
			theirs, err := w.aggregators(k.prepare)
			if err != nil {
				return nil, err
			}
			ours = append(ours, got.total()-got.cpu[len(got.cpu)-1])
			peer = append(peer, 1e6/bare.rates[len(bare.rates)-1]+theirs)
		}
		rows = append(rows, newRow("server/"+k.name+"/cpu", "us/client", lower, ours...).
			against("Prio3 (circl 1.6.5) at two aggregators, with a bare upload", peer...))
	}
	return rows, nil
}

// aggregators returns the CPU time of the helper's opening and of both preparations for one report, in microseconds.
func (w *warehouse) aggregators(prepare func() (func() error, error)) (float64, error) {
	do, err := prepare()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	opening, err := w.spend(work{opens: []int{256}})
	if err != nil {
		return 0, err
	}
	preparing, err := perTurn(200, func() func() error {
		do, err := prepare()
		if err != nil {
			return func() error { return err }
		}
		return do
	})
	return opening + preparing, err
}

// intoSQLite returns the address of a new SQLite store in a server's folder.
func intoSQLite(folder string) (string, error) {
	return "sqlite:" + filepath.Join(folder, "store.db"), nil
}
