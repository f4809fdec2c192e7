package relaytest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// fileName returns the file name, without extension, of the cascade's task.
func (c *Cascade) fileName() string {
	tasks := max(c.options.Tasks, 1)
	if c.index < tasks {
		return taskName(c.index)
	}
	return c.options.Set.Name + "-" + c.OpenSet().Tables[c.index-tasks].Name
}

// OpenSet returns the cascade's set.
func (c *Cascade) OpenSet() *tableset.Open { return c.Sets[0] }

// Table returns the same cascade with methods for the i-th table of its set.
func (c *Cascade) Table(t testing.TB, i int) *Cascade {
	t.Helper()
	return c.Other(t, max(c.options.Tasks, 1)+i)
}

// SetSealer returns a sealer for the set's submissions.
func (c *Cascade) SetSealer(t testing.TB) *onion.SetSealer {
	t.Helper()
	var tables []*onion.Sealer
	for i := range c.OpenSet().Tables {
		tables = append(tables, c.Table(t, i).sealer)
	}
	return onion.NewSetSealer(c.OpenSet().ID, tables)
}

// PostSet sends a submission of the set to the first relay from a client's IP address.
func (c *Cascade) PostSet(ctx context.Context, day uint64, body []byte, client string) error {
	return c.postTo(ctx, c.atTwin(c.OpenSet().ReportsURL(day)), body, http.Header{"X-Forwarded-For": {client}})
}

// SignSet asks all relays for the keys of a set's clocks, and signs its tables and the set. The relays have approved
// the owner. It returns the same cascade with that set, in the form in which the owner hands it over.
func (c *Cascade) SignSet(t testing.TB, set *quickstart.Set) (signed *Cascade, handed *tableset.Handed) {
	t.Helper()
	key, owner := c.AsOwner(t)
	sign, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	folder, err := os.MkdirTemp(c.Dir, "verifier-")
	require.NoError(t, err)
	deployment, signedSet, handed := *c.Deployment, set.Set, &tableset.Handed{}
	signedSet.Tables = append([]tableset.Table{}, signedSet.Tables...)
	lists := map[task.Epochs][]*onion.SignedKeyList{}
	var tables []*taskfile.Open
	for i, draft := range set.Tables {
		next := *draft
		next.Relays, next.Verifier = append([]task.Party{}, c.Open.Relays...), c.Open.Verifier
		clock := task.Epochs{Start: next.Epochs.Start, Length: next.Epochs.Length, Count: next.Epochs.Count}
		if lists[clock] == nil {
			label := taskfile.LabelOf(&next)
			for hop := range next.Relays {
				list, err := owner.KeysFor(t.Context(), next.Relays[hop], label, next.KEM, clock.Count)
				require.NoError(t, err)
				lists[clock] = append(lists[clock], list)
			}
			list, err := keyfile.NewHPKE(filepath.Join(folder, fmt.Sprint(i)), next.KEM, clock.Count, sign)
			require.NoError(t, err)
			lists[clock] = append(lists[clock], list)
		}
		for hop := range next.Relays {
			next.Relays[hop].KeyList = lists[clock][hop].Hash()
		}
		next.Verifier.KeyList = lists[clock][next.VerifierHop()].Hash()
		bundle, err := taskfile.Sign(&next, key, lists[clock])
		require.NoError(t, err)
		open, err := bundle.Open(nil)
		require.NoError(t, err)
		raw, err := bundle.Bytes()
		require.NoError(t, err)
		signedSet.Tables[i].Task = open.ID
		tables, handed.Tables = append(tables, open), append(handed.Tables, raw)
	}
	bundle, err := tableset.Sign(&signedSet, key, tables)
	require.NoError(t, err)
	handed.Set, err = bundle.Bytes()
	require.NoError(t, err)
	open, err := bundle.Open(nil)
	require.NoError(t, err)
	deployment.Sets = []*tableset.Open{open}
	deployment.Bundles = append(append([]*taskfile.Open{}, c.Bundles[:max(c.options.Tasks, 1)]...), tables...)
	other := *c
	other.Deployment = &deployment
	return &other, handed
}

// BeginSet hands a set over to a relay that has approved the owner.
func (c *Cascade) BeginSet(ctx context.Context, t testing.TB, hop int, handed *tableset.Handed) error {
	t.Helper()
	raw, err := handed.Bytes()
	require.NoError(t, err)
	_, owner := c.AsOwner(t)
	return owner.BeginSet(ctx, c.Open.Relays[hop], raw)
}
