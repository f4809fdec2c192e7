package taskfile_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

func signKey(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func public(key ed25519.PrivateKey) task.SignKey {
	return task.SignKey(key.Public().(ed25519.PublicKey))
}

func newList(t testing.TB, party string, keys int) *onion.SignedKeyList {
	t.Helper()
	private := make([]*onion.PrivateKey, keys)
	for i := range private {
		var err error
		private[i], err = onion.GenerateKey(task.KEMX25519)
		require.NoError(t, err)
	}
	list, err := onion.NewSignedKeyList(task.KEMX25519, private, signKey(party))
	require.NoError(t, err)
	return list
}

// sample returns a valid task with two relays and an issuer of tokens, and the key lists that it names.
func sample(t testing.TB) (*task.Task, []*onion.SignedKeyList) {
	t.Helper()
	s := &task.Task{
		Name: "delays", Query: task.Mean, Protocol: "realsum", Rule: "revealed", KEM: task.KEMX25519,
		Params: []task.Param{{Key: "gamma", Value: randomizer.NewRational(1, 32)},
			{Key: "k", Value: randomizer.NewRational(40, 1)}},
		Input:   task.Input{Lo: randomizer.NewRational(-1, 2), Hi: randomizer.NewRational(180, 1), Clip: true},
		Claim:   task.NewClaim("1", "1e-6"),
		Batch:   task.Batch{Size: 5000, Honest: randomizer.NewRational(9, 10), Min: 4000},
		Slots:   task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1, MessageBytes: 1},
		Epochs:  task.Epochs{Start: 1_800_000_000, Length: 86400, Count: 2},
		Clients: task.Clients{Kind: task.ClientToken, Quota: 1},
	}
	var lists []*onion.SignedKeyList
	for _, name := range []string{"one", "two", "verifier"} {
		list := newList(t, name, 2)
		lists = append(lists, list)
		party := task.Party{SignKey: public(signKey(name)), KeyList: list.Hash()}
		if name == "verifier" {
			s.Verifier = party
			continue
		}
		party.URL = "https://" + name + ".example"
		s.Relays = append(s.Relays, party)
	}
	list := newIssuerList(t, "issuer", 7, 8)
	s.Clients.Issuer = task.Party{URL: "https://issuer.example", SignKey: public(signKey("issuer")),
		KeyList: list.Hash()}
	return s, append(lists, list)
}

// newIssuerList returns a party's signed list of token key ids: one id for each given byte, which begins it.
func newIssuerList(t testing.TB, party string, first ...byte) *onion.SignedKeyList {
	t.Helper()
	ids := make([]byte, 32*len(first))
	for i, b := range first {
		ids[32*i] = b
	}
	list, err := onion.ListOf(onion.TokenKEM, ids, signKey(party))
	require.NoError(t, err)
	return list
}

