package relay_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// junkMemory is how many bytes a relay may allocate for the largest junk request.
const junkMemory = 16 << 20

// TestJunkRequests: the relay must refuse junk of the largest allowed size: bundles from an approved owner and from a
// stream's owner, statements, and reports. Each may cost at most junkMemory.
func TestJunkRequests(t *testing.T) {
	quiet := func(_ int, cfg *relay.Config) { cfg.Log = slog.New(slog.DiscardHandler) }
	c := relaytest.New(t, relaytest.Options{Hops: 1, Config: quiet}.Approving(t, 2))
	key, _ := c.AsOwner(t)
	at := c.Open.Relays[0]
	postJunk(t, c, taskfile.OwnersTasksURL(at, c.Open.Owner), func() string {
		return handover.Signed(key, signing.Owner, handover.OwnersTaskBody(at.SignKey))
	}, fixture.JunkBundles(c.Bundle(t), taskfile.MaxBundle))

	c = relaytest.New(t, relaytest.Options{Hops: 1, Config: quiet, Task: relaytest.InStream()})
	owner, _ := c.AsOwner(t)
	postJunk(t, c, c.Open.SuccessorsURL(c.Open.Task, 0), func() string {
		return handover.Signed(owner, signing.Succeed, handover.SuccessorBody(c.Open.ID))
	}, fixture.JunkBundles(c.Bundle(t), taskfile.MaxBundle))
	nobody := func() string { return "" }
	postJunk(t, c, c.Open.StatementsURL(c.Open.Task, 0), nobody,
		fixture.JunkBehind("a statement", []byte{0x92}, taskfile.MaxStatement))
	layout, err := onion.NewLayout(c.Open.Task)
	require.NoError(t, err)
	postJunk(t, c, c.Open.ReportsURL(0), nobody, fixture.JunkBehind("a report", []byte{0x92, 1}, layout.MaxBody()))
}

// postJunk sends junk to the first relay of a cascade, each time with a new signature.
func postJunk(t *testing.T, c *relaytest.Cascade, url string, sign func() string, all []fixture.Junk) {
	t.Helper()
	r, err := relay.New(c.Config(t, 0))
	require.NoError(t, err)
	stop := c.Serve(t, r, c.Config(t, 0).Admin)
	defer stop()
	for _, one := range all {
		req := httptest.NewRequest(http.MethodPost, strings.TrimPrefix(url, c.Open.Relays[0].URL), one.Reader())
		req.Header.Set(handover.Header, sign())
		w := httptest.NewRecorder()
		before := fixture.Allocated()
		r.Handler().ServeHTTP(w, req)
		require.LessOrEqual(t, fixture.Allocated()-before, uint64(junkMemory), one.Name)
		require.Contains(t, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, w.Code, "%s: %s", one.Name,
			w.Body)
		requireRefusal(t, w)
	}
}

// TestTooManyEpochsForABundle: a relay must not make keys for more epochs than a bundle can hold.
func TestTooManyEpochsForABundle(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1}.Approving(t, 1))
	c.Start(t, 0)
	_, owner := c.AsOwner(t)
	_, err := owner.KeysFor(t.Context(), c.Open.Relays[0], taskfile.Label{1}, task.KEMMLKEM768X25519, 10_000)
	require.ErrorContains(t, err, "invalid epochs.count 10000")
	require.ErrorContains(t, err, "mlkem768x25519")
	require.ErrorContains(t, err, "8388608")
}
