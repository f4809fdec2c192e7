package mixing_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/relay/internal/mixing"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/store"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// permutedLanes is the number of lanes of a test batch. Several lanes save time: checking a signature takes as long as
// checking several lanes' orders.
const permutedLanes = 16

// TestEveryHopPermutes: the first relay, a mix and the last relay get slots in order. Each must put the slots of every
// lane in an independent uniform order. The test uses the code that seals, mixes and signs batches, without the opening
// of slots and the store.
func TestEveryHopPermutes(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 3, Task: func(t *task.Task) {
		t.Batch.Size, t.Slots.Lanes = stattest.Things, permutedLanes
	}})
	for hop := range 3 {
		t.Run(fmt.Sprintf("hop %d", hop), func(t *testing.T) {
			mx, maker := newMixer(t, c.Config(t, hop))
			order := mixing.Orders(mx, stattest.Things, signedInOrder(t, c, hop-1))
			uniform := func(orders int) {
				stattest.UniformLanes(t, orders/permutedLanes, permutedLanes, func() [][]int {
					made, err := order()
					require.NoError(t, err)
					return made
				})
			}
			uniform(stattest.Trials)
			maker.Memory = 1000 // holds few slots: the rest is permuted in a file, in several buckets per lane
			uniform(stattest.Trials / 8)
		})
	}
}

// newMixer returns only the mixer and the maker of a relay.
func newMixer(t *testing.T, cfg relay.Config) (*mixing.Mixer, *mixing.Maker) {
	t.Helper()
	signers, err := keyfile.LoadSigners(cfg.SignKey, nil)
	require.NoError(t, err)
	source := tasks.Source(cfg.Tasks[0])
	source.HPKEKeys = cmp.Or(source.HPKEKeys, cfg.HPKEKeys)
	hosted, err := tasks.Load(tasks.Config{Tasks: []tasks.Source{source}, Signers: signers, Clock: time.Now,
		Log: slog.New(slog.DiscardHandler), Fits: func([]*tasks.Hosted, []*tasks.HostedSet, int) error { return nil }})
	require.NoError(t, err)
	vault, err := store.OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
	require.NoError(t, err)
	t.Cleanup(vault.Close)
	maker := mixing.NewMaker(monitor.New(slog.New(slog.DiscardHandler)), t.TempDir())
	return mixing.New(hosted, mixing.Config{}, vault, maker, noEnds{}), maker
}

// noEnds ends no epochs.
type noEnds struct{ mixing.Epochs }

func (noEnds) ScrubSoon() {}

// signedInOrder returns the manifest that the relay at a hop signs for a batch whose lanes each hold stattest.Things
// slots in order.
func signedInOrder(t *testing.T, c *relaytest.Cascade, hop int) *onion.SignedManifest {
	t.Helper()
	inOrder := make([]uint64, stattest.Things)
	for i := range inOrder {
		inOrder[i] = uint64(i)
	}
	var source *onion.SignedManifest
	for before := range hop + 1 {
		lane := c.Slots(t, 0, inOrder...)[0]
		at := onion.Context{TaskID: c.Open.ID, Hop: before}
		in := slices.Repeat([]uint64{stattest.Things}, permutedLanes)
		b, err := onion.NewBatch(c.SignKey(t, before), onion.BatchDraft{
			Context: at, Submissions: stattest.Things, In: in, Source: source,
		}, slices.Repeat(onion.Lanes{lane}, permutedLanes))
		require.NoError(t, err)
		source = b.Signed()
	}
	return source
}