func TestJSONRoundTrip(t *testing.T) {
	full, _ := sample(t)
	labels, _ := sample(t)
	labels.Query, labels.Input = task.Histogram,
		task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1), Bins: 7, Labels: true}
	labels.Params, labels.Batch.Min, labels.Verifier.URL = nil, labels.Batch.DefaultMin(), "http://verifier:1"
	draft, _ := sample(t)
	draft.Relays, draft.Verifier, draft.Epochs, draft.Clients.Issuer = nil, task.Party{}, task.Epochs{}, task.Party{}
	first, _ := sample(t)
	first.Stream = &task.StreamPosition{Name: "site"}
	later, _ := sample(t)
	later.Stream = &task.StreamPosition{Name: "site", Position: 2, Before: task.ID{0xab}, Allow: []string{"batch.size", "name"}}
	later.Claim.SetTotal("2", "1e-5")
	rest := uint64(2)
	total := uint64(9)
	events := withNoise(t, &task.Noise{Kind: task.NoiseCells, Cells: 5, Tables: [][]uint64{{1, 4, 1}}, Total: &total,
		Rest: &rest})
	events.Query, events.Input, events.Params = labels.Query, labels.Input, nil
	events.Epochs.Events = task.Events{Most: 1, Window: 30, Default: rest}
	for name, want := range map[string]*task.Task{"full": full, "events": events, "labels": labels, "draft": draft, "first": first,
		"later": later,
		"cells": withNoise(t, noise()), "pool": withNoise(t, &task.Noise{Kind: task.NoisePool, Cells: 256, Pool: 1}),
		"one table": withNoise(t, &task.Noise{Kind: task.NoiseCells, Cells: 256, Batches: 3,
			Tables: [][]uint64{{1, 1}}})} {
		text, err := taskfile.MarshalJSON(want)
		require.NoError(t, err)
		got, isDraft, err := taskfile.ParseJSON(text)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
		require.Equal(t, name == "draft", isDraft)
		require.Equal(t, taskfile.ID(want), taskfile.ID(got))
		require.Equal(t, task.ID(sha256.Sum256(want.Canonical())), taskfile.ID(want))

		path := filepath.Join(t.TempDir(), "task.json")
		require.NoError(t, os.WriteFile(path, append([]byte("\n "), text...), 0o600))
		loaded, open, err := taskfile.Load(path)
		require.NoError(t, err)
		require.Equal(t, want, loaded)
		require.Nil(t, open, "a JSON document is not a signed bundle")
		_, err = taskfile.LoadBundle(path)
		require.ErrorContains(t, err, "want the signed bundle")
	}
}

// noise returns noise with all optional parts.
func noise() *task.Noise {
	total := uint64(1)
	return &task.Noise{Kind: task.NoiseCells, Cells: 2, Tables: [][]uint64{{1, 2}, {1}},
		Which: []task.Run{{Count: 1, Table: 1}, {Count: 1, Table: 0}},
		Tilt:  &task.Tilt{Centre: 1, Weights: []uint64{0, 1}, Factors: []uint64{5, 1}}, Total: &total}
}

// withNoise returns the sample with relays' noise and a claim that needs no honest client.
func withNoise(t testing.TB, n *task.Noise) *task.Task {
	t.Helper()
	s, _ := sample(t)
	s.Noise, s.Claim.Assumption = n, task.NoneHonest
	return s
}

// TestOldTasksKeepTheirIDs: tasks without a cap or events have the ids that they had before these existed. A report
// binds nothing of its task but the id and the keys, so reports keep every byte.
func TestOldTasksKeepTheirIDs(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/v1/task.json")
	require.NoError(t, err)
	var vectors []struct{ Canonical, ID string }
	require.NoError(t, json.Unmarshal(raw, &vectors))
	var ids []string
	for _, v := range vectors {
		canonical, err := hex.DecodeString(v.Canonical)
		require.NoError(t, err)
		parsed, err := task.Parse(canonical)
		require.NoError(t, err)
		if parsed.Epochs.Cap.IsZero() && parsed.Epochs.Events.IsZero() {
			require.Equal(t, canonical, parsed.Canonical())
			ids = append(ids, taskfile.ID(parsed).String()[:16])
		}
	}
	require.Equal(t, []string{"0bf9c0e9372263f1", "5fc8ca428b9c1e1a", "96cb0ee568a531e2", "1943690abfc41b10",
		"4cb8aa252a85a0f4", "b1305cfe0bf33d55", "be4a919b60b78c98", "b8a88f518532b7a2", "c20c7aaffe142b8e",
		"bbc56fce31b87921", "50c7be4b01bf03cc"}, ids)
}

