package store

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

func TestMain(m *testing.M) {
	code := m.Run()
	pgtest.StopShared()
	os.Exit(code)
}

// eachStore runs a test with each engine. open opens the same store each time, as several processes do; for a file, it
// goes around the claim.
func eachStore(t *testing.T, test func(t *testing.T, open func() *Store)) {
	t.Helper()
	for engine, description := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return service.SchemeSQLite + filepath.Join(t.TempDir(), "relay.db") },
		"postgres": postgresURL,
	} {
		t.Run(engine, func(t *testing.T) {
			name, secret := description(t), filepath.Join(t.TempDir(), "secret")
			test(t, func() *Store {
				v, err := OpenOrCreateVault(secret)
				require.NoError(t, err)
				s, err := openBeside(name, v)
				require.NoError(t, err)
				t.Cleanup(func() { s.Close() })
				return s
			})
		})
	}
}

// openBeside is [Open] for a store that may be open already.
func openBeside(description string, v *Vault) (*Store, error) {
	s, err := Open(description, v, Process{})
	if errors.Is(err, durable.ErrClaimed) {
		return writeSQLite(strings.TrimPrefix(description, service.SchemeSQLite), v)
	}
	return s, err
}

func postgresURL(t *testing.T) string {
	t.Helper()
	pgtest.Need(t)
	server, err := pgtest.Shared()
	require.NoError(t, err)
	url, err := server.Database()
	require.NoError(t, err)
	return url
}

var testEpoch = EpochID{task.ID{1}, 3}

// number8 returns the short that encodes n.
func number8(n int) (out Short) {
	binary.BigEndian.PutUint64(out[:], uint64(n))
	return out
}

// aSubmission returns a submission of a client to testEpoch: batches of 10, a quota of 1, two lanes with three slots in
// all. Each slot holds the tag.
func aSubmission(client, tag int) *Submission {
	slot := fmt.Appendf(nil, "%100d", tag)
	return &Submission{ID: testEpoch, Size: 10, Quota: 1, Client: number8(client), Tag: number8(tag),
		Receipt: number8(1000*client + tag), Lanes: [][][]byte{{slot}, {slot, slot}}}
}

func verdicts(t *testing.T, s *Store, group ...*Submission) (out []Verdict) {
	t.Helper()
	_, err := s.Commit(t.Context(), group)
	require.NoError(t, err)
	for _, sub := range group {
		out = append(out, sub.Verdict)
	}
	return out
}

func progressOf(t *testing.T, s *Store, id EpochID) Progress {
	t.Helper()
	all, err := s.Progress(t.Context())
	require.NoError(t, err)
	for _, p := range all {
		if p.ID == id {
			return p
		}
	}
	return Progress{ID: id}
}

var testSign = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

func testBatch(seq uint64, slots ...[]byte) (*onion.Batch, error) {
	if slots == nil {
		slots = [][]byte{}
	}
	return onion.NewBatch(testSign, onion.BatchDraft{
		Context: onion.Context{TaskID: testEpoch.Task, Epoch: testEpoch.Epoch},
		Seq:     seq, Submissions: 10, In: []uint64{uint64(len(slots))},
	}, [][][]byte{slots})
}

