package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/verifier/server"
)

// formPage is the only page with a form.
var formPage = regexp.MustCompile("^verifier with a password: (GET|HEAD|POST) /sign-in$")

// everyHeader checks the headers in an answer that protect browsers. The content security policy must forbid frames and
// forms and load nothing by default.
func everyHeader(t *testing.T, what string, h http.Header, resources string) {
	t.Helper()
	for _, directive := range []string{"default-src 'none'", "base-uri 'none'", "form-action 'none'",
		"frame-ancestors 'none'"} {
		if directive == "form-action 'none'" && formPage.MatchString(what) {
			directive = "form-action 'self'"
		}
		require.Contains(t, h.Get("Content-Security-Policy"), directive, what)
	}
	require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), what)
	require.Equal(t, "DENY", h.Get("X-Frame-Options"), what)
	require.Equal(t, "no-referrer", h.Get("Referrer-Policy"), what)
	require.Equal(t, resources, h.Get("Cross-Origin-Resource-Policy"), what)
	for name, values := range h {
		require.Len(t, values, 1, "%s: %s", what, name)
	}
}

// routes returns all paths of the HTTP interface, read from the constants of package wire/endpoint.
func routes(t *testing.T) (paths []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("wire", "endpoint", "endpoint.go"), nil, 0)
	require.NoError(t, err)
	values := map[string]string{}
	for range 3 { // three passes, as a constant may use another that is declared later
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
				if text, ok := constant(spec.Values[0], values); ok {
					values[spec.Names[0].Name] = text
				}
			}
			return true
		})
	}
	for name, path := range values {
		if strings.HasSuffix(name, "Path") {
			paths = append(paths, path)
		}
	}
	require.Greater(t, len(paths), 15)
	return paths
}

// constant evaluates a string constant that consists of literals and of constants in known.
func constant(e ast.Expr, known map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.Ident:
		text, ok := known[e.Name]
		return text, ok
	case *ast.BinaryExpr:
		a, okA := constant(e.X, known)
		b, okB := constant(e.Y, known)
		return a + b, okA && okB
	}
	return "", false
}

var wildcard = regexp.MustCompile(`\{[a-z]+\}`)

// TestEveryAnswerHasHeaders: every answer of every server has the headers that protect browsers, for all paths, several
// methods, and valid and invalid values.
func TestEveryAnswerHasHeaders(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(10, relaytest.WithTokens)})
	cfg := c.Config(t, 0)
	cfg.AdminHosts = []string{"relay:9081"}
	_, err := relay.New(cfg)
	require.ErrorContains(t, err, "invalid admin_hosts")
	cfg.AdminHosts = []string{"scraped"}
	r, err := relay.New(cfg)
	require.NoError(t, err)
	defer r.Close()
	i, err := issuer.New(c.IssuerConfig())
	require.NoError(t, err)
	defer i.Close()
	var verifiers []*server.Server
	hash, err := server.HashPassword("correct horse")
	require.NoError(t, err)
	passwordFile := filepath.Join(t.TempDir(), "verifier.password")
	require.NoError(t, os.WriteFile(passwordFile, hash, 0o600))
	for _, file := range []string{"", passwordFile} {
		v, err := server.New(server.Config{SignKey: c.VerifierSign(), Data: filepath.Join(t.TempDir(), "data"),
			Tasks:        []server.TaskConfig{{File: filepath.Join(c.Dir, "task0.bundle"), HPKEKeys: c.VerifierKeys("task0")}},
			PasswordFile: file})
		require.NoError(t, err)
		defer v.Close()
		verifiers = append(verifiers, v)
	}
	id := c.Open.ID.String()
	public := []string{"/", "/none"}
	for _, path := range routes(t) {
		public = append(public, wildcard.ReplaceAllString(path, "0"),
			wildcard.ReplaceAllString(strings.Replace(path, "{task}", id, 1), "0"))
	}
	admin := []string{"/healthz", "/readyz", "/metrics", "/status", "/", "/none"}
	pages := []string{"/", "/api/tasks", "/page.css", "/page.js", "/icon.svg", "/none", "/tasks/" + id + "/",
		"/tasks/" + id, "/tasks/" + id + "/api/report", "/tasks/" + id + "/api/report.csv", "/api/results", "/api/results?since=x", "/api/results.csv",
		"/tasks/none/",
		"/tasks/" + id + "/page.js", "/tasks/" + id + "//x/../y"}
	good := 0
	for _, party := range []struct {
		name, resources string
		handler         http.Handler
		paths           []string
	}{
		{"relay", "cross-origin", r.Handler(), public}, {"issuer", "cross-origin", i.Handler(), public},
		{"relay's admin", "same-origin", r.AdminHandler(), admin},
		{"issuer's admin", "same-origin", i.AdminHandler(), admin},
		{"verifier's admin", "same-origin", verifiers[0].AdminHandler(), admin},
		{"verifier", "same-origin", verifiers[0].Handler(), pages},
		{"verifier with a password", "same-origin", verifiers[1].Handler(), append(pages, "/sign-in", "/sign-out")},
	} {
		for _, path := range party.paths {
			for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS", "DELETE"} {
				w := httptest.NewRecorder()
				req := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader("x"))
				party.handler.ServeHTTP(w, req)
				everyHeader(t, party.name+": "+method+" "+path, w.Header(), party.resources)
				if w.Code < 300 {
					good++
				}
			}
		}
		if party.resources == "same-origin" {
			w := httptest.NewRecorder()
			party.handler.ServeHTTP(w, httptest.NewRequest("GET", "http://evil.example/", nil))
			require.Equal(t, http.StatusMisdirectedRequest, w.Code, party.name)
			everyHeader(t, party.name+": another host", w.Header(), party.resources)
			require.Equal(t, "same-origin", w.Header().Get("Cross-Origin-Opener-Policy"))
		}
	}
	for host, want := range map[string]int{"scraped": http.StatusOK, "evil.example": http.StatusMisdirectedRequest} {
		w := httptest.NewRecorder()
		r.AdminHandler().ServeHTTP(w, httptest.NewRequest("GET", "http://"+host+"/metrics", nil))
		require.Equal(t, want, w.Code, host)
	}
	require.Greater(t, good, 25, "too few requests succeeded: the test must also check successful answers")
}

