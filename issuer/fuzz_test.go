package issuer_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/token"
)

// FuzzRequest sends token requests with arbitrary credentials and bodies to an issuer's handler. Only a request with
// the backend's own API key may get a token, and the same body must always get the same signature. Every refusal must
// be a listed problem, and never the problem "internal".
func FuzzRequest(f *testing.F) {
	c := newCascade(f)
	cfg := accounts(f, c, 1000)
	cfg.Log = slog.New(slog.DiscardHandler)
	i, err := issuer.New(cfg)
	require.NoError(f, err)
	f.Cleanup(func() { i.Close() })
	handler := i.Handler()
	honest := request(f, c, 0)
	path := strings.TrimPrefix(c.Open.TokenRequestURL(0), c.Open.Clients.Issuer.URL)
	f.Add("Bearer "+apiKey, "ann", token.RequestType, honest, false)
	f.Add("Bearer "+apiKey, "ann", token.RequestType, honest[:len(honest)-1], false)
	f.Add("Bearer "+apiKey, "ann", token.RequestType, append(honest[:3:3], bytes.Repeat([]byte{0xff}, 256)...), false)
	f.Add("Bearer "+apiKey, "", token.RequestType, []byte{}, true)
	f.Add("Basic x", "a\x00b", "text/plain", []byte{0, 2}, false)
	f.Add("", "", "", bytes.Repeat([]byte{1}, 1<<12), true)
	f.Fuzz(func(t *testing.T, authorization, account, kind string, body []byte, chunked bool) {
		post := func() []byte {
			req := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
			req.URL.Path = path
			req.Header = http.Header{"Authorization": {authorization}, issuer.AccountHeader: {account},
				"Content-Type": {kind}}
			if chunked {
				req.ContentLength = -1
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req)
			if w.Code/100 == 2 {
				require.Contains(t, authorization, apiKey)
				require.Len(t, body, token.RequestSize)
				require.Equal(t, token.ReplySize, w.Body.Len())
				require.NotEmpty(t, account)
				return w.Body.Bytes()
			}
			p := problem.Read(w.Result())
			require.NotEmpty(t, p.Name, "status %d", w.Code)
			require.NotEqual(t, problem.Internal, p.Name)
			return nil
		}
		if first := post(); first != nil {
			require.Equal(t, first, post(), "a retry must succeed")
		}
	})
}
