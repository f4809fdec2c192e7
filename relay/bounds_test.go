package relay_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/mark"
	"github.com/doona-dp/doona/internal/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
)

// filesIn returns the content of all files below a folder.
func filesIn(t *testing.T, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		files[path] = string(raw)
		return err
	}))
	return files
}

// relayFolder is where a relay's store, secret and keys are.
func relayFolder(c *relaytest.Cascade, hop int) string { return filepath.Dir(c.RelayConfig(hop + 1)) }

// stillRelay returns a relay whose handlers answer, and which does nothing by itself.
func stillRelay(t *testing.T, c *relaytest.Cascade, hop int) *relay.Relay {
	t.Helper()
	r, err := relay.New(c.Config(t, hop))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// answerOf returns what a handler answers, and the problem in it.
func answerOf(handler http.Handler, req *http.Request) (*http.Response, *problem.Problem) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	resp := w.Result()
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	return resp, problem.Read(resp)
}

// at returns a request for the path of a URL.
func at(method, url string) *http.Request {
	_, rest, _ := strings.Cut(url, "://")
	return httptest.NewRequest(method, rest[strings.Index(rest, "/"):], nil)
}

// TestPullBeyondTheTasksEpochs: a next hop that asks for an epoch that the task does not have is refused, whatever it
// says that it has had, and nothing is written: no epoch, no finding and no mark.
func TestPullBeyondTheTasksEpochs(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	key := c.SignKey(t, 1)
	r := stillRelay(t, c, 0)
	handler := r.Handler()
	before := filesIn(t, relayFolder(c, 0))
	for _, had := range []handover.Before{{}, {1}} {
		for _, epoch := range []uint64{c.Open.Epochs.Count, c.Open.Epochs.Count + 1, math.MaxInt64, math.MaxUint64} {
			for _, seq := range []uint64{0, 1, 2, 65536} {
				req := at(http.MethodGet, c.Open.BatchURL(0, epoch, seq))
				body := handover.Body(c.Open.ID, epoch, seq, 0, had)
				req.Header.Set(handover.Header, handover.Signed(key, onion.SignPull, body))
				if had != (handover.Before{}) {
					req.Header.Set(handover.BeforeHeader, base64.RawURLEncoding.EncodeToString(had[:]))
				}
				_, p := answerOf(handler, req)
				require.ErrorIs(t, p, problem.New(problem.EpochNotOpen, ""))
				require.Contains(t, p.Detail, "epochs 0 to "+strconv.FormatUint(c.Open.Epochs.Count-1, 10))
			}
		}
	}
	require.Equal(t, before, filesIn(t, relayFolder(c, 0)))
}

// TestEndEpochsOfAnyMark: the marks have entries of epochs that the task does not have, as relays without bounds made
// them of a pull, and the store is lost, or restored to before. The relay stands still, whether the task is configured
// still or not, and end-epochs recovers it: nothing of those epochs is left, and an epoch to come keeps its keys.
func TestEndEpochsOfAnyMark(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("dropped %v, lost %v", dropped, lost), func(t *testing.T) { endPoison(t, dropped, lost) })
		}
	}
}

func endPoison(t *testing.T, dropped, lost bool) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Tasks: 2})
	cfg := c.Config(t, 0)
	stop := c.Start(t, 0)
	postSome(t, c, 0, 1)
	stop()
	before := keptOf(t, c, 0, "store")
	if lost {
		before = kept{}
	}
	r, err := relay.New(cfg)
	require.NoError(t, err)
	last := c.Open.Epochs.Count
	poison := []uint64{last, last + 1, 65535, 65536, 1<<32 + last - 1, math.MaxInt64}
	for _, epoch := range poison {
		require.NoError(t, relay.Poison(r, epoch, 1))
	}
	require.NoError(t, r.Close())
	before.restore(t, c, 0, "store")
	if dropped {
		cfg.Tasks = cfg.Tasks[1:]
	}
	require.True(t, standsStill(t, cfg))

	endAll(t, cfg, poison...)
	require.False(t, standsStill(t, cfg))
	cfg.Tasks = c.Config(t, 0).Tasks
	if dropped { // the mark in the task's own keys, which nobody has looked at, still knows
		require.True(t, standsStill(t, cfg))
		endAll(t, cfg)
	}
	require.False(t, standsStill(t, cfg))
	for _, name := range []string{"relay.secret", "task0.keys"} {
		f, err := mark.Open(filepath.Join(relayFolder(c, 0), name))
		require.NoError(t, err)
		for key := range f.State().Entries {
			require.Less(t, key.Epoch, last, "nothing is left of it in %s", name)
		}
	}
	r, err = relay.New(cfg)
	require.NoError(t, err)
	require.True(t, relay.HasEpochKey(r, c.Open.ID, last-1), "nobody has used it")
	require.NoError(t, r.Close())
	c.Clock.Advance(relaytest.Epoch)
	c.Start(t, 0)
	require.NoError(t, c.Post(t.Context(), 1, c.Seal(t, 1, 7), relaytest.Network(7)))
}

// endAll has the operator end all epochs, and asserts that these are named.
func endAll(t *testing.T, cfg relay.Config, epochs ...uint64) {
	t.Helper()
	back, err := relay.OpenSetBack(cfg)
	require.NoError(t, err)
	named := map[uint64]bool{}
	for _, e := range back.Epochs {
		named[e.Epoch] = true
	}
	for _, epoch := range epochs {
		require.True(t, named[epoch], "the operator sees all that is ended: %d", epoch)
	}
	require.NoError(t, errors.Join(back.End(t.Context()), back.Close()))
	_, err = relay.OpenSetBack(cfg)
	require.ErrorIs(t, err, relay.ErrNotSetBack)
}

// standsStill says whether a relay that starts does nothing, as something was set back or its store was lost.
func standsStill(t *testing.T, cfg relay.Config) bool {
	t.Helper()
	r, err := relay.New(cfg)
	if errors.Is(err, keyfile.ErrStore) {
		return true
	}
	require.NoError(t, err)
	defer r.Close()
	status, err := r.Status(t.Context())
	require.NoError(t, err)
	return status.SetBack != ""
}
