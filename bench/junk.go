package main

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// junk measures how long a party takes to refuse junk of the largest allowed size, in ms, for the slowest kind of junk.
// junk/relay receives a bundle. junk/issuer (and the verifier) and junk/client read the stream that a relay serves: a
// hostile relay can answer every request with junk. junk/signed reads a bundle whose owner signed for all parties: it
// holds as many keys as fit, and only the last is invalid.
var junk = Group{Names: []string{"junk/relay", "junk/issuer", "junk/client", "junk/signed"}, Run: measureJunk}

// junkRuns is how many times the bench has each kind of junk refused. The row reports the times of the slowest kind.
const junkRuns = 3

func measureJunk(ctx context.Context, _ *Setup) ([]Row, error) {
	draft := fixture.Draft(task.Mean, 0)
	draft.Stream = &task.StreamPosition{Name: "bench"}
	var answer fixture.Junk
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, answer.Reader()) // fails when the reader refuses the junk and closes the connection
	}))
	defer server.Close()
	epochs := task.Epochs{Start: uint64(time.Now().Unix()), Length: 86400, Count: 365}
	made, err := fixture.Sign(draft, []string{server.URL, server.URL + "/next"}, epochs)
	if err != nil {
		return nil, err
	}
	open, err := made.Bundle.Open(nil)
	if err != nil {
		return nil, err
	}
	party := handover.NewRequester(made.Owner, nil)
	bundles := fixture.JunkBundles(made.Bundle, taskfile.MaxBundle)
	streams := fixture.JunkStreams(made.Bundle, taskfile.MaxStream)
	var rows []Row
	for _, of := range []struct {
		name   string
		kinds  []fixture.Junk
		refuse func() error
	}{
		{"junk/relay", bundles, func() error {
			_, _, err := taskfile.ReadBundle(answer.Reader(), func(*taskfile.Open) error { return nil })
			return err
		}},
		{"junk/issuer", streams, func() error { // the verifier reads streams with the same code
			_, err := party.StreamAt(ctx, open, open.Task, 0, open.Trust(task.SignKey{}))
			return err
		}},
		{"junk/client", streams, func() error {
			_, err := shufflerclient.Follow(ctx, shufflerclient.Options{Stream: open.StreamURL(open.Task, 0),
				Owner: made.OwnerText(), MaxEpsilon: 1000, MaxDelta: 1})
			return err
		}},
	} {
		dearest, limit, err := refuseAll(of.kinds, &answer, of.refuse)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of.name, err)
		}
		rows = append(rows, newRow(of.name, "ms", lower, dearest...).within("SHA-256 of as many bytes", limit))
	}
	return append(rows, measureSigned(draft, made.Owner)), nil
}

// measureSigned measures how long it takes to refuse the bundle of signedJunk.
func measureSigned(draft *task.Task, owner ed25519.PrivateKey) Row {
	raw := signedJunk(draft, owner)
	began := time.Now()
	sha256.Sum256(raw)
	limit := time.Since(began)
	var runs []float64
	for range junkRuns {
		began := time.Now()
		if _, err := taskfile.ParseOpen(raw); err == nil {
			panic("bench: keys of two epochs were accepted")
		}
		runs = append(runs, float64(time.Since(began))/float64(time.Millisecond))
	}
	return newRow("junk/signed", "ms", lower, runs...).within("SHA-256 of as many bytes",
		float64(limit)/float64(time.Millisecond))
}

// signedJunk returns a validly signed bundle of two relays and a verifier with 65,536 keys each. The last two keys of
// the verifier are equal, which makes the bundle invalid.
func signedJunk(draft *task.Task, owner ed25519.PrivateKey) []byte {
	const most = 65536
	t := *draft
	t.Epochs, t.Relays = task.Epochs{Start: uint64(time.Now().Unix()), Length: 3600, Count: most}, nil
	b := &taskfile.Bundle{Owner: owner.Public().(ed25519.PublicKey)}
	for hop := range 3 {
		public, sign, _ := ed25519.GenerateKey(nil) // fails only if the system has no random bytes
		keys := make([]byte, 32*most)
		for epoch := range most {
			number := min(epoch, most-1-hop/2) // the verifier's last two are equal
			binary.BigEndian.PutUint64(keys[32*epoch:], uint64(number))
			keys[32*epoch+31] = byte(hop)
		}
		signed, err := onion.ListOf(t.KEM, keys, sign)
		if err != nil {
			panic(err)
		}
		head, err := signed.Head()
		if err != nil {
			panic(err)
		}
		b.KeyLists, b.Keys = append(b.KeyLists, head), append(b.Keys, taskfile.Keys{Keys: keys, Path: []byte{}})
		party := task.Party{URL: fmt.Sprintf("https://r%d", hop), SignKey: task.SignKey(public), KeyList: signed.Hash()}
		if hop == 2 {
			t.Verifier = party
		} else {
			t.Relays = append(t.Relays, party)
		}
	}
	b.Task = t.Canonical()
	b.Signature = signing.Sign(owner, signing.Task, b.Task)
	raw, err := b.Bytes()
	if err != nil {
		panic(err)
	}
	return raw
}

// refuseAll runs refuse on every kind of junk. It returns the times of the slowest kind, one per run, and as limit the
// time to hash as many bytes with SHA-256. All times are in milliseconds.
func refuseAll(kinds []fixture.Junk, answer *fixture.Junk, refuse func() error) (dearest []float64, limit float64,
	err error) {
	for _, kind := range kinds {
		*answer = kind
		var runs []float64
		for range junkRuns {
			began := time.Now()
			if refuse() == nil {
				return nil, 0, fmt.Errorf("%s was not refused", kind.Name)
			}
			runs = append(runs, float64(time.Since(began))/float64(time.Millisecond))
		}
		if dearest == nil || median(runs) > median(dearest) {
			dearest = runs
		}
	}
	bytes := kinds[0].Bytes()
	began := time.Now()
	sha256.Sum256(bytes)
	return dearest, float64(time.Since(began)) / float64(time.Millisecond), nil
}