// wholly returns a SealFunc that reads all rows into memory and passes them to build.
func wholly(build func(submissions uint64, rows []Row) (*onion.Batch, error)) SealFunc {
	return func(submissions uint64, some iter.Seq2[Row, error], _ Put) (*Made, error) {
		var rows []Row
		for row, err := range some {
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
		return madeOf(build(submissions, rows))
	}
}

// madeOf returns a batch in memory as the result of a SealFunc or MixFunc.
func madeOf(b *onion.Batch, err error) (*Made, error) {
	if err != nil {
		return nil, err
	}
	raw, err := b.Bytes()
	return &Made{Manifest: b.Manifest, Head: raw}, err
}

// mixOf calls Mix with a batch in memory. fresh[i] is whether to take the slot with tags[i].
func mixOf(s *Store, b BatchID, tags []Short, build func(fresh []bool) (*onion.Batch, error)) error {
	return s.Mix(context.Background(), b, slices.Clone(tags), func(f *Fresh, _ Put) (*Made, error) {
		var fresh []bool
		for _, tag := range tags {
			fresh = append(fresh, f.Take(tag))
		}
		return madeOf(build(fresh))
	})
}

func bytesOf(t *testing.T, b *Sealed) []byte {
	t.Helper()
	raw, err := io.ReadAll(b.Content)
	require.NoError(t, err)
	require.EqualValues(t, len(raw), b.Content.Size())
	return raw
}

// sealRows seals a batch and returns the rows that it was made from.
func sealRows(t *testing.T, s *Store, seq uint64) (submissions uint64, rows []Row) {
	t.Helper()
	b := testEpoch.Batch(seq)
	require.NoError(t, s.Seal(t.Context(), b, wholly(func(n uint64, all []Row) (*onion.Batch, error) {
		submissions, rows = n, all
		return testBatch(seq)
	})))
	return submissions, rows
}

// requireKnown asserts that again knows the n submissions of one batch of 1000, and that s has all their rows.
func requireKnown(t *testing.T, s, again *Store, n int) {
	t.Helper()
	var tags []int
	for i := range n {
		tags = append(tags, i)
		sub, other := aSubmission(i, i), aSubmission(i+1000, i)
		sub.Size, other.Size = 1000, 1000
		require.Equal(t, []Verdict{Repeated, Replayed}, verdicts(t, again, sub, other))
	}
	got, rows := sealRows(t, s, 0)
	require.EqualValues(t, n, got)
	requireRows(t, rows, tags...)
}

// requireRows asserts that rows are exactly the slots of submissions with some tags, in any order.
func requireRows(t *testing.T, rows []Row, tags ...int) {
	t.Helper()
	var want []Row
	for _, tag := range tags {
		sub := aSubmission(0, tag)
		want = append(want, Row{0, sub.Lanes[0][0]}, Row{1, sub.Lanes[1][0]}, Row{1, sub.Lanes[1][1]})
	}
	require.ElementsMatch(t, want, rows)
}

func TestStoreDecides(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		require.Equal(t, []Verdict{Accepted, Accepted, Repeated, Replayed, Limited, Accepted}, verdicts(t, s,
			aSubmission(1, 1), aSubmission(2, 2), aSubmission(1, 1), aSubmission(3, 1), aSubmission(1, 4),
			aSubmission(3, 3)), "within one Commit")
		require.Equal(t, []Verdict{Repeated, Replayed, Limited, Accepted}, verdicts(t, open(),
			aSubmission(1, 1), aSubmission(4, 2), aSubmission(2, 5), aSubmission(4, 4)), "across two Commits")
		twice := func(tag int) *Submission {
			sub := aSubmission(9, tag)
			sub.Quota = 2
			return sub
		}
		require.Equal(t, []Verdict{Accepted}, verdicts(t, s, twice(91)))
		require.Equal(t, []Verdict{Accepted, Limited}, verdicts(t, s, twice(92), twice(93)))
		n, rows := sealRows(t, s, 0)
		require.EqualValues(t, 6, n)
		requireRows(t, rows, 1, 2, 3, 4, 91, 92)
		require.NoError(t, s.Advance(t.Context(), testEpoch, StateClosed))
		require.Equal(t, []Verdict{Late, Late}, verdicts(t, open(), aSubmission(1, 1), aSubmission(5, 5)))
		require.NoError(t, s.Advance(t.Context(), testEpoch, StateErased))
		require.NoError(t, s.Advance(t.Context(), testEpoch, StateOpen), "a lower state must be ignored")
		require.Equal(t, StateErased, progressOf(t, s, testEpoch).State)
		tables := []string{"seen", "runs", "open"}
		if s.index == nil {
			tables = append(tables, "clients")
		}
		for _, table := range tables {
			var rows int
			require.NoError(t, s.read.QueryRow("SELECT COUNT(*) FROM "+table).Scan(&rows))
			require.Zero(t, rows, table)
		}
	})
}

