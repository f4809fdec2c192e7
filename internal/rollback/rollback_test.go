package rollback_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/rollback"
)

// TestCommit: Commit must write the marks after a successful commit, and only then.
func TestCommit(t *testing.T) {
	asked := errors.New("as the test asked")
	for _, fails := range []string{"", "commit", "raise"} {
		done := ""
		do := func(what string) func() error {
			return func() error {
				done += what + " "
				if fails == what {
					return asked
				}
				return nil
			}
		}
		err := rollback.Commit(do("commit"), do("raise"))
		require.Equal(t, fails != "", errors.Is(err, asked))
		require.Equal(t, fails == "commit", done == "commit ")
		require.Equal(t, fails != "commit", done == "commit raise ")
	}
}

// TestCount: a mark between marked and steps must show no state rollback, and any other mark must show one.
func TestCount(t *testing.T) {
	for steps := range uint64(6) {
		for marked := range steps + 1 {
			c := rollback.Count{Steps: steps, Marked: marked}
			for held := range uint64(8) {
				require.Equal(t, held > steps, c.StoreRolledBack(held))
				require.Equal(t, held < marked, c.MarkRolledBack(held))
			}
		}
		alone := rollback.SingleProcessCount(steps)
		require.Equal(t, steps, alone.Steps)
		require.Equal(t, steps-min(steps, 1), alone.Marked)
	}
}

const document = "{\n \"kind\": \"test\"\n}\n"

func newFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(path, []byte(document), 0o600))
	return path
}

func open(t testing.TB, path string) *rollback.MarkFile {
	t.Helper()
	f, err := rollback.OpenMark(path)
	require.NoError(t, err)
	return f
}

func key(task byte, epoch uint64) rollback.EpochKey {
	return rollback.EpochKey{Task: [16]byte{task}, Epoch: epoch}
}

// steps returns entries with one epoch.
func steps(key rollback.EpochKey, n uint64, made ...uint64) map[rollback.EpochKey]rollback.Entry {
	return map[rollback.EpochKey]rollback.Entry{key: {Steps: n, Made: rollback.SetOf(made...)}}
}

// TestRaise: a mark's entries must only grow. A process that opens the file must find them and the unchanged document.
// Now and then another process replaces the file, as when it destroys a key.
func TestRaise(t *testing.T) {
	path := newFile(t)
	f := open(t, path)
	require.Nil(t, f.Known())
	name := ""
	for i := range uint64(300) {
		at := key(byte(i%3), i%50)
		require.NoError(t, f.Raise(steps(at, i, i/3)))
		require.NoError(t, f.Raise(steps(at, i/2)))
		again := open(t, path)
		require.Equal(t, f.Known(), again.Known())
		require.EqualValues(t, i, again.Entry(at).Steps)
		require.True(t, again.Entry(at).Made.Has(i/3))
		if name == "" {
			name = again.Known().ID
		}
		require.Equal(t, name, again.Known().ID)
		in, err := os.ReadFile(path)
		require.NoError(t, err)
		doc, s, err := rollback.SplitFile(in)
		require.NoError(t, err)
		require.Equal(t, document, string(doc))
		if i%17 == 0 {
			require.NoError(t, durable.WriteFile(path, rollback.JoinFile(doc, s), 0o600))
		}
	}
}

// TestRaiseInPlace: as long as entries fit into a slot, Raise must write in place and make no new file.
func TestRaiseInPlace(t *testing.T) {
	path := newFile(t)
	f := open(t, path)
	require.NoError(t, f.Raise(steps(key(1, 1), 1)))
	first, err := os.Stat(path)
	require.NoError(t, err)
	for i := range uint64(20) {
		require.NoError(t, f.Raise(steps(key(1, 1+i%2), i)))
	}
	last, err := os.Stat(path)
	require.NoError(t, err)
	require.True(t, os.SameFile(first, last))
	require.Equal(t, first.Size(), last.Size())
}

