//go:build long

package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAfterALongStop: 'doona dev' must decode a report soon after a restart, even if epochs ended while no relay ran.
// Such a gap makes the relays doubt their clock.
func TestAfterALongStop(t *testing.T) {
	t.Chdir(t.TempDir())
	first := startDev(t, "--port", "0", "--epoch", "10")
	require.EqualValues(t, 1, first.report(t, 42).Reports)
	first.stop(t)
	time.Sleep(35 * time.Second)
	second := startDev(t)
	began := time.Now()
	require.EqualValues(t, 2, second.report(t, 42).Reports)
	require.Less(t, time.Since(began), 10*time.Second)
	second.stop(t)
}

// TestFewReportsAreDestroyed: if an epoch ends before a batch is full, 'doona dev' must say that the relay destroyed
// the batch's messages.
func TestFewReportsAreDestroyed(t *testing.T) {
	t.Chdir(t.TempDir())
	r := startDev(t, "--port", "0", "--epoch", "10", "--batch", "3")
	var n struct{ Reports, Destroyed uint64 }
	require.Zero(t, r.report(t, 42).Reports)
	require.NoError(t, json.Unmarshal(r.lines.Bytes(), &n))
	require.EqualValues(t, 1, n.Destroyed)
	r.stop(t)
}
