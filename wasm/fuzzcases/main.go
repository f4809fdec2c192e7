// Command fuzzcases prints tasks and bundles, most of them damaged, with the results of the Go parsers.
// sdk/fuzz.spec.ts reads them and checks that TypeScript accepts exactly what Go accepts. Each line is one JSON object.
//
// The command signs damaged parts again, and names damaged key lists in the task. So the checks that follow the
// signature check also run.
//
//	go run ./wasm/fuzzcases [-n 4000] [-seed 1]
package main

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wasm/internal/client"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// testCase is one line of output. Bytes, Owner and ID are base64.
type testCase struct {
	Kind     string `json:"kind"`     // "task" or "bundle".
	Bytes    string `json:"bytes"`    // The task or the bundle.
	Owner    string `json:"owner"`    // The owner's public key, for a bundle.
	Task     bool   `json:"task"`     // Whether the task parses.
	Encoding bool   `json:"encoding"` // Whether the task failed in its encoding, not in a field.
	Accept   bool   `json:"accept"`   // Whether all checks pass, including the claimed (ε, δ).
	ID       string `json:"id"`       // The task's id.
}

func main() {
	n := flag.Int("n", 4000, "number of cases")
	seed := flag.Uint64("seed", 1, "seed that chooses the damage; keys are new in every run")
	flag.Parse()
	if err := run(*n, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "fuzzcases:", err)
		os.Exit(1)
	}
}

func run(n int, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0))
	worlds, err := makeWorlds()
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(os.Stdout)
	out := json.NewEncoder(buffered)
	for i := range n {
		w := worlds[i%len(worlds)]
		c, err := w.next(rng, i)
		if err != nil {
			return err
		}
		if err := out.Encode(c); err != nil {
			return err
		}
	}
	return buffered.Flush()
}

type world struct {
	task  *task.Task
	owner ed25519.PrivateKey
	signs []ed25519.PrivateKey // of the hops, then of the issuer if there is one
	lists []*onion.SignedKeyList
}

func makeWorlds() (out []*world, err error) {
	for _, q := range []planner.Query{
		{Name: "count", Query: task.Count, Batch: 100, Epsilon: 1, Delta: 1e-6},
		{Name: "a histogram with a name beyond thirty-one", Query: task.Histogram, Bins: 4, Labels: true, Batch: 70000,
			Epsilon: 1, Delta: 1e-6},
		{Name: "mean", Query: task.Mean, Protocol: "splitmix", Lo: -5, Hi: 5, Batch: 100, Epsilon: 1, Delta: 1e-8},
	} {
		for _, tokens := range []bool{false, true} {
			q.Honest = 0.9
			w := &world{}
			if w.task, err = planner.Draft(q); err != nil {
				return nil, err
			}
			w.task.Epochs = task.Epochs{Start: 1_800_000_000, Length: 3600, Count: 11}
			if err := w.addParties(tokens); err != nil {
				return nil, err
			}
			out = append(out, w)
		}
	}
	return out, nil
}

func (w *world) addParties(tokens bool) error {
	sign := func() ed25519.PrivateKey {
		_, key, _ := ed25519.GenerateKey(nil) // crypto/rand never fails
		return key
	}
	party := func(key ed25519.PrivateKey, list *onion.SignedKeyList) task.Party {
		w.signs, w.lists = append(w.signs, key), append(w.lists, list)
		return task.Party{URL: fmt.Sprintf("https://party%d.example", len(w.signs)),
			SignKey: task.SignKey(key.Public().(ed25519.PublicKey)), KeyList: list.Hash()}
	}
	w.owner = sign()
	for hop := range 3 {
		keys := make([]*onion.PrivateKey, w.task.Epochs.Count)
		for i := range keys {
			var err error
			if keys[i], err = onion.GenerateKey(w.task.KEM); err != nil {
				return err
			}
		}
		key := sign()
		list, err := onion.NewSignedKeyList(w.task.KEM, keys, key)
		if err != nil {
			return err
		}
		if p := party(key, list); hop < 2 {
			w.task.Relays = append(w.task.Relays, p)
		} else {
			w.task.Verifier = p
		}
	}
	w.task.Clients = task.Clients{Kind: task.ClientAddress, Quota: 1}
	if tokens {
		ids := make([]byte, 32*w.task.Epochs.Count)
		for i := range w.task.Epochs.Count {
			ids[32*i] = byte(i + 1)
		}
		key := sign()
		list, err := onion.ListOf(onion.TokenKEM, ids, key)
		if err != nil {
			return err
		}
		w.task.Clients = task.Clients{Kind: task.ClientToken, Quota: 1, Issuer: party(key, list)}
	}
	return w.task.Validate()
}

