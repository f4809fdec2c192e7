//go:build ignore

// Command gen writes the test vectors into its own folder: go run ./testdata/v1/*.go
//
// All bytes follow from the seeds below, also senders' random draws. gen seals with internal/testing/fixture/hpke.go, a
// second implementation, which checks package onion.
package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/cloudflare/circl/blindsign/blindrsa"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
	"github.com/doona-dp/doona/wire/token"
)

var dir = flag.String("out", "testdata/v1", "`folder` to write the vectors to")

// object is a JSON object; encoding/json sorts its keys.
type object map[string]any

func main() {
	log.SetFlags(0)
	flag.Parse()
	old, err := filepath.Glob(filepath.Join(*dir, "*.json"))
	check(err)
	for _, path := range old {
		check(os.Remove(path))
	}
	w := newWorld(task.KEMX25519, 2)
	tasks(w)
	origins()
	randomizerVectors()
	ledgers()
	groups()
	signatures()
	rotations()
	keyLists(w)
	write("bundle", object{"ownerSeed": hexOf(seed("owner")), "owner": taskfile.FormatKey(signKey(sign("owner"))),
		"task": hexOf(w.Canonical()), "id": hexOf(w.id[:]), "bundle": hexOf(w.bundle())})
	slots()
	submissions(w)
	batches(w)
	ends(w)
	statements()
	tokens(w)
	bad(w)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func write(name string, v any) {
	out, err := json.MarshalIndent(v, "", " ")
	check(err)
	check(os.WriteFile(filepath.Join(*dir, name+".json"), append(out, '\n'), 0o644))
}

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// seed returns 32 bytes that depend only on the name.
func seed(name string) []byte {
	sum := sha256.Sum256([]byte("doona vectors " + name))
	return sum[:]
}

func sign(name string) ed25519.PrivateKey { return ed25519.NewKeyFromSeed(seed("sign " + name)) }

func public(key ed25519.PrivateKey) []byte { return key.Public().(ed25519.PublicKey) }

func signKey(key ed25519.PrivateKey) task.SignKey { return task.SignKey(public(key)) }

func marshal(v any) []byte {
	out, err := codec.Marshal(v)
	check(err)
	return out
}

type world struct {
	*task.Task
	id    task.ID
	keys  [][]*onion.PrivateKey
	lists []*onion.SignedKeyList
}

var names = []string{"one", "two", "three"}

var kemIDs = map[task.KEM]uint16{task.KEMX25519: fixture.X25519, task.KEMMLKEM768: fixture.MLKEM768,
	task.KEMMLKEM768X25519: fixture.MLKEM768X25519}

// privateKey returns the HPKE private key of a party for an epoch. For ML-KEM-768 it is a seed of 64 bytes, for other
// KEMs 32 bytes.
func privateKey(kem task.KEM, party string, epoch int) *onion.PrivateKey {
	raw := seed(fmt.Sprint("hpke ", party, epoch))
	if kem == task.KEMMLKEM768 {
		raw = append(raw, seed(fmt.Sprint("hpke z ", party, epoch))...)
	}
	key, err := onion.OwnPrivateKey(kem, bytes.Clone(raw))
	check(err)
	return key
}

// newWorld returns a mean task in batches of 2, with two lanes.
func newWorld(kem task.KEM, relays int) *world {
	w := &world{Task: &task.Task{
		Name: "vectors", Query: task.Mean, Protocol: "realsum", Rule: "revealed", KEM: kem,
		Params: []task.Param{{Key: "gamma", Value: randomizer.NewRational(1, 4)},
			{Key: "k", Value: randomizer.NewRational(8, 1)}},
		Input:   task.Input{Lo: randomizer.NewRational(-1, 2), Hi: randomizer.NewRational(180, 1), Clip: true},
		Claim:   task.NewClaim("1", "1e-6"),
		Batch:   task.Batch{Size: 2, Honest: randomizer.NewRational(1, 2), Min: 1},
		Slots:   task.Slots{Padding: task.PaddingFull, Lanes: 2, PerLane: 2, MessageBytes: 1},
		Epochs:  task.Epochs{Start: 1_800_000_000, Length: 86400, Count: 2},
		Clients: task.Clients{Kind: task.ClientToken, Quota: 1},
	}}
	for hop := range relays + 1 {
		name := names[hop]
		if hop == relays {
			name = "verifier"
		}
		var keys []*onion.PrivateKey
		for epoch := range int(w.Epochs.Count) {
			keys = append(keys, privateKey(kem, name, epoch))
		}
		list, err := onion.NewSignedKeyList(kem, keys, sign(name))
		check(err)
		w.keys, w.lists = append(w.keys, keys), append(w.lists, list)
		party := task.Party{SignKey: signKey(sign(name)), KeyList: list.Hash()}
		if hop == relays {
			w.Verifier = party
			continue
		}
		party.URL = "https://" + name + ".example"
		w.Relays = append(w.Relays, party)
	}
	issuer, err := onion.ListOf(onion.TokenKEM, joined(tokenKeys[0].public.ID(), tokenKeys[1].public.ID()),
		sign("issuer"))
	check(err)
	w.lists = append(w.lists, issuer)
	w.Clients.Issuer = task.Party{URL: "https://issuer.example", SignKey: signKey(sign("issuer")),
		KeyList: issuer.Hash()}
	check(w.Validate())
	w.id = taskfile.ID(w.Task)
	return w
}

func joined(ids ...onion.KeyID) (all []byte) {
	for _, id := range ids {
		all = append(all, id[:]...)
	}
	return all
}

func (w *world) bundle() []byte {
	b, err := taskfile.Sign(w.Task, sign("owner"), w.lists)
	check(err)
	out, err := b.Bytes()
	check(err)
	return out
}

func tasks(w *world) {
	real := *w.Task
	real.Name, real.Slots = "mean of delays",
		task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1, MessageBytes: 1}
	real.Batch = task.Batch{Size: 5000, Honest: randomizer.NewRational(9, 10), Min: 4500}
	labels := real
	labels.Name, labels.Query, labels.Protocol = "labels", task.Histogram, "histogram"
	labels.Params = real.Params[:1]
	labels.Input = task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1), Bins: 300,
		Labels: true}
	labels.Slots.MessageBytes, labels.KEM = 2, task.KEMMLKEM768
	count := real
	count.Name, count.Query, count.Rule, count.KEM = "count", task.Count, "theorem1", task.KEMMLKEM768X25519
	count.Params = []task.Param{{Key: "gamma", Value: randomizer.NewRational(1, 2)},
		{Key: "k", Value: randomizer.NewRational(1, 1)}}
	count.Input = task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1)}
	count.Clients, count.Relays, count.Verifier.URL = task.Clients{Kind: task.ClientAddress, Quota: 300},
		real.Relays[:1], "http://127.0.0.1:8080"
	count.Clients.Origins = []string{"capacitor://localhost", "https://*.example.org", "https://example.org", "null"}
	extremes := real
	extremes.Name, extremes.Protocol = "~ !\"'\\ extremes", "none"
	extremes.Params = nil
	for i := range 20 {
		extremes.Params = append(extremes.Params,
			task.Param{Key: fmt.Sprintf("p%02d", i), Value: randomizer.NewRational(-int64(i), 7)})
	}
	extremes.Input = task.Input{Lo: randomizer.NewRational(-1<<63+1, 1<<63-1-1), Hi: randomizer.NewRational(1<<63-1, 1)}
	extremes.Query, extremes.Claim = task.Sum, task.NewClaim("2.5e1", "0.000001")
	extremes.Batch = task.Batch{Size: 1<<32 - 1, Honest: randomizer.NewRational(1, 1), Min: 1 << 31}
	extremes.Slots = task.Slots{Padding: task.PaddingNone, Lanes: 65535, PerLane: 1, MessageBytes: 1024}
	extremes.Epochs = task.Epochs{Start: 1 << 35, Length: 31622400, Count: 65536}
	large := real
	large.Name, large.Batch = "many slots of few clients", task.Batch{Size: 1<<32 - 1,
		Honest: randomizer.NewRational(1, 1), Min: 1 << 31}
	large.Slots = task.Slots{Padding: task.PaddingNone, Lanes: 1, PerLane: 1 << 18, MessageBytes: 2, Average: 16}
	var out []object
	for _, t := range append([]*task.Task{&real, &labels, &count, &extremes, &large}, withParts(&real)...) {
		check(t.Validate())
		text, err := taskfile.MarshalJSON(t)
		check(err)
		id := taskfile.ID(t)
		out = append(out, object{"document": json.RawMessage(text), "canonical": hexOf(t.Canonical()),
			"id": hexOf(id[:])})
	}
	write("task", out)
}