// TestStoreFillsBatches: one Commit may fill several batches. Each must have exactly its size.
func TestStoreFillsBatches(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		var group []*Submission
		var want []int
		for i := range 40 {
			group, want = append(group, aSubmission(i, i)), append(want, i)
		}
		full, err := s.Commit(t.Context(), group[:9])
		require.NoError(t, err)
		require.False(t, full)
		full, err = s.Commit(t.Context(), group[9:10])
		require.NoError(t, err)
		require.True(t, full)
		verdicts(t, s, group[10:]...)
		p := progressOf(t, s, testEpoch)
		require.Equal(t, []OpenBatch{{testEpoch.Batch(0), 10}, {testEpoch.Batch(1), 10}, {testEpoch.Batch(2), 10},
			{testEpoch.Batch(3), 10}},
			p.Open)
		require.EqualValues(t, 4, p.Next)
		var fresh int
		require.NoError(t, s.read.QueryRow(`SELECT MAX(fresh) FROM open WHERE seq > 0`).Scan(&fresh))
		require.Equal(t, runHead+30*(rowLane+100)+sealedExtra+page, fresh, "each batch must have one run")
		for _, seq := range []uint64{1, 0, 3, 2} { // not in order
			n, rows := sealRows(t, s, seq)
			require.Equal(t, p.Open[seq].Submissions, n)
			requireRows(t, rows, want[10*seq:10*seq+10]...)
			require.ErrorIs(t, s.Seal(t.Context(), testEpoch.Batch(seq), nil), ErrNoBatch)
		}
		verdicts(t, s, aSubmission(50, 50))
		require.Equal(t, []OpenBatch{{testEpoch.Batch(4), 1}}, progressOf(t, s, testEpoch).Open)
	})
}

// TestStoreKeepsBatches: a batch must have the same bytes until it is confirmed. Afterwards the store must keep only
// its manifest.
func TestStoreKeepsBatches(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		_, err := s.Batch(t.Context(), testEpoch.Batch(0))
		require.ErrorIs(t, err, ErrNoBatch)
		made, err := testBatch(0, []byte("one"), []byte("two"))
		require.NoError(t, err)
		raw, err := made.Bytes()
		require.NoError(t, err)
		build := func(fresh []bool) (*onion.Batch, error) {
			require.Equal(t, []bool{true, true, false}, fresh)
			return made, nil
		}
		require.NoError(t, mixOf(s, testEpoch.Batch(0), []Short{number8(1), number8(2), number8(1)}, build))
		for range 2 {
			got, err := open().Batch(t.Context(), testEpoch.Batch(0))
			require.NoError(t, err)
			require.Equal(t, made.Manifest, got.Manifest)
			require.False(t, got.Confirmed)
			require.Equal(t, raw, bytesOf(t, got))
		}
		p := progressOf(t, s, testEpoch)
		require.Equal(t, []uint64{0}, p.Held)
		next, err := s.Next(t.Context(), testEpoch)
		require.NoError(t, err)
		require.EqualValues(t, 1, next)
		unconfirmed, err := s.UnconfirmedSources(t.Context(), testEpoch)
		require.NoError(t, err)
		require.Equal(t, []uint64{0}, unconfirmed)
		for range 2 {
			require.NoError(t, s.SetSourceConfirmed(t.Context(), testEpoch.Batch(0)))
			require.NoError(t, s.Confirm(t.Context(), testEpoch.Batch(0)))
			got, err := s.Batch(t.Context(), testEpoch.Batch(0))
			require.NoError(t, err)
			require.Equal(t, &Sealed{made.Manifest, nil, true}, got)
			require.Empty(t, progressOf(t, s, testEpoch).Held)
		}
		unconfirmed, err = s.UnconfirmedSources(t.Context(), testEpoch)
		require.NoError(t, err)
		require.Empty(t, unconfirmed)

		require.ErrorIs(t, s.Mix(t.Context(), testEpoch.Batch(0), nil, nil), ErrMade)
		require.NoError(t, mixOf(s, testEpoch.Batch(1), []Short{number8(2), number8(3)},
			func(fresh []bool) (*onion.Batch, error) {
				require.Equal(t, []bool{false, true}, fresh, "a tag of an earlier batch is not fresh")
				return testBatch(1)
			}))
		require.NoError(t, s.Advance(t.Context(), testEpoch, StateComplete))
		require.ErrorIs(t, s.Mix(t.Context(), testEpoch.Batch(2), nil, nil), ErrOver)
	})
}

// TestStoreFindings: each batch number must count once, and all numbers with one reason must be in one row.
func TestStoreFindings(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		for _, f := range []struct {
			seq, times uint64
			why        Reason
		}{{7, 1, "odd"}, {7, 0, "odd"}, {8, 2, "odd"}, {8, 0, "odd"}, {7, 0, "odd"}, {7, 1, "even"}, {12, 3, "odd"},
			{10, 0, "odd"}, {3, 4, "odd"}} {
			times, err := s.Note(t.Context(), testEpoch.Batch(f.seq), f.why)
			require.NoError(t, err)
			require.Equal(t, f.times, times, f)
		}
		all, err := open().Findings(t.Context())
		require.NoError(t, err)
		require.Equal(t, []Finding{{testEpoch, 3, "odd", 3, 12}, {testEpoch, 7, "even", 0, 7}}, all)
	})
}

