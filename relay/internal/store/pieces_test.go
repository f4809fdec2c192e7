package store

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// inGroups makes a store write and delete only rows rows or size bytes per transaction, and merge runs soon.
func inGroups(t *testing.T, rows, size int) {
	before, bytesBefore := groupRows, groupBytes
	groupRows, groupBytes = rows, size
	t.Cleanup(func() { groupRows, groupBytes = before, bytesBefore })
	merging(t, 2*page, mergeRuns, mergeRoom)
}

// merging sets the limits by which a store merges runs.
func merging(t *testing.T, fresh, runs, room int) {
	freshBefore, runsBefore, roomBefore := freshRoom, mergeRuns, mergeRoom
	freshRoom, mergeRuns, mergeRoom = fresh, runs, room
	t.Cleanup(func() { freshRoom, mergeRuns, mergeRoom = freshBefore, runsBefore, roomBefore })
}

// slotRuns selects the runs that hold slots, not tags and clients.
const slotRuns = "runs WHERE seq < 4294967296"

// piecesOf returns a SealFunc that makes a batch with one piece for each slot, in order. It then returns fail.
func piecesOf(fail error) SealFunc {
	return func(_ uint64, rows iter.Seq2[Row, error], put Put) (*Made, error) {
		for row, err := range rows {
			if err != nil {
				return nil, err
			}
			if err := put(row.Slot); err != nil {
				return nil, err
			}
		}
		return &Made{Manifest: []byte("manifest"), Head: []byte("head")}, fail
	}
}

func (d *database) counts(t *testing.T, tables ...string) (out []int) {
	t.Helper()
	for _, table := range tables {
		var n int
		require.NoError(t, d.read.QueryRow("SELECT COUNT(*) FROM "+table).Scan(&n))
		out = append(out, n)
	}
	return out
}

// TestPieces: a batch that takes several transactions must be readable in any ranges. After it is confirmed and swept,
// nothing may be left of it or its slots.
func TestPieces(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		inGroups(t, 7, 1000)
		s := open()
		for i := range 10 {
			verdicts(t, s, aSubmission(i, i))
		}
		require.NoError(t, s.Seal(t.Context(), testEpoch.Batch(0), piecesOf(nil)))
		require.Equal(t, []int{4, 31, 1}, s.counts(t, slotRuns, "pieces", "sweeps"),
			"want 4 of the 5 runs with 30 slots: one is deleted at once")
		require.NoError(t, s.Sweep(t.Context()))
		require.Equal(t, []int{0, 31, 0}, s.counts(t, slotRuns, "pieces", "sweeps"))
		b, err := open().Batch(t.Context(), testEpoch.Batch(0))
		require.NoError(t, err)
		all := bytesOf(t, b)
		require.Len(t, all, 4+30*100)
		require.True(t, bytes.HasPrefix(all, []byte("head")))
		for range 200 {
			from := rand.IntN(len(all) + 10)
			at, err := b.Content.Seek(int64(from), io.SeekStart)
			require.NoError(t, err)
			require.EqualValues(t, from, at)
			part := make([]byte, rand.IntN(500))
			n, err := io.ReadFull(b.Content, part)
			want := all[min(from, len(all)):min(from+len(part), len(all))]
			require.Equal(t, want, part[:n])
			require.Equal(t, n < len(part), err != nil)
		}
		_, err = b.Content.Seek(-1, io.SeekStart)
		require.Error(t, err)
		require.NoError(t, s.Confirm(t.Context(), testEpoch.Batch(0)))
		_, err = s.Batch(t.Context(), testEpoch.Batch(0))
		require.NoError(t, err)
		_, err = b.Content.Seek(0, io.SeekStart)
		require.NoError(t, err)
		require.NoError(t, s.Sweep(t.Context()))
		require.Equal(t, []int{0, 0, 0}, s.counts(t, slotRuns, "pieces", "sweeps"))
		_, err = io.ReadAll(b.Content)
		require.Error(t, err, "a confirmed batch must not be readable")
	})
}