// withParts returns tasks with the optional parts: streams, noise, totals, rotations.
func withParts(plain *task.Task) []*task.Task {
	first, later, cells, pool := *plain, *plain, *plain, *plain
	first.Name, first.Stream = "first of a stream",
		&task.StreamPosition{Name: "site", Allow: []string{"batch.size", "claim.delta", "relays.url"}}
	id := taskfile.ID(&first)
	later.Name, later.Stream = "later in a stream", &task.StreamPosition{Name: "site", Position: 300, Before: id}
	later.Claim.SetTotal("5.11", "3e-5")
	total := uint64(11)
	cells.Name, cells.Claim.Assumption = "noise by cell", task.NoneHonest
	cells.Noise = &task.Noise{Kind: task.NoiseCells, Cells: 5, Batches: 1000,
		Tables: [][]uint64{{1, 3, 9, 3, 1}, {0, 1 << 52, 0, 1}},
		Which:  []task.Run{{Count: 2, Table: 0}, {Count: 2, Table: 1}, {Count: 1, Table: 0}},
		Tilt:   &task.Tilt{Centre: 3, Zero: 2, Weights: []uint64{0, 1, 2, 3, 4}, Factors: []uint64{70000, 300, 0, 1}},
		Total:  &total}
	pool.Name, pool.Claim.Assumption = "noise from a pool", task.NoneHonest
	pool.Slots.MessageBytes, pool.Noise = 5, &task.Noise{Kind: task.NoisePool, Cells: 1 << 40, Pool: 4000}
	rolled := later
	rolled.Name, rolled.Relays = "with another key", slices.Clone(later.Relays)
	rolled.Relays[0].SignKey = signKey(sign("new"))
	rolled.Stream = &task.StreamPosition{Name: "site", Position: 300, Before: id,
		Rotations: []task.Rotation{rotationOf(id)}}
	capped := *plain
	capped.Name, capped.Epochs.Cap = "with a cap", task.Cap{Reports: 56, Window: 365}
	paced := capped
	paced.Name, paced.Epochs.Pace = "with a pace", task.Cap{Reports: 4, Window: 28}
	rare := withEvents(plain)
	both := *rare
	both.Name, both.Epochs.Cap = "with events and a cap", task.Cap{Reports: 56, Window: 365}
	both.Noise = &task.Noise{Kind: task.NoiseCells, Cells: 5, Tables: [][]uint64{{1, 3, 9, 3, 1}}}
	months := *plain
	months.Name, months.Epochs = "calendar months", task.Epochs{Start: 1_798_761_600, Length: task.Month, Count: 14}
	return []*task.Task{&first, &later, &cells, &pool, &rolled, &capped, &paced, rare, &both, &months}
}

// withEvents returns a task with events, whose noise has a rest cell.
func withEvents(plain *task.Task) *task.Task {
	rare, rest, all := *plain, uint64(3), uint64(13)
	rare.Name, rare.Query, rare.Params, rare.Claim.Assumption = "with events", task.Histogram, nil, task.NoneHonest
	rare.Input = task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1), Bins: 5, Labels: true}
	rare.Slots = task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1, MessageBytes: 1}
	rare.Noise = &task.Noise{Kind: task.NoiseCells, Cells: 5, Tables: [][]uint64{{1, 3, 9, 3, 1}}, Total: &all,
		Rest: &rest}
	rare.Epochs.Events = task.Events{Most: 2, Window: 30, Default: rest}
	return &rare
}

// rare returns a task with events that are changed.
func rare(plain *task.Task, change func(e *task.Events)) *task.Task {
	t := withEvents(plain)
	change(&t.Epochs.Events)
	return t
}

// rotationOf returns a rotation: the first relay of the stream gets another signing key.
func rotationOf(root task.ID) task.Rotation {
	return taskfile.NewRotation(root, sign("one"), signKey(sign("new")))
}

func rotations() {
	root := task.ID(seed("task 0"))
	rotation := rotationOf(root)
	write("rotation", []object{{"root": hexOf(root[:]), "old": hexOf(rotation.Old[:]), "new": hexOf(rotation.New[:]),
		"signature": hexOf(rotation.Signature[:])}})
}

func signatures() {
	var out []object
	for _, p := range []signing.Purpose{signing.Task, signing.KeyList, signing.Manifest, signing.Pull,
		signing.Confirm, signing.AskEnd, signing.End, signing.Time, signing.Succeed, signing.Statement,
		signing.Rotation, signing.Updates, signing.Set} {
		body := []byte("body of " + string(p))
		out = append(out, object{"seed": hexOf(seed("sign one")), "public": hexOf(public(sign("one"))),
			"purpose": string(p), "body": hexOf(body),
			"signed":    hexOf([]byte("doona-v1 " + string(p) + "\x00" + string(body))),
			"signature": hexOf(signing.Sign(sign("one"), p, body))})
	}
	write("signature", out)
}

func publicKeys(s *onion.SignedKeyList) (keys [][]byte) {
	var list onion.KeyList
	check(codec.Unmarshal(s.List, &list))
	for key := range slices.Chunk(s.Keys, len(s.Keys)/int(list.Count)) {
		keys = append(keys, key)
	}
	return keys
}

func keyLists(w *world) {
	var out []object
	for _, c := range []struct {
		kem    task.KEM
		epochs int
	}{{task.KEMX25519, 2}, {task.KEMX25519, 8}, {task.KEMX25519, 9}, {task.KEMX25519, 43}, {task.KEMMLKEM768X25519, 1},
		{task.KEMMLKEM768, 1}} {
		kem, keys := c.kem, w.keys[0]
		if kem != task.KEMX25519 || c.epochs > 2 {
			keys = nil
			for epoch := range c.epochs {
				keys = append(keys, privateKey(kem, "one", epoch))
			}
		}
		list, err := onion.NewSignedKeyList(kem, keys, sign("one"))
		check(err)
		raw, err := list.Bytes()
		check(err)
		hash := list.Hash()
		var entries []object
		for i, serialized := range publicKeys(list) {
			private, err := keys[i].Bytes()
			check(err)
			id := keys[i].Public().ID()
			entries = append(entries, object{"private": hexOf(private), "public": hexOf(serialized),
				"id": hexOf(id[:])})
		}
		var blocks []object
		for first := 0; first < c.epochs; first += onion.BlockEpochs {
			block := list.Block(uint64(first))
			blocks = append(blocks, object{"first": first, "keys": hexOf(block.Keys), "path": hexOf(block.Path)})
		}
		out = append(out, object{"kem": kem, "signer": hexOf(public(sign("one"))), "keys": entries,
			"hash": hexOf(hash[:]), "list": hexOf(raw), "blocks": blocks})
	}
	write("keylist", out)
}

type tokenKey struct {
	private *rsa.PrivateKey
	public  *token.PublicKey
}

// tokenKeys are the issuer's keys for epochs 0 and 1, and the key of a stranger.
var tokenKeys = []tokenKey{newTokenKey("issuer 0"), newTokenKey("issuer 1"), newTokenKey("stranger")}

func newTokenKey(name string) tokenKey {
	p, q, one := prime("p "+name), prime("q "+name), big.NewInt(1)
	phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
	private := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: new(big.Int).Mul(p, q), E: 65537},
		D: new(big.Int).ModInverse(big.NewInt(65537), phi), Primes: []*big.Int{p, q}}
	private.Precompute()
	check(private.Validate())
	public, err := token.NewPublicKey(&private.PublicKey)
	check(err)
	return tokenKey{private, public}
}

// prime returns the first prime p with p mod 65537 ≠ 1, from a 1024-bit number on that depends on the name. Its two
// highest bits are set.
func prime(name string) *big.Int {
	var bits []byte
	for i := range 4 {
		bits = append(bits, seed(fmt.Sprint("prime ", name, i))...)
	}
	bits[0] |= 0xc0
	p, two := new(big.Int).SetBytes(append(bits, bits...)[:128]), big.NewInt(2)
	for p.SetBit(p, 0, 1); !p.ProbablyPrime(20) || new(big.Int).Mod(p, big.NewInt(65537)).Int64() == 1; p.Add(p, two) {
	}
	return p
}