// TestChangeableAreFields: the parts that an owner may let later tasks change must be fields of the JSON form. Every
// other field must be one that any later task may change, or that none may.
func TestChangeableAreFields(t *testing.T) {
	text := map[string]bool{}
	for _, field := range taskfile.Fields() {
		text[field] = true
	}
	always := []string{"stream.position", "stream.before", "epochs.start", "epochs.count", "relays.keyList",
		"verifier.keyList", "clients.issuer.keyList", "stream.rotations.old", "stream.rotations.new", "stream.rotations.signature"}
	never := []string{"stream.name", "stream.allow", "cap", "pace", "events.limit", "events.default", "input.dim",
		"input.length"} // the last two set bins
	for _, name := range slices.Concat(new(task.StreamPosition).Changeable(), always, never) {
		require.True(t, text[name], name)
		delete(text, name)
	}
	require.Empty(t, text)
}

func TestJSONDefaults(t *testing.T) {
	s, _ := sample(t)
	text, err := taskfile.MarshalJSON(s)
	require.NoError(t, err)
	without := strings.Replace(string(text), `"min": 4000`, `"min": 0`, 1)
	got, _, err := taskfile.ParseJSON([]byte(without))
	require.NoError(t, err)
	require.Equal(t, uint64(4500), got.Batch.Min, "⌊h·n⌋")
}