// TestShared: processes that share a file and raise its mark concurrently must keep each other's entries.
func TestShared(t *testing.T) {
	path := newFile(t)
	files := []*rollback.MarkFile{open(t, path), open(t, path), open(t, path)}
	var raising sync.WaitGroup
	for i, f := range files {
		raising.Go(func() {
			for n := range uint64(40) {
				assert.NoError(t, f.Raise(steps(key(byte(i), n%5), n, n)))
			}
		})
	}
	raising.Wait()
	s := open(t, path).Known()
	require.Len(t, s.Entries, 15)
	for i := range files {
		for epoch := range uint64(5) {
			e := s.Entries[key(byte(i), epoch)]
			require.Equal(t, 35+epoch, e.Steps)
			require.Len(t, e.Made, 8)
		}
	}
	require.NoError(t, files[0].Refresh())
	require.Equal(t, s, files[0].Known())
}

// TestRefreshWithoutMark: Refresh must work on a file without a mark, and find a mark that another process adds.
func TestRefreshWithoutMark(t *testing.T) {
	path := newFile(t)
	f := open(t, path)
	for range 3 {
		require.NoError(t, f.Refresh())
		require.Nil(t, f.Known())
	}
	keys := map[string]string{"task": "k"}
	require.NoError(t, open(t, path).Change(func(s *rollback.Mark) {
		s.Database, s.Secret, s.Keys, s.Fenced = "d", "s", keys, true
	}))
	require.NoError(t, f.Refresh())
	s := f.Known()
	require.Equal(t, []any{"d", "s", keys, true}, []any{s.Database, s.Secret, s.Keys, s.Fenced})
	require.NoError(t, f.Change(func(s *rollback.Mark) { s.Keys["task"], s.Fenced = "other", false }))
	require.Equal(t, keys, s.Keys, "Change must not modify a mark that Known returned")
	require.True(t, s.Fenced)
}

// TestTorn truncates the last write of a mark, or omits some of its sectors, at random. The file must then hold the
// last mark or the previous one, undamaged.
func TestTorn(t *testing.T) {
	path := newFile(t)
	f := open(t, path)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	old := 0
	for i := uint64(1); i < 200; i++ {
		was := f.Known()
		require.NoError(t, f.Raise(steps(key(1, i%7), i, i)))
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		if len(before) == len(after) {
			torn := tear(before, after)
			_, s, err := rollback.SplitFile(torn)
			require.NoError(t, err)
			if !assert.ObjectsAreEqual(f.Known(), s) {
				require.Equal(t, was, s)
				old++
			}
		}
		before = after
	}
	require.Greater(t, old, 50)
}

// tear returns a file after a crash: only a random part of the changes has reached the disk.
func tear(before, after []byte) []byte {
	out := bytes.Clone(before)
	if rand.IntN(2) == 0 {
		n := rand.IntN(len(out))
		copy(out[:n], after)
		return out
	}
	for at := 0; at < len(out); at += 512 {
		if rand.IntN(2) == 0 {
			copy(out[at:at+512], after[at:])
		}
	}
	return out
}

// TestDamaged: OpenMark must refuse a file with a damaged mark.
func TestDamaged(t *testing.T) {
	path := newFile(t)
	require.NoError(t, open(t, path).Raise(steps(key(1, 1), 1)))
	in, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, damaged := range map[string][]byte{
		"shorter":       in[:len(in)-1],
		"without slots": in[:len(in)-8192],
		"edited":        bytes.Replace(in, []byte(`"steps":1`), []byte(`"steps":2`), 1),
		"garbage":       append([]byte(document), "what is this\n"...),
	} {
		require.NotEqual(t, in, damaged)
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		_, err := rollback.OpenMark(path)
		require.ErrorContains(t, err, "its rollback mark is damaged", name)
	}
}