// issued holds a token with the request and the reply from which it was made.
type issued struct{ request, reply, token []byte }

// issue makes a token for a challenge, with random bytes that depend on name. The issuer signs with key; request and
// token name the key named.
func issue(name string, key, named tokenKey, challenge []byte) issued {
	digest, id := sha256.Sum256(challenge), named.public.ID()
	input := bytes.Join([][]byte{{0, 2}, seed("nonce " + name), digest[:], id[:]}, nil)
	client, err := blindrsa.NewClient(blindrsa.SHA384PSSDeterministic, &key.private.PublicKey)
	check(err)
	blinded, state, err := client.Blind(rand.NewChaCha8([32]byte(seed("blind "+name))), input)
	check(err)
	reply, err := blindrsa.NewSigner(key.private).BlindSign(blinded)
	check(err)
	signature, err := client.Finalize(state, reply)
	check(err)
	return issued{append([]byte{0, 2, id[31]}, blinded...), reply, append(input, signature...)}
}

func tokens(w *world) {
	var out []object
	for epoch := range w.Epochs.Count {
		key := tokenKeys[epoch]
		challenge := token.Challenge(w.Task, w.id, epoch)
		made := issue(fmt.Sprint("token ", epoch), key, key, challenge)
		id := key.public.ID()
		directory, err := token.Directory("token-request", key.public)
		check(err)
		out = append(out, object{"task": hexOf(w.Canonical()), "epoch": epoch,
			"private": hexOf(x509.MarshalPKCS1PrivateKey(key.private)),
			"key":     hexOf(key.public.Bytes()), "keyID": hexOf(id[:]), "directory": string(directory),
			"challenge": hexOf(challenge),
			"request":   hexOf(made.request), "reply": hexOf(made.reply), "token": hexOf(made.token),
			"authorization": token.Header(made.token), "wwwAuthenticate": token.ChallengeHeader(challenge, key.public)})
	}
	write("token", out)
}

func badTokens(w *world, fault faultFunc) {
	key := tokenKeys[0]
	challenge := token.Challenge(w.Task, w.id, 0)
	good := issue("bad", key, key, challenge).token
	at := func(tok []byte) object {
		return object{"task": hexOf(w.Canonical()), "epoch": 0, "key": hexOf(key.public.Bytes()), "token": hexOf(tok)}
	}
	changed := func(in []byte, at int) []byte {
		out := bytes.Clone(in)
		out[at] ^= 1
		return out
	}
	another := *w.Task
	another.Name = "another task"
	for _, c := range []struct {
		name, description string
		token             []byte
	}{
		{"token_truncated", "the last byte missing", good[:len(good)-1]},
		{"token_trailing_byte", "a byte after the token", append(bytes.Clone(good), 0)},
		{"token_flipped_bit", "the last bit of the signature flipped", changed(good, len(good)-1)},
		{"token_type", "type 3", changed(good, 1)},
		{"token_nonce", "a nonce that was not signed", changed(good, 2)},
		{"token_wrong_epoch", "for epoch 1, spent in epoch 0",
			issue("bad", key, key, token.Challenge(w.Task, w.id, 1)).token},
		{"token_wrong_task", "for another task of the same issuer and relay",
			issue("bad", key, key, token.Challenge(&another, taskfile.ID(&another), 0)).token},
		{"token_wrong_key", "of the key of epoch 1, for epoch 0",
			issue("bad", tokenKeys[1], tokenKeys[1], challenge).token},
		{"token_stranger", "signed by a stranger, in the name of the issuer's key",
			issue("bad", tokenKeys[2], key, challenge).token},
	} {
		fault(c.name, "token", "token", c.description, at(c.token))
	}
	spki := key.public.Bytes()
	even := bytes.Clone(spki)
	even[len(even)-6] &^= 1
	encryption, err := x509.MarshalPKIXPublicKey(&key.private.PublicKey)
	check(err)
	for _, c := range []struct {
		name, description string
		key               []byte
	}{
		{"token_key_encryption", "the object identifier of rsaEncryption", encryption},
		{"token_key_exponent", "exponent 65536", changed(spki, len(spki)-1)},
		{"token_key_salt", "a salt of 49 bytes", changed(spki, 66)},
		{"token_key_even", "an even modulus", even},
		{"token_key_short", "a modulus of 2047 bits",
			append(append(bytes.Clone(spki[:81]), spki[81]&0x7f), spki[82:]...)},
		{"token_key_trailing_byte", "a byte after the key", append(bytes.Clone(spki), 0)},
	} {
		fault(c.name, "token_key", "key", c.description, object{"key": hexOf(c.key)})
	}
	request := issue("bad", key, key, challenge).request
	for _, c := range []struct {
		name, description string
		request           []byte
	}{
		{"token_request_type", "type 3", changed(request, 1)},
		{"token_request_key", "the last byte of another key's id", changed(request, 2)},
		{"token_request_truncated", "the last byte missing", request[:len(request)-1]},
		{"token_request_too_large", "a blinded message above the modulus",
			append(bytes.Clone(request[:3]), bytes.Repeat([]byte{0xff}, 256)...)},
	} {
		fault(c.name, "token_request", "request", c.description,
			object{"private": hexOf(x509.MarshalPKCS1PrivateKey(key.private)), "request": hexOf(c.request)})
	}
}

func ephemeral(name string) fixture.Ephemeral {
	return fixture.Ephemeral{X25519: seed("x " + name), MLKEM: seed("m " + name)}
}

func info(id task.ID, epoch uint64, hop int, key *onion.PrivateKey) []byte {
	out := append([]byte("doona-v1 onion"), id[:]...)
	out = append(binary.BigEndian.AppendUint64(out, epoch), byte(hop))
	keyID := key.Public().ID()
	return append(out, keyID[:]...)
}

// The kinds of ciphertext.
const (
	kindSlot byte = iota
	kindEnvelope
	kindSet
)

func aad(lane int, kind byte) []byte { return []byte{byte(lane >> 8), byte(lane), kind} }

func (w *world) seal(name string, epoch uint64, hop, lane int, kind byte, plain []byte) []byte {
	key := w.keys[hop][epoch]
	out, err := fixture.Seal(kemIDs[w.KEM], publicKeys(w.lists[hop])[epoch], ephemeral(name),
		info(w.id, epoch, hop, key), aad(lane, kind), plain)
	check(err)
	return out
}

func tag(name string) []byte { return seed("tag " + name)[:16] }

// message returns the innermost plaintext of slot i of a lane. Slot 1 is a cover.
func message(name string, lane, i int) []byte {
	if i == 1 {
		return append(tag(name), 0, 0)
	}
	return append(tag(name), 1, byte(3+lane))
}

// slots writes a slot for each KEM, sealed to the verifier behind one relay.
func slots() {
	var out []object
	for _, kem := range []task.KEM{task.KEMX25519, task.KEMMLKEM768X25519, task.KEMMLKEM768} {
		w := newWorld(kem, 1)
		plain := message("slot", 1, 0)
		key := w.keys[1][1]
		private, err := key.Bytes()
		check(err)
		e := ephemeral("slot " + string(kem))
		out = append(out, object{"kem": kem, "task": hexOf(w.Canonical()), "epoch": 1, "hop": 1, "lane": 1, "kind": 0,
			"private": hexOf(private), "public": hexOf(publicKeys(w.lists[1])[1]),
			"info": hexOf(info(w.id, 1, 1, key)), "aad": hexOf(aad(1, kindSlot)),
			"ephemeralX25519": hexOf(e.X25519), "ephemeralMLKEM": hexOf(e.MLKEM), "plaintext": hexOf(plain),
			"sealed": hexOf(w.seal("slot "+string(kem), 1, 1, 1, kindSlot, plain))})
	}
	write("slot", out)
}

// content and submission are encoded as docs/SPEC.md says.
type content struct {
	Tag   []byte
	Lanes [][][]byte
}

type submission struct {
	Version  uint64
	Envelope []byte
}

