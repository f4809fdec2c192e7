package relay_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/rollback"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

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

func relayFolder(c *relaytest.Cascade, hop int) string { return filepath.Dir(c.RelayConfig(hop + 1)) }

// stillRelay returns a relay that answers requests, but whose background loops do not run.
func stillRelay(t *testing.T, c *relaytest.Cascade, hop int) *relay.Relay {
	t.Helper()
	r, err := relay.New(c.Config(t, hop))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// at returns a request for the path of a URL, without its host.
func at(method, url string) *http.Request {
	_, rest, _ := strings.Cut(url, "://")
	return httptest.NewRequest(method, rest[strings.Index(rest, "/"):], nil)
}

// TestPullBeyondTheTasksEpochs: the relay must refuse a next hop that asks for an epoch that the task does not have,
// with any history. It must write nothing: no epoch, no finding and no rollback mark.
func TestPullBeyondTheTasksEpochs(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{})
	key := c.SignKey(t, 1)
	r := stillRelay(t, c, 0)
	handler := r.Handler()
	before := filesIn(t, relayFolder(c, 0))
	for _, history := range []handover.HistoryDigest{{}, {1}} {
		for _, epoch := range []uint64{c.Open.Epochs.Count, c.Open.Epochs.Count + 1, math.MaxInt64, math.MaxUint64} {
			for _, seq := range []uint64{0, 1, 2, 65536} {
				req := at(http.MethodGet, c.Open.BatchURL(0, epoch, seq))
				body := handover.Body(c.Open.ID, epoch, seq, 0, history)
				req.Header.Set(handover.Header, handover.Signed(key, signing.Pull, body))
				if history != (handover.HistoryDigest{}) {
					req.Header.Set(handover.HistoryHeader, base64.RawURLEncoding.EncodeToString(history[:]))
				}
				p := relaytest.Answer(handler, req)
				require.ErrorIs(t, p, problem.New(problem.EpochNotOpen, ""))
				require.Contains(t, p.Detail, "epochs 0 to "+strconv.FormatUint(c.Open.Epochs.Count-1, 10))
			}
		}
	}
	require.Equal(t, before, filesIn(t, relayFolder(c, 0)))
}

// TestEndEpochsOfAnyMark: the rollback marks name epochs that the task does not have, as earlier relays wrote after a
// pull. The store is lost or rolled back. The relay must stop, whether the task is still configured or not. end-epochs
// must repair it: nothing of those epochs remains, and an epoch of the future keeps its keys.
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
	before := relaytest.KeptOf(t, c, 0, "store")
	if lost {
		before = relaytest.Kept{}
	}
	r, err := relay.New(cfg)
	require.NoError(t, err)
	last := c.Open.Epochs.Count
	poison := []uint64{last, last + 1, 65535, 65536, 1<<32 + last - 1, math.MaxInt64}
	for _, epoch := range poison {
		require.NoError(t, relay.Poison(r, epoch, 1))
	}
	require.NoError(t, r.Close())
	before.Restore(t, c, 0, "store")
	if dropped {
		cfg.Tasks = cfg.Tasks[1:]
	}
	require.True(t, standsStill(t, cfg))

	endAll(t, cfg, poison...)
	require.False(t, standsStill(t, cfg))
	cfg.Tasks = c.Config(t, 0).Tasks
	if dropped { // end-epochs could not update the mark in this task's own key file
		require.True(t, standsStill(t, cfg))
		endAll(t, cfg)
	}
	require.False(t, standsStill(t, cfg))
	for _, name := range []string{"relay.secret", "task0.keys"} {
		f, err := rollback.OpenMark(filepath.Join(relayFolder(c, 0), name))
		require.NoError(t, err)
		for key := range f.Known().Entries {
			require.Less(t, key.Epoch, last, "%s still names an epoch that the task does not have", name)
		}
	}
	r, err = relay.New(cfg)
	require.NoError(t, err)
	require.True(t, relay.HasEpochKey(r, c.Open.ID, last-1), "the future epoch keeps its key")
	require.NoError(t, r.Close())
	c.Clock.Advance(relaytest.Epoch)
	c.Start(t, 0)
	require.NoError(t, c.Post(t.Context(), 1, c.Seal(t, 1, 7), relaytest.Network(7)))
}

// endAll runs end-epochs, and asserts that it names the given epochs.
func endAll(t *testing.T, cfg relay.Config, epochs ...uint64) {
	t.Helper()
	back, err := relay.OpenRolledBack(cfg)
	require.NoError(t, err)
	named := map[uint64]bool{}
	for _, e := range back.Epochs {
		named[e.Epoch] = true
	}
	for _, epoch := range epochs {
		require.True(t, named[epoch], "end-epochs must name epoch %d", epoch)
	}
	require.NoError(t, errors.Join(back.End(t.Context()), back.Close()))
	_, err = relay.OpenRolledBack(cfg)
	require.ErrorIs(t, err, relay.ErrNoRollback)
}

