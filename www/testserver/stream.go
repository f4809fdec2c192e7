package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// addStream makes a stream of four tasks of one hour each. The first task has begun. It fills r.variants with variants
// of the stream: some that a client must refuse, and some that it must accept.
func (r *relay) addStream(url string) (offer, error) {
	draft := fixture.NearlyTruthful(fixture.Draft(task.Histogram, 300))
	draft.Stream = &task.StreamPosition{Name: "site", Allow: []string{"name", "relays.signKey"}}
	root, err := fixture.Sign(draft, []string{url, "https://second.example"}, hour(1))
	if err != nil {
		return offer{}, err
	}
	_, stranger, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return offer{}, err
	}
	same := func(*task.Task) {}
	next := func(t *fixture.SignedTask, change func(*task.Task)) *fixture.SignedTask {
		return t.Succeed(root.Owner, change)
	}
	one := next(root, same)
	two := next(one, same)
	three := next(two, same)
	changed := func(change func(*task.Task)) []*fixture.SignedTask {
		return []*fixture.SignedTask{root, next(root, change)}
	}
	forked := next(one, func(t *task.Task) { t.Epochs.Start++ })
	r.variants = map[string][]byte{}
	for name, tasks := range map[string][]*fixture.SignedTask{
		"good": {root, one, two, three}, "renamed": changed(func(t *task.Task) { t.Name = "renamed" }),
		"forged": {root, root.Succeed(stranger, same)}, "headless": {one, two}, "left out": {root, two},
		"out of order": {root, two, one}, "twice": {root, one, one}, "replayed": {root, one},
		"forked": {root, one, forked, next(forked, same)}, "none": {},
		"overlap":         changed(func(t *task.Task) { t.Epochs.Start-- }),
		"position":        changed(func(t *task.Task) { t.Stream.Position++ }),
		"before":          changed(func(t *task.Task) { t.Stream.Before[0] ^= 1 }),
		"stream.allow":    changed(func(t *task.Task) { t.Stream.Allow = []string{"name", "relays.url"} }),
		"stream.name":     changed(func(t *task.Task) { t.Stream.Name = "other" }),
		"epochs.length":   changed(func(t *task.Task) { t.Epochs.Length = 7200 }),
		"batch.min":       changed(func(t *task.Task) { t.Batch.Min-- }),
		"claim.epsilon":   changed(func(t *task.Task) { t.Claim.Epsilon = task.NewEpsilon("1.5") }),
		"clients.quota":   changed(func(t *task.Task) { t.Clients.Quota++ }),
		"clients.origins": changed(func(t *task.Task) { t.Clients.Origins = []string{"https://evil.example"} }),
		"relays":          changed(func(t *task.Task) { t.Relays = t.Relays[:1] }),
		"relays.url": changed(func(t *task.Task) {
			t.Relays = []task.Party{{URL: "https://other.example", SignKey: t.Relays[0].SignKey,
				KeyList: t.Relays[0].KeyList}, t.Relays[1]}
		}),
		"verifier.signKey": changed(func(t *task.Task) { t.Verifier.SignKey[0] ^= 1 }),
	} {
		if r.variants[name], err = chainOf(tasks); err != nil {
			return offer{}, err
		}
	}
	unsigned := *one.Bundle
	unsigned.Signature = root.Bundle.Signature
	if r.variants["unsigned"], err = chainOf([]*fixture.SignedTask{root, {Task: one.Task, Bundle: &unsigned}}); err != nil {
		return offer{}, err
	}
	maps.Copy(r.variants, junkStreams(root))
	r.variants["endless"] = append(r.variants["good"], make([]byte, 16<<20+1-len(r.variants["good"]))...)
	recovery, err := r.addStatements(root, one)
	if err != nil {
		return offer{}, err
	}
	candidate, err := r.addKeys(root, one, stranger)
	if err != nil {
		return offer{}, err
	}
	for _, t := range []*fixture.SignedTask{root, one, two, three} {
		r.tasks[t.Path()] = &scenario{SignedTask: t}
	}
	first := taskfile.Open{Task: root.Task, ID: root.ID}
	return offer{Stream: first.StreamURL(first.Task, 0), Owner: root.OwnerText(), Recovery: recovery,
		Candidates: []string{candidate}}, nil
}

// addKeys adds variants of the stream in which the key of a relay changes. It returns the key of a candidate, which may
// replace a relay.
func (r *relay) addKeys(root, one *fixture.SignedTask, stranger ed25519.PrivateKey) (candidate string, err error) {
	public, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	rotation := func(by ed25519.PrivateKey) func(*task.Task) {
		honest := taskfile.NewRotation(root.ID, by, task.SignKey(public))
		honest.Old = root.Relays[0].SignKey
		return func(t *task.Task) { t.Stream.Rotations = []task.Rotation{honest} }
	}
	ofNoParty := func(t *task.Task) {
		t.Stream.Rotations = []task.Rotation{taskfile.NewRotation(root.ID, stranger, task.SignKey(public))}
	}
	moved := func(t *task.Task) { t.Relays[1].URL = "https://third.example" }
	same := func(*task.Task) {}
	for name, v := range map[string]struct {
		hop    int
		sign   ed25519.PrivateKey
		change func(*task.Task)
	}{
		"rolled": {0, other, rotation(root.Signer(0))}, "rotation forged": {0, other, rotation(stranger)},
		"rotation of no party": {0, root.Signer(0), ofNoParty}, "rotation unsaid": {0, stranger, same},
		"replaced": {1, other, moved}, "replaced by a stranger": {1, stranger, moved},
	} {
		next, err := one.WithSigner(root.Owner, v.hop, v.sign, v.change)
		if err != nil {
			return "", err
		}
		tasks := []*fixture.SignedTask{root, next}
		if r.variants[name], err = chainOf(tasks); err != nil {
			return "", err
		}
		if name == "rolled" {
			back := next.Succeed(root.Owner, func(t *task.Task) { t.Relays = root.Relays })
			if r.variants["rolled back"], err = chainOf(append(tasks, back)); err != nil {
				return "", err
			}
		}
	}
	return taskfile.FormatKey(task.SignKey(public)), nil
}

// chainOf encodes a stream of tasks.
func chainOf(tasks []*fixture.SignedTask) ([]byte, error) {
	chain := &taskfile.Chain{}
	for _, t := range tasks {
		chain.Tasks = append(chain.Tasks, blockNow(t))
	}
	return chain.Bytes()
}

func (r *relay) serveStream(w http.ResponseWriter, req *http.Request) {
	for _, y := range r.years {
		if y.serve(w, req) {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fetches++
	w.Header().Set("Content-Type", "application/msgpack")
	w.Write(r.variants[r.variant])
}

// setStream sets the variant to serve. The request's body is its name, a JSON string. The answer is how often the
// previous variant was fetched.
func (r *relay) setStream(w http.ResponseWriter, req *http.Request) {
	var name string
	err := json.NewDecoder(req.Body).Decode(&name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.variants[name]; err != nil || !ok {
		http.Error(w, fmt.Sprintf("invalid body: want the name of a variant, not %q (%v)", name, err),
			http.StatusBadRequest)
		return
	}
	r.variant = name
	json.NewEncoder(w).Encode(r.fetches)
	r.fetches = 0
}
