package store

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/rollback"
	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/internal/testing/stattest"
)

// TestSwitchover: processes that have signed off must continue on a standby that has taken over, and keep what they
// know. They must find a state rollback if the standby lacks a transaction, if a process did not sign off, if the new
// server is an older backup, or if they have run since they signed off. The long form has all cases.
func TestSwitchover(t *testing.T) {
	pgtest.Need(t)
	for name, switchover := range map[string]func(t *testing.T, s *switchover){
		"planned": func(t *testing.T, s *switchover) {
			s.signOff(t, s.a, s.b)
			s.takeOver(t)
			require.NoError(t, s.a.begin(t))
			require.NoError(t, s.b.begin(t))
			s.requireKept(t)
			require.NoError(t, s.a.store.Close())
			require.NoError(t, s.a.begin(t), "the marks name the new server")
		},
		"back and forth": func(t *testing.T, s *switchover) {
			s.signOff(t, s.a, s.b)
			s.takeOver(t)
			require.NoError(t, s.a.begin(t))
			s.a.commit(t)
			s.signOff(t, s.a)
			require.NoError(t, s.primary.Restart())
			s.a.description = s.old
			s.requireStopped(t, s.a, otherDatabase)
		},
		"the standby lags by the sign-off": func(t *testing.T, s *switchover) {
			s.caughtUp(t)
			require.NoError(t, s.standby.Halt())
			s.signOff(t, s.a, s.b)
			require.NoError(t, s.primary.Halt())
			require.NoError(t, s.standby.Restart())
			s.takeOver(t)
			s.requireStopped(t, s.a, otherDatabase)
		},
		"the standby lags by one transaction": func(t *testing.T, s *switchover) {
			s.caughtUp(t)
			require.NoError(t, s.standby.Halt())
			s.a.commit(t)
			s.signOff(t, s.a, s.b)
			require.NoError(t, s.primary.Halt())
			require.NoError(t, s.standby.Restart())
			s.takeOver(t)
			s.requireStopped(t, s.a, otherDatabase)
		},
		"a process was killed": func(t *testing.T, s *switchover) {
			s.signOff(t, s.a)
			require.NoError(t, s.b.store.Close())
			s.takeOver(t)
			s.requireStopped(t, s.b, otherDatabase)
			s.requireStopped(t, s.a, otherDatabase)
		},
		"a process has run since": func(t *testing.T, s *switchover) {
			s.signOff(t, s.a, s.b)
			require.NoError(t, s.a.begin(t))
			s.caughtUp(t)
			require.NoError(t, s.a.store.Close())
			s.takeOver(t)
			s.requireStopped(t, s.a, otherDatabase)
		},
		"a backup of an earlier sign-off": func(t *testing.T, s *switchover) {
			s.signOff(t, s.a, s.b)
			require.NoError(t, s.primary.Halt())
			putBack, err := s.primary.Keep()
			require.NoError(t, err)
			require.NoError(t, s.primary.Restart())
			require.NoError(t, s.a.begin(t))
			require.NoError(t, s.b.begin(t))
			s.a.commit(t)
			s.signOff(t, s.a, s.b)
			require.NoError(t, s.primary.Halt())
			require.NoError(t, putBack())
			require.NoError(t, s.primary.Promote())
			require.NoError(t, s.primary.Restart())
			recovers := true
			for recovers {
				require.NoError(t, raw(t, s.old).QueryRow(`SELECT pg_is_in_recovery()`).Scan(&recovers))
			}
			s.requireStopped(t, s.a, otherDatabase)
		},
	} {
		if name != "planned" && !stattest.Long {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			switchover(t, newSwitchover(t))
		})
	}
}

// switchover is a database server with a standby, and two processes that have taken submissions.
type switchover struct {
	primary, standby *pgtest.Server
	a, b             *history
	first            EpochID
	old              string // URL at the primary
}

func newSwitchover(t *testing.T) *switchover {
	t.Helper()
	s := &switchover{}
	var err error
	s.primary, err = pgtest.Start()
	require.NoError(t, err)
	t.Cleanup(func() { s.primary.Stop() })
	s.old, err = s.primary.Database()
	require.NoError(t, err)
	s.a, s.b = acquainted(t, s.old)
	s.a.commit(t)
	s.b.names = 1000
	s.b.commit(t)
	s.standby, err = s.primary.Standby()
	require.NoError(t, err)
	t.Cleanup(func() { s.standby.Stop() })
	return s
}

