package relaytest

import (
	"context"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Approving makes relays approve the owner for up to this many tasks at a time. It configures no task.
func (o Options) Approving(t testing.TB, tasks int) Options {
	t.Helper()
	folder, change := t.TempDir(), o.Config
	o.Config = func(hop int, cfg *relay.Config) {
		owner := relay.OwnerConfig{Owner: cfg.Tasks[0].Owner, Tasks: tasks,
			Folder: filepath.Join(folder, filepath.Base(filepath.Dir(cfg.SignKey)))}
		cfg.Tasks, cfg.Sets, cfg.Owners = nil, nil, []relay.OwnerConfig{owner}
		if change != nil {
			change(hop, cfg)
		}
	}
	return o
}

// OfOwner returns the same cascade with methods that sign as another owner, whose key is new.
func (c *Cascade) OfOwner(t testing.TB) *Cascade {
	t.Helper()
	other, deployment := *c, *c.Deployment
	other.ownerKey = filepath.Join(t.TempDir(), "owner.key")
	key, err := keyfile.NewSign(other.ownerKey)
	require.NoError(t, err)
	deployment.Owner = taskfile.FormatKey(task.SignKey(key.Public().(ed25519.PublicKey)))
	other.Deployment = &deployment
	return &other
}

// Named returns a copy of c's task with another name and changes. No relay has made keys for the copy.
func (c *Cascade) Named(name string, change ...func(*task.Task)) *task.Task {
	next := *c.Open.Task
	next.Name = name
	next.Relays = append([]task.Party{}, next.Relays...)
	for _, f := range change {
		f(&next)
	}
	return &next
}

// Ask asks a relay that has approved the owner for its key list for a new task.
func (c *Cascade) Ask(t testing.TB, hop int, next *task.Task) (*onion.SignedKeyList, error) {
	t.Helper()
	_, owner := c.AsOwner(t)
	return owner.KeysFor(t.Context(), next.Relays[hop], taskfile.LabelOf(next), next.KEM, next.Epochs.Count)
}

// Sign asks all relays for their key lists for a task and signs the task.
func (c *Cascade) Sign(t testing.TB, next *task.Task) *taskfile.Bundle {
	t.Helper()
	var lists []*onion.SignedKeyList
	for hop := range next.Relays {
		list, err := c.Ask(t, hop, next)
		require.NoError(t, err)
		lists, next.Relays[hop].KeyList = append(lists, list), list.Hash()
	}
	return c.SignWith(t, next, lists)
}

// SignWith signs a task with the relays' given key lists and new keys of the verifier.
func (c *Cascade) SignWith(t testing.TB, next *task.Task, lists []*onion.SignedKeyList) *taskfile.Bundle {
	t.Helper()
	sign, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	folder, err := os.MkdirTemp(c.Dir, "verifier-")
	require.NoError(t, err)
	list, err := keyfile.NewHPKE(filepath.Join(folder, "hpke.keys"), next.KEM, next.Epochs.Count, sign)
	require.NoError(t, err)
	next.Verifier.KeyList = list.Hash()
	key, _ := c.AsOwner(t)
	bundle, err := taskfile.Sign(next, key, append(lists, list))
	require.NoError(t, err)
	return bundle
}

// Begin sends a signed task to a relay that has approved the owner.
func (c *Cascade) Begin(ctx context.Context, t testing.TB, hop int, bundle *taskfile.Bundle) error {
	t.Helper()
	raw, err := bundle.Bytes()
	require.NoError(t, err)
	_, owner := c.AsOwner(t)
	return owner.Begin(ctx, c.Open.Relays[hop], raw)
}
