package ingress_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/relay/internal/ingress"
	"github.com/doona-dp/doona/relay/internal/monitor"
	"github.com/doona-dp/doona/relay/internal/tasks"
)

// newIngress returns an ingress without the rest of a relay, with the default limits.
func newIngress() *ingress.Ingress {
	return ingress.New(&tasks.Registry{}, ingress.Config{MaxConcurrent: 1024, Group: 1024}, nil,
		monitor.New(slog.New(slog.DiscardHandler)), func() {})
}

// TestReportsAreStoredInRandomOrder: the reports of one transaction go to the store in a uniform order, not in the
// order of their arrival.
func TestReportsAreStoredInRandomOrder(t *testing.T) {
	in := newIngress()
	stattest.Uniform(t, stattest.Trials, func() []int { return ingress.GroupOrder(in, stattest.Things) })
}

// TestNobodyWaitsForever: a report that is in the queue when the relay ends is answered, and none is queued after it.
func TestNobodyWaitsForever(t *testing.T) {
	waiting, late := ingress.EndQueue(newIngress())
	require.False(t, late)
	select {
	case stored := <-waiting:
		require.False(t, stored)
	default:
		require.Fail(t, "no answer")
	}
}