// atOnce runs do concurrently for every handle and i < n.
func atOnce(handles []*Store, n int, do func(s *Store, i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(handles[i%len(handles)], i) })
	}
	all.Wait()
}

// TestStoresRace: two handles commit concurrently. Among the submissions are 100 by one client with quota 1. Exactly
// one of these may be accepted. All accepted ones must be stored, and every full batch must have its size.
func TestStoresRace(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		handles := []*Store{open(), open()}
		var mallory, others atomic.Int64
		var mu sync.Mutex
		var want []int
		atOnce(handles, 100, func(s *Store, i int) {
			group := []*Submission{aSubmission(100000, 100000+i), aSubmission(2*i, 2*i), aSubmission(2*i+1, 2*i+1)}
			_, err := s.Commit(context.Background(), group)
			if err != nil {
				t.Error(err)
				return
			}
			if group[0].Verdict == Accepted {
				mallory.Add(1)
			}
			mu.Lock()
			defer mu.Unlock()
			for j, sub := range group {
				if sub.Verdict == Accepted {
					want = append(want, []int{100000 + i, 2 * i, 2*i + 1}[j])
					others.Add(1)
				}
			}
		})
		require.EqualValues(t, 1, mallory.Load())
		require.EqualValues(t, 201, others.Load())
		p := progressOf(t, handles[0], testEpoch)
		require.Len(t, p.Open, 21)
		var rows []Row
		for i, b := range p.Open {
			n, some := sealRows(t, handles[i%2], b.Seq)
			require.EqualValues(t, min(10, 201-10*i), n)
			require.Len(t, some, 3*int(n))
			rows = append(rows, some...)
		}
		requireRows(t, rows, want...)
	})
}

// TestStoresSealOnce: of many concurrent attempts to seal or mix one batch, exactly one must succeed.
func TestStoresSealOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		handles := []*Store{open(), open()}
		verdicts(t, handles[0], aSubmission(1, 1))
		mixed := EpochID{testEpoch.Task, testEpoch.Epoch + 1}
		var done [2]atomic.Int64
		var refused sync.Map
		atOnce(handles, 16, func(s *Store, _ int) {
			sealErr := s.Seal(context.Background(), testEpoch.Batch(0),
				wholly(func(uint64, []Row) (*onion.Batch, error) { return testBatch(0) }))
			mixErr := mixOf(s, mixed.Batch(0), []Short{number8(1)},
				func(fresh []bool) (*onion.Batch, error) {
					if !slices.Equal(fresh, []bool{true}) {
						t.Error("a tag must be fresh for every attempt at its batch")
					}
					return testBatch(0)
				})
			for i, err := range []error{sealErr, mixErr} {
				if err == nil {
					done[i].Add(1)
				} else {
					refused.Store(err, true)
				}
			}
		})
		require.EqualValues(t, 1, done[0].Load())
		require.EqualValues(t, 1, done[1].Load())
		refused.Range(func(err, _ any) bool {
			require.True(t, errors.Is(err.(error), ErrNoBatch) || errors.Is(err.(error), ErrMade), "%v", err)
			return true
		})
	})
}

// TestProgressAmidMixes: while batches are made, Progress must never list more of them than there are.
func TestProgressAmidMixes(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s, reader := open(), open()
		done := make(chan error, 1)
		go func() {
			for seq := range uint64(100) {
				if err := mixOf(s, testEpoch.Batch(seq), nil,
					func([]bool) (*onion.Batch, error) { return testBatch(seq) }); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		for {
			p := progressOf(t, reader, testEpoch)
			require.LessOrEqual(t, uint64(len(p.Open)+len(p.Held)), p.Next)
			select {
			case err := <-done:
				require.NoError(t, err)
				require.Len(t, progressOf(t, reader, testEpoch).Held, 100)
				return
			default:
			}
		}
	})
}