func TestJSONRejects(t *testing.T) {
	s, _ := sample(t)
	text, err := taskfile.MarshalJSON(s)
	require.NoError(t, err)
	good := string(text)
	edit := func(old, new string) string {
		require.Contains(t, good, old)
		return strings.Replace(good, old, new, 1)
	}
	key := taskfile.FormatKey(s.Relays[0].SignKey)
	issuer := taskfile.FormatKey(s.Clients.Issuer.SignKey)
	list := taskfile.FormatHash(s.Relays[0].KeyList)
	for name, c := range map[string]struct{ in, want string }{
		"empty":                    {"", "EOF"},
		"unknown key":              {edit(`"name"`, `"nome": 1, "name"`), "nome"},
		"unknown key inside":       {edit(`"epsilon"`, `"rho": "1", "epsilon"`), "rho"},
		"a known key out of place": {edit(`"name"`, `"size": 1, "name"`), "size"},
		"a key in capitals":        {edit(`"name"`, `"NAME"`), "NAME"},
		"a key in other capitals":  {edit(`"perLane"`, `"perlane"`), "perlane"},
		"duplicate key":            {edit(`"query"`, `"name": "other", "query"`), `duplicate key "name"`},
		"duplicate in capitals":    {edit(`"query"`, `"Name": "other", "query"`), "Name"},
		"duplicate key inside":     {edit(`"honest"`, `"size": 5000, "honest"`), `duplicate key "batch.size"`},
		"duplicate parameter":      {edit(`"gamma"`, `"gamma": "1/2", "gamma"`), `duplicate key "params.gamma"`},
		"duplicate escaped":        {edit(`"query"`, `"n\u0061me": "other", "query"`), `duplicate key "name"`},
		"trailing bytes":           {good + "{}", "trailing"},
		"trailing text":            {good + "x", "trailing"},
		"an array":                 {"[" + good + "]", "array"},
		"deep":                     {strings.Repeat(`{"params":`, 20000), "depth"},
		"an issuer without a key":  {edit(`"signKey": "`+issuer+`",`, ``), "clients.issuer.signKey"},
		"an issuer's short key":    {edit(issuer, issuer[:len(issuer)-1]), "clients.issuer.signKey"},
		"a number for a string":    {edit(`"epsilon": "1"`, `"epsilon": 1`), "epsilon"},
		"a fraction for a number":  {edit(`"size": 5000`, `"size": 5000.5`), "size"},
		"a negative number":        {edit(`"size": 5000`, `"size": -1`), "size"},
		"a range of three":         {edit(`"180"`, `"180", "7"`), "input.range"},
		"a range of one": {edit(`,
      "180"`, ``), "input.range"},
		"a decimal for a rational":   {edit(`"1/32"`, `"0.03125"`), "params.gamma"},
		"a rational not reduced":     {edit(`"9/10"`, `"18/20"`), "batch.honest"},
		"honest above one":           {edit(`"9/10"`, `"11/10"`), "batch.honest"},
		"honest zero":                {edit(`"9/10"`, `"0"`), "batch.honest"},
		"a start with a fraction":    {edit(`:00Z`, `:00.5Z`), "epochs.start"},
		"a start before 1970":        {edit(`"2027-`, `"1927-`), "epochs.start"},
		"a length in fractions":      {edit(`"24h0m0s"`, `"1.5s"`), "epochs.length"},
		"a length of 2^32 seconds":   {edit(`"24h0m0s"`, `"4294967296s"`), "epochs.length"},
		"a length without a unit":    {edit(`"24h0m0s"`, `"86400"`), "epochs.length"},
		"a key without its prefix":   {edit(key, strings.TrimPrefix(key, "ed25519:")), "relays.signKey"},
		"a key with another prefix":  {edit(key, "sha256:"+strings.TrimPrefix(key, "ed25519:")), "relays.signKey"},
		"a short key":                {edit(key, key[:len(key)-2]), "relays.signKey"},
		"a key with padding":         {edit(key, key+"="), "relays.signKey"},
		"a key over two lines":       {edit(key, key[:20]+`\n`+key[20:]), "relays.signKey"},
		"spare bits in a key":        {edit(key, key[:len(key)-1]+next(key[len(key)-1])), "relays.signKey"},
		"a list in another alphabet": {edit(list, "sha256:"+strings.Repeat("+", 43)), "relays.keyList"},
		"invalid UTF-8":              {edit("delays", "delay\xff"), "name"},
	} {
		_, _, err := taskfile.ParseJSON([]byte(c.in))
		require.ErrorContains(t, err, c.want, name)
	}
	parts := withNoise(t, noise())
	parts.Stream = &task.StreamPosition{Name: "site", Position: 2, Before: task.ID{0xab}}
	parts.Claim.SetTotal("2", "1e-5")
	text, err = taskfile.MarshalJSON(parts)
	require.NoError(t, err)
	good = strings.Join(strings.Fields(string(text)), "")
	for name, c := range map[string]struct{ in, want string }{
		"an empty total":            {edit(`"total":{"epsilon":"2","delta":"1e-5"}`, `"total":{}`), "claim.total"},
		"an unknown assumption":     {edit(`"none"`, `"all"`), "claim.assumption"},
		"a short task before":       {edit(`"ab00`, `"ab0`), "stream.before"},
		"a task before in capitals": {edit(`"ab00`, `"AB00`), "stream.before"},
		"an unknown part of noise":  {edit(`"tilt":`, `"tild":`), "tild"},
		"a run of three":            {edit(`[1,1]`, `[1,1,1]`), "noise.which"},
		"a negative weight":         {edit(`"factors":[5`, `"factors":[-5`), "factors"},
		"a key twice in noise":      {edit(`"tables":`, `"cells":2,"tables":`), `duplicate key "noise.cells"`},
	} {
		_, _, err := taskfile.ParseJSON([]byte(c.in))
		require.ErrorContains(t, err, c.want, name)
	}
	alone, _ := sample(t)
	alone.Relays, alone.Verifier, alone.Epochs = nil, task.Party{}, task.Epochs{}
	draft, err := taskfile.MarshalJSON(alone)
	require.NoError(t, err)
	_, _, err = taskfile.ParseJSON(bytes.Replace(draft, []byte(`"quota": 1`),
		[]byte(`"quota": 1, "issuer": {"url": "https://i", "signKey": "`+issuer+`", "keyList": "`+list+`"}`), 1))
	require.ErrorContains(t, err, "or none of them for a draft", "an issuer in a draft")
	for name, strip := range map[string]string{"verifier": "verifier", "epochs": "epochs", "relays": "relays"} {
		d, err := sampleWithout(t, strip)
		require.NoError(t, err)
		_, _, err = taskfile.ParseJSON(d)
		var field *invalid.FieldError
		require.True(t, errors.As(err, &field), "without %s: %v", name, err)
	}
}