// content returns the content of a client's envelope in epoch 0.
func (w *world) content() content {
	c := content{Tag: tag("envelope")}
	for lane := range int(w.Slots.Lanes) {
		c.Lanes = append(c.Lanes, nil)
		for i := range int(w.Slots.PerLane) {
			name := fmt.Sprint("lane ", lane, " slot ", i)
			plain := message(name, lane, i)
			for hop := w.VerifierHop(); hop > 0; hop-- {
				if hop < w.VerifierHop() {
					plain = append(tag(fmt.Sprint(name, " hop ", hop)), plain...)
				}
				plain = w.seal(fmt.Sprint(name, " hop ", hop), 0, hop, lane, kindSlot, plain)
			}
			c.Lanes[lane] = append(c.Lanes[lane], plain)
		}
	}
	return c
}

func (w *world) body(c content) []byte {
	return marshal(&submission{task.Version, w.seal("envelope", 0, 0, 0, kindEnvelope, marshal(&c))})
}

func (w *world) private() (out []string) {
	for _, keys := range w.keys {
		raw, err := keys[0].Bytes()
		check(err)
		out = append(out, hexOf(raw))
	}
	return out
}

func submissions(w *world) {
	c := w.content()
	var lanes [][]object
	for lane := range c.Lanes {
		lanes = append(lanes, nil)
		for i := range c.Lanes[lane] {
			name := fmt.Sprint("lane ", lane, " slot ", i)
			plain := message(name, lane, i)
			lanes[lane] = append(lanes[lane],
				object{"relayTag": hexOf(tag(name + " hop 1")), "verifierTag": hexOf(tag(name)), "cover": i == 1,
					"message": hexOf(plain[17:])})
		}
	}
	write("submission", object{"task": hexOf(w.Canonical()), "epoch": 0, "private": w.private(),
		"body": hexOf(w.body(c)), "tag": hexOf(c.Tag), "lanes": lanes})
}

// chain returns both relays' manifests of a batch of two submissions. The second relay drops one slot.
func (w *world) chain() (first, second *onion.Batch) {
	layout, err := onion.NewLayout(w.Task)
	check(err)
	lanes := func(hop int, counts ...int) (out [][][]byte) {
		for lane, n := range counts {
			out = append(out, nil)
			for i := range n {
				slot := bytes.Repeat(seed(fmt.Sprint("ciphertext ", hop, lane, i)), 8)
				out[lane] = append(out[lane], slot[:layout.SlotSize(hop+1)])
			}
		}
		return out
	}
	first, err = onion.NewBatch(sign("one"), onion.BatchDraft{
		Context: onion.Context{TaskID: w.id, Hop: 0}, Seq: 7, Submissions: 2, In: []uint64{4, 4},
	}, lanes(0, 4, 4))
	check(err)
	second, err = onion.NewBatch(sign("two"), onion.BatchDraft{
		Context: onion.Context{TaskID: w.id, Hop: 1},
		Seq:     7, Submissions: 2, In: []uint64{4, 4}, Source: first.Signed(),
	}, lanes(1, 4, 3))
	check(err)
	return first, second
}

func batchBytes(b *onion.Batch) string {
	out, err := b.Bytes()
	check(err)
	return hexOf(out)
}

func batches(w *world) {
	first, second := w.chain()
	destroyed, err := onion.NewBatch(sign("one"), onion.BatchDraft{
		Context: onion.Context{TaskID: w.id}, Seq: 8, Submissions: 1, In: []uint64{2, 2},
	}, nil)
	check(err)
	var out []object
	for _, c := range []struct {
		b          *onion.Batch
		hop, seq   int
		submission int
		counts     [][4]int // per lane: in, added, out, dropped
	}{
		{first, 0, 7, 2, [][4]int{{4, 0, 4, 0}, {4, 0, 4, 0}}},
		{second, 1, 7, 2, [][4]int{{4, 0, 4, 0}, {4, 0, 3, 1}}},
		{destroyed, 0, 8, 1, [][4]int{{2, 0, 0, 2}, {2, 0, 0, 2}}},
	} {
		m, err := c.b.Header()
		check(err)
		out = append(out, object{"task": hexOf(w.Canonical()), "epoch": 0, "hop": c.hop, "seq": c.seq,
			"submissions": c.submission, "lanes": c.counts,
			"ciphertextsHash": hexOf(m.Ciphertexts), "manifest": hexOf(c.b.Manifest), "batch": batchBytes(c.b)})
	}
	write("batch", out)
	chunks(w)
}

// endChain returns both relays' signed ends of epoch 0, whose only batch is the one of chain.
func (w *world) endChain() (first, second *onion.SignedEnd) {
	one, two := w.chain()
	end := func(name string, hop int, b *onion.Batch, source *onion.SignedEnd) *onion.SignedEnd {
		m, err := b.Header()
		check(err)
		out, err := onion.NewEnd(sign(name), w.Task, onion.Context{TaskID: w.id, Hop: hop},
			[]onion.Manifest{*m}, source)
		check(err)
		return out
	}
	first = end("one", 0, one, nil)
	return first, end("two", 1, two, first)
}

// ends writes both relays' signed ends of an epoch, and a signed time of each.
func ends(w *world) {
	first, second := w.endChain()
	var out []object
	for hop, end := range []*onion.SignedEnd{first, second} {
		raw, err := end.Bytes()
		check(err)
		nonce := signing.Nonce(seed("nonce")[:16])
		signed, err := signing.NewTime(sign(names[hop]), w.id, hop, nonce, 1_800_000_000)
		check(err)
		out = append(out, object{"task": hexOf(w.Canonical()), "epoch": 0, "hop": hop, "batches": 1, "submissions": 2,
			"lanes": [][4]int{{4, 0, 4, 0}, {4, 0, 4 - hop, hop}}, "end": hexOf(raw),
			"nonce": hexOf(nonce[:]), "time": hexOf(signed), "unix": 1_800_000_000})
	}
	write("end", out)
}

func badEnds(w *world, fault faultFunc) {
	for _, c := range []struct {
		name, signer, expect, description string
		hop                               int
		change                            func(e *onion.End)
	}{
		{"stranger", "stranger", "signer", "signed by a stranger", 0, func(*onion.End) {}},
		{"epoch", "one", "manifest", "of another epoch", 0, func(e *onion.End) { e.Epoch = 1 }},
		{"count", "one", "manifest", "out and dropped do not add up to in", 0,
			func(e *onion.End) { e.Lanes[0].Dropped = 1 }},
		{"no_batches", "one", "manifest", "submissions in no batches", 0, func(e *onion.End) { e.Batches = 0 }},
		{"chain_batches", "two", "manifest", "more batches than the first relay made", 1,
			func(e *onion.End) { e.Batches = 2 }},
		{"chain_counts", "two", "manifest", "fewer slots than the first relay sent", 1,
			func(e *onion.End) { e.Lanes[0].In, e.Lanes[0].Out = 3, 3 }},
	} {
		first, second := w.endChain()
		var e onion.End
		check(codec.Unmarshal([]*onion.SignedEnd{first, second}[c.hop].End, &e))
		c.change(&e)
		body := marshal(&e)
		signed := marshal(&onion.SignedEnd{End: body, Signature: signing.Sign(sign(c.signer), signing.End, body)})
		fault("end_"+c.name, "end", c.expect, c.description,
			object{"task": hexOf(w.Canonical()), "epoch": 0, "hop": c.hop, "end": hexOf(signed)})
	}
}

// chunks writes the hashes that manifests sign, for lanes of different lengths. Slot i is i in 4 bytes, big endian.
func chunks(w *world) {
	var out []object
	for _, counts := range [][]uint64{{0}, {1}, {1024}, {1025, 0, 3}, {3, 2048}} {
		lanes := make(onion.Lanes, len(counts))
		for lane, n := range counts {
			for i := range n {
				lanes[lane] = append(lanes[lane], binary.BigEndian.AppendUint32(nil, uint32(i)))
			}
		}
		b, err := onion.NewBatch(sign("one"), onion.BatchDraft{Context: onion.Context{TaskID: w.id}, In: counts}, lanes)
		check(err)
		m, err := b.Header()
		check(err)
		out = append(out, object{"slots": counts, "ciphertextsHash": hexOf(m.Ciphertexts)})
	}
	write("chunks", out)
}