// next returns a task for even i, a bundle for odd i. Most are damaged, bundles at one of four depths.
func (w *world) next(rng *rand.Rand, i int) (*testCase, error) {
	canonical := w.task.Canonical()
	if i%2 == 0 {
		if rng.IntN(20) > 0 {
			canonical = damage(rng, canonical)
		}
		return taskCase(canonical), nil
	}
	t, lists := *w.task, append([]*onion.SignedKeyList{}, w.lists...)
	t.Relays = append([]task.Party{}, t.Relays...)
	depth := rng.IntN(5)
	if depth == 1 { // damage in a key list: its party signs it again, and the task names it
		hop := rng.IntN(len(lists))
		list, err := damageList(rng, lists[hop], w.signs[hop])
		if err != nil {
			return nil, err
		}
		lists[hop] = list
		switch {
		case hop < len(t.Relays):
			t.Relays[hop].KeyList = list.Hash()
		case hop == len(t.Relays):
			t.Verifier.KeyList = list.Hash()
		default:
			t.Clients.Issuer.KeyList = list.Hash()
		}
		canonical = t.Canonical()
	}
	if depth == 2 { // damage in the task: its owner signs it again
		canonical = damage(rng, canonical)
	}
	all := taskfile.Bundle{Task: canonical, Owner: w.owner.Public().(ed25519.PublicKey),
		Signature: signing.Sign(w.owner, signing.Task, canonical), KeyLists: [][]byte{}}
	for _, list := range lists {
		head, err := list.Head()
		if err != nil {
			return nil, err
		}
		all.KeyLists, all.Keys = append(all.KeyLists, head), append(all.Keys, taskfile.Keys{Keys: list.Keys})
	}
	b := all.Block(lists, rng.Uint64N(t.Epochs.Count))
	if hop := rng.IntN(len(lists)); depth == 3 { // damage in the encoding of a signed key list, the keys, or the path
		for _, part := range []*[]byte{&b.KeyLists[hop], &b.Keys[hop].Keys, &b.Keys[hop].Path} {
			if rng.IntN(2) == 0 {
				*part = damage(rng, *part)
			}
		}
	}
	raw, err := b.Bytes()
	if err != nil {
		return nil, err
	}
	if depth == 4 {
		raw = damage(rng, raw)
	}
	return bundleCase(raw, task.SignKey(b.Owner)), nil
}

func taskCase(canonical []byte) *testCase {
	c := &testCase{Kind: "task", Bytes: base64.StdEncoding.EncodeToString(canonical)}
	c.judge(canonical)
	_, err := client.Open(canonical)
	c.Accept = err == nil
	return c
}

// judge stores whether the parser accepts a task and why not.
func (c *testCase) judge(canonical []byte) {
	id := task.ID(sha256.Sum256(canonical))
	c.ID = base64.StdEncoding.EncodeToString(id[:])
	_, err := task.Parse(canonical)
	var field *invalid.FieldError
	c.Task = err == nil
	c.Encoding = err != nil && !errors.As(err, &field)
}

func bundleCase(raw []byte, owner task.SignKey) *testCase {
	c := &testCase{Kind: "bundle", Bytes: base64.StdEncoding.EncodeToString(raw),
		Owner: base64.StdEncoding.EncodeToString(owner[:])}
	b, err := taskfile.ParseBundle(raw)
	if err != nil {
		return c
	}
	c.judge(b.Task)
	_, err = b.OpenBlock(&owner)
	c.Accept = err == nil
	return c
}

// damageList damages what a party signs, or lets it sign a list in which a key stands twice.
func damageList(rng *rand.Rand, of *onion.SignedKeyList, key ed25519.PrivateKey) (
	*onion.SignedKeyList, error) {
	if rng.IntN(4) > 0 {
		list := *of
		list.List = damage(rng, of.List)
		list.Signature = signing.Sign(key, signing.KeyList, list.List)
		return &list, nil
	}
	const size = 32 // of X25519, and of an issuer's ids
	keys := bytes.Clone(of.Keys)
	copy(keys[size:2*size], keys[:size])
	var list onion.KeyList
	if err := codec.Unmarshal(of.List, &list); err != nil {
		return nil, err
	}
	return onion.ListOf(list.KEM, keys, key)
}

// damage returns a copy with one or two random changes. Bytes are flipped, removed, repeated or added, or a msgpack
// header gets another width or type.
func damage(rng *rand.Rand, in []byte) []byte {
	out := bytes.Clone(in)
	for range 1 + rng.IntN(2) {
		at := rng.IntN(len(out))
		to := min(len(out), at+1+rng.IntN(8))
		switch rng.IntN(8) {
		case 0:
			out[at] ^= 1 << rng.IntN(8)
		case 1:
			out[at] = byte(rng.Uint32())
		case 2:
			out = append(out[:at], out[to:]...)
		case 3:
			out = append(out[:to], append(bytes.Clone(out[at:to]), out[to:]...)...)
		case 4:
			out = out[:max(at, 1)]
		case 5:
			out = append(out, byte(rng.Uint32()))
		case 6:
			out = widen(rng, out)
		case 7:
			leads := []byte{0xc0, 0xc2, 0xc4, 0xc5, 0xc6, 0xca, 0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd9, 0xda, 0xdb, 0xdc,
				0xdd, 0x80, 0x90, 0xa0, 0xff}
			out[at] = leads[rng.IntN(len(leads))]
		}
		if len(out) == 0 {
			return []byte{0x90}
		}
	}
	return out
}

// widen encodes one random length or integer in one byte more than needed, as other msgpack encoders may. Parsers must
// refuse that.
func widen(rng *rand.Rand, in []byte) []byte {
	for range 64 {
		at := rng.IntN(len(in))
		wide := []byte(nil)
		used := 1
		switch lead := in[at]; {
		case lead < 0x80:
			wide = []byte{0xcc, lead}
		case lead&0xf0 == 0x90:
			wide = []byte{0xdc, 0, lead & 0x0f}
		case lead&0xe0 == 0xa0:
			wide = []byte{0xd9, lead & 0x1f}
		case lead == 0xc4 && at+1 < len(in):
			wide, used = []byte{0xc5, 0, in[at+1]}, 2
		default:
			continue
		}
		return bytes.Join([][]byte{in[:at], wide, in[at+used:]}, nil)
	}
	return in
}