// next returns the character after c in the base64url alphabet. As the last of 43 characters, it changes only bits that
// the decoder does not use.
func next(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, c)+1:][:1]
}

// sampleWithout returns the sample's JSON form with a key set to null.
func sampleWithout(t *testing.T, key string) ([]byte, error) {
	s, _ := sample(t)
	text, err := taskfile.MarshalJSON(s)
	start := bytes.Index(text, []byte("\n  \""+key+"\": ")) + len("\n  \""+key+"\": ")
	end := start + bytes.IndexAny(text[start:], "\n") // the opening line
	shut := map[byte]string{'{': "\n  }", '[': "\n  ]"}[text[end-1]]
	end += bytes.Index(text[end:], []byte(shut)) + len(shut)
	return slices.Concat(text[:start], []byte("null"), text[end:]), err
}

func TestBundleRoundTrip(t *testing.T) {
	s, lists := sample(t)
	owner := signKey("owner")
	b, err := taskfile.Sign(s, owner, lists)
	require.NoError(t, err)
	raw, err := b.Bytes()
	require.NoError(t, err)
	back, err := taskfile.ParseBundle(raw)
	require.NoError(t, err)
	require.Equal(t, b, back)
	id := public(owner)
	for _, want := range []*task.SignKey{nil, &id} {
		open, err := back.Open(want)
		require.NoError(t, err)
		require.Equal(t, s, open.Task)
		require.Equal(t, taskfile.ID(s), open.ID)
		require.Equal(t, id, open.Owner)
		require.Equal(t, lists[:3], open.KeyLists)
		require.Equal(t, lists[3], open.IssuerKeys)
		require.Equal(t, []onion.KeyID{{7}, {8}}, open.TokenKeys)
	}
	path := filepath.Join(t.TempDir(), "task.bundle")
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	open, err := taskfile.LoadBundle(path)
	require.NoError(t, err)
	require.Equal(t, s, open.Task)
	loaded, signed, err := taskfile.Load(path)
	require.NoError(t, err)
	require.Equal(t, s, loaded)
	require.Equal(t, open, signed)
}

