package relay_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

func newKey(t *testing.T) (task.SignKey, ed25519.PrivateKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return task.SignKey(public), private
}

// stated is a cascade whose task begins a stream with a recovery key.
type stated struct {
	*relaytest.Cascade
	trust taskfile.Trust
	list  *onion.SignedKeyList // the verifier's, for the task at position 1
	log   *bytes.Buffer        // the first relay's; read it only while that relay is stopped
}

func newStated(t *testing.T, recovery task.SignKey, hops int) *stated {
	t.Helper()
	log := &bytes.Buffer{}
	c := relaytest.New(t, relaytest.Options{Hops: hops, Task: relaytest.InStream(),
		Config: func(hop int, cfg *relay.Config) {
			cfg.Tasks[0].Recovery = taskfile.FormatKey(recovery)
			if hop == 0 {
				cfg.Log = slog.New(slog.NewTextHandler(log, nil))
			}
		}})
	return &stated{c, c.Open.Trust(recovery), c.NextVerifierKeys(t, 1, 1), log}
}

// says signs a statement that follows the stream's latest one. It names a new owner's key; a zero key ends the stream.
func (s *stated) says(t *testing.T, key task.SignKey, signer ed25519.PrivateKey) []byte {
	t.Helper()
	served, err := s.Verifier.Stream(t.Context(), s.Open, s.trust)
	require.NoError(t, err)
	one, err := taskfile.NewStatement(s.trust, served.Authority, served.Tasks[len(served.Tasks)-1], key, signer)
	require.NoError(t, err)
	raw, err := codec.Marshal(one)
	require.NoError(t, err)
	return raw
}

func (s *stated) hand(t *testing.T, hop int, statement []byte) error {
	t.Helper()
	return s.Verifier.State(t.Context(), s.Open, s.Open.Task, hop, statement)
}

// renew makes an owner sign the task at position 1 and hand it to all relays.
func (s *stated) renew(t *testing.T, owner *handover.Requester) error {
	t.Helper()
	bundle, err := owner.Renew(t.Context(), s.Open, handover.Renewal{Count: 1, Now: s.Clock.Now(),
		Verifier: s.list, Recovery: s.trust.Recovery})
	if err != nil {
		return err
	}
	raw, err := bundle.Bytes()
	require.NoError(t, err)
	open, err := bundle.Open(nil)
	require.NoError(t, err)
	for hop := range s.Open.Relays {
		if err := owner.Succeed(t.Context(), s.Open, open.Task, hop, raw); err != nil {
			return err
		}
	}
	return nil
}

// TestOwnerHandsOn: an owner names a new key for the stream. The stream must continue with the new key and not with the
// old one, even after a restart. Anyone may hand over the statement, even repeatedly.
func TestOwnerHandsOn(t *testing.T) {
	recovery, _ := newKey(t)
	s := newStated(t, recovery, 2)
	stops := []func(){s.Start(t, 0), s.Start(t, 1)}
	owner, old := s.AsOwner(t)
	next, private := newKey(t)
	on := s.says(t, next, owner)
	for hop := range s.Open.Relays {
		require.NoError(t, s.hand(t, hop, on))
		require.NoError(t, s.hand(t, hop, on))
	}
	for _, stop := range stops {
		stop()
	}
	require.Equal(t, 1, strings.Count(s.log.String(), "stream's owner changed"), "repeats are not logged")
	s.StartAll(t)
	_, err := old.NextKeys(t.Context(), s.Open, s.Open.Task, 0, 1)
	require.ErrorIs(t, err, handover.ErrUnauthorized)
	require.ErrorContains(t, s.renew(t, old), "owner-key")
	require.NoError(t, s.renew(t, handover.NewRequester(private, nil)))
	served, err := s.Verifier.Stream(t.Context(), s.Open, s.trust)
	require.NoError(t, err)
	require.Len(t, served.Tasks, 2)
	require.Equal(t, next, served.Tasks[1].Owner)
}