// TestRecordManifest: the store must keep the first manifest of a number, and beside it the first different one. If two
// processes see one each, one of them must get ErrEquivocation.
func TestRecordManifest(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		signed := func(seq uint64, slot string) *onion.SignedManifest {
			b, err := testBatch(seq, []byte(slot))
			require.NoError(t, err)
			return b.Signed()
		}
		s := open()
		next, err := s.NextManifest(t.Context(), testEpoch)
		require.NoError(t, err)
		require.Zero(t, next)
		one, two, three := signed(4, "one"), signed(4, "two"), signed(4, "three")
		for range 2 {
			require.NoError(t, s.RecordManifest(t.Context(), testEpoch.Batch(4), one))
		}
		other := *one
		other.Signature = []byte("another, of the same manifest")
		require.NoError(t, s.RecordManifest(t.Context(), testEpoch.Batch(4), &other))
		all, err := s.Equivocations(t.Context())
		require.NoError(t, err)
		require.Empty(t, all)
		for _, again := range []*onion.SignedManifest{two, three, two} {
			require.ErrorIs(t, open().RecordManifest(t.Context(), testEpoch.Batch(4), again), ErrEquivocation)
		}
		require.NoError(t, s.RecordManifest(t.Context(), testEpoch.Batch(4), one), "want no error for the kept one")
		all, err = s.Equivocations(t.Context())
		require.NoError(t, err)
		require.Equal(t, []Equivocation{{testEpoch, 4, *one, *two}}, all)
		next, err = s.NextManifest(t.Context(), testEpoch)
		require.NoError(t, err)
		require.EqualValues(t, 5, next)

		handles := []*Store{open(), open()}
		var equivocations atomic.Int64
		atOnce(handles, 8, func(s *Store, i int) {
			err := s.RecordManifest(context.Background(), testEpoch.Batch(5), signed(5, fmt.Sprint(i%2)))
			if errors.Is(err, ErrEquivocation) {
				equivocations.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		})
		require.EqualValues(t, 4, equivocations.Load())
		require.NoError(t, s.Advance(t.Context(), testEpoch, StateExpired))
		all, err = s.Equivocations(t.Context())
		require.NoError(t, err)
		require.Empty(t, all)
	})
}

// TestRecordManifestOfMade: after a batch is made, the upstream manifest must be only in the batch's own manifest, and
// be recognized there. A different one with the same number must be kept as evidence. Withheld batches must be counted.
func TestRecordManifestOfMade(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		source := func(slot string) *onion.SignedManifest {
			b, err := testBatch(0, []byte(slot))
			require.NoError(t, err)
			return b.Signed()
		}
		one, other := source("one"), source("two")
		require.NoError(t, s.RecordManifest(t.Context(), testEpoch.Batch(0), one))
		err := s.Mix(t.Context(), testEpoch.Batch(0), nil, func(*Fresh, Put) (*Made, error) {
			raw, err := one.Bytes()
			require.NoError(t, err)
			mine, err := codec.Marshal(&onion.Manifest{TaskID: []byte{}, Ciphertexts: []byte{},
				Lanes: []onion.LaneCount{}, Source: raw})
			return &Made{Manifest: mine, Head: []byte("head"), Withheld: true}, err
		})
		require.NoError(t, err)
		rows := func() (n int) {
			require.NoError(t, s.read.QueryRow(`SELECT count(*) FROM recorded_manifests`).Scan(&n))
			return n
		}
		require.Zero(t, rows())
		require.ErrorIs(t, s.RecordManifest(t.Context(), testEpoch.Batch(0), one), ErrMade)
		require.Zero(t, rows())
		destroyed, err := s.Destroyed(t.Context(), testEpoch)
		require.NoError(t, err)
		require.EqualValues(t, 1, destroyed)
		signed, err := s.NextManifest(t.Context(), testEpoch)
		require.NoError(t, err)
		require.EqualValues(t, 1, signed)
		for range 2 {
			require.ErrorIs(t, s.RecordManifest(t.Context(), testEpoch.Batch(0), other), ErrEquivocation)
		}
		all, err := s.Equivocations(t.Context())
		require.NoError(t, err)
		require.Equal(t, []Equivocation{{testEpoch, 0, *one, *other}}, all)
		require.NoError(t, mixOf(s, testEpoch.Batch(1), nil,
			func([]bool) (*onion.Batch, error) { return testBatch(1) }))
		destroyed, err = s.Destroyed(t.Context(), testEpoch)
		require.NoError(t, err)
		require.EqualValues(t, 1, destroyed, "only the first batch was withheld")
	})
}