func TestBundleRejects(t *testing.T) {
	s, lists := sample(t)
	owner, stranger := signKey("owner"), signKey("stranger")
	id := public(owner)
	for name, c := range map[string]struct {
		change func(*taskfile.Bundle)
		want   string
	}{
		"another owner, who signed": {func(b *taskfile.Bundle) {
			b.Owner, b.Signature = stranger.Public().(ed25519.PublicKey), signing.Sign(stranger, signing.Task, b.Task)
		}, "its owner is"},
		"a stranger's signature": {func(b *taskfile.Bundle) {
			b.Signature = signing.Sign(stranger, signing.Task,
				b.Task)
		}, signing.ErrSigner.Error()},
		"a signature for another use": {func(b *taskfile.Bundle) {
			b.Signature = signing.Sign(owner, signing.Manifest,
				b.Task)
		}, signing.ErrSigner.Error()},
		"no signature":   {func(b *taskfile.Bundle) { b.Signature = []byte{} }, signing.ErrSigner.Error()},
		"a short owner":  {func(b *taskfile.Bundle) { b.Owner = b.Owner[1:] }, "31 bytes"},
		"a changed task": {func(b *taskfile.Bundle) { b.Task[20] ^= 1 }, signing.ErrSigner.Error()},
		"a signed task that is not canonical": {func(b *taskfile.Bundle) {
			b.Task = append(b.Task, 0)
			b.Signature = signing.Sign(owner, signing.Task, b.Task)
		}, "trailing"},
		"key lists swapped": {func(b *taskfile.Bundle) {
			b.KeyLists[0],
				b.KeyLists[1] = b.KeyLists[1], b.KeyLists[0]
		}, "not the list the task names"},
		"a key list less": {func(b *taskfile.Bundle) { b.KeyLists = b.KeyLists[:2] },
			"2 key lists with the keys of 4, want 4"},
		"the issuer's key list for the verifier's": {func(b *taskfile.Bundle) { b.KeyLists[2] = b.KeyLists[3] },
			"the keys of hop 2: a list of 130 bytes, want 124"},
		"a key list more": {func(b *taskfile.Bundle) {
			b.KeyLists = append(b.KeyLists,
				b.KeyLists[0])
		}, "5 key lists with the keys of 4, want 4"},
		"another key list": {func(b *taskfile.Bundle) {
			b.KeyLists[1] = headOf(t, newList(t, "two", 2))
		}, "not the list the task names"},
		"a list signed by another": {func(b *taskfile.Bundle) {
			b.KeyLists[1] = headOf(t, &onion.SignedKeyList{List: lists[1].List,
				Signature: signing.Sign(stranger, signing.KeyList, lists[1].List)})
		}, signing.ErrSigner.Error()},
		"keys swapped": {func(b *taskfile.Bundle) { b.Keys[0], b.Keys[1] = b.Keys[1], b.Keys[0] },
			"the keys of hop 0: other keys"},
		"a party's keys missing": {func(b *taskfile.Bundle) { b.Keys = b.Keys[:3] },
			"4 key lists with the keys of 3, want 4"},
		"a path with all keys": {func(b *taskfile.Bundle) { b.Keys[2].Path = make([]byte, 32) },
			"the keys of hop 2: a path of 32 bytes"},
		"another first epoch": {func(b *taskfile.Bundle) { b.First = 8 }, "the keys of hop 0: keys from epoch 8 on"},
		"a list with trailing bytes": {func(b *taskfile.Bundle) { b.KeyLists[1] = append(b.KeyLists[1], 0) },
			"the keys of hop 1: a list of 125 bytes, want 124"},
	} {
		b, err := taskfile.Sign(s, owner, lists)
		require.NoError(t, err)
		c.change(b)
		_, err = b.Open(&id)
		require.ErrorContains(t, err, c.want, name)
	}
	_, err := taskfile.Sign(s, owner, lists[:3])
	require.Error(t, err)
	owned, ownedLists := sample(t)
	ownedLists[3] = newIssuerList(t, "owner", 7, 8)
	owned.Clients.Issuer.SignKey, owned.Clients.Issuer.KeyList = id, ownedLists[3].Hash()
	_, err = taskfile.Sign(owned, owner, ownedLists)
	require.ErrorContains(t, err, "clients.issuer", "the owner as issuer")
	for want, list := range map[string]*onion.SignedKeyList{
		"of other epochs": newIssuerList(t, "issuer", 7), "have the same": newIssuerList(t, "issuer", 7, 7),
		"the keys of hop 3: a list of 124 bytes, want 130": newList(t, "issuer", 2), signing.ErrSigner.Error(): newIssuerList(t, "stranger", 7, 8),
	} {
		other, otherLists := sample(t)
		otherLists[3], other.Clients.Issuer.KeyList = list, list.Hash()
		_, err = taskfile.Sign(other, owner, otherLists)
		require.ErrorContains(t, err, want)
	}
	short, shortLists := sample(t)
	shortLists[2] = newList(t, "verifier", 1)
	short.Verifier.KeyList = shortLists[2].Hash()
	_, err = taskfile.Sign(short, owner, shortLists)
	require.ErrorContains(t, err, "the keys of hop 2: of other epochs", "a list with too few keys, rightly named and signed")
	short.Name = ""
	_, err = taskfile.Sign(short, owner, lists)
	require.Error(t, err)
}

func headOf(t *testing.T, list *onion.SignedKeyList) []byte {
	t.Helper()
	raw, err := list.Head()
	require.NoError(t, err)
	return raw
}