// TestAttempts: a failed attempt to make a batch must leave nothing. An interrupted one leaves pieces until the batch
// is made. Nobody may be able to read them, even with the secret.
func TestAttempts(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		inGroups(t, 7, 1000)
		s := open()
		for i := range 10 {
			verdicts(t, s, aSubmission(i, i))
		}
		late := errors.New("as the test asked")
		require.ErrorIs(t, s.Seal(t.Context(), testEpoch.Batch(0), piecesOf(late)), late)
		require.Equal(t, []int{5, 0, 0}, s.counts(t, slotRuns, "pieces", "sweeps"))

		var cut error
		func() {
			defer func() { cut, _ = recover().(error) }()
			first := testEpoch.Batch(0)
			_ = s.Seal(t.Context(), first, func(_ uint64, _ iter.Seq2[Row, error], put Put) (*Made, error) {
				for range 15 {
					if err := put(bytes.Repeat([]byte("slot"), 25)); err != nil {
						return nil, err
					}
				}
				panic(late) // as if the process were killed
			})
		}()
		require.ErrorIs(t, cut, late)
		require.Equal(t, []int{5, 10, 1}, s.counts(t, slotRuns, "pieces", "sweeps"))
		require.NoError(t, s.Sweep(t.Context()))
		require.Equal(t, []int{5, 10, 1}, s.counts(t, slotRuns, "pieces", "sweeps"),
			"Sweep must keep these pieces: another process may be making the batch")
		key, err := s.vault.batchCipher(kindSealed, testEpoch.Batch(0))
		require.NoError(t, err)
		rows, err := s.read.Query("SELECT bytes FROM pieces")
		require.NoError(t, err)
		for rows.Next() {
			var sealed []byte
			require.NoError(t, rows.Scan(&sealed))
			require.NotContains(t, string(sealed), "slot")
			_, err = decrypt(key, sealed[:nonceSize], bytes.Clone(sealed[nonceSize:]))
			require.Error(t, err, "the batch's key must not decrypt a piece")
		}
		require.NoError(t, rows.Err())

		over := EpochID{testEpoch.Task, testEpoch.Epoch + 1}
		require.NoError(t, s.Advance(t.Context(), over, StateExpired))
		_, err = s.write.Exec("INSERT INTO sweeps SELECT id, 0, made FROM epochs, sweeps WHERE epochs.epoch = 4")
		require.NoError(t, err)
		require.NoError(t, s.Sweep(t.Context()))
		require.Equal(t, []int{5, 10, 1}, s.counts(t, slotRuns, "pieces", "sweeps"),
			"Sweep must keep the pieces of the open epoch's attempt")

		again := open()
		require.NoError(t, again.Seal(t.Context(), testEpoch.Batch(0), piecesOf(nil)))
		require.NoError(t, again.Sweep(t.Context()))
		require.Equal(t, []int{0, 31, 0}, s.counts(t, slotRuns, "pieces", "sweeps"))
		b, err := s.Batch(t.Context(), testEpoch.Batch(0))
		require.NoError(t, err)
		require.Len(t, bytesOf(t, b), 4+30*100)
	})
}

// TestLastFails: an attempt whose last transaction fails must leave nothing, and the next attempt must make the batch.
func TestLastFails(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		inGroups(t, 7, 1000)
		s := open()
		for i := range 10 {
			verdicts(t, s, aSubmission(i, i))
		}
		tags := make([]Short, 20)
		for i := range tags {
			tags[i] = number8(i)
		}
		mixed := EpochID{testEpoch.Task, testEpoch.Epoch + 1}
		mix := func() error {
			return s.Mix(t.Context(), mixed.Batch(0), slices.Clone(tags), func(_ *Fresh, put Put) (*Made, error) {
				for range 30 {
					require.NoError(t, put(make([]byte, 100)))
				}
				return &Made{Manifest: []byte("manifest"), Head: []byte("head")}, nil
			})
		}
		_, err := s.write.Exec("ALTER TABLE batches RENAME TO away")
		require.NoError(t, err)
		require.ErrorContains(t, s.Seal(t.Context(), testEpoch.Batch(0), piecesOf(nil)), "couldn't store a batch")
		require.ErrorContains(t, mix(), "couldn't store a batch")
		require.Equal(t, []int{5, 0, 0}, s.counts(t, slotRuns, "pieces", "sweeps"))
		_, err = s.write.Exec("ALTER TABLE away RENAME TO batches")
		require.NoError(t, err)

		require.NoError(t, s.Seal(t.Context(), testEpoch.Batch(0), piecesOf(nil)))
		require.ErrorIs(t, s.Seal(t.Context(), testEpoch.Batch(0), piecesOf(nil)), ErrNoBatch)
		require.NoError(t, mix())
		require.ErrorIs(t, mix(), ErrMade)
		require.Equal(t, []int{62}, s.counts(t, "pieces"))
	})
}

// TestMixAgain: tags that an interrupted attempt added to the replay set must be fresh again for the same batch number
// only. Of slots with equal tags, one must be taken. A withheld batch must have none of the pieces.
func TestMixAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		inGroups(t, 3, 1000)
		s := open()
		tags := func(from, n int) (out []Short) {
			for i := range n {
				out = append(out, number8(from+i))
			}
			rand.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
			return out
		}
		mix := func(seq uint64, tags []Short, want int, made *Made, fail error) {
			t.Helper()
			all := append([]Short{}, tags...)
			err := s.Mix(t.Context(), testEpoch.Batch(seq), tags, func(f *Fresh, put Put) (*Made, error) {
				taken := 0
				for _, tag := range all {
					if f.Take(tag) {
						taken++
					}
				}
				require.Equal(t, want, taken)
				for range 30 {
					require.NoError(t, put(make([]byte, 100)))
				}
				return made, fail
			})
			require.ErrorIs(t, err, fail)
		}
		late := errors.New("as the test asked")
		made := &Made{Manifest: []byte("manifest"), Head: []byte("head")}
		withheld := *made
		withheld.Withheld = true
		mix(0, tags(0, 20), 20, nil, late)
		mix(0, tags(0, 20), 20, made, nil)
		mix(1, append(append(tags(10, 20), tags(15, 15)...), tags(25, 5)...), 10, &withheld, nil)
		require.NoError(t, s.Sweep(t.Context()))
		for seq, size := range []int{4 + 3000, 4} {
			b, err := s.Batch(t.Context(), testEpoch.Batch(uint64(seq)))
			require.NoError(t, err)
			require.Len(t, bytesOf(t, b), size)
		}
		require.Equal(t, []int{32, 0}, s.counts(t, "pieces", "sweeps"))
	})
}