// servesHTTP lists the files that create routes or a server. Each sends its answers through display.Protect or
// display.ProtectPublic. The value names the test that checks this, or says why there is none.
var servesHTTP = map[string]string{
	"internal/service/admin.go":           "TestEveryAnswerHasHeaders",
	"relay/http.go":                       "TestEveryAnswerHasHeaders",
	"issuer/http.go":                      "TestEveryAnswerHasHeaders",
	"verifier/report/site.go":             "TestEveryAnswerHasHeaders",
	"verifier/report/page.go":             "TestEveryAnswerHasHeaders",
	"cmd/demo/page.go":                    "TestPagesHaveHeaders",
	"cmd/doona/dev.go":                    "TestDevPagesHaveHeaders",
	"www/testserver/main.go":              "stands for a customer's site",
	"www/testserver/relay.go":             "a first relay that lies, in tests: display.ProtectPublic",
	"www/testserver/pages.go":             "the verifier's pages, in tests",
	"www/testserver/tokens.go":            "a real relay and a real issuer behind a watch, in tests",
	"internal/testing/relaytest/rogue.go": "a relay that lies, in tests",
	"internal/testing/relaytest/junk.go":  "a relay that feeds junk, in tests",
}

var makesServer = regexp.MustCompile(`http\.(NewServeMux|Server\{|Serve\(|ListenAndServe)|service\.Mux\{`)

// TestServersAreKnown: servesHTTP lists every file that creates routes or a server.
func TestServersAreKnown(t *testing.T) {
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && (d.Name() == "node_modules" || d.Name() == "build" || d.Name() == ".git" ||
			d.Name() == "bench") {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if makesServer.Match(text) {
			found[filepath.ToSlash(path)] = true
			require.Contains(t, servesHTTP, filepath.ToSlash(path), "a new server: add it to servesHTTP, with a test of its headers")
		}
		return err
	}))
	for path := range servesHTTP {
		require.True(t, found[path], path)
	}
}

// TestHeadersOverHTTP: net/http neither adds nor removes headers that everyHeader requires.
func TestHeadersOverHTTP(t *testing.T) {
	s := httptest.NewServer(display.ProtectPublic(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusTeapot)
	})))
	defer s.Close()
	resp, err := http.Get(s.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	everyHeader(t, "over HTTP", resp.Header, "cross-origin")
}