func bytesOf(t *testing.T, list interface{ Bytes() ([]byte, error) }) []byte {
	t.Helper()
	raw, err := list.Bytes()
	require.NoError(t, err)
	return raw
}

func TestParseKey(t *testing.T) {
	key := public(signKey("owner"))
	got, err := taskfile.ParseKey("owner", taskfile.FormatKey(key))
	require.NoError(t, err)
	require.Equal(t, key, got)
	_, err = taskfile.ParseKey("owner", "")
	var field *invalid.FieldError
	require.True(t, errors.As(err, &field))
	require.Equal(t, "owner", field.Field)
}

// TestBlocks: a bundle with the keys of a block must open for a page, and be refused where all keys are needed.
func TestBlocks(t *testing.T) {
	var b *taskfile.Bundle
	var s *task.Task
	for count := byte(9); count <= 20; count++ { // with nine epochs, a block and its path are as long as all keys
		var lists []*onion.SignedKeyList
		s, lists = sample(t)
		s.Epochs.Count = uint64(count)
		ids := make([]byte, count)
		for i := range ids {
			ids[i] = byte(i + 1)
		}
		for hop, name := range []string{"one", "two", "verifier"} {
			lists[hop] = newList(t, name, int(count))
		}
		lists[3] = newIssuerList(t, "issuer", ids...)
		s.Relays[0].KeyList, s.Relays[1].KeyList = lists[0].Hash(), lists[1].Hash()
		s.Verifier.KeyList, s.Clients.Issuer.KeyList = lists[2].Hash(), lists[3].Hash()
		var err error
		b, err = taskfile.Sign(s, signKey("owner"), lists)
		require.NoError(t, err)
		for epoch := range uint64(count) {
			raw := bytesOf(t, b.Block(lists, epoch))
			require.Less(t, len(raw), 3<<10)
			block, err := taskfile.ParseBundle(raw)
			require.NoError(t, err)
			open, err := block.OpenBlock(nil)
			require.NoError(t, err)
			for i, id := range open.TokenKeys {
				require.Equal(t, uint64(i)/onion.BlockEpochs == epoch/onion.BlockEpochs, id == onion.KeyID{byte(i + 1)})
			}
			_, err = block.Open(nil)
			require.ErrorContains(t, err, fmt.Sprintf("as pages get it; want all %d", count))
			_, _, err = taskfile.ReadBundle(bytes.NewReader(raw), func(*taskfile.Open) error { return nil })
			require.Error(t, err)
		}
	}
	open, err := b.Open(nil)
	require.NoError(t, err)
	start, length := s.Epochs.Start, uint64(s.Epochs.Length)
	for at, epoch := range map[uint64]uint64{0: 0, start - 1: 0, start: 0, start + length: 1, start + 19*length: 19,
		start + 20*length: 19, 1 << 50: 19} {
		require.Equal(t, epoch, open.EpochNear(at), at)
	}
	_, err = b.Bare().OpenBlock(nil)
	require.ErrorContains(t, err, "0 key lists with the keys of 0, want 4 of both")
}

// TestYearOfKeys prints what a page fetches of a task of a year, and what parties exchange.
func TestYearOfKeys(t *testing.T) {
	s, lists := sample(t)
	s.Epochs.Count, s.Clients = 365, task.Clients{Kind: task.ClientAddress, Quota: 1}
	for hop, name := range []string{"one", "two", "verifier"} {
		lists[hop] = newList(t, name, 365)
	}
	s.Relays[0].KeyList, s.Relays[1].KeyList, s.Verifier.KeyList = lists[0].Hash(), lists[1].Hash(), lists[2].Hash()
	b, err := taskfile.Sign(s, signKey("owner"), lists[:3])
	require.NoError(t, err)
	page, all := len(bytesOf(t, b.Block(lists[:3], 200))), len(bytesOf(t, b))
	t.Logf("a page fetches %d bytes, of %d that parties exchange", page, all)
	require.Less(t, page, 2500)
	require.Greater(t, all, 35_000)
}