// bad writes one file per fault. All else is valid, including signatures.
func bad(w *world) {
	fault := func(name, kind, expect, description string, v object) {
		v["kind"], v["expect"], v["description"] = kind, expect, description
		write("bad_"+name, v)
	}
	badTasks(w, fault)
	badBundles(w, fault)
	badSubmissions(w, fault)
	badSlots(w, fault)
	badBatches(w, fault)
	badEnds(w, fault)
	badStatements(fault)
	badTokens(w, fault)
	protocolVectors(w, fault)
	sets(fault)
}

type faultFunc = func(name, kind, expect, description string, v object)

// replaced replaces old by new. It fails if in does not contain old.
func replaced(in []byte, old, new string) []byte {
	if !bytes.Contains(in, []byte(old)) {
		log.Fatalf("%q does not contain %q", in, old)
	}
	return bytes.Replace(in, []byte(old), []byte(new), 1)
}

func badTasks(w *world, fault faultFunc) {
	form := w.Canonical()
	for _, c := range []struct{ name, expect, description, old, new string }{
		{"task_long_integer", "encoding", "clients.quota 1 as uint8", "\xa5token\x01", "\xa5token\xcc\x01"},
		{"task_long_string", "encoding", "the name as str8", "\xa7vectors", "\xd9\x07vectors"},
		{"task_array_length", "encoding", "a parameter with three elements", "\x92\xa5gamma\xa31/4",
			"\x93\xa5gamma\xa31/4\x01"},
		{"task_rational_not_reduced", "field:params.gamma", "gamma 2/8 instead of 1/4", "\xa31/4", "\xa32/8"},
		{"task_boolean", "encoding", "input.clip as true instead of 1", "\xa3180\x00\x00\x01", "\xa3180\x00\x00\xc3"},
		{"task_version", "field:version", "version 2", "doona-task\x01", "doona-task\x02"},
		{"task_params_order", "field:params", "parameters not in ascending order", "\xa5gamma", "\xa5zamma"},
		{"task_min_above_honest", "field:batch.min", "batch.min 2 of size 2 at honest 1/2", "\xa31/2\x01\x95",
			"\xa31/2\x02\x95"},
		{"task_too_many_slots", "field:slots", "lanes times perLane above 262144", "\xa4full\x02\x02",
			"\xa4full\x02\xcd\xff\xff"},
	} {
		v := replaced(form, c.old, c.new)
		if c.name == "task_too_many_slots" {
			v = replaced(v, "\xa4full\x02\xcd", "\xa4full\x05\xcd")
		}
		fault(c.name, "task", c.expect, c.description, object{"task": hexOf(v)})
	}
	badParts(w, fault)
	fault("task_trailing_byte", "task", "encoding", "a byte after the task",
		object{"task": hexOf(append(bytes.Clone(form), 0))})
	fault("task_truncated", "task", "encoding", "the last byte missing", object{"task": hexOf(form[:len(form)-1])})
	labels := *w.Task
	labels.Query, labels.Params = task.Histogram, labels.Params[:1]
	labels.Input = task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(2, 1), Bins: 4, Labels: true}
	fault("task_labels_with_range", "task", "field:input", "labels with a range other than 0,1",
		object{"task": hexOf(labels.Canonical())})
	twice := *w.Task
	twice.Relays = []task.Party{w.Relays[0],
		{URL: "https://two.example", SignKey: w.Relays[0].SignKey, KeyList: w.Relays[1].KeyList}}
	fault("task_relay_twice", "task", "field:relays", "two relays with one signing key",
		object{"task": hexOf(twice.Canonical())})
	for _, c := range []struct {
		name, expect, description string
		change                    func(*task.Clients)
	}{
		{"task_issuer_missing", "field:clients.issuer.url", "tokens without an issuer",
			func(c *task.Clients) { c.Issuer = task.Party{} }},
		{"task_issuer_for_addresses", "field:clients.issuer", "an issuer, and clients are told apart by address",
			func(c *task.Clients) { c.Kind = task.ClientAddress }},
		{"task_origin_path", "field:clients.origins", "an origin that ends in a slash",
			func(c *task.Clients) { c.Origins = []string{"https://example.org/"} }},
		{"task_origins_order", "field:clients.origins", "origins not in ascending order",
			func(c *task.Clients) { c.Origins = []string{"null", "https://example.org"} }},
		{"task_origins_twice", "field:clients.origins", "an origin twice",
			func(c *task.Clients) { c.Origins = []string{"https://example.org", "https://example.org"} }},
		{"task_origins_many", "encoding", "65 origins",
			func(c *task.Clients) {
				for i := range 65 {
					c.Origins = append(c.Origins, fmt.Sprintf("https://%02d.example.org", i))
				}
			}},
		{"task_issuer_verifier", "field:clients.issuer", "the verifier issues the tokens",
			func(c *task.Clients) { c.Issuer.SignKey = w.Verifier.SignKey }},
	} {
		changed := *w.Task
		c.change(&changed.Clients)
		fault(c.name, "task", c.expect, c.description, object{"task": hexOf(changed.Canonical())})
	}

	text, err := taskfile.MarshalJSON(w.Task)
	check(err)
	for _, c := range []struct{ name, description, old, new string }{
		{"document_unknown_key", "an unknown key", `"name"`, `"nome": "x", "name"`},
		{"document_duplicate_key", "a key twice", `"query"`, `"name": "x", "query"`},
		{"document_key_case", "a key in another case", `"perLane"`, `"perlane"`},
		{"document_range_of_three", "a range of three numbers", `"180"`, `"180", "7"`},
	} {
		fault(c.name, "document", "document", c.description, object{"document": string(replaced(text, c.old, c.new))})
	}
	fault("document_trailing", "document", "document", "a second value after the document",
		object{"document": string(text) + "{}"})
}

