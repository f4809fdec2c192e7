package relay_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// FuzzOwnersKeys asks a running relay for keys, with any path and several signatures. Only the approved owner may get
// keys: as many as the path asks for, in a new slot. Every other answer must be a problem that docs/SPEC.md lists, and
// change nothing. In the seeds, {owner} stands for the owner's key.
func FuzzOwnersKeys(f *testing.F) {
	c, handler, folder := fuzzedOwners(f)
	key, _ := c.AsOwner(f)
	_, stranger, err := ed25519.GenerateKey(nil)
	require.NoError(f, err)
	label := strings.Repeat("0a", 32)
	for _, seed := range [][3]string{
		{label, "x25519", "2"}, {label, "mlkem768x25519", "1"}, {label, "mlkem768", "8"}, {label, "x25519", "0"},
		{label, "x25519", "65537"}, {label, "x25519", "18446744073709551615"}, {label, "x25519", "01"},
		{label, "../../x", "1"}, {label, "..", "1"}, {label, strings.Repeat("x25519", 1000), "1"}, {label, "", "1"},
		{strings.ToUpper(label), "x25519", "1"}, {label[2:], "x25519", "1"}, {"..", "x25519", "1"},
	} {
		for signer := range uint8(signers) {
			f.Add("{owner}", seed[0], seed[1], seed[2], signer)
		}
	}
	f.Add(hex.EncodeToString(stranger.Public().(ed25519.PublicKey)), label, "x25519", "1", uint8(byStranger))
	f.Fuzz(func(t *testing.T, owner, label, kem, count string, signer uint8) {
		owner = strings.ReplaceAll(owner, "{owner}", hex.EncodeToString(c.Open.Owner[:]))
		path := strings.NewReplacer("{owner}", url.PathEscape(owner), "{label}", url.PathEscape(label), "{kem}",
			url.PathEscape(kem), "{count}", url.PathEscape(count)).Replace(endpoint.OwnersKeysPath)
		var named taskfile.Label
		if raw, err := hex.DecodeString(label); err == nil && len(raw) == len(named) {
			named = taskfile.Label(raw)
		}
		n, _ := strconv.ParseUint(count, 10, 63)
		if n > 8 && n <= 65536 {
			signer = byNobody // making many keys takes too long
		}
		relayKey := c.Open.Relays[0].SignKey
		signature := signedBy(signer, key, stranger, handover.OwnersKeysBody(relayKey, named, task.KEM(kem), n))
		before := namesIn(t, folder)
		w := handle(handler, http.MethodGet, path, signature, nil)
		after := namesIn(t, folder)
		if w.Code != http.StatusOK {
			require.Equal(t, before, after)
			requireRefusal(t, w)
			return
		}
		require.Equal(t, uint8(byOwner), signer%signers, "the owner has not signed it")
		list, err := onion.ParseKeyList(w.Body.Bytes())
		require.NoError(t, err)
		asked := c.Named("asked", func(t *task.Task) { t.KEM, t.Epochs.Count = task.KEM(kem), n })
		asked.Relays[0].KeyList = list.Hash()
		_, err = onion.PartyKeys(asked, 0, list)
		require.NoError(t, err)
		require.Len(t, after, len(before)+1)
		for _, name := range after {
			require.Regexp(t, `^asked-[0-9a-f]{64}-(x25519|mlkem768x25519|mlkem768)-[1-8]-[0-9a-f]{64}$`, name)
			require.NoError(t, os.RemoveAll(filepath.Join(folder, name)))
		}
	})
}

