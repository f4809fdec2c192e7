package server_test

import (
	"crypto/ed25519"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// yamlOf writes a party's configuration and returns its path. newest is the file of the party's newest signing key, old
// the files of earlier ones.
func yamlOf(t *testing.T, c *relaytest.Cascade, party, text, newest string, old ...string) string {
	t.Helper()
	file := filepath.Join(c.Dir, party, party+".yaml")
	text = "{sign_key: " + newest + ", old_sign_keys: [" + strings.Join(old, ", ") + "], " + text + "}"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// verifierWith returns the configuration of a verifier with the given files of signing keys.
func verifierWith(t *testing.T, c *relaytest.Cascade, newest string, old ...string) server.Config {
	t.Helper()
	cfg, err := server.LoadConfig(yamlOf(t, c, "verifier", `data: data, pull_interval: 20ms,
  tasks: [{file: ../task0.bundle, hpke_keys: task0.keys, successors: task0.next}]`, newest, old...))
	require.NoError(t, err)
	cfg.Clock = c.Clock.Now
	return cfg
}

// issuerWith returns the configuration of an issuer with the given files of signing keys.
func issuerWith(t *testing.T, c *relaytest.Cascade, newest string, old ...string) issuer.Config {
	t.Helper()
	cfg, err := issuer.LoadConfig(yamlOf(t, c, "issuer", `store: "sqlite:issuer.db", clients: address,
  trusted_proxies: [127.0.0.0/8], follow_interval: 20ms,
  tasks: [{file: ../task0.bundle, owner: "`+c.Owner+`", token_keys: task0.keys, successors: task0.next}]`,
		newest, old...))
	require.NoError(t, err)
	cfg.Clock = c.Clock.Now
	return cfg
}

// handOn writes new.key and stranger.key beside a party's sign.key. It returns the new key, and the rotation that the
// old key signed.
func handOn(t *testing.T, c *relaytest.Cascade, party string) (ed25519.PrivateKey, task.Rotation) {
	t.Helper()
	old, err := keyfile.LoadSign(filepath.Join(c.Dir, party, "sign.key"))
	require.NoError(t, err)
	next, err := keyfile.NewSign(filepath.Join(c.Dir, party, "new.key"))
	require.NoError(t, err)
	_, err = keyfile.NewSign(filepath.Join(c.Dir, party, "stranger.key"))
	require.NoError(t, err)
	return next, taskfile.NewRotation(c.Open.ID, old, task.SignKey(next.Public().(ed25519.PublicKey)))
}

// renewRolled signs the second task of a stream, with one epoch, after the verifier and the issuer have rotated their
// keys. Key lists that the old keys signed must be refused.
func renewRolled(t *testing.T, c *relaytest.Cascade, verifier, issuing ed25519.PrivateKey, rotations []task.Rotation) (
	*taskfile.Bundle, *relaytest.Cascade) {
	t.Helper()
	_, owner := c.AsOwner(t)
	lists := []*onion.SignedKeyList{c.NextVerifierKeys(t, 1, 1), c.NextIssuerKeys(t, 1, 1)}
	renew := func() (*taskfile.Bundle, error) {
		return owner.Renew(t.Context(), c.Open, handover.Renewal{Count: 1, Now: c.Clock.Now(), Rotations: rotations,
			Verifier: lists[0], Issuer: lists[1]})
	}
	for i, key := range []ed25519.PrivateKey{verifier, issuing} {
		_, err := renew()
		require.ErrorIs(t, err, signing.ErrSigner)
		lists[i].Signature = signing.Sign(key, signing.KeyList, lists[i].List)
	}
	bundle, err := renew()
	require.NoError(t, err)
	return bundle, c.After(t, bundle)
}

// TestPartiesHandOnTheirKeys: from the second task of a stream on, the verifier and the issuer sign with new keys; in
// the first they keep the old ones. Both get the new keys late, after the owner has signed. Until then they must not
// host the task, and their metrics must say so.
func TestPartiesHandOnTheirKeys(t *testing.T) {
	c := newCascade(t, 1, 1, relaytest.InStream(), relaytest.WithTokens)
	c.StartAll(t)
	v, issuing := serve(t, verifierWith(t, c, "sign.key")), issuerWith(t, c, "sign.key")
	issuing.Admin = relaytest.FreeAddress(t)
	stop := c.StartIssuer(t, issuing)
	playEpoch(t, c, 0)
	v.wait(t, c.Open, batches(1))

	newVerifier, verifierRoll := handOn(t, c, "verifier")
	newIssuer, issuerRoll := handOn(t, c, "issuer")
	bundle, next := renewRolled(t, c, newVerifier, newIssuer, []task.Rotation{verifierRoll, issuerRoll})
	require.NoError(t, c.Hand(t.Context(), t, 0, bundle))
	awaitStuck(t, v.admin, "verifier", c.Open, "1")
	awaitStuck(t, "http://"+issuing.Admin, "issuer", c.Open, "1")
	for _, party := range []string{"verifier", "issuer"} {
		require.NoFileExists(t, filepath.Join(c.Successors(party), "1.bundle"))
	}
	v.stop()
	stop()
	v = serve(t, verifierWith(t, c, "new.key", "sign.key"))
	stop = c.StartIssuer(t, issuerWith(t, c, "new.key", "sign.key"))
	v.awaitTask(t, next.Open)
	awaitStuck(t, v.admin, "verifier", c.Open, "0")
	require.Eventually(t, func() bool { // until the issuer hosts the task, too
		status, _ := fetch(t, next.Open.DirectoryURL(0))
		return status != http.StatusNotFound
	}, relaytest.Patience, 10*time.Millisecond)

	c.Clock.Advance(relaytest.Epoch)
	playEpoch(t, c, 1)
	require.Empty(t, v.wait(t, c.Open, batches(2)).Findings)
	c.Clock.Advance(relaytest.Epoch)
	playEpoch(t, next, 0)
	got := v.wait(t, next.Open, batches(1))
	require.Empty(t, got.Findings)
	require.EqualValues(t, batchSize, got.Users)
	require.EqualValues(t, 3, got.Ledger.Published.Epochs, "of the whole stream")
	for _, open := range []*taskfile.Open{c.Open, next.Open} { // the issuer signs with the key that the task names
		_, err := c.Verifier.Time(t.Context(), open, open.VerifierHop()+1)
		require.NoError(t, err)
	}
	_, err := shufflerclient.Follow(t.Context(), shufflerclient.Options{Stream: c.Open.StreamURL(c.Open.Task, 0),
		Owner: c.Owner, MaxEpsilon: 100, MaxDelta: 1})
	require.NoError(t, err, "a page that knows the first task")

	v.stop()
	stop()
	checkRefused(t, c, verifierRoll, issuerRoll)
	v = serve(t, verifierWith(t, c, "new.key", "sign.key"))
	require.EqualValues(t, 2, v.report(t, c.Open).Batches)
	require.EqualValues(t, 1, v.report(t, next.Open).Batches)
	i, err := issuer.New(issuerWith(t, c, "new.key", "sign.key"))
	require.NoError(t, err)
	require.NoError(t, i.Close())
}

// checkRefused starts the verifier and the issuer without a key that they need, for a stream whose second task rotates
// both keys. Each must name the missing key and the setting where it belongs.
func checkRefused(t *testing.T, c *relaytest.Cascade, verifierRoll, issuerRoll task.Rotation) {
	t.Helper()
	for _, bad := range []struct {
		newest string
		old    []string
		lacks  func(task.Rotation) task.SignKey
	}{
		{"new.key", nil, func(r task.Rotation) task.SignKey { return r.Old }},
		{"sign.key", nil, func(r task.Rotation) task.SignKey { return r.New }},
		{"stranger.key", nil, func(r task.Rotation) task.SignKey { return r.Old }},
		{"stranger.key", []string{"sign.key"}, func(r task.Rotation) task.SignKey { return r.New }},
		{"new.key", []string{"stranger.key"}, func(r task.Rotation) task.SignKey { return r.Old }},
	} {
		said := func(party string, rotation task.Rotation, err error) {
			require.ErrorContains(t, err, "invalid sign_key "+filepath.Join(c.Dir, party, bad.newest))
			require.ErrorContains(t, err, "the key of the "+party+" that task ")
			require.ErrorContains(t, err, " names, "+taskfile.FormatKey(bad.lacks(rotation)))
			require.ErrorContains(t, err, "in old_sign_keys")
		}
		_, err := server.New(verifierWith(t, c, bad.newest, bad.old...))
		said("verifier", verifierRoll, err)
		_, err = issuer.New(issuerWith(t, c, bad.newest, bad.old...))
		said("issuer", issuerRoll, err)
	}
}