// FuzzParseBundle: a bundle that parses must encode to the same bytes again, and Open must not panic.
func FuzzParseBundle(f *testing.F) {
	s, lists := sample(f)
	b, err := taskfile.Sign(s, signKey("owner"), lists)
	require.NoError(f, err)
	raw, err := b.Bytes()
	require.NoError(f, err)
	f.Add(raw)
	f.Add([]byte{0x94, 0xc4, 0, 0xc4, 0, 0xc4, 0, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x94, 0xc4, 0, 0xc4, 0, 0xc4, 0, 0xc0})
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := taskfile.ParseBundle(in)
		if err != nil {
			return
		}
		again, err := codec.Marshal(b)
		require.NoError(t, err)
		require.Equal(t, in, again)
		_, _ = b.Open(nil)
	})
}

// TestBundleNotSupportedYet: a task with an unsupported part must be refused when it is signed and when it is opened.
func TestBundleNotSupportedYet(t *testing.T) {
	s, lists := sample(t)
	good, err := taskfile.Sign(s, signKey("owner"), lists)
	require.NoError(t, err)
	for field, change := range map[string]func(*task.Task){
		"stream.allow": func(t *task.Task) { t.Stream = &task.StreamPosition{Name: "site", Allow: []string{"rule"}} },
	} {
		changed := *s
		change(&changed)
		require.NoError(t, changed.Validate())
		var refused *invalid.FieldError
		_, err := taskfile.Sign(&changed, signKey("owner"), lists)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, field, refused.Field)
		b := *good
		b.Task = changed.Canonical()
		b.Signature = signing.Sign(signKey("owner"), signing.Task, b.Task)
		_, err = b.Open(nil)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, field, refused.Field)
		require.ErrorContains(t, err, "not supported yet")
	}
}

// FuzzParseJSON: if a document parses, the JSON form of its task must parse to the same task.
func FuzzParseJSON(f *testing.F) {
	s, _ := sample(f)
	text, err := taskfile.MarshalJSON(s)
	require.NoError(f, err)
	f.Add(text)
	text, err = taskfile.MarshalJSON(withNoise(f, noise()))
	require.NoError(f, err)
	f.Add(text)
	s.Relays = nil
	text, err = taskfile.MarshalJSON(s)
	require.NoError(f, err)
	f.Add(text)
	f.Fuzz(func(t *testing.T, in []byte) {
		parsed, draft, err := taskfile.ParseJSON(in)
		if err != nil {
			return
		}
		again, err := taskfile.MarshalJSON(parsed)
		require.NoError(t, err)
		reparsed, stillDraft, err := taskfile.ParseJSON(again)
		require.NoError(t, err)
		require.Equal(t, draft, stillDraft)
		require.Equal(t, parsed.Canonical(), reparsed.Canonical())
	})
}

// TestErrorsOfJSONNameThePlace: an error about a document of a person must name the line and the column.
func TestErrorsOfJSONNameThePlace(t *testing.T) {
	for in, want := range map[string]string{
		"{\n  \"batch\": {\"size\": NaN}}":                  "line 2, column 21: invalid character 'N'",
		"{\n  \"batch\": {\"size\": 18446744073709551616}}": "line 2, column 40: json: cannot unmarshal number",
		"{\"batch\": {\"size\": -1}}":                       "line 1, column 21: json: cannot unmarshal number -1",
		"{\"name\": 1}":                                     "line 1, column 10: json: cannot unmarshal number",
		"{\"name\": \"a\"\n\"query\": \"count\"}":           "line 2, column 1: invalid character",
		"{\"name\": \"a\"":                                  "unexpected EOF",
	} {
		_, _, err := taskfile.ParseJSON([]byte(in))
		require.ErrorContains(t, err, want, in)
	}
}