// TestThiefLosesTheKey: a thief of the owner's key has signed statements. A statement by the recovery key must override
// them. The thief must not be able to undo it or use it for another key.
func TestThiefLosesTheKey(t *testing.T) {
	recovery, rescue := newKey(t)
	s := newStated(t, recovery, 1)
	s.Start(t, 0)
	owner, _ := s.AsOwner(t)
	stolen, thief := newKey(t)
	next, private := newKey(t)
	accepted := s.says(t, stolen, owner)
	late := s.says(t, next, owner)
	require.NoError(t, s.hand(t, 0, accepted))
	require.ErrorIs(t, s.hand(t, 0, late), problem.New(problem.Malformed, ""), "the thief was faster")
	end := s.says(t, task.SignKey{}, thief)
	back, other := s.says(t, next, rescue), s.says(t, stolen, rescue)
	require.NoError(t, s.hand(t, 0, end))
	require.NoError(t, s.hand(t, 0, back))
	for _, bad := range [][]byte{accepted, end, other} {
		require.Error(t, s.hand(t, 0, bad))
	}
	require.ErrorContains(t, s.renew(t, handover.NewRequester(thief, nil)), "owner-key")
	require.NoError(t, s.renew(t, handover.NewRequester(private, nil)))
}

// TestStreamStops: after a stop, the first relay must accept no more reports and no further task.
func TestStreamStops(t *testing.T) {
	recovery, _ := newKey(t)
	s := newStated(t, recovery, 1)
	s.Start(t, 0)
	owner, client := s.AsOwner(t)
	require.NoError(t, s.Post(t.Context(), 0, s.Seal(t, 0, 1), relaytest.Network(1)))
	require.NoError(t, s.hand(t, 0, s.says(t, task.SignKey{}, owner)))
	err := s.Post(t.Context(), 0, s.Seal(t, 0, 2), relaytest.Network(2))
	require.ErrorIs(t, err, problem.New(problem.EpochClosed, ""))
	_, err = client.NextKeys(t.Context(), s.Open, s.Open.Task, 0, 1)
	require.ErrorIs(t, err, handover.ErrUnauthorized)
	_, err = handover.NewRequester(make(ed25519.PrivateKey, 64), nil).NextKeys(t.Context(), s.Open, s.Open.Task, 0, 1)
	require.ErrorIs(t, err, handover.ErrUnauthorized, "the zero key must not count as an owner")
}

// TestStatementsAreChecked: relays must refuse a statement that is malformed, too long, or about a task other than the
// stream's newest.
func TestStatementsAreChecked(t *testing.T) {
	recovery, _ := newKey(t)
	s := newStated(t, recovery, 1)
	s.Start(t, 0)
	owner, client := s.AsOwner(t)
	next, _ := newKey(t)
	early := s.says(t, next, owner)
	require.NoError(t, s.renew(t, client))
	err := s.hand(t, 0, early)
	require.ErrorContains(t, err, "position")
	require.ErrorIs(t, err, problem.New(problem.Malformed, ""))
	require.NoError(t, s.hand(t, 0, s.says(t, next, owner)))
	for body, want := range map[string]int{"": http.StatusBadRequest, "\x92\xc4\x00\xc4\x00": http.StatusBadRequest,
		strings.Repeat("x", 1<<11): http.StatusRequestEntityTooLarge} {
		resp, err := http.Post(s.Open.StatementsURL(s.Open.Task, 0), "", strings.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, want, resp.StatusCode)
	}
}

// TestRelaysAgreeAgain: two relays accepted different statements by the recovery key. A later statement by that key,
// with a higher era, must make them agree again.
func TestRelaysAgreeAgain(t *testing.T) {
	recovery, rescue := newKey(t)
	s := newStated(t, recovery, 2)
	s.StartAll(t)
	one, _ := newKey(t)
	two, private := newKey(t)
	first, other := s.says(t, one, rescue), s.says(t, two, rescue)
	require.NoError(t, s.hand(t, 1, first))
	require.Error(t, s.hand(t, 1, other))
	require.NoError(t, s.hand(t, 0, other))
	again := s.says(t, two, rescue)
	for hop := range s.Open.Relays {
		require.NoError(t, s.hand(t, hop, again))
	}
	require.NoError(t, s.renew(t, handover.NewRequester(private, nil)))
}
