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

// newIngress returns an ingress without the rest of a relay, with a relay's default limits.
func newIngress() *ingress.Ingress {
	return ingress.New(&tasks.Registry{}, ingress.Config{MaxConcurrent: 1024, Group: 1024}, nil,
		monitor.New(slog.New(slog.DiscardHandler)), func() {})
}

// TestReportsAreStoredInRandomOrder: the ingress must store the reports of one transaction in a uniformly random order,
// not in their order of arrival.
func TestReportsAreStoredInRandomOrder(t *testing.T) {
	in := newIngress()
	stattest.Uniform(t, stattest.Trials, func() []int { return ingress.GroupOrder(in, stattest.Things) })
}

// TestNobodyWaitsForever ends the queue while a report is in it. That report must get an answer, and the queue must
// accept no later one.
func TestNobodyWaitsForever(t *testing.T) {
	waiting, late := ingress.EndQueue(newIngress())
	require.False(t, late)
	select {
	case stored := <-waiting:
		require.False(t, stored)
	default:
		require.Fail(t, "the queued report got no answer")
	}
}
