package relaytest

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// InStream makes a draft the first task of a stream whose later tasks may change what allow lists.
func InStream(allow ...string) func(*task.Task) {
	return func(draft *task.Task) { draft.Stream = &task.StreamPosition{Name: "site", Allow: allow} }
}

// AsOwner returns the task owner's key and a client that signs requests with it.
func (c *Cascade) AsOwner(t testing.TB) (ed25519.PrivateKey, *handover.Requester) {
	t.Helper()
	key, err := keyfile.LoadSign(cmp.Or(c.ownerKey, filepath.Join(c.Dir, "owner.key")))
	require.NoError(t, err)
	return key, handover.NewRequester(key, c.http.Transport)
}

// Successors returns the verifier's or issuer's folder with keys of the stream's later tasks.
func (c *Cascade) Successors(party string) string {
	return filepath.Join(c.Dir, party, c.fileName()+".next")
}

// nextKeys returns the key file of a party for a position in the stream, and creates its folder.
func (c *Cascade) nextKeys(t testing.TB, party string, position, count uint64) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(c.Successors(party), 0o700))
	return filepath.Join(c.Successors(party), fmt.Sprintf("%d-%d.keys", position, count))
}

// NextVerifierKeys makes the verifier's keys for a position in the stream.
func (c *Cascade) NextVerifierKeys(t testing.TB, position, count uint64) *onion.SignedKeyList {
	t.Helper()
	sign, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	list, err := keyfile.NewHPKE(c.nextKeys(t, "verifier", position, count), c.Open.KEM, count, sign)
	require.NoError(t, err)
	return list
}

// NextIssuerKeys makes the issuer's keys for a position in the stream. It returns nil if clients need no tokens.
func (c *Cascade) NextIssuerKeys(t testing.TB, position, count uint64) *onion.SignedKeyList {
	t.Helper()
	if c.issuer == "" {
		return nil
	}
	sign, err := keyfile.LoadSign(filepath.Join(c.Dir, "issuer", "sign.key"))
	require.NoError(t, err)
	list, err := issuer.NewKeys(c.nextKeys(t, "issuer", position, count), count, sign, nil)
	require.NoError(t, err)
	return list
}

// Bundle returns the task's bundle, as its file holds it.
func (c *Cascade) Bundle(t testing.TB) *taskfile.Bundle {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.Dir, c.fileName()+".bundle"))
	require.NoError(t, err)
	bundle, err := taskfile.ParseBundle(raw)
	require.NoError(t, err)
	return bundle
}

// Renew signs the stream's task at a later position, with new keys of all parties. The stream begins with c's task.
func (c *Cascade) Renew(t testing.TB, position, count uint64) *taskfile.Bundle {
	t.Helper()
	_, owner := c.AsOwner(t)
	bundle, err := owner.Renew(t.Context(), c.Open, handover.Renewal{Count: count, Now: c.Clock.Now(),
		Verifier: c.NextVerifierKeys(t, position, count), Issuer: c.NextIssuerKeys(t, position, count)})
	require.NoError(t, err)
	return bundle
}

// Hand sends the stream's next task to one relay.
func (c *Cascade) Hand(ctx context.Context, t testing.TB, hop int, bundle *taskfile.Bundle) error {
	t.Helper()
	raw, err := bundle.Bytes()
	require.NoError(t, err)
	open, err := bundle.Open(nil)
	require.NoError(t, err)
	_, owner := c.AsOwner(t)
	return owner.Succeed(ctx, c.Open, open.Task, hop, raw)
}

// After returns the same cascade with methods for a later task of its stream.
func (c *Cascade) After(t testing.TB, bundle *taskfile.Bundle) *Cascade {
	t.Helper()
	next := *c
	var err error
	next.Open, err = bundle.Open(nil)
	require.NoError(t, err)
	next.sealer, err = onion.NewSealer(next.Open.Task, next.Open.ID, next.Open.KeyLists)
	require.NoError(t, err)
	return &next
}
