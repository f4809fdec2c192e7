package house_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

func openSet(t *testing.T, raw []byte, owner string) (*tableset.Open, error) {
	t.Helper()
	key, err := taskfile.ParseKey("owner", owner)
	require.NoError(t, err)
	bundle, err := tableset.ParseBundle(raw)
	if err != nil {
		return nil, err
	}
	return bundle.Open(&key)
}

// setOpener returns the opener of a hop for a task or set with this id.
func setOpener(t *testing.T, of *task.Task, id task.ID, hop int, epoch uint64, private []byte) *onion.Opener {
	t.Helper()
	key, err := onion.OwnPrivateKey(of.KEM, bytes.Clone(private))
	require.NoError(t, err)
	o, err := onion.NewOpener(of, id, hop, epoch, key)
	require.NoError(t, err)
	return o
}

// TestVectorsSet: a set, the keys of all blocks, and submissions of days on which some tables are not open.
func TestVectorsSet(t *testing.T) {
	var v struct {
		Owner                    string
		Set, ID, Bundle, Renewal hexBytes
		Clocks                   []struct {
			Blocks []struct {
				First uint64
				Keys  hexBytes
			}
		}
		Submissions []struct {
			Day       uint64
			Private   [][]hexBytes
			Tag, Body hexBytes
			Slots     []struct {
				Epoch                          uint64
				Open, Cover                    bool
				RelayTag, VerifierTag, Message hexBytes
			}
		}
	}
	readVectors(t, "set", &v)
	set, err := openSet(t, v.Bundle, v.Owner)
	require.NoError(t, err)
	require.Equal(t, []byte(v.ID), set.ID[:])
	require.Equal(t, []byte(v.Set), set.Canonical())
	renewal, err := openSet(t, v.Renewal, v.Owner)
	require.NoError(t, err)
	require.Len(t, renewal.First, 4)
	require.Len(t, v.Clocks, 3)
	for clock, c := range v.Clocks {
		for _, b := range c.Blocks {
			keys, err := tableset.ParseKeys(b.Keys)
			require.NoError(t, err)
			require.Equal(t, b.First, keys.First)
			_, err = set.Keys(clock, keys)
			require.NoError(t, err)
		}
	}
	layouts, err := set.Layouts()
	require.NoError(t, err)
	for _, s := range v.Submissions {
		envelope, err := setOpener(t, set.Tasks[0], set.ID, 0, s.Day, s.Private[0][0]).OpenSet(s.Body, layouts)
		require.NoError(t, err)
		require.Equal(t, []byte(s.Tag), envelope.Tag[:])
		for table, want := range s.Slots {
			epoch, open := set.At(table, s.Day)
			require.Equal(t, want.Epoch, epoch)
			require.Equal(t, want.Open, open)
			of, private := set.Tasks[table], s.Private[set.Clock[table]]
			relay := setOpener(t, of, set.Tables[table].Task, 1, epoch, private[1])
			tag, next, err := relay.OpenSlot(0, envelope.Lanes[table][0])
			require.NoError(t, err)
			require.Equal(t, []byte(want.RelayTag), tag[:])
			tag, m, err := setOpener(t, of, set.Tables[table].Task, 2, epoch, private[2]).OpenMessage(0, next)
			require.NoError(t, err)
			require.Equal(t, []byte(want.VerifierTag), tag[:])
			require.Equal(t, task.Message{Cover: want.Cover, Body: want.Message}, m)
		}
	}
}

// runSet opens what a vector says of a set.
func (f *fault) runSet(t *testing.T) error {
	set, err := openSet(t, f.Bundle, f.Owner)
	if f.Kind == "set" || err != nil {
		return err
	}
	if f.Kind == "set_keys" {
		keys, err := tableset.ParseKeys(f.Keys)
		require.NoError(t, err)
		_, err = set.Keys(f.Clock, keys)
		return err
	}
	layouts, err := set.Layouts()
	require.NoError(t, err)
	_, err = setOpener(t, set.Tasks[0], set.ID, 0, f.Epoch, f.Private).OpenSet(f.Body, layouts)
	return err
}
