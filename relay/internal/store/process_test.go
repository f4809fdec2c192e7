package store

import (
	"context"
	"errors"
	"iter"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/wire/onion"
)

// countingReserve is a Reserve that counts its uses.
type countingReserve struct {
	used  int
	short error
}

func (r *countingReserve) WithReserve(do func() error) error {
	r.used++
	return do()
}

func (r *countingReserve) Short() error { return r.short }

// TestReserveIsInside: every method that erases, confirms or ends must use the disk reserve, whoever calls it. While
// the reserve is short, no method may make anything new. The test fails for a new method of a store or a vault that is
// not listed here.
func TestReserveIsInside(t *testing.T) {
	v, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
	require.NoError(t, err)
	r := &countingReserve{}
	s, err := Open(service.SchemeSQLite+filepath.Join(t.TempDir(), "relay.db"), v, Process{Reserve: r})
	require.NoError(t, err)
	defer s.Close()
	ctx, b := t.Context(), testEpoch.Batch(0)
	_, err = s.Commit(ctx, []*Submission{aSubmission(1, 1)})
	require.NoError(t, err)
	build := func(*Fresh, Put) (*Made, error) { return &Made{Manifest: []byte("none"), Withheld: true}, nil }
	mixed := EpochID{testEpoch.Task, testEpoch.Epoch + 1}

	erases := map[string]func() error{ // a map, so in random order
		"Store.Advance":            func() error { return s.Advance(ctx, testEpoch, StateClosed) },
		"Store.Complete":           func() error { return s.Complete(ctx, EpochID{testEpoch.Task, 9}, []byte("end")) },
		"Store.Confirm":            func() error { return s.Confirm(ctx, b) },
		"Store.Reconcile":          func() error { _, err := s.Reconcile(ctx); return err },
		"Store.MixWithheld":        func() error { return s.MixWithheld(ctx, mixed.Batch(0), nil, build) },
		"Store.Note":               func() error { _, err := s.Note(ctx, b, "odd"); return err },
		"Store.Scrub":              func() error { return s.Scrub(ctx) },
		"Store.SealWithheld":       func() error { return ignore(s.SealWithheld(ctx, b.EpochID.Batch(7), nil), ErrNoBatch) },
		"Store.Sweep":              func() error { return s.Sweep(ctx) },
		"Store.Tally":              func() error { return s.Tally(ctx, testEpoch, map[string]uint64{"limit": 1}) },
		"Store.SetSourceConfirmed": func() error { return s.SetSourceConfirmed(ctx, b) },
		"Store.RecordManifest": func() error {
			signed := &onion.SignedManifest{Manifest: []byte("one"), Signature: []byte("s")}
			return s.RecordManifest(ctx, testEpoch.Batch(5), signed)
		},
		"Vault.DestroyEpochKey": func() error { return v.DestroyEpochKey(EpochID{testEpoch.Task, 8}) },
		"Vault.DestroyEpochs":   func() error { return v.DestroyEpochs([]EpochID{{testEpoch.Task, 8}}) },
		"Vault.DestroyRows":     func() error { return v.DestroyRows(EpochID{testEpoch.Task, 8}) },
		"Vault.DestroyUnneeded": func() error {
			return v.DestroyUnneeded([]Progress{{ID: EpochID{testEpoch.Task, 8}, State: StateErased}})
		},
	}
	for name, do := range erases {
		r.used = 0
		require.NoError(t, do(), name)
		require.Equal(t, 1, r.used, name)
	}
	r.used, r.short = 0, errors.New("the disk is full")
	makes := map[string]func() error{
		"Store.Commit":    func() error { _, err := s.Commit(ctx, []*Submission{aSubmission(2, 2)}); return err },
		"Store.Mix":       func() error { return s.Mix(ctx, mixed.Batch(1), nil, build) },
		"Store.Reshuffle": func() error { return s.Reshuffle(ctx, b, 10) },
		"Store.Seal":      func() error { return s.Seal(ctx, b, nil) },
	}
	for name, do := range makes {
		require.ErrorIs(t, do(), r.short, name)
	}
	require.Zero(t, r.used)

	rest := []string{
		// These only read.
		"Store.Batch", "Store.FindRollback", "Store.Destroyed", "Store.End", "Store.Equivocations", "Store.Findings",
		"Store.Joining", "Store.Joins", "Store.Manifest", "Store.Name", "Store.Next", "Store.OtherSecret",
		"Store.Progress", "Store.SealedBelow", "Store.StateRollback", "Store.Tallies", "Store.Version", "Store.NextManifest",
		"Vault.EpochKey", "Vault.Holds", "Vault.Marked",
		"Store.UnconfirmedSources",                               // It writes to rollback marks in place.
		"Store.Probe",                                            // It finds out whether there is space.
		"Store.Fresh", "Store.ForgetNonces", "Store.CheckServer", // They write only to a database server's disk.
		"Store.SignOff",                             // Without space there is no sign-off: a switchover then ends the epochs.
		"Store.EndAll", "Vault.End", "Vault.Forget", // The operator calls them while the relay is stopped.
		"Store.Close", "Vault.Close", "Vault.Watch", "Vault.Unwatch",
		"Store.LimitPages", "Vault.Unencrypted", // These are for tests.
	}
	for _, of := range []any{s, v} {
		typ := reflect.TypeOf(of)
		for i := range typ.NumMethod() {
			name := typ.Elem().Name() + "." + typ.Method(i).Name
			_, erasing := erases[name]
			_, making := makes[name]
			require.True(t, erasing || making || slices.Contains(rest, name), "list %s here: is the reserve needed?", name)
		}
	}
}

