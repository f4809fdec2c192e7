package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols/correlated"
	"github.com/doona-dp/doona/protocols/rappor"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/protocols/splitmix"
	"github.com/doona-dp/doona/protocols/vectorgrid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// scenario is a signed task, and how the server changes its bundle. The result may be invalid on purpose.
type scenario struct {
	*fixture.SignedTask
	change func(bundle []byte, t *fixture.SignedTask) []byte // nil for no change
}

// blockNow returns a task's bundle as a relay serves it to pages now.
func blockNow(t *fixture.SignedTask) *taskfile.Bundle {
	return t.Block((&taskfile.Open{Task: t.Task}).EpochNear(uint64(time.Now().Unix())))
}

// bundle returns what the server answers with, for a bundle with the keys of a block.
func (s *scenario) bundle(block *taskfile.Bundle) ([]byte, error) {
	raw, err := block.Bytes()
	if err == nil && s.change != nil {
		raw = s.change(raw, s.SignedTask)
	}
	return raw, err
}

// hour returns count epochs of one hour each. The first began a minute ago, so a test does not see it end.
func hour(count uint64) task.Epochs {
	return task.Epochs{Start: uint64(time.Now().Unix()) - 60, Length: 3600, Count: count}
}

// scenarios makes the tasks that the browser tests use, by name. relay is the first relay's URL, site the origin of the
// pages, and proxy another URL of the first relay or "".
func scenarios(relay, site, proxy string) (map[string]*scenario, error) {
	truthful := func() *task.Task { return fixture.NearlyTruthful(fixture.Draft(task.Histogram, 300)) }
	two := []string{relay, "https://second.example"}
	all := map[string]*scenario{}
	if proxy == "" {
		proxy = relay
	}
	for _, c := range []struct {
		name   string
		draft  *task.Task
		relays []string
		epochs task.Epochs
		keys   fixture.Keys
		serve  func(bundle []byte, t *fixture.SignedTask) []byte
	}{
		{name: "truthful", draft: truthful(), relays: two, epochs: hour(3)},
		{name: "a day", draft: truthful(), relays: two, epochs: days(1)},
		{name: "months", draft: truthful(), relays: two, epochs: task.Epochs{
			Start: uint64(task.Month.Add(time.Now().Unix(), 0)), Length: task.Month, Count: 2}},
		{name: "its own pages", draft: withOrigins(truthful(), "https://shop.example", site), relays: two, epochs: hour(1)},
		{name: "other pages", draft: withOrigins(truthful(), "https://*.shop.example"), relays: two, epochs: hour(1)},
		{name: "first party", draft: truthful(), relays: []string{proxy, two[1]}, epochs: hour(1)},
		{name: "one relay", draft: truthful(), relays: two[:1], epochs: hour(1)},
		{name: "three relays", draft: truthful(), relays: append(two, "https://third.example"), epochs: hour(1)},
		{name: "post-quantum", draft: withKEM(truthful(), task.KEMMLKEM768X25519), relays: two, epochs: hour(1)},
		{name: "histogram", draft: fixture.Draft(task.Histogram, 4), relays: two, epochs: hour(1)},
		{name: "mean", draft: delay(), relays: two, epochs: hour(1)},
		{name: "shares", draft: withProtocol(splitmix.Name, fixture.Draft(task.Sum, 0)), relays: two, epochs: hour(1)},
		{name: "correlated", draft: withProtocol(correlated.Name, fixture.Draft(task.Count, 0)), relays: two, epochs: hour(2)},
		{name: "rappor", draft: withProtocol(rappor.Name, fixture.Draft(task.Count, 0)), relays: two, epochs: hour(1)},
		{name: "vectorgrid", draft: withProtocol(vectorgrid.Name, fixture.Draft(task.Vector, 2)), relays: two, epochs: hour(1)},
		{name: "vectormean", draft: fixture.Draft(task.VectorMean, 4), relays: two, epochs: hour(1)},
		{name: "vector", draft: fixture.Draft(task.Vector, 20), relays: two, epochs: hour(1)},
		{name: "future", draft: truthful(), relays: two, epochs: task.Epochs{Start: 1 << 39, Length: 60, Count: 1}},
		{name: "ended", draft: truthful(), relays: two, epochs: task.Epochs{Start: 1, Length: 60, Count: 1}},
		{name: "year", draft: year(10, nil), relays: two, epochs: days(365)},
		{name: "year, noise by relays", draft: year(10, &planner.RelayNoise{}), relays: two, epochs: days(365)},
		{name: "capped", draft: limited(6, task.Cap{Reports: 2, Window: 3}, task.Cap{}), relays: two},
		{name: "paced", draft: limited(6, task.Cap{Reports: 3, Window: 5}, task.Cap{Reports: 1, Window: 2}), relays: two},
		{name: "events", draft: rare(6, 0, task.Events{Most: 1, Window: 3}), relays: two},
		{name: "labelled events", draft: shorter(rareLabels(), 6, task.Events{Most: 2, Window: 4, Default: 3}), relays: two},
		{name: "capped events", draft: capped(shorter(rareLabels(), 6, task.Events{Most: 2, Window: 4, Default: 3}),
			task.Cap{Reports: 3, Window: 5}), relays: two},
		{name: "lie", draft: withEpsilon(fixture.Draft(task.Histogram, 4), "0.9"), relays: two, epochs: hour(1)},
		{name: "low order", draft: truthful(), relays: two, epochs: hour(1), keys: fixture.LowOrder},
		{name: "tampered", draft: truthful(), relays: two, epochs: hour(1), serve: tamper},
		{name: "unsigned", draft: truthful(), relays: two, epochs: hour(1), serve: unsign},
		{name: "other keys", draft: truthful(), relays: two, epochs: hour(1), serve: otherKeys},
		{name: "trailing", draft: truthful(), relays: two, epochs: hour(1), serve: trail},
		{name: "endless", draft: truthful(), relays: two, epochs: hour(1), serve: lengthen},
		{name: "swapped", draft: truthful(), relays: two, epochs: hour(1),
			serve: func([]byte, *fixture.SignedTask) []byte {
				raw, _ := all["truthful"].bundle(blockNow(all["truthful"].SignedTask))
				return raw
			}},
	} {
		if c.epochs.Count == 0 {
			c.epochs = limitedDays(c.draft)
		}
		signed, err := fixture.SignWith(c.draft, c.relays, c.epochs, c.keys)
		if err != nil {
			return nil, err
		}
		all[c.name] = &scenario{signed, c.serve}
	}
	return all, nil
}