func badParts(w *world, fault faultFunc) {
	for _, c := range []struct {
		name, expect, description string
		change                    func(first, later, cells, pool *task.Task) *task.Task
	}{
		{"assumption", "field:claim.assumption", "no honest client assumed, and no noise by relays",
			func(_, _, cells, _ *task.Task) *task.Task { cells.Noise = nil; return cells }},
		{"total_epsilon", "field:claim.total.epsilon", "a total epsilon of 101",
			func(_, later, _, _ *task.Task) *task.Task {
				later.Claim.Total.Epsilon = task.NewEpsilon("101")
				return later
			}},
		{"stream_order", "field:stream.allow", "what may change is not in ascending order",
			func(first, _, _, _ *task.Task) *task.Task {
				first.Stream.Allow = []string{"claim.delta", "batch.size"}
				return first
			}},
		{"stream_allow", "field:stream.allow", "what may change may change",
			func(first, _, _, _ *task.Task) *task.Task {
				first.Stream.Allow = []string{"stream.allow"}
				return first
			}},
		{"stream_before", "field:stream.before", "position 300 with zeros for the task before",
			func(_, later, _, _ *task.Task) *task.Task { later.Stream.Before = task.ID{}; return later }},
		{"average_full", "field:slots.average", "slots.average 1 under padding full",
			func(first, _, _, _ *task.Task) *task.Task { first.Slots.Average = 1; return first }},
		{"average_large", "field:slots.average", "slots.average no smaller than perLane",
			func(first, _, _, _ *task.Task) *task.Task {
				first.Slots.Padding, first.Slots.Average = task.PaddingNone, first.Slots.PerLane
				return first
			}},
		{"slots_in_lane", "field:slots", "2^36 + 2^17 slots in a lane of a batch",
			func(first, _, _, _ *task.Task) *task.Task {
				first.Slots.Lanes, first.Slots.PerLane, first.Batch.Size = 1, 1<<17, 1<<19+1
				return first
			}},
		{"noise_padding", "field:noise", "noise and padding none",
			func(_, _, cells, _ *task.Task) *task.Task { cells.Slots.Padding = task.PaddingNone; return cells }},
		{"noise_cells_many", "field:noise.cells", "257 cells in messages of one byte",
			func(_, _, _, pool *task.Task) *task.Task {
				pool.Slots.MessageBytes, pool.Noise.Cells = 1, 257
				return pool
			}},
		{"noise_table_end", "field:noise.tables", "a table that ends with 0",
			func(_, _, cells, _ *task.Task) *task.Task {
				cells.Noise.Tables[0] = []uint64{1, 3, 9, 3, 1, 0}
				return cells
			}},
		{"noise_which", "field:noise.which", "runs of 4 of 5 cells",
			func(_, _, cells, _ *task.Task) *task.Task { cells.Noise.Which = cells.Noise.Which[:2]; return cells }},
		{"noise_weights", "field:noise.tilt.weights", "weights of 4 of 5 cells",
			func(_, _, cells, _ *task.Task) *task.Task {
				cells.Noise.Tilt.Weights = cells.Noise.Tilt.Weights[:4]
				return cells
			}},
		{"noise_total", "field:noise.total", "more dummies than the tables allow",
			func(_, _, cells, _ *task.Task) *task.Task { *cells.Noise.Total = 19; return cells }},
		{"months_start", "field:epochs.start", "months that begin on the 15th",
			func(first, _, _, _ *task.Task) *task.Task {
				t := *first
				t.Epochs.Length = task.Month
				return &t
			}},
		{"events_window", "field:events.window", "events in one epoch",
			func(first, _, _, _ *task.Task) *task.Task { return rare(first, func(e *task.Events) { e.Window = 1 }) }},
		{"events_most", "field:events.most", "as many events as epochs",
			func(first, _, _, _ *task.Task) *task.Task {
				return rare(first, func(e *task.Events) { e.Most = e.Window })
			}},
		{"events_default", "field:noise.rest", "a default that is not the rest cell",
			func(first, _, _, _ *task.Task) *task.Task { return rare(first, func(e *task.Events) { e.Default = 2 }) }},
		{"events_noise", "field:events", "events without noise by relays",
			func(first, _, _, _ *task.Task) *task.Task {
				t := rare(first, func(*task.Events) {})
				t.Noise, t.Claim.Assumption = nil, task.MinHonest
				return t
			}},
		{"noise_rest", "field:noise.rest", "a rest cell without events",
			func(first, _, _, _ *task.Task) *task.Task {
				t := rare(first, func(*task.Events) {})
				t.Epochs.Events = task.Events{}
				return t
			}},
		{"noise_pool", "field:noise.pool", "a pool of no dummies",
			func(_, _, _, pool *task.Task) *task.Task { pool.Noise.Pool = 0; return pool }},
	} {
		plain := *w.Task
		plain.Slots = task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1, MessageBytes: 1}
		parts := withParts(&plain)
		fault("task_"+c.name, "task", c.expect, c.description,
			object{"task": hexOf(c.change(parts[0], parts[1], parts[2], parts[3]).Canonical())})
	}
	form := withParts(w.Task)[1].Canonical()
	fault("task_total_empty", "task", "field:claim.total.epsilon", "a total of two empty texts",
		object{"task": hexOf(replaced(form, "\x92\xa45.11\xa43e-5", "\x92\xa0\xa0"))})
	for _, c := range []struct{ name, description, old, new string }{
		{"stream_before_first", "a task before position 0", "\xa4site\xcd\x01\x2c", "\xa4site\x00"},
		{"stream_short", "a stream without what may change", "\x94\xa4site", "\x93\xa4site"},
	} {
		fault("task_"+c.name, "task", "encoding", c.description, object{"task": hexOf(replaced(form, c.old, c.new))})
	}
	rolled := withParts(w.Task)[4]
	fault("task_stream_rolls_none", "task", "encoding", "an empty list of rotations, which is to be absent",
		object{"task": hexOf(append(replaced(form, "\x94\xa4site", "\x95\xa4site"), 0x90))})
	rolled.Relays[0].SignKey = rolled.Stream.Rotations[0].Old
	fault("task_stream_roll_back", "task", "field:stream.rotations", "a relay with the key that it has replaced",
		object{"task": hexOf(rolled.Canonical())})
	strangers(w.Task, fault)
	law := withParts(w.Task)[2].Canonical()
	fault("task_noise_kind", "task", "encoding", "noise of kind calls",
		object{"task": hexOf(replaced(law, "\xa5cells", "\xa5calls"))})
}

// strangers writes tasks that must not follow the first task of a stream.
func strangers(plain *task.Task, fault faultFunc) {
	first := withParts(plain)[0]
	id := taskfile.ID(first)
	rotation := func(old string) []task.Rotation {
		return []task.Rotation{taskfile.NewRotation(id, sign(old), signKey(sign("new")))}
	}
	for _, c := range []struct {
		name, expect, description string
		change                    func(next *task.Task)
	}{
		{"rotation_stranger", "field:stream.rotations", "a rotation of a key that no party of the task before has",
			func(next *task.Task) { next.Stream.Rotations = rotation("stranger") }},
		{"key_unrolled", "field:relays.signKey", "a relay with another key, and no rotation to it",
			func(next *task.Task) { next.Relays[0].SignKey = signKey(sign("new")) }},
		{"early", "field:epochs.start", "a task that begins before the one before is over",
			func(next *task.Task) { next.Epochs.Start-- }},
		{"fork", "field:stream.before", "a task that follows another than the one before",
			func(next *task.Task) { next.Stream.Before[0] ^= 1 }},
	} {
		next := *first
		next.Relays = slices.Clone(first.Relays)
		next.Epochs.Start = first.Epochs.Over()
		next.Stream = &task.StreamPosition{Name: first.Stream.Name, Position: 1, Before: id, Allow: first.Stream.Allow}
		check(first.Validate())
		check(first.CheckSuccessor(first, id, &next, first.Stream.Allow, nil))
		c.change(&next)
		fault("successor_"+c.name, "successor", c.expect, c.description,
			object{"before": hexOf(first.Canonical()), "task": hexOf(next.Canonical())})
	}
}

// bundle is encoded as docs/SPEC.md says.
type bundle struct {
	Task, Owner, Signature []byte
	KeyLists               [][]byte
	First                  uint64
	Keys                   []span
}

type span struct{ Keys, Path []byte }

func headOf(s *onion.SignedKeyList) []byte {
	out, err := s.Head()
	check(err)
	return out
}

