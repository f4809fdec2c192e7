package shufflerclient_test

import (
	"io"
	"math"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/taskfile"
)

type junkRelay struct{ fixture.Junk }

func (r junkRelay) Do(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(r.Reader())}, nil
}

// TestJunkAnswers lets a first relay answer with junk of the largest size. The client must not use much memory for it.
func TestJunkAnswers(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10, relaytest.InStream())})
	o := shufflerclient.Options{Stream: c.Open.StreamURL(c.Open.Task, 0), Task: c.Open.URL(), Owner: c.Owner,
		MaxEpsilon: math.Inf(1), MaxDelta: 1}
	refused := func(one fixture.Junk, do func(shufflerclient.Options) error) {
		o.HTTP = junkRelay{one}
		before := fixture.Allocated()
		err := do(o)
		require.LessOrEqual(t, fixture.Allocated()-before, uint64(4<<20), one.Name)
		require.Error(t, err, one.Name)
	}
	for _, one := range fixture.JunkStreams(c.Bundle(t), taskfile.MaxStream) {
		refused(one, func(o shufflerclient.Options) error {
			_, err := shufflerclient.Follow(t.Context(), o)
			return err
		})
	}
	for _, one := range fixture.JunkBundles(c.Bundle(t), taskfile.MaxBundle) {
		refused(one, func(o shufflerclient.Options) error {
			_, err := shufflerclient.Connect(t.Context(), o)
			return err
		})
	}
}