// standsStill reports whether a relay stops at its start, because of a state rollback or a lost store.
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
	return status.StateRollback != ""
}

// signedRequest fills in request paths and signs the requests with the key of a party that may send them.
type signedRequest struct {
	*testing.T
	*relaytest.Cascade
	hop, owner ed25519.PrivateKey
}

// named returns valid values for all path parameters.
func (s *signedRequest) named() map[string]string {
	return map[string]string{
		"{task}": s.Open.ID.String(), "{block}": "0", "{epoch}": "0", "{seq}": "0", "{position}": "1", "{count}": "1",
		"{kem}": "x25519", "{set}": s.OpenSet().ID.String(), "{clock}": "0",
		"{label}": strings.Repeat("ab", 32), "{owner}": hex.EncodeToString(s.Open.Owner[:]),
		"{relay}": hex.EncodeToString(s.Open.Relays[0].SignKey[:]),
		"{hop}":   hex.EncodeToString(s.Open.Relays[1].SignKey[:]),
	}
}

// request fills the values into a pattern and adds the headers. If the pattern needs a signature, it signs the request.
func (s *signedRequest) request(pattern string, named map[string]string, header http.Header) *http.Request {
	method, path, _ := strings.Cut(pattern, " ")
	for name, value := range named {
		path = strings.ReplaceAll(path, name, value)
	}
	req := httptest.NewRequest(method, path, nil)
	maps.Copy(req.Header, header)
	key, purpose, body := s.signed(pattern[len(method)+1:], named, header)
	if key != nil && req.Header[handover.Header] == nil {
		req.Header.Set(handover.Header, handover.Signed(key, purpose, body))
	}
	return req
}

// signed returns the key, the purpose and the body of the request's signature; the key is nil if the request needs no
// signature.
func (s *signedRequest) signed(path string, named map[string]string, header http.Header) (
	ed25519.PrivateKey, signing.Purpose, []byte) {
	number := func(name string) uint64 {
		n, _ := strconv.ParseUint(named[name], 10, 64)
		return n
	}
	key := func(name string) (out [32]byte) {
		hex.Decode(out[:], []byte(named[name])[:min(64, len(named[name]))])
		return out
	}
	relay := s.Open.Relays[0].SignKey
	switch path {
	case endpoint.BatchPath:
		from, _ := strconv.ParseUint(strings.Trim(header.Get("Range"), "bytes=-"), 10, 64)
		history, _ := handover.ParseHistory(header.Get(handover.HistoryHeader))
		return s.hop, signing.Pull, handover.Body(key("{task}"), number("{epoch}"), number("{seq}"), from, history)
	case endpoint.ConfirmPath:
		return s.hop, signing.Confirm, handover.ConfirmBody(key("{task}"), number("{epoch}"), number("{seq}"), nil)
	case endpoint.EndPath:
		return s.hop, signing.AskEnd, handover.EndBody(key("{task}"), number("{epoch}"))
	case endpoint.UpdatesPath:
		return s.hop, signing.Updates, handover.UpdatesBody(key("{relay}"), key("{hop}"))
	case endpoint.NextKeysPath:
		return s.owner, signing.Succeed, handover.NextKeysBody(key("{task}"), number("{position}"), number("{count}"))
	case endpoint.SuccessorsPath:
		return s.owner, signing.Succeed, handover.SuccessorBody(key("{task}"))
	case endpoint.OwnersKeysPath:
		return s.owner, signing.Owner, handover.OwnersKeysBody(relay, key("{label}"), task.KEM(named["{kem}"]),
			number("{count}"))
	case endpoint.OwnersTasksPath, endpoint.OwnersSetsPath:
		return s.owner, signing.Owner, handover.OwnersTaskBody(relay)
	}
	return nil, "", nil
}