// TestLoose: after a failed sync, the next Raise must not trust the file's content, and must write a new file.
func TestLoose(t *testing.T) {
	path := newFile(t)
	f := open(t, path)
	require.NoError(t, f.Raise(steps(key(1, 1), 1)))
	asked := errors.New("as the test asked")
	durable.Watch(func(s durable.Step) (bool, error) {
		if s.Op == durable.OpSync && s.Path == path {
			return false, asked
		}
		return false, nil
	})
	defer durable.Watch(func(durable.Step) (bool, error) { return false, nil })
	require.ErrorIs(t, f.Raise(steps(key(1, 1), 2)), asked)
	info, err := os.Stat(path)
	require.NoError(t, err)
	durable.Watch(func(durable.Step) (bool, error) { return false, nil })
	require.NoError(t, f.Raise(steps(key(1, 1), 2)))
	now, err := os.Stat(path)
	require.NoError(t, err)
	require.False(t, os.SameFile(info, now), "want a new file")
	require.EqualValues(t, 2, open(t, path).Entry(key(1, 1)).Steps)
}

// TestSet compares random sets with maps.
func TestSet(t *testing.T) {
	for range 200 {
		s, want := rollback.Set(nil), map[uint64]bool{}
		for range rand.IntN(30) {
			n := rand.Uint64N(20)
			s, want[n] = s.Union(rollback.SetOf(n)), true
		}
		missing, some := rollback.SetBelow(20).Beyond(s)
		require.Equal(t, len(want) < 20, some)
		if some {
			require.False(t, want[missing])
		}
		var but []uint64
		for n := range uint64(20) {
			require.Equal(t, want[n], s.Has(n))
			if !want[n] {
				but = append(but, n)
			}
		}
		require.ElementsMatch(t, rollback.SetBelow(20, but...), s)
		_, some = s.Beyond(rollback.SetBelow(20, but...))
		require.False(t, some)
	}
}

// TestUnsynced: a process is killed before it syncs a mark. A process that opens or shares the file must sync that mark
// before it relies on it. If the sync fails, it must write a new file.
func TestUnsynced(t *testing.T) {
	asked := errors.New("as the test asked")
	path := newFile(t)
	shared := open(t, path)
	for range 2 {
		require.NoError(t, shared.Refresh(), "there is no mark yet")
	}
	require.NoError(t, shared.Raise(steps(key(1, 1), 1)))
	killed := open(t, path)
	var syncs, renames int
	var fail error
	durable.Watch(func(s durable.Step) (bool, error) {
		switch {
		case s.Op == durable.OpSync && s.Path == path:
			syncs++
			return false, fail
		case s.Op == durable.OpRename && s.To == path:
			renames++
		}
		return false, nil
	})
	defer durable.Watch(func(durable.Step) (bool, error) { return false, nil })
	kill := func(n uint64) {
		require.NoError(t, killed.Refresh())
		fail = asked
		require.ErrorIs(t, killed.Raise(steps(key(1, 1), n)), asked)
		fail, syncs, renames = nil, 0, 0
	}
	kill(2)
	again := open(t, path)
	require.NoError(t, again.Raise(steps(key(1, 1), 2)), "the mark has this entry already")
	require.Equal(t, 1, syncs, "the process that opens the file must sync it")
	require.NoError(t, again.Raise(steps(key(1, 1), 2)))
	require.NoError(t, again.Sync())
	require.Equal(t, 1, syncs, "one sync must suffice")
	require.NoError(t, shared.Refresh())
	require.Equal(t, 2, syncs, "a process that shares the file must sync it, too")
	require.NoError(t, open(t, path).Sync())
	require.Equal(t, 3, syncs)
	require.Zero(t, renames)

	fail = asked
	doubting := open(t, path)
	require.ErrorIs(t, doubting.Sync(), asked)
	require.ErrorIs(t, doubting.Raise(steps(key(1, 1), 2)), asked)
	fail = nil
	require.NoError(t, doubting.Raise(steps(key(1, 1), 2)))
	require.Equal(t, 1, renames, "want a new file")
}
