package handover_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestJunkAnswers: an answer of junk of the largest size must cost the Requester little memory, for each kind of
// request.
func TestJunkAnswers(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.InStream()})
	var answer fixture.Junk
	c.Listen(t, 0, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.Copy(w, answer.Reader()) // fails when a client has read enough and closes the connection
	}))
	_, owner := c.AsOwner(t)
	relay, from := c.Open.Relays[0], handover.StreamRelay{Task: c.Open.Task}
	const epochs = 60_000
	_, keys, err := onion.KeySizes(c.Open.KEM, epochs)
	require.NoError(t, err)
	for _, asks := range []struct {
		name string
		junk []fixture.Junk
		most uint64
		ask  func() error
	}{
		{"a stream", fixture.JunkStreams(c.Bundle(t), taskfile.MaxStream), 4 << 20, func() error {
			_, err := owner.Stream(t.Context(), c.Open, c.Open.Trust(task.SignKey{}))
			return err
		}},
		{"a bundle", fixture.JunkBundles(c.Bundle(t), taskfile.MaxBundle), 4 << 20, func() error {
			_, _, err := owner.Bundle(t.Context(), c.Open.ID, from)
			return err
		}},
		{"updates", fixture.JunkBehind("updates", []byte{0x92, 0xc4, 16, 15: 1, 18: 1}, taskfile.MaxUpstreamStatus), 40 << 20,
			func() error {
				_, err := owner.UpstreamStatus(t.Context(), relay, nil)
				return err
			}},
		{"keys", fixture.JunkBehind("keys", []byte{0x92}, int(keys)), 20 << 20, func() error {
			_, err := owner.KeysFor(t.Context(), relay, taskfile.Label{1}, c.Open.KEM, epochs)
			return err
		}},
		{"next keys", fixture.JunkBehind("keys", []byte{0x92}, int(keys)), 20 << 20, func() error {
			_, err := owner.NextKeys(t.Context(), c.Open, c.Open.Task, 0, epochs)
			return err
		}},
		{"an end", fixture.JunkBehind("an end", []byte{0x92}, 1<<16), 1 << 20, func() error {
			_, _, err := c.Verifier.End(t.Context(), c.Open, 0, 0)
			return err
		}},
		{"the time", fixture.JunkBehind("the time", []byte{0x92}, 1<<16), 1 << 20, func() error {
			_, err := owner.Time(t.Context(), c.Open, 0)
			return err
		}},
		{"a batch", fixture.JunkBehind("a batch", []byte{0x94}, 1<<22), 1 << 20, func() error {
			_, err := c.Verifier.Pull(t.Context(), c.Open, 0, 0, 0)
			return err
		}},
	} {
		for _, answer = range asks.junk {
			before := fixture.Allocated()
			err := asks.ask()
			require.LessOrEqual(t, fixture.Allocated()-before, asks.most, "%s: %s", asks.name, answer.Name)
			require.Error(t, err, "%s: %s", asks.name, answer.Name)
		}
	}
}

// TestMaxOpenEpochs: a status with MaxOpenEpochs epochs must not be larger than what clients read.
func TestMaxOpenEpochs(t *testing.T) {
	const longest = 1 + 2 + 32 + 9 + 9
	require.LessOrEqual(t, handover.MaxOpenEpochs*longest+1+2+16+5, taskfile.MaxUpstreamStatus)
}