// addDrafts signs the drafts in a file (main) and adds the tasks.
func addDrafts(all map[string]*scenario, path, relay string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("couldn't read the drafts: %w", err)
	}
	var drafts map[string]struct {
		Epochs uint64
		Draft  json.RawMessage
	}
	if err := json.Unmarshal(raw, &drafts); err != nil {
		return fmt.Errorf("couldn't read the drafts: %w", err)
	}
	for name, d := range drafts {
		draft, _, err := taskfile.ParseJSON(d.Draft)
		if err != nil {
			return fmt.Errorf("draft %s: %w", name, err)
		}
		draft.Epochs.Count = d.Epochs
		signed, err := fixture.Sign(draft, []string{relay, "https://second.example"}, limitedDays(draft))
		if err != nil {
			return err
		}
		all[name] = &scenario{signed, nil}
	}
	return nil
}

// days returns count epochs of one day each. The first began a minute ago.
func days(count uint64) task.Epochs {
	return task.Epochs{Start: uint64(time.Now().Unix()) - 60, Length: 86400, Count: count}
}

// year drafts a task of 365 daily epochs that claims (epsilon, 10⁻⁵) in total, as in docs/web-vitals.md with ε = 10.
// Relays add the noise if noise is set, clients otherwise.
func year(epsilon float64, noise *planner.RelayNoise) *task.Task {
	t, err := planner.Draft(planner.Query{Name: "a year of days", Query: task.Histogram, Bins: 16, Labels: true,
		Batch: 10_000, Honest: .9, TotalEpsilon: epsilon, TotalDelta: 1e-5, Epochs: 365, Relays: noise})
	if err != nil {
		panic("testserver: " + err.Error())
	}
	return t
}

// limited drafts a task of daily epochs that claims (10, 10⁻⁵) in total, with limits on the reports of one browser.
// Relays add the noise.
func limited(days uint64, most, pace task.Cap) *task.Task {
	t, err := planner.Draft(planner.Query{Name: "limited", Query: task.Histogram, Bins: 16, Labels: true, Batch: 10_000,
		Honest: .9, TotalEpsilon: 10, TotalDelta: 1e-5, Epochs: days, Cap: most, Pace: pace,
		Relays: &planner.RelayNoise{}})
	if err != nil {
		panic("testserver: " + err.Error())
	}
	return t
}

