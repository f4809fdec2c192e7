package main

import (
	"cmp"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/report"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// state is a state of the verifier's pages: a task, and how to make its batches.
type state struct {
	name   string
	query  planner.Query
	epochs uint64
	skip   func(epoch uint64) bool             // Whether the epoch has no batch.
	value  func(epoch uint64, i int) []float64 // Returns the value of client i.
	broken bool                                // Whether to garble a message and destroy a batch.
}

const day = 24 * 3600

var states = []state{
	{"empty", planner.Query{Name: "time on page", Query: task.Mean, Hi: 600, Batch: 40}, 0, nil, nil, false},
	{"year", planner.Query{Name: "mean delay", Query: task.Mean, Hi: 180, Batch: 8}, 365,
		func(e uint64) bool { return e > 200 && e < 215 },
		func(e uint64, i int) []float64 {
			return []float64{60 + 40*math.Sin(float64(e)/58) + float64(7*i%20)}
		}, false},
	{"bins", planner.Query{Name: "load time", Query: task.Histogram, Hi: 8000, Bins: 256, Batch: 2000}, 3, nil,
		func(_ uint64, i int) []float64 { return []float64{900 * math.Exp(1.4*math.Sin(float64(i)))} }, false},
	{"findings", planner.Query{Name: "<script>alert(1)</script> a name as long as a name can be, 64",
		Query: task.Count, Batch: 60}, 4, nil,
		func(_ uint64, i int) []float64 { return []float64{float64(i % 2)} }, true},
	{"vector", planner.Query{Name: "features used", Query: task.Vector, Hi: 1, Dim: 24, Batch: 400}, 2, nil,
		func(_ uint64, i int) []float64 {
			out := make([]float64, 24)
			for l := range out {
				out[l] = float64(i * l % 24 / 12)
			}
			return out
		}, false},
	{"unusable", planner.Query{Name: "battery level", Query: task.Mean, Protocol: "splitmix", Hi: 100, Batch: 40,
		Honest: 0.9}, 2, nil,
		func(_ uint64, i int) []float64 { return []float64{float64(40 + i)} }, true},
}

// runPages serves the verifier's pages in rare states: no batch, many epochs, many bins, long and hostile names,
// findings, and an answer that is useless because messages were lost. The batches are real: the keys of two relays open
// the clients' reports and sign the manifests. Only the HTTP between the relays is missing.
//
// It prints {"url", "tasks": {state: path}} on one line and serves until it is killed.
func runPages() error {
	dir, err := os.MkdirTemp("", "doona-testserver-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d, err := deploy(filepath.Join(dir, "deployment"))
	if err != nil {
		return err
	}
	var all []*verifier.Verifier
	tasks := map[string]string{}
	for i, s := range states {
		v, err := s.verifier(d, i)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, v)
		tasks[s.name] = "/tasks/" + d.Bundles[i].ID.String() + "/"
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	out := map[string]any{"url": "http://" + l.Addr().String(), "tasks": tasks}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return err
	}
	return http.Serve(l, report.NewSite(all...).Handler())
}

// deploy writes the keys and the signed tasks of all states to dir.
func deploy(dir string) (*quickstart.Deployment, error) {
	var drafts []quickstart.Draft
	for _, s := range states {
		q := s.query
		q.Honest, q.Epsilon, q.Delta, q.Clip = cmp.Or(q.Honest, 1), 2, 1e-4, !q.Query.Info().YesNo()
		t, err := planner.Draft(q)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		t.Epochs = task.Epochs{Start: 1767225600, Length: day, Count: max(s.epochs, 30)} // from 2026-01-01
		drafts = append(drafts, quickstart.Draft{Name: s.name, Task: t})
	}
	relays := []quickstart.Relay{{URL: "http://127.0.0.1:1", Listen: "127.0.0.1:1"},
		{URL: "http://127.0.0.1:2", Listen: "127.0.0.1:2"}}
	return quickstart.Write(dir, relays, drafts)
}

// verifier returns a verifier that has opened all batches of the state. i is the index of the state's task in d.
func (s *state) verifier(d *quickstart.Deployment, i int) (*verifier.Verifier, error) {
	keys, err := keyfile.LoadHPKE(d.VerifierKeys(s.name))
	if err != nil {
		return nil, err
	}
	v, err := verifier.New(d.Bundles[i], keys)
	if err != nil {
		return nil, err
	}
	r, err := newRelays(d, d.Bundles[i], s.name)
	if err != nil {
		return nil, err
	}
	for epoch := range s.epochs {
		if s.skip != nil && s.skip(epoch) {
			continue
		}
		garbled := s.broken && epoch == 1
		batch, err := r.batch(epoch, func(i int) []float64 { return s.value(epoch, i) }, garbled,
			s.broken && epoch == 2)
		if err != nil {
			return nil, err
		}
		if err := v.Add(batch); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// relays holds the keys of a task's two relays, and a client that makes the reports.
type relays struct {
	open   *taskfile.Open
	client *shufflerclient.Client
	hpke   [2]*keyfile.HPKE
	sign   [2]ed25519.PrivateKey
}

func newRelays(d *quickstart.Deployment, open *taskfile.Open, name string) (r *relays, err error) {
	r = &relays{open: open}
	if r.client, err = shufflerclient.New(open, shufflerclient.Options{MaxEpsilon: 1e6, MaxDelta: 1}); err != nil {
		return nil, err
	}
	for hop := range 2 {
		folder := filepath.Dir(d.RelayConfig(hop + 1))
		if r.hpke[hop], err = keyfile.LoadHPKE(filepath.Join(folder, name+".keys")); err != nil {
			return nil, err
		}
		if r.sign[hop], err = keyfile.LoadSign(filepath.Join(folder, "sign.key")); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// batch passes the reports of all clients of an epoch through both relays. If garbled is set, the verifier cannot open
// one message. If destroyed is set, the second relay destroys the batch.
func (r *relays) batch(epoch uint64, value func(int) []float64, garbled, destroyed bool) (*onion.Batch, error) {
	first, err := r.opener(0, epoch)
	if err != nil {
		return nil, err
	}
	second, err := r.opener(1, epoch)
	if err != nil {
		return nil, err
	}
	var taken, passed [][]byte
	for i := range int(r.open.Batch.Size) {
		report, err := r.client.Report(epoch, value(i))
		if err != nil {
			return nil, err
		}
		envelope, err := first.OpenEnvelope(report.Body)
		if err != nil {
			return nil, err
		}
		for _, slot := range envelope.Lanes[0] {
			_, inner, err := second.OpenSlot(0, slot)
			if err != nil {
				return nil, err
			}
			taken, passed = append(taken, slot), append(passed, inner)
		}
	}
	if garbled {
		passed[0][len(passed[0])-1] ^= 1
	}
	lanes := onion.Lanes{passed}
	if destroyed {
		lanes = nil
	}
	in := []uint64{uint64(len(taken))}
	context := onion.Context{TaskID: r.open.ID, Epoch: epoch}
	from, err := onion.NewBatch(r.sign[0], onion.BatchDraft{
		Context: context, Submissions: r.open.Batch.Size, In: in,
	}, onion.Lanes{taken})
	if err != nil {
		return nil, err
	}
	context.Hop = 1
	return onion.NewBatch(r.sign[1], onion.BatchDraft{
		Context: context, Submissions: r.open.Batch.Size, In: in, Source: from.Signed(),
	}, lanes)
}

func (r *relays) opener(hop int, epoch uint64) (*onion.Opener, error) {
	key, err := r.hpke[hop].Key(epoch)
	if err != nil {
		return nil, err
	}
	return onion.NewOpener(r.open.Task, r.open.ID, hop, epoch, key)
}