// FuzzOwnersTask hands bundles to a running relay in its approved owner's name, unchanged or signed again by the owner.
// The seeds name one key list; the test replaces it with the list that waits in the owner's folder. The relay may
// accept only the owner's task, which then must have its slot and its keys, and be served unchanged. Every other answer
// must be a listed problem, and change nothing.
func FuzzOwnersTask(f *testing.F) {
	c, handler, folder := fuzzedOwners(f)
	key, _ := c.AsOwner(f)
	_, stranger, err := ed25519.GenerateKey(nil)
	require.NoError(f, err)
	waiting := c.Named("waiting")
	seeded, err := c.Ask(f, 0, waiting)
	require.NoError(f, err)
	seededRaw, err := seeded.Bytes()
	require.NoError(f, err)
	seededHash := seeded.Hash()
	seed := func(change func(*task.Task)) []byte {
		next := c.Named("seed", change)
		next.Relays[0].KeyList = seededHash
		raw, err := c.SignWith(f, next, []*onion.SignedKeyList{seeded}).Bytes()
		require.NoError(f, err)
		return raw
	}
	good := seed(func(*task.Task) {})
	own, err := c.Bundle(f).Bytes()
	require.NoError(f, err)
	for _, raw := range [][]byte{good, good[:len(good)-1], append(bytes.Clone(good), 0), nil, {0x94}, own,
		seed(func(t *task.Task) { t.Stream = &task.StreamPosition{Name: "shop", Allow: []string{"relays.signKey"}} }),
		seed(noisy), seed(func(t *task.Task) { t.Epochs.Length = 60 }), seed(func(t *task.Task) { t.Epochs.Start = 1 }),
		seed(func(t *task.Task) { t.Slots.PerLane = 1000 }), bytes.ReplaceAll(good, seededHash[:], make([]byte, 32)),
	} {
		for signer := range uint8(signers) {
			f.Add(raw, signer, true)
			f.Add(raw, signer, false)
		}
	}
	path := strings.TrimPrefix(taskfile.OwnersTasksURL(task.Party{}, c.Open.Owner), "/")
	f.Fuzz(func(t *testing.T, text []byte, signer uint8, again bool) {
		list, err := c.Ask(t, 0, waiting)
		require.NoError(t, err)
		raw, err := list.Bytes()
		require.NoError(t, err)
		hash := list.Hash()
		text = bytes.ReplaceAll(bytes.ReplaceAll(text, seededRaw, raw), seededHash[:], hash[:])
		if bundle, err := taskfile.ParseBundle(text); err == nil && again {
			bundle.Owner, bundle.Signature = c.Open.Owner[:], signing.Sign(key, signing.Task, bundle.Task)
			text, err = bundle.Bytes()
			require.NoError(t, err)
		}
		before := namesIn(t, folder)
		relayKey := c.Open.Relays[0].SignKey
		w := handle(handler, http.MethodPost, "/"+path, signedBy(signer, key, stranger, handover.OwnersTaskBody(relayKey)),
			text)
		after := namesIn(t, folder)
		if w.Code != http.StatusNoContent {
			require.Equal(t, before, after)
			requireRefusal(t, w)
			require.Len(t, namesIn(t, filepath.Join(folder, after[0])), 2, "the keys and their list")
			return
		}
		require.Equal(t, uint8(byOwner), signer%signers, "the owner has not signed it")
		bundle, err := taskfile.ParseBundle(text)
		require.NoError(t, err)
		open, err := bundle.Open(&c.Open.Owner)
		require.NoError(t, err)
		require.Equal(t, hash, open.Relays[0].KeyList)
		require.Equal(t, []string{open.ID.String()}, after)
		kept, err := os.ReadFile(filepath.Join(folder, after[0], "task.bundle"))
		require.NoError(t, err)
		require.Equal(t, text, kept)
		w = handle(handler, http.MethodGet, endpoint.PathOf(open.ID), "", nil)
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, text, w.Body.Bytes())
		require.NoError(t, os.RemoveAll(filepath.Join(folder, after[0]))) // as if another process dropped the task
	})
}

// Who signs a fuzzed request; signers is the number of choices.
const (
	byOwner = iota
	byStranger
	byNobody
	signers
)

func signedBy(signer uint8, owner, stranger ed25519.PrivateKey, body []byte) string {
	switch signer % signers {
	case byOwner:
		return handover.Signed(owner, signing.Owner, body)
	case byStranger:
		return handover.Signed(stranger, signing.Owner, body)
	}
	return ""
}

func handle(handler http.Handler, method, path, signature string, body []byte) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, bytes.NewReader(body))
	req.Header.Set(handover.Header, signature)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	return w
}

// requireRefusal requires that an answer is a known problem, or net/http's redirect of an unclean path.
func requireRefusal(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	resp := w.Result()
	if resp.StatusCode/100 == 3 {
		require.Regexp(t, `^/([^/]|$)`, resp.Header.Get("Location"))
		return
	}
	p := problem.Read(resp)
	require.NotEmpty(t, p.Name, "status %d", resp.StatusCode)
	require.NotEqual(t, problem.Internal, p.Name)
	require.Equal(t, problem.New(p.Name, "").Status, resp.StatusCode)
	require.Less(t, w.Body.Len(), 512)
}

// fuzzedOwners runs a relay with an approved owner, and returns the owner's folder at the relay.
func fuzzedOwners(f *testing.F) (c *relaytest.Cascade, handler http.Handler, folder string) {
	f.Helper()
	c = relaytest.New(f, relaytest.Options{Hops: 1, Config: func(_ int, cfg *relay.Config) {
		cfg.Log = slog.New(slog.DiscardHandler)
	}}.Approving(f, 2))
	r, _ := c.StartRelay(f, 0)
	return c, r.Handler(), c.Config(f, 0).Owners[0].Folder
}

// namesIn lists a folder, without the lock, nonces and reserved space of an owner's folder.
func namesIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), "owner.") {
			names = append(names, entry.Name())
		}
	}
	return names
}
