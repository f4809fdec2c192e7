package issuer_test

import (
	"crypto/sha256"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/wire/token"
)

// TestEveryNumberHasItsBound sends each request that an issuer answers, from an authorized backend, with each value
// beyond its limit in the table of docs/SPEC.md. Then it sends 10,000 such requests, and 10,000 for other paths. The
// issuer must refuse them, change no file and show no new metric.
func TestEveryNumberHasItsBound(t *testing.T) {
	c := newCascade(t)
	cfg := accounts(t, c, 1)
	cfg.SignKey = filepath.Join(c.Dir, "issuer", "sign.key")
	i, err := issuer.New(cfg)
	require.NoError(t, err)
	defer i.Close()
	patterns := issuer.Patterns(i)
	bounds := relaytest.Bounds(t, "../docs/SPEC.md")
	relaytest.CheckBounds(t, bounds, patterns)
	id := c.Open.ID.String()
	beyond := map[string][]string{
		"{task}":             {id[:62], id + "00", strings.ToUpper(id), strings.Repeat("0", 64), strings.Repeat("ab", 1<<12)},
		"{epoch}":            {"2", "3", "9223372036854775807", "18446744073709551615"},
		"nonce":              {"", "AAAA", strings.Repeat("A", 1<<12)},
		issuer.AccountHeader: {"", strings.Repeat("a", 257), strings.Repeat("a", 1<<16), "ä", "\x7f"},
	}
	handler, before := i.Handler(), sumsIn(t, c.Dir)
	var kinds [][]*http.Request
	for _, b := range bounds {
		for _, pattern := range patterns {
			if !b.In(pattern) || strings.HasPrefix(pattern, "OPTIONS") {
				continue
			}
			var kind []*http.Request
			for _, value := range beyond[b.Name] {
				req := askFor(pattern, id, b.Name, value)
				p := relaytest.Answer(handler, req)
				require.True(t, p != nil && p.Name == b.Beyond, "%s, %s: %.80s: %v", pattern, b.Name, value, p)
				if b.Name == "{epoch}" {
					require.Contains(t, p.Detail, "epochs 0 to 1", "the issuer refuses it before it looks anything up")
				}
				kind = append(kind, req)
			}
			require.NotEmpty(t, kind, "no test value beyond the bound of %s", b.Name)
			kinds = append(kinds, kind)
		}
	}
	require.Len(t, kinds, 7)
	shown := relaytest.Series(t, i.AdminHandler())
	relaytest.Flood(t, handler, kinds)
	relaytest.Scan(t, handler)
	require.Equal(t, before, sumsIn(t, c.Dir))
	require.Equal(t, shown, relaytest.Series(t, i.AdminHandler()))
}

// askFor returns a request for a path pattern, with one of its values replaced.
func askFor(pattern, id, name, value string) *http.Request {
	named := map[string]string{"{task}": id, "{epoch}": "0"}
	if named[name] != "" {
		named[name] = value
	}
	method, path, _ := strings.Cut(pattern, " ")
	for name, value := range named {
		path = strings.ReplaceAll(path, name, value)
	}
	req := httptest.NewRequest(method, path, nil)
	req.Header = http.Header{"Authorization": {"Bearer " + apiKey}, "Content-Type": {token.RequestType},
		issuer.AccountHeader: {"one"}}
	if name == "nonce" {
		req.URL.RawQuery = url.Values{name: {value}}.Encode()
	} else if name == issuer.AccountHeader {
		req.Header[name] = []string{value}
	}
	return req
}

// sumsIn returns the SHA-256 of each file below a folder, by path.
func sumsIn(t *testing.T, folder string) map[string][32]byte {
	t.Helper()
	sums := map[string][32]byte{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		sums[path] = sha256.Sum256(raw)
		return err
	}))
	return sums
}