// beatenReserve is a Reserve whose every use waits for two more heartbeats.
type beatenReserve struct{ wait func() }

func (r beatenReserve) WithReserve(do func() error) error {
	r.wait()
	return do()
}

func (beatenReserve) Short() error { return nil }

// TestHeartbeatIsInside: while its store works for minutes, a process must send heartbeats, whoever calls the store.
// Afterwards the store must send none.
func TestHeartbeatIsInside(t *testing.T) {
	v, err := OpenOrCreateVault(filepath.Join(t.TempDir(), "secret"))
	require.NoError(t, err)
	beats := make(chan struct{})
	checking := true // whether heartbeats are allowed now
	wait := func() {
		for range 2 {
			select {
			case <-beats:
			case <-time.After(10 * time.Second):
				t.Error("the store sent no heartbeat")
			}
		}
	}
	s, err := Open(service.SchemeSQLite+filepath.Join(t.TempDir(), "relay.db"), v, Process{
		Reserve: beatenReserve{wait}, Every: time.Millisecond,
		Heartbeat: func(context.Context) {
			assert.True(t, checking)
			select {
			case beats <- struct{}{}:
			case <-time.After(time.Millisecond):
			}
		},
	})
	require.NoError(t, err)
	defer s.Close()
	ctx := t.Context()
	_, err = s.Commit(ctx, []*Submission{aSubmission(1, 1)})
	require.NoError(t, err)
	for name, do := range map[string]func() error{
		"Seal": func() error {
			return s.Seal(ctx, testEpoch.Batch(0), func(uint64, iter.Seq2[Row, error], Put) (*Made, error) {
				wait()
				return nil, ErrOver
			})
		},
		"SealWithheld": func() error { return s.SealWithheld(ctx, testEpoch.Batch(7), nil) },
		"Sweep":        func() error { return s.Sweep(ctx) },
	} {
		checking = true
		err := do()
		checking = false
		require.NoError(t, ignore(ignore(err, ErrOver), ErrNoBatch), name)
		time.Sleep(5 * time.Millisecond)
	}
}

func ignore(err, not error) error {
	if errors.Is(err, not) {
		return nil
	}
	return err
}
