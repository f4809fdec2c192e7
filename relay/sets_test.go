package relay_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
)

// aDay is the length of a set's day.
const aDay = 24 * time.Hour

// setOf returns a set whose tables have the given epochs. Each table has four cells, and its batch holds size
// submissions.
func setOf(size uint64, epochs ...task.Epochs) *quickstart.Set {
	s := &quickstart.Set{Name: "site", Set: tableset.Set{Name: "a site",
		Total: tableset.Total{Epsilon: task.NewEpsilon("100"), Delta: task.NewDelta("1e-3"), Days: 1}}}
	for i, e := range epochs {
		t := fixture.Table(4, e)
		t.Batch.Size = size
		s.Tables = append(s.Tables, t)
		s.Set.Tables = append(s.Set.Tables, tableset.Table{Name: string(rune('a' + i))})
	}
	return s
}

// midnight returns the start of this day, in UTC.
func midnight() time.Time { return time.Now().UTC().Truncate(aDay) }

// epochsOf returns a table's epochs: count epochs of days days each, of which the first begins after some days.
func epochsOf(after, days, count int) task.Epochs {
	return task.Epochs{Start: uint64(midnight().Add(time.Duration(after) * aDay).Unix()),
		Length: task.Length(days * 86400), Count: uint64(count)}
}

// cells returns the slots of a submission on a day: for each table the message of a cell, or a cover for a negative one.
func cells(s *tableset.Open, day uint64, values ...int) (slots []onion.SetSlot) {
	for i, v := range values {
		epoch, open := s.At(i, day)
		m := task.Message{Cover: true}
		if open && v >= 0 {
			m = task.Message{Body: []byte{byte(v)}}
		}
		slots = append(slots, onion.SetSlot{Epoch: epoch, Message: m})
	}
	return slots
}

// TestSetReachesTheVerifier: a set's submission goes through two relays, and each table's messages arrive in its batch.
func TestSetReachesTheVerifier(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Set: setOf(10, epochsOf(0, 1, 2), epochsOf(0, 2, 1))})
	c.StartAll(t)
	sealer := c.SetSealer(t)
	for i := range 10 {
		body, err := sealer.Seal(0, cells(c.OpenSet(), 0, 1, i%2*3-1+i%2))
		require.NoError(t, err)
		require.NoError(t, c.PostSet(t.Context(), 0, body, relaytest.Network(i)))
	}
	for table, want := range []int{10, 5} {
		of := c.Table(t, table)
		batch, chain := of.Pull(t, 0, 0)
		require.EqualValues(t, 10, chain[0].Submissions)
		opener, n := of.VerifierOpener(t, 0), 0
		for _, slot := range batch.Ciphertexts[0] {
			_, m, err := opener.OpenMessage(0, slot)
			require.NoError(t, err)
			if !m.Cover {
				n++
			}
		}
		require.GreaterOrEqual(t, n, want)
	}
	err := c.Table(t, 1).Post(t.Context(), 0, []byte("x"), relaytest.Network(1))
	require.Equal(t, http.StatusNotFound, requireProblem(t, problem.SetOnly, err).Status)
}
