package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// TestWithdrawATask: an owner withdraws a task, and then a stream, by one command each. If a relay was down, the same
// command must finish it. Another key must be refused before anything is sent.
func TestWithdrawATask(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{}.Approving(t, 2))
	c.Start(t, 1)
	stop := c.Start(t, 0)
	dir := t.TempDir()
	begin := func(name string, change ...func(*task.Task)) (*relaytest.Cascade, string) {
		t.Helper()
		bundle := c.Sign(t, c.Named(name, change...))
		for hop := range 2 {
			require.NoError(t, c.Begin(t.Context(), t, hop, bundle))
		}
		raw, err := bundle.Bytes()
		require.NoError(t, err)
		file := filepath.Join(dir, name)
		require.NoError(t, durable.WriteFile(file, raw, 0o600))
		return c.After(t, bundle), file
	}
	withdraw := func(status int, file, key string) string {
		t.Helper()
		return run(t, status, "task", "withdraw", file, "--sign-key", key, "--json")
	}
	owner, other := filepath.Join(c.Dir, "owner.key"), filepath.Join(dir, "other.key")
	_, err := keyfile.NewSign(other)
	require.NoError(t, err)
	single, file := begin("single")
	stream, first := begin("stream", func(t *task.Task) { t.Stream = &task.StreamPosition{Name: "shop"} })
	withdraw(1, file, other)
	withdraw(1, first, other)
	require.NoError(t, single.Post(t.Context(), 0, single.Seal(t, 0, 1), relaytest.Network(1)))
	stop()
	withdraw(1, file, owner)
	c.Start(t, 0)
	for _, one := range []struct {
		task *relaytest.Cascade
		file string
	}{{single, file}, {stream, first}} {
		var result withdrawResult
		require.NoError(t, json.Unmarshal([]byte(withdraw(0, one.file, owner)), &result))
		require.Equal(t, withdrawResult{one.task.Open.ID.String(),
			[]string{c.Open.Relays[0].URL, c.Open.Relays[1].URL}}, result)
		err := one.task.Post(t.Context(), 0, one.task.Seal(t, 0, 2), relaytest.Network(2))
		require.ErrorIs(t, err, problem.New(problem.EpochClosed, ""))
	}
}
