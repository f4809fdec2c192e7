package relay_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestOwnersRequestsAreNotRepeated: an eavesdropper captured an approved owner's requests. The relay must not accept
// them again, even after a restart or after the task was dropped. They must use no task slot.
func TestOwnersRequestsAreNotRepeated(t *testing.T) {
	c := relaytest.New(t, expiring(relaytest.Options{Hops: 1}).Approving(t, 2))
	stop := c.Start(t, 0)
	key, _ := c.AsOwner(t)
	next := c.Named("one")
	at, label := next.Relays[0], taskfile.LabelOf(next)
	send := func(method, url, signature string, body []byte) ([]byte, error) {
		req, err := http.NewRequest(method, url, bytes.NewReader(body))
		require.NoError(t, err)
		req.Header.Set(handover.Header, signature)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			return nil, problem.Read(resp)
		}
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return raw, nil
	}
	asking := handover.Signed(key, signing.Owner, handover.OwnersKeysBody(at.SignKey, label, next.KEM, 2))
	ask := func() ([]byte, error) {
		return send(http.MethodGet, taskfile.OwnersKeysURL(at, c.Open.Owner, label, next.KEM, 2), asking, nil)
	}
	raw, err := ask()
	require.NoError(t, err)
	list, err := onion.ParseKeyList(raw)
	require.NoError(t, err)
	next.Relays[0].KeyList = list.Hash()
	bundle, err := c.SignWith(t, next, []*onion.SignedKeyList{list}).Bytes()
	require.NoError(t, err)
	handing := handover.Signed(key, signing.Owner, handover.OwnersTaskBody(at.SignKey))
	hand := func() error {
		_, err := send(http.MethodPost, taskfile.OwnersTasksURL(at, c.Open.Owner), handing, bundle)
		return err
	}
	require.NoError(t, hand())
	repeated := func(slots int) {
		t.Helper()
		for range 2 {
			_, err := ask()
			requireProblem(t, problem.Unauthorized, err)
			requireProblem(t, problem.Unauthorized, hand())
			require.Len(t, entriesOf(t, c, 0), slots)
			stop()
			http.DefaultClient.CloseIdleConnections()
			stop = c.Start(t, 0)
		}
	}
	repeated(1)
	c.Clock.Advance(52 * time.Hour)
	requireSoon(t, func() bool { return len(entriesOf(t, c, 0)) == 0 })
	repeated(0)
}

// TestOwnersVolumeIsAway: the volume with an owner's folder is not mounted, and its mount point is an empty folder. The
// relay must not take this for a dropped task: it must serve the task, and continue when the volume is back.
func TestOwnersVolumeIsAway(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1}.Approving(t, 1))
	c.Start(t, 0)
	one := begin(t, c, c.Named("one"))
	fillEpoch(t, one, 0)
	folder := c.Config(t, 0).Owners[0].Folder
	require.NoError(t, os.Rename(folder, folder+".away"))
	require.NoError(t, os.Mkdir(folder, 0o700))
	c.Clock.Advance(relaytest.Epoch + 2*time.Second) // the epoch ends, and the relay then scans all tasks
	requireSoon(t, func() bool {
		tasks := c.Statuses(t, 0)
		return len(tasks) == 0 || tasks[0].Epochs[0].State != "open"
	})
	time.Sleep(1500 * time.Millisecond) // time to drop the task wrongly
	require.True(t, isServed(t, "http://"+c.Config(t, 0).Listen, one.Open.ID))
	_, err := c.Ask(t, 0, c.Named("two"))
	require.Error(t, err, "the relay refuses an owner's request without the volume")
	require.NoFileExists(t, filepath.Join(folder, "owner.lock"))
	requireSoon(t, func() bool { return os.RemoveAll(folder) == nil }) // the relay may be writing to it
	require.NoError(t, os.Rename(folder+".away", folder))
	c.WaitReady(t, c.Config(t, 0).Admin)
	fillEpoch(t, one, 1)
}

// TestClockLeapsOverKeysWithoutTask: a clock jumps a week ahead. The relay must keep keys that wait for their task,
// because that task may already be signed, and accepted by other relays.
func TestClockLeapsOverKeysWithoutTask(t *testing.T) {
	var off atomic.Int64
	begun := time.Now()
	c := relaytest.New(t, relaytest.Options{Hops: 1, Config: func(_ int, cfg *relay.Config) {
		cfg.Clock = func() time.Time { return time.Now().Round(0).Add(time.Duration(off.Load())) }
		cfg.Elapsed = func() time.Duration { return time.Since(begun) }
	}}.Approving(t, 2))
	c.Start(t, 0)
	bundle := c.Sign(t, c.Named("one", func(t *task.Task) { t.Epochs.Count = 1000 }))
	off.Store(int64(7 * 24 * time.Hour))
	time.Sleep(1500 * time.Millisecond) // time to remove the keys wrongly
	_, err := c.Ask(t, 0, c.Named("two"))
	require.NoError(t, err)
	require.Len(t, entriesOf(t, c, 0), 2)
	off.Store(0)
	c.WaitReady(t, c.Config(t, 0).Admin)
	require.NoError(t, c.Begin(t.Context(), t, 0, bundle))
	fillEpoch(t, c.After(t, bundle), 0)
}