func badBundles(w *world, fault faultFunc) {
	owner, stranger := sign("owner"), sign("stranger")
	for _, c := range []struct {
		name, expect, description string
		change                    func(b *bundle)
	}{
		{"bundle_stranger", "signer", "signed by a stranger",
			func(b *bundle) { b.Signature = signing.Sign(stranger, signing.Task, b.Task) }},
		{"bundle_purpose", "signer", "the owner's signature for another purpose",
			func(b *bundle) { b.Signature = signing.Sign(owner, signing.Manifest, b.Task) }},
		{"bundle_owner", "owner", "another owner, who signed it", func(b *bundle) {
			b.Owner, b.Signature = public(stranger), signing.Sign(stranger, signing.Task, b.Task)
		}},
		{"bundle_lists_swapped", "keylist", "the relays' key lists swapped",
			func(b *bundle) { b.KeyLists[0], b.KeyLists[1] = b.KeyLists[1], b.KeyLists[0] }},
		{"bundle_list_missing", "keylist", "a key list missing", func(b *bundle) { b.KeyLists, b.Keys = b.KeyLists[:2], b.Keys[:2] }},
		{"bundle_list_stranger", "signer", "a key list signed by a stranger", func(b *bundle) {
			s := onion.SignedKeyList{List: w.lists[1].List,
				Signature: signing.Sign(stranger, signing.KeyList, w.lists[1].List)}
			b.KeyLists[1] = headOf(&s)
		}},
		{"bundle_issuer_missing", "keylist", "no key list of the issuer",
			func(b *bundle) { b.KeyLists, b.Keys = b.KeyLists[:3], b.Keys[:3] }},
		{"bundle_issuer_stranger", "signer", "the issuer's key list signed by a relay", func(b *bundle) {
			s := onion.SignedKeyList{List: w.lists[3].List,
				Signature: signing.Sign(sign("one"), signing.KeyList, w.lists[3].List)}
			b.KeyLists[3] = headOf(&s)
		}},
		{"bundle_keys_swapped", "keylist", "the relays' keys swapped",
			func(b *bundle) { b.Keys[0], b.Keys[1] = b.Keys[1], b.Keys[0] }},
		{"bundle_keys_missing", "keylist", "no keys of the verifier", func(b *bundle) { b.Keys = b.Keys[:2] }},
		{"bundle_keys_cut", "keylist", "a byte of a key missing",
			func(b *bundle) { b.Keys[0].Keys = b.Keys[0].Keys[:63] }},
		{"bundle_key_changed", "keylist", "another key", func(b *bundle) { b.Keys[2].Keys[40] ^= 1 }},
		{"bundle_path_longer", "keylist", "a path where there is one block",
			func(b *bundle) { b.Keys[1].Path = make([]byte, 32) }},
		{"bundle_first_wrong", "keylist", "keys that begin after the last epoch", func(b *bundle) { b.First = 8 }},
	} {
		var b bundle
		check(codec.Unmarshal(w.bundle(), &b))
		c.change(&b)
		fault(c.name, "bundle", c.expect, c.description,
			object{"bundle": hexOf(marshal(&b)), "owner": taskfile.FormatKey(signKey(owner))})
	}
	raw := w.bundle()
	fault("bundle_trailing_byte", "bundle", "encoding", "a byte after the bundle",
		object{"bundle": hexOf(append(raw, 0)), "owner": taskfile.FormatKey(signKey(owner))})

	first := w.lists[0].Keys[:32]
	signed, err := onion.ListOf(w.KEM, slices.Concat(first, first), sign("one"))
	check(err)
	named := *w.Task
	named.Relays = []task.Party{{URL: w.Relays[0].URL, SignKey: w.Relays[0].SignKey, KeyList: signed.Hash()},
		w.Relays[1]}
	rebundled := func(t *task.Task, hop int, list *onion.SignedKeyList) object {
		b := bundle{Task: t.Canonical(), Owner: public(owner)}
		for i, l := range w.lists {
			if i == hop {
				l = list
			}
			b.KeyLists, b.Keys = append(b.KeyLists, headOf(l)), append(b.Keys, span{l.Keys, l.Path})
		}
		b.Signature = signing.Sign(owner, signing.Task, b.Task)
		return object{"bundle": hexOf(marshal(&b)), "owner": taskfile.FormatKey(signKey(owner))}
	}
	fault("bundle_key_twice", "bundle", "keylist", "one HPKE key for two epochs", rebundled(&named, 0, signed))

	badBlocks(w, fault)
	id := tokenKeys[0].public.ID()
	for name, ids := range map[string][]onion.KeyID{"twice": {id, id}, "epoch_missing": {id}} {
		list, err := onion.ListOf(onion.TokenKEM, joined(ids...), sign("issuer"))
		check(err)
		named := *w.Task
		named.Clients.Issuer.KeyList = list.Hash()
		fault("bundle_token_key_"+name, "bundle", "keylist",
			map[string]string{"twice": "one token key for two epochs",
				"epoch_missing": "no token key for the last epoch"}[name],
			rebundled(&named, len(w.lists)-1, list))
	}
	owns := *w.Task
	issued, err := onion.ListOf(onion.TokenKEM, joined(id, tokenKeys[1].public.ID()), owner)
	check(err)
	owns.Clients.Issuer = task.Party{URL: owns.Clients.Issuer.URL, SignKey: signKey(owner), KeyList: issued.Hash()}
	fault("bundle_issuer_owner", "bundle", "field:clients.issuer", "the owner issues the tokens",
		rebundled(&owns, len(w.lists)-1, issued))
}

// badBlocks damages the keys of a block of a task of 43 epochs, and their paths.
func badBlocks(w *world, fault faultFunc) {
	const count, epoch = 43, 20
	owner, t := sign("owner"), *w.Task
	t.Epochs.Count, t.Clients = count, task.Clients{Kind: task.ClientAddress, Quota: 1}
	t.Relays = slices.Clone(t.Relays)
	var lists []*onion.SignedKeyList
	for hop, name := range []string{"one", "two", "verifier"} {
		var keys []*onion.PrivateKey
		for epoch := range count {
			keys = append(keys, privateKey(t.KEM, name, epoch))
		}
		list, err := onion.NewSignedKeyList(t.KEM, keys, sign(name))
		check(err)
		if lists = append(lists, list); hop < len(t.Relays) {
			t.Relays[hop].KeyList = list.Hash()
		} else {
			t.Verifier.KeyList = list.Hash()
		}
	}
	all, err := taskfile.Sign(&t, owner, lists)
	check(err)
	raw, err := all.Block(lists, epoch).Bytes()
	check(err)
	write("block", object{"owner": taskfile.FormatKey(signKey(owner)), "epoch": epoch, "bundle": hexOf(raw)})
	for _, c := range []struct {
		name, description string
		change            func(b *bundle)
	}{
		{"path", "another node in a path", func(b *bundle) { b.Keys[1].Path[33] ^= 1 }},
		{"path_short", "a path without its last node", func(b *bundle) { b.Keys[1].Path = b.Keys[1].Path[:64] }},
		{"path_long", "a path with a node too many",
			func(b *bundle) { b.Keys[1].Path = append(b.Keys[1].Path, make([]byte, 32)...) }},
		{"path_byte", "a path with a byte too many", func(b *bundle) { b.Keys[1].Path = append(b.Keys[1].Path, 0) }},
		{"path_order", "a path from the root down", func(b *bundle) {
			p := b.Keys[1].Path
			b.Keys[1].Path = slices.Concat(p[64:], p[32:64], p[:32])
		}},
		{"place", "the keys of another block", func(b *bundle) { b.First = 8 }},
		{"between", "keys that begin within a block", func(b *bundle) { b.First = 17 }},
		{"beyond", "keys that begin after the last epoch", func(b *bundle) { b.First = 48 }},
		{"short", "seven keys of a block of eight", func(b *bundle) { b.Keys[0].Keys = b.Keys[0].Keys[:7*32] }},
		{"order", "two keys of a block swapped", func(b *bundle) {
			k := b.Keys[0].Keys
			b.Keys[0].Keys = slices.Concat(k[32:64], k[:32], k[64:])
		}},
	} {
		var b bundle
		check(codec.Unmarshal(raw, &b))
		c.change(&b)
		fault("block_"+c.name, "bundle", "keylist", c.description,
			object{"bundle": hexOf(marshal(&b)), "owner": taskfile.FormatKey(signKey(owner))})
	}
}

func badSubmissions(w *world, fault faultFunc) {
	at := func(body []byte) object {
		return object{"task": hexOf(w.Canonical()), "epoch": 0, "hop": 0, "private": w.private()[0],
			"body": hexOf(body)}
	}
	good := w.body(w.content())
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	fault("submission_flipped_bit", "submission", "open", "the last bit of the ciphertext flipped", at(flipped))
	fault("submission_truncated", "submission", "size", "the last byte missing", at(good[:len(good)-1]))
	fault("submission_trailing_byte", "submission", "size", "a byte after the submission",
		at(append(bytes.Clone(good), 0)))
	c := w.content()
	c.Tag = append(c.Tag[:15:15], 0) // the same size as in the right epoch
	wrong := marshal(&submission{task.Version, w.seal("envelope", 1, 0, 0, kindEnvelope, marshal(&c))})
	fault("submission_wrong_epoch", "submission", "open", "sealed for epoch 1, sent in epoch 0", at(wrong))
	kind := marshal(&submission{task.Version, w.seal("envelope", 0, 0, 0, kindSlot, marshal(&c))})
	fault("submission_wrong_kind", "submission", "open", "an envelope sealed with the kind of a slot", at(kind))
	version := w.body(c)
	version[1] = 2
	fault("submission_version", "submission", "content", "version 2", at(version))
	c = w.content()
	c.Lanes[1] = c.Lanes[1][:1]
	var short []byte
	// Lane 1 lacks a slot. Lengthen a slot in lane 0 until the submission has the right size.
	for n := 0; ; n++ {
		c.Lanes[0][0] = append(w.content().Lanes[0][0], make([]byte, n)...)
		if short = w.body(c); len(short) == len(good) {
			break
		}
	}
	fault("submission_slot_missing", "submission", "content",
		"a slot missing in lane 1, its bytes added to one in lane 0", at(short))

	plain := marshal(&content{Tag: tag("envelope"), Lanes: w.content().Lanes})
	sealed := fixture.SealZero(publicKeys(w.lists[0])[0], make([]byte, 32), info(w.id, 0, 0, w.keys[0][0]),
		aad(0, kindEnvelope), plain)
	fault("submission_zero_share", "submission", "open", "the key share is 0, so that the shared secret is all zeros",
		at(marshal(&submission{task.Version, sealed})))
}

