package handout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay/internal/handout"
	"github.com/doona-dp/doona/relay/internal/tasks"
	"github.com/doona-dp/doona/wire/onion"
)

// TestHandoutsAreLimited sends batches until the limit. They must use at most the common memory limit, with no room for
// one more, and release all memory afterwards.
func TestHandoutsAreLimited(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	layout, err := onion.NewLayout(c.Open.Task)
	require.NoError(t, err)
	s := &tasks.Hosted{Open: c.Open, Layout: layout}
	bytes, free := handout.Fill(s)
	require.LessOrEqual(t, bytes, int64(handout.HandoutBytes))
	require.Greater(t, bytes+handout.BytesOf(s), int64(handout.HandoutBytes))
	require.Zero(t, free())
}