// TestStoreCompletesOnce: if several processes complete an epoch, each with an end of its own, all must keep the first
// end.
func TestStoreCompletesOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		handles := []*Store{open(), open()}
		end, err := handles[0].End(t.Context(), testEpoch)
		require.NoError(t, err)
		require.Nil(t, end)
		atOnce(handles, 8, func(s *Store, i int) {
			if err := s.Complete(context.Background(), testEpoch, []byte{byte(i)}); err != nil {
				t.Error(err)
			}
		})
		first, err := handles[0].End(t.Context(), testEpoch)
		require.NoError(t, err)
		require.Len(t, first, 1)
		for _, s := range handles {
			require.NoError(t, s.Complete(t.Context(), testEpoch, []byte("late")))
			end, err := s.End(t.Context(), testEpoch)
			require.NoError(t, err)
			require.Equal(t, first, end)
			require.Equal(t, StateComplete, progressOf(t, s, testEpoch).State)
			require.ErrorIs(t, s.Mix(t.Context(), testEpoch.Batch(0), nil, nil), ErrOver)
		}
		require.NoError(t, handles[0].Advance(t.Context(), testEpoch, StateExpired))
		end, err = handles[1].End(t.Context(), testEpoch)
		require.NoError(t, err)
		require.Equal(t, first, end, "the end must stay, because a next hop may ask late")
	})
}

// TestMostBatches: an epoch with a limited number of batches must take as many submissions as they hold, even through
// two concurrent processes, and whatever is sealed meanwhile.
func TestMostBatches(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		stores := []*Store{open(), open()}
		var accepted atomic.Int64
		commit := func(s *Store, client int) {
			sub := aSubmission(client, client)
			sub.Batches = 2
			if _, err := s.Commit(t.Context(), []*Submission{sub}); err == nil && sub.Verdict == Accepted {
				accepted.Add(1)
			}
		}
		var writers sync.WaitGroup
		for process, s := range stores {
			writers.Go(func() {
				for i := range 9 {
					commit(s, 100*process+i)
				}
			})
		}
		writers.Wait()
		require.EqualValues(t, 18, accepted.Load())
		sealRows(t, stores[0], 0)
		group := []*Submission{}
		for i := range 5 {
			sub := aSubmission(500+i, 500+i)
			sub.Batches = 2
			group = append(group, sub)
		}
		require.Equal(t, []Verdict{Accepted, Accepted, Late, Late, Late}, verdicts(t, stores[1], group...))
		require.Equal(t, []Verdict{Repeated, Late}, verdicts(t, stores[1], group[1], group[4]))
		sealRows(t, stores[0], 1)
		require.Equal(t, []Verdict{Late}, verdicts(t, stores[1], group[3]))
	})
}

// TestPanicEndsTransaction: a panic in a transaction, from which an HTTP server recovers, must leave no lock and no
// connection in use.
func TestPanicEndsTransaction(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		id := EpochID{Epoch: 3}
		for range 20 { // more often than there are connections
			require.PanicsWithValue(t, "a fault", func() {
				_ = s.within(t.Context(), func(tx *transaction) error {
					_, err := tx.lock(id)
					require.NoError(t, err)
					panic("a fault")
				})
			})
		}
		require.Zero(t, s.write.Stats().InUse)
		require.NoError(t, s.Advance(t.Context(), id, StateClosed))
	})
}

// TestFailedFlushEndsTransaction: after a statement could not be sent, later statements of the transaction must not be
// stored.
func TestFailedFlushEndsTransaction(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		const value = `SELECT count(*) FROM meta WHERE name = 'after'`
		err := s.within(t.Context(), func(tx *transaction) error {
			bad := errors.Join(tx.put(`NONSENSE`), tx.tx.flush())
			require.Error(t, bad)
			_, _ = tx.exec(`INSERT INTO meta (name, value) VALUES ('after', $1)`, []byte{1})
			return bad
		})
		require.Error(t, err)
		var n int
		require.NoError(t, s.read.QueryRowContext(t.Context(), value).Scan(&n))
		require.Zero(t, n)
	})
}

// TestDamagedBatchRow: reading or confirming a batch whose row is truncated must be an error.
func TestDamagedBatchRow(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *Store) {
		s := open()
		b := testEpoch.Batch(0)
		require.NoError(t, mixOf(s, b, nil, func([]bool) (*onion.Batch, error) { return testBatch(0) }))
		_, err := s.write.Exec(`UPDATE batches SET bytes = $1`, []byte{})
		require.NoError(t, err)
		_, err = s.Batch(t.Context(), b)
		require.ErrorIs(t, err, errBatch)
		require.ErrorIs(t, s.Confirm(t.Context(), b), errBatch)
	})
}