// beyond returns invalid values for a parameter: one above its bound, far above it, and malformed. The task has 2
// epochs.
func (s *signedRequest) beyond(name string) []string {
	id, far := s.Open.ID.String(), []string{"9223372036854775807", "18446744073709551615"}
	layout, err := onion.NewLayout(s.Open.Task)
	require.NoError(s.T, err)
	longest := strconv.FormatInt(handover.MaxBatch(s.Open.Task, layout, 0), 10)
	hexes := []string{id[:62], id + "00", strings.ToUpper(id), strings.Repeat("g", 64), strings.Repeat("ab", 1<<12)}
	of := func(n int) string { return base64.RawURLEncoding.EncodeToString(make([]byte, n)) }
	switch name {
	case "{task}", "{set}":
		return append(hexes, strings.Repeat("0", 64))
	case "{relay}", "{hop}", "{owner}", "{label}":
		return hexes
	case "{epoch}":
		return append(far, "2", "3")
	case "{clock}":
		return append(far, "2", "01", "-1")
	case "{block}":
		return append(far, "1", "01", "-1", "1e3")
	case "{seq}":
		return append(far, "65537", "18446744073709551616", "01", "-1", "%2B1", "1e3", strings.Repeat("9", 1<<12))
	case "{position}":
		return append(far, "0", "4294967296", "-1")
	case "{count}":
		return append(far, "0", "65537", "-1")
	case "{kem}":
		return []string{"x448", "X25519", strings.Repeat("x", 1<<12)}
	case "Range":
		return []string{"bytes=" + longest + "-", "bytes=9223372036854775807-", "bytes=18446744073709551615-", "bytes=-1",
			"bytes=0-0", "bytes=0-,5-", "bytes=00-"}
	case handover.HistoryHeader:
		return []string{of(31), of(33), of(1 << 12), "*"}
	case handover.Header:
		return []string{"", of(79), of(80), of(81), of(1 << 12), "*"}
	case "nonce":
		return []string{"", of(15), of(17), of(1 << 12), "*"}
	}
	return nil
}

// requests returns requests of a pattern, each with one invalid value for the parameter name.
func (s *signedRequest) requests(pattern, name string) (out []*http.Request) {
	for _, value := range s.beyond(name) {
		named, header := s.named(), http.Header{}
		switch {
		case named[name] != "":
			named[name] = value
		case name == "nonce":
			req := s.request(pattern, named, header)
			req.URL.RawQuery = url.Values{name: {value}}.Encode()
			out = append(out, req)
			continue
		default:
			header[name] = []string{value}
		}
		out = append(out, s.request(pattern, named, header))
	}
	return out
}

// TestEveryNumberHasItsBound sends every kind of request that a relay answers, with each value one above its bound and
// far above it, signed by a party that may send it. The relay must refuse each as the table in docs/SPEC.md says. Then
// the test sends 10,000 such requests; in the long form, 10,000 of each kind. It also asks for 10,000 other paths.
// Afterwards no file may have changed, no finding or key may be new, and neither metrics nor memory may have grown.
func TestEveryNumberHasItsBound(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Set: setOf(10, hoursOf(1, 2), hoursOf(2, 1)),
		Task: relaytest.InStream(), Config: func(_ int, cfg *relay.Config) {
			folder := filepath.Join(filepath.Dir(cfg.SignKey), "owners")
			cfg.Owners = []relay.OwnerConfig{{Owner: cfg.Tasks[0].Owner, Tasks: 2, Folder: folder}}
		}})
	owner, _ := c.AsOwner(t)
	s := &signedRequest{t, c, c.SignKey(t, 1), owner}
	r := stillRelay(t, c, 0)
	handler := r.Handler()
	patterns := relay.Patterns(r)
	bounds := relaytest.Bounds(t, "../docs/SPEC.md")
	relaytest.CheckBounds(t, bounds, patterns)
	last := s.named()
	last["{epoch}"], last["{seq}"] = "1", "65536"
	p := relaytest.Answer(handler, s.request("GET "+endpoint.BatchPath, last, nil))
	require.ErrorIs(t, p, problem.New(problem.NotSealed, ""), "values at their bounds are valid")
	before, kept, shown := filesIn(t, relayFolder(c, 0)), relay.Kept(r), relaytest.Series(t, r.AdminHandler())
	var kinds [][]*http.Request
	for _, b := range bounds {
		for _, pattern := range patterns {
			if !b.In(pattern) || strings.HasPrefix(pattern, "OPTIONS") {
				continue
			}
			all := s.requests(pattern, b.Name)
			require.NotEmpty(t, all, "the test has no invalid value for %s", b.Name)
			for _, req := range all {
				p := relaytest.Answer(handler, req)
				require.True(t, p != nil && p.Name == b.Beyond, "%s, %s: %s %v: %v", pattern, b.Name, req.URL, req.Header, p)
			}
			kinds = append(kinds, all)
		}
	}
	relaytest.Flood(t, handler, kinds)
	relaytest.Scan(t, handler)
	require.Equal(t, before, filesIn(t, relayFolder(c, 0)))
	require.Equal(t, kept, relay.Kept(r))
	require.Equal(t, shown, relaytest.Series(t, r.AdminHandler()))
	status, err := r.Status(t.Context())
	require.NoError(t, err)
	require.Empty(t, status.Tasks[0].Findings)
	require.Empty(t, status.Tasks[0].Epochs)
}