func badSlots(w *world, fault faultFunc) {
	hop := w.VerifierHop()
	plain := message("slot", 0, 0)
	at := func(slot []byte) object {
		return object{"task": hexOf(w.Canonical()), "epoch": 0, "hop": hop, "lane": 0, "private": w.private()[hop],
			"slot": hexOf(slot)}
	}
	order8, err := hex.DecodeString("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")
	check(err)
	public := publicKeys(w.lists[hop])[0]
	for name, share := range map[string][]byte{"slot_zero_share": make([]byte, 32), "slot_order_8_share": order8} {
		sealed := fixture.SealZero(public, share, info(w.id, 0, hop, w.keys[hop][0]), aad(0, kindSlot), plain)
		fault(name, "slot", "open", "a key share of low order, so that the shared secret is all zeros", at(sealed))
	}
	fault("slot_wrong_lane", "slot", "open", "sealed for lane 1, found in lane 0",
		at(w.seal("slot", 0, hop, 1, kindSlot, plain)))
	fault("slot_wrong_hop", "slot", "open", "sealed to the last relay",
		at(w.seal("slot", 0, hop-1, 0, kindSlot, plain)))
	other := *w.Task
	other.Name = "another task"
	elsewhere := *w
	elsewhere.Task, elsewhere.id = &other, taskfile.ID(&other)
	fault("slot_wrong_task", "slot", "open", "sealed for another task with the same keys",
		at(elsewhere.seal("slot", 0, hop, 0, kindSlot, plain)))
	fault("slot_kind", "slot", "content", "a plaintext of kind 2",
		at(w.seal("slot", 0, hop, 0, kindSlot, append(tag("slot"), 2, 0))))
	fault("slot_cover_not_zero", "slot", "content", "a cover that carries a message",
		at(w.seal("slot", 0, hop, 0, kindSlot, append(tag("slot"), 0, 1))))
	fault("slot_long", "slot", "content", "a message of two bytes",
		at(w.seal("slot", 0, hop, 0, kindSlot, append(bytes.Clone(plain), 0))))
}

// badChunks writes batches whose manifest is valid, but whose hashes or chunks do not match it.
func badChunks(w *world, fault faultFunc, at func(hop int, b *onion.Batch) object) {
	type form struct {
		Manifest, Signature, Hashes []byte
		Chunks                      [][]byte
	}
	first, _ := w.chain()
	raw, err := first.Bytes()
	check(err)
	for _, c := range []struct {
		name, expect, description string
		change                    func(f *form)
	}{
		{"batch_hashes_swapped", "ciphertexts", "the hashes of the two chunks swapped", func(f *form) {
			f.Hashes = append(bytes.Clone(f.Hashes[32:]), f.Hashes[:32]...)
		}},
		{"batch_hashes_short", "ciphertexts", "a hash less than there are chunks",
			func(f *form) { f.Hashes = f.Hashes[:32] }},
		{"batch_chunk_missing", "ciphertexts", "the last chunk and its hash missing",
			func(f *form) { f.Hashes, f.Chunks = f.Hashes[:32], f.Chunks[:1] }},
		{"batch_chunk_bit", "ciphertexts", "the last bit of the last chunk flipped",
			func(f *form) { f.Chunks[1][len(f.Chunks[1])-1] ^= 1 }},
	} {
		var f form
		check(codec.Unmarshal(raw, &f))
		c.change(&f)
		v := at(0, first)
		v["batch"] = hexOf(marshal(&f))
		fault(c.name, "batch", c.expect, c.description, v)
	}
	for name, in := range map[string][]byte{"batch_trailing_byte": append(bytes.Clone(raw), 0),
		"batch_truncated": raw[:len(raw)-1]} {
		v := at(0, first)
		v["batch"] = hexOf(in)
		fault(name, "batch", "encoding",
			map[bool]string{true: "a byte after the batch", false: "the last byte missing"}[len(in) > len(raw)], v)
	}
}

func badBatches(w *world, fault faultFunc) {
	first, _ := w.chain()
	at := func(hop int, b *onion.Batch) object {
		return object{"task": hexOf(w.Canonical()), "epoch": 0, "hop": hop, "seq": 7, "batch": batchBytes(b)}
	}
	clone := func() *onion.Batch {
		b, _ := w.chain()
		return b
	}
	for _, c := range []struct {
		name, expect, description string
		change                    func(b *onion.Batch)
	}{
		{"batch_removed", "ciphertexts", "a message removed",
			func(b *onion.Batch) { b.Ciphertexts[0] = b.Ciphertexts[0][1:] }},
		{"batch_duplicated", "ciphertexts", "a message replaced by a copy of another",
			func(b *onion.Batch) { b.Ciphertexts[0][0] = b.Ciphertexts[0][1] }},
		{"batch_swapped", "ciphertexts", "two messages swapped", func(b *onion.Batch) {
			b.Ciphertexts[0][0], b.Ciphertexts[0][1] = b.Ciphertexts[0][1], b.Ciphertexts[0][0]
		}},
		{"batch_stranger", "signer", "signed by a stranger",
			func(b *onion.Batch) { b.Signature = signing.Sign(sign("stranger"), signing.Manifest, b.Manifest) }},
		{"batch_purpose", "signer", "the relay's signature for another purpose",
			func(b *onion.Batch) { b.Signature = signing.Sign(sign("one"), signing.KeyList, b.Manifest) }},
	} {
		b := clone()
		c.change(b)
		fault(c.name, "batch", c.expect, c.description, at(0, b))
	}
	for _, c := range []struct {
		name, expect, description string
		change                    func(m *onion.Manifest)
	}{
		{"batch_count", "manifest", "out and dropped do not add up to in",
			func(m *onion.Manifest) { m.Lanes[0].Dropped = 1 }},
		{"batch_added", "manifest", "a slot added by the relay, and the task has no noise",
			func(m *onion.Manifest) { m.Lanes[0].Added, m.Lanes[0].Dropped = 1, 1 }},
		{"batch_submissions", "manifest", "more slots came in than the submissions have",
			func(m *onion.Manifest) { m.Submissions = 1 }},
		{"batch_huge", "manifest", "2^64-1 slots in a lane", func(m *onion.Manifest) {
			m.Lanes[0] = onion.LaneCount{In: 1<<64 - 1, Out: 1<<64 - 1}
		}},
		{"batch_large", "manifest", "2^32-1 submissions in a batch of a task of 2", func(m *onion.Manifest) {
			m.Submissions = 1<<32 - 1
			for lane := range m.Lanes {
				m.Lanes[lane] = onion.LaneCount{In: m.Submissions * 2, Out: m.Submissions * 2}
			}
		}},
		{"batch_epoch", "manifest", "another epoch", func(m *onion.Manifest) { m.Epoch = 1 }},
		{"batch_seq", "manifest", "another number", func(m *onion.Manifest) { m.Seq = 8 }},
		{"batch_hop", "manifest", "another hop", func(m *onion.Manifest) { m.Hop = 1 }},
		{"batch_task", "manifest", "another task", func(m *onion.Manifest) { m.TaskID[0] ^= 1 }},
	} {
		m, err := clone().Header()
		check(err)
		c.change(m)
		body := marshal(m)
		fault(c.name, "batch", c.expect, c.description,
			at(0, &onion.Batch{Manifest: body, Signature: signing.Sign(sign("one"), signing.Manifest, body),
				Ciphertexts: first.Ciphertexts}))
	}
	badChunks(w, fault, at)
	_, second := w.chain()
	for _, c := range []struct {
		name, description string
		in                []uint64
		source            *onion.SignedManifest
	}{
		{"batch_chain_cut", "the second relay's manifest without its source", []uint64{4, 4}, nil},
		{"batch_chain_counts", "the second relay took in fewer than the first gave out", []uint64{4, 3},
			first.Signed()},
		{"batch_chain_stranger", "the source signed by the second relay itself", []uint64{4, 4},
			&onion.SignedManifest{Manifest: first.Manifest,
				Signature: signing.Sign(sign("two"), signing.Manifest, first.Manifest)}},
	} {
		b, err := onion.NewBatch(sign("two"), onion.BatchDraft{
			Context: onion.Context{TaskID: w.id, Hop: 1}, Seq: 7, Submissions: 2, In: c.in, Source: c.source,
		}, second.Ciphertexts)
		check(err)
		expect := "manifest"
		if c.name == "batch_chain_stranger" {
			expect = "signer"
		}
		fault(c.name, "batch", expect, c.description, at(1, b))
	}
}