// limitedDays returns the epochs of such a task: its draft has their number and limits.
func limitedDays(draft *task.Task) task.Epochs {
	e := days(draft.Epochs.Count)
	e.Cap, e.Pace, e.Events = draft.Epochs.Cap, draft.Epochs.Pace, draft.Epochs.Events
	return e
}

// delay drafts a task like the demo's: the mean of values that clients clip to the range 0 to 180.
func delay() *task.Task {
	t := fixture.Draft(task.Mean, 0)
	t.Name, t.Input.Hi, t.Input.Clip = "flight delay", randomizer.NewRational(180, 1), true
	return t
}

// withProtocol changes a draft to another protocol and calibrates it.
func withProtocol(protocol string, t *task.Task) *task.Task {
	t.Protocol, t.Rule, t.Params, t.Slots = protocol, "", nil, task.Slots{}
	if err := registry.Calibrate(t); err != nil {
		panic("testserver: " + err.Error())
	}
	return t
}

// withOrigins lets only pages of the given origins report to a task.
func withOrigins(t *task.Task, origins ...string) *task.Task {
	slices.Sort(origins)
	t.Clients.Origins = origins
	return t
}

func withKEM(t *task.Task, kem task.KEM) *task.Task {
	t.KEM = kem
	return t
}

func withEpsilon(t *task.Task, epsilon string) *task.Task {
	t.Claim.Epsilon = task.NewEpsilon(epsilon)
	return t
}

// tamper changes the task's name in a bundle, so that its signature is wrong.
func tamper(bundle []byte, _ *fixture.SignedTask) []byte {
	return bytes.Replace(bundle, []byte("test histogram"), []byte("test hologram "), 1)
}

// lengthen makes a bundle one byte longer than the 8 MiB that a client accepts.
func lengthen(bundle []byte, _ *fixture.SignedTask) []byte {
	return append(bundle, make([]byte, 8<<20+1-len(bundle))...)
}

// junkStreams returns invalid streams of the largest size that a client accepts, 16 MiB, by name. They would be slow to
// decode. "junk lists" has as many key lists as fit for the first task. "junk tasks" has as many empty tasks as fit.
// "junk sizes" has the largest allowed number of tasks.
func junkStreams(root *fixture.SignedTask) map[string][]byte {
	const most, mostTasks = 16 << 20, 4096
	head := slices.Concat([]byte{0x92, 0x91, 0x96}, blob(root.Canonical()), blob(root.Bundle.Owner[:]),
		blob(root.Bundle.Signature))
	many := func(head, one []byte) []byte {
		count := (most - len(head) - 6) / len(one)
		return slices.Concat(binary.BigEndian.AppendUint32(append(head, 0xdd), uint32(count)),
			bytes.Repeat(one, count), []byte{0x90})
	}
	empty := func(size int) []byte {
		return slices.Concat([]byte{0x96}, blob(make([]byte, size)), blob(make([]byte, 32)), blob(make([]byte, 64)),
			[]byte{0x90, 0, 0x90})
	}
	full := bytes.Repeat(empty(most/mostTasks-200), mostTasks)
	return map[string][]byte{
		"junk lists": many(head, []byte{0xa0}),
		"junk tasks": many([]byte{0x92}, empty(0)),
		"junk sizes": slices.Concat([]byte{0x92, 0xdc, mostTasks >> 8, mostTasks & 0xff}, full, []byte{0x90}),
	}
}

// blob encodes a byte string as msgpack.
func blob(content []byte) []byte {
	n := len(content)
	if n < 256 {
		return append([]byte{0xc4, byte(n)}, content...)
	}
	return append(binary.BigEndian.AppendUint16([]byte{0xc5}, uint16(n)), content...)
}

// unsign damages the owner's signature in a bundle.
func unsign(bundle []byte, t *fixture.SignedTask) []byte {
	at := bytes.Index(bundle, t.Bundle.Signature)
	bundle[at] ^= 1
	return bundle
}

// otherKeys changes a key of the verifier's key list.
func otherKeys(bundle []byte, _ *fixture.SignedTask) []byte {
	bundle[len(bundle)-80] ^= 1
	return bundle
}

func trail(bundle []byte, _ *fixture.SignedTask) []byte { return append(bundle, 0) }