// signOff stops processes in order.
func (s *switchover) signOff(t *testing.T, processes ...*history) {
	t.Helper()
	for _, h := range processes {
		require.NoError(t, h.store.SignOff(t.Context()))
		_, err := h.store.Commit(t.Context(), []*Submission{h.submission()})
		require.ErrorIs(t, err, errSignedOff)
		require.NoError(t, h.store.Close())
	}
}

// caughtUp waits until the standby has all of the primary's log.
func (s *switchover) caughtUp(t *testing.T) {
	t.Helper()
	at, err := s.standby.At(s.old)
	require.NoError(t, err)
	var end string
	require.NoError(t, raw(t, s.old).QueryRow(`SELECT pg_current_wal_flush_lsn()::text`).Scan(&end))
	require.Eventually(t, func() (there bool) {
		err := raw(t, at).QueryRow(`SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, end).Scan(&there)
		return err == nil && there
	}, time.Minute, 20*time.Millisecond)
}

// takeOver halts the primary, which first sends its log to a standby that runs, and promotes the standby. Both
// processes are then configured for it.
func (s *switchover) takeOver(t *testing.T) {
	t.Helper()
	_ = s.primary.Halt() // it may have halted before
	require.NoError(t, s.standby.TakeOver())
	at, err := s.standby.At(s.old)
	require.NoError(t, err)
	s.a.description, s.b.description = at, at
}

// requireStopped starts a process, which must find a state rollback.
func (s *switchover) requireStopped(t *testing.T, h *history, cause Cause) {
	t.Helper()
	back := new(StateRollbackError)
	require.True(t, errors.As(h.begin(t), &back))
	require.Equal(t, cause, back.Cause)
}

// requireKept requires that both processes take new submissions, and recognize those from before the switchover.
func (s *switchover) requireKept(t *testing.T) {
	t.Helper()
	for _, h := range []*history{s.a, s.b} {
		for _, verdict := range verdicts(t, h.store, h.taken...) {
			require.Equal(t, Repeated, verdict)
		}
		h.commit(t)
		mark, err := os.ReadFile(h.path(partSecret))
		require.NoError(t, err)
		_, in, err := rollback.SplitFile(mark)
		require.NoError(t, err)
		require.Empty(t, in.SignOff)
	}
	var left int
	const texts = `SELECT COUNT(*) FROM meta WHERE name LIKE 'signoff/%' AND encode(value, 'escape') NOT LIKE '%/00000002'`
	require.NoError(t, raw(t, s.a.description).QueryRow(texts).Scan(&left))
	require.Zero(t, left, "processes that run have no sign-off")
}

// TestProvesAll: each condition of a switchover must hold.
func TestProvesAll(t *testing.T) {
	const text, server = "TEXT", "7001"
	mark := func() *rollback.Mark {
		m := rollback.NewMark()
		m.ID, m.Database = "a", server+"/00000001"
		m.Entries[rollback.EpochKey{}] = rollback.Entry{Steps: 4}
		m.SignOff = signOff(text, m)
		return m
	}
	both, history := map[string]string{"a": text, "b": "OTHER"}, server+"/00000002"
	require.True(t, provesAll(both, []string{"a", "b"}, mark(), history))
	require.True(t, provesAll(map[string]string{"a": text, "b": history}, []string{"a", "b"}, mark(), history),
		"b has begun")
	require.False(t, provesAll(map[string]string{"a": text, "b": mark().Database}, []string{"a", "b"}, mark(), history),
		"b runs on the old server")
	require.False(t, provesAll(both, []string{"a", "b"}, mark(), "7002/00000002"), "another server")
	require.False(t, provesAll(both, []string{"a", "b"}, mark(), "70011/00000002"), "another server")
	require.False(t, provesAll(both, []string{"a", "b", "c"}, mark(), history), "a process has not signed off")
	require.False(t, provesAll(map[string]string{"a": "OLDER"}, []string{"a"}, mark(), history), "an older sign-off")
	require.False(t, provesAll(map[string]string{"b": text}, []string{"b"}, mark(), history), "no sign-off")
	grown := mark()
	grown.Entries[rollback.EpochKey{}] = rollback.Entry{Steps: 5}
	require.False(t, provesAll(both, []string{"a", "b"}, grown, history), "a step since the sign-off")
	runs := mark()
	runs.SignOff = ""
	require.False(t, provesAll(both, []string{"a", "b"}, runs, history), "the process runs")
}
