package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/argon2"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/onion"
)

const password = "correct horse battery"

// passwordFile writes a file with a hash of the password that is cheap to check.
func passwordFile(t *testing.T) string {
	t.Helper()
	salt, encode := bytes.Repeat([]byte{7}, 16), base64.RawStdEncoding.EncodeToString
	line := fmt.Sprintf("$argon2id$v=19$m=8,t=1,p=1$%s$%s\n", encode(salt),
		encode(argon2.IDKey([]byte(password), salt, 1, 8, 1, 32)))
	path := filepath.Join(t.TempDir(), "verifier.password")
	require.NoError(t, os.WriteFile(path, []byte(line), 0o600))
	return path
}

// guarded returns the configuration of a verifier with a task and a password, which no relay needs to answer.
func guarded(t *testing.T) (cfg server.Config, pages string) {
	t.Helper()
	c := newCascade(t, 1, 1)
	cfg = config(t, c, filepath.Join(t.TempDir(), "data"), 0)
	cfg.PasswordFile = passwordFile(t)
	return cfg, "/tasks/" + c.Open.ID.String() + "/"
}

// browser is a client that keeps cookies, follows no redirects and sends what browsers send.
type browser struct {
	http.Client
	header http.Header
}

func newBrowser(t *testing.T, header ...string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	b := &browser{Client: http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}, header: http.Header{"Sec-Fetch-Site": {"same-origin"}}}
	for i := 0; i < len(header); i += 2 {
		b.header[header[i]] = []string{header[i+1]}
		if header[i+1] == "" {
			delete(b.header, header[i])
		}
	}
	return b
}

func (b *browser) do(t *testing.T, method, address, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, address, strings.NewReader(body))
	require.NoError(t, err)
	req.Header = b.header.Clone()
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := b.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

func (b *browser) signIn(t *testing.T, pages, password string) (*http.Response, string) {
	t.Helper()
	return b.do(t, http.MethodPost, pages+"/sign-in", url.Values{"password": {password}}.Encode())
}

// TestLoginGuardsThePages: without a password every path of the pages is refused, tells nothing of the tasks and
// charges nothing. A session opens all, until it is signed out or the verifier restarts. The admin address is open.
func TestLoginGuardsThePages(t *testing.T) {
	c := newCascade(t, 1, 1)
	rogue := c.StartFirst(t)
	rogue.Serve(t, 0, 0, rogue.Batch(t, 0, 0, batchSize, onion.Lanes{sealed(t, c)}))
	cfg := config(t, c, filepath.Join(t.TempDir(), "data"), 0)
	cfg.PasswordFile = passwordFile(t)
	page := "/tasks/" + c.Open.ID.String() + "/"
	r := serve(t, cfg)
	require.Eventually(t, func() bool {
		_, metrics := fetch(t, r.admin+"/metrics")
		return strings.Contains(metrics, `doona_verifier_batches{task="`+c.Open.ID.String()[:8]+`"} 1`)
	}, relaytest.Patience, 10*time.Millisecond)
	uncharged := ledgerOf(t, cfg)
	paths := map[string]string{"/": "sign-in", "/none": "sign-in", page: "../../sign-in",
		"/tasks//x/": "../../../sign-in", page[:len(page)-1]: "../sign-in", "/page.js": "sign-in", "/%2Fevil.example": "sign-in", "/api/tasks": "",
		page + "api/report": "", page + "api/report.csv": ""}
	refused := func(b *browser) {
		for path, to := range paths {
			resp, body := b.do(t, "GET", r.pages+path, "")
			require.Equal(t, to, resp.Header.Get("Location"), path)
			want := http.StatusSeeOther
			if to == "" {
				want = http.StatusUnauthorized
				require.Equal(t, `Session realm="verifier"`, resp.Header.Get("WWW-Authenticate"))
			}
			require.Equal(t, want, resp.StatusCode, path)
			require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
			require.NotContains(t, body, "mean", path)
			for _, method := range []string{"HEAD", "POST", "PUT", "DELETE", "OPTIONS"} {
				resp, _ = b.do(t, method, r.pages+path, "")
				require.Equal(t, http.StatusUnauthorized, resp.StatusCode, "%s %s", method, path)
			}
		}
	}
	b := newBrowser(t)
	refused(b)
	for _, value := range []string{"", "x", strings.Repeat("A", 26)} {
		refused(newBrowser(t, "Cookie", "doona-verifier="+value))
	}
	require.Equal(t, uncharged, ledgerOf(t, cfg))
	for _, path := range []string{"/page.css", "/icon.svg"} {
		resp, _ := b.do(t, "GET", r.pages+path, "")
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/status"} {
		status, _ := fetch(t, r.admin+path)
		require.Less(t, status, 300, path)
	}

	resp, body := b.do(t, "GET", r.pages+"/sign-in", "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, body, `type="password"`)
	require.NotContains(t, body, "<script")
	require.NotContains(t, body, "style=")
	policy := resp.Header.Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "form-action 'self'", "frame-ancestors 'none'"} {
		require.Contains(t, policy, part)
	}
	require.NotContains(t, policy, "script-src")
	resp, body = b.signIn(t, r.pages, password+"!")
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	require.Empty(t, resp.Cookies())
	require.Contains(t, body, "Wrong password.")

	resp, _ = b.signIn(t, r.pages, password)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	require.Equal(t, "./", resp.Header.Get("Location"))
	require.Len(t, resp.Cookies(), 1)
	cookie := resp.Cookies()[0]
	require.True(t, cookie.HttpOnly)
	require.False(t, cookie.Secure)
	require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	require.Equal(t, 12*60*60, cookie.MaxAge)
	require.GreaterOrEqual(t, len(cookie.Value), 26) // 128 bits in base 32
	for path := range paths {
		resp, body := b.do(t, "GET", r.pages+path, "")
		require.NotEqual(t, http.StatusUnauthorized, resp.StatusCode)
		require.NotContains(t, resp.Header.Get("Location"), "sign-in")
		if path == "/" {
			require.Contains(t, body, `<a href="sign-in">Sign out</a>`)
		}
	}
	require.NotEqual(t, uncharged, ledgerOf(t, cfg))
	other := newBrowser(t)
	again, _ := other.signIn(t, r.pages, password)
	require.NotEqual(t, cookie.Value, again.Cookies()[0].Value)
	_, body = b.do(t, "GET", r.pages+"/sign-in", "")
	require.Contains(t, body, "You are signed in")
	resp, _ = b.do(t, "POST", r.pages+"/sign-out", "")
	require.Negative(t, resp.Cookies()[0].MaxAge)
	refused(b)
	refused(newBrowser(t, "Cookie", "doona-verifier="+cookie.Value))
	resp, _ = other.do(t, "GET", r.pages+"/api/tasks", "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	r.stop()
	r = serve(t, cfg)
	refused(newBrowser(t, "Cookie", "doona-verifier="+again.Cookies()[0].Value))
}

// TestLoginByProgram: a program sends the password by HTTP Basic authentication, with any user name.
func TestLoginByProgram(t *testing.T) {
	cfg, page := guarded(t)
	r := serve(t, cfg)
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	for header, want := range map[string]int{basic("any:" + password): 200, basic(":" + password): 200,
		basic(password): 401, basic("x:"): 401, "Bearer " + password: 401, basic("x:" + strings.Repeat("y", 2000)): 401} {
		resp, _ := newBrowser(t, "Authorization", header).do(t, "GET", r.pages+page+"api/report.csv", "")
		require.Equal(t, want, resp.StatusCode, header)
		require.Empty(t, resp.Cookies())
	}
}

// TestLoginRefusesOtherSites: a page of another site can neither sign anybody in nor out. Over a connection that is not
// encrypted, browsers do not say which page asks.
func TestLoginRefusesOtherSites(t *testing.T) {
	cfg, _ := guarded(t)
	cfg.Hosts = []string{"stats.example"}
	r := serve(t, cfg)
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		{"Sec-Fetch-Site", "", "Origin", "https://evil.example"}, {"Sec-Fetch-Site", "", "Origin", "null"}} {
		b := newBrowser(t, header...)
		for _, path := range []string{"/sign-in", "/sign-out", "/"} {
			resp, body := b.do(t, "POST", r.pages+path, "password="+url.QueryEscape(password))
			require.Equal(t, http.StatusForbidden, resp.StatusCode, "%v", header)
			require.Empty(t, resp.Cookies())
			require.Contains(t, body, "sign in over https")
		}
	}
	resp, _ := newBrowser(t, "Host", "evil.example").signIn(t, r.pages, password)
	require.Equal(t, http.StatusMisdirectedRequest, resp.StatusCode)
	for _, secure := range [][]string{{"Host", "stats.example"}, {"Host", "192.0.2.1"}, {"X-Forwarded-Proto", "https"},
		{"Forwarded", "for=192.0.2.1"}} {
		resp, _ := newBrowser(t, secure...).signIn(t, r.pages, password)
		require.Equal(t, http.StatusSeeOther, resp.StatusCode)
		require.True(t, resp.Cookies()[0].Secure, "%v", secure)
	}
	resp, _ = newBrowser(t).do(t, "POST", r.pages+"/sign-in", "password="+strings.Repeat("x", 10<<20))
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
}

// movable is a clock that a test moves.
type movable struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (m *movable) now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Add(m.ahead)
}

func (m *movable) move(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead += by
}

// TestSessionsEnd: a session ends after its time, and at most 256 are kept.
func TestSessionsEnd(t *testing.T) {
	cfg, _ := guarded(t)
	var clock movable
	cfg.Clock = clock.now
	r := serve(t, cfg)
	signedIn := func(b *browser) bool {
		resp, _ := b.do(t, "GET", r.pages+"/api/tasks", "")
		return resp.StatusCode == http.StatusOK
	}
	b := newBrowser(t)
	resp, _ := b.signIn(t, r.pages, password)
	b = newBrowser(t, "Cookie", "doona-verifier="+resp.Cookies()[0].Value)
	clock.move(12*time.Hour - time.Minute)
	require.True(t, signedIn(b))
	clock.move(2 * time.Minute)
	require.False(t, signedIn(b))

	first := newBrowser(t)
	first.signIn(t, r.pages, password)
	clock.move(time.Second)
	for range 255 {
		newBrowser(t).signIn(t, r.pages, password)
	}
	require.True(t, signedIn(first))
	newBrowser(t).signIn(t, r.pages, password)
	require.False(t, signedIn(first))
}

// TestWrongPasswordsAreSlowed: a network that guesses must wait longer and longer, and cannot try the right password
// meanwhile. All networks together must wait, too, except those that had the right password before. The log has no
// address.
func TestWrongPasswordsAreSlowed(t *testing.T) {
	cfg, _ := guarded(t)
	var clock movable
	var log bytes.Buffer
	cfg.Clock, cfg.Log, cfg.ProxyNetworks = clock.now, slog.New(slog.NewTextHandler(&log, nil)), []string{"127.0.0.0/8"}
	r := serve(t, cfg)
	try := func(network int, password string) (status int, wait string) {
		resp, _ := newBrowser(t, "X-Forwarded-For", relaytest.Network(network)).signIn(t, r.pages, password)
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	try(1, password)
	for range 5 {
		status, _ := try(0, "wrong")
		require.Equal(t, http.StatusUnauthorized, status)
	}
	for _, text := range []string{"wrong", password} {
		status, wait := try(0, text)
		require.Equal(t, http.StatusTooManyRequests, status)
		require.Equal(t, "2", wait)
	}
	clock.move(2 * time.Second)
	try(0, "wrong")
	_, wait := try(0, password)
	require.Equal(t, "4", wait)
	clock.move(-24 * time.Hour) // nobody is locked out for longer than a minute at once
	_, wait = try(0, password)
	require.Equal(t, "60", wait)
	clock.move(24*time.Hour + 4*time.Second)
	status, _ := try(0, password)
	require.Equal(t, http.StatusSeeOther, status)

	clock.move(time.Hour)
	for network := range 100 {
		status, _ := try(100+network, "wrong")
		require.Equal(t, http.StatusUnauthorized, status, "%d", network)
	}
	status, _ = try(300, password)
	require.Equal(t, http.StatusTooManyRequests, status)
	status, _ = try(1, password)
	require.Equal(t, http.StatusSeeOther, status)
	clock.move(6 * time.Second)
	status, _ = try(300, password)
	require.Equal(t, http.StatusSeeOther, status)
	_, metrics := fetch(t, r.admin+"/metrics")
	require.Contains(t, metrics, `doona_verifier_sign_ins_refused_total{reason="wrong"} 106`)
	require.Contains(t, metrics, `doona_verifier_sign_ins_refused_total{reason="slow-down"} 5`)
	r.stop()
	require.Contains(t, log.String(), "msg=serving")
	require.NotContains(t, log.String(), relaytest.Network(0))
	require.NotContains(t, log.String(), "password")
}

// TestProxyHeader: the header with a user counts only from the proxies' networks, once, and not empty.
func TestProxyHeader(t *testing.T) {
	cfg, _ := guarded(t)
	cfg.PasswordFile, cfg.ProxyHeader, cfg.ProxyNetworks = "", "X-Remote-User", []string{"127.0.0.1/32"}
	ask := func(r *running, users ...string) (status int, body string) {
		b := newBrowser(t)
		if users != nil {
			b.header["X-Remote-User"] = users
		}
		resp, body := b.do(t, "GET", r.pages+"/", "")
		return resp.StatusCode, body
	}
	r := serve(t, cfg)
	status, body := ask(r, "ada")
	require.Equal(t, http.StatusOK, status)
	require.NotContains(t, body, "Sign out")
	for _, users := range [][]string{nil, {""}, {" "}, {"ada", "eve"}} {
		status, body = ask(r, users...)
		require.Equal(t, http.StatusUnauthorized, status, "%q", users)
		require.Contains(t, body, "want one header X-Remote-User")
	}
	r.stop()
	cfg.ProxyNetworks = []string{"10.0.0.0/8", "::1/128"}
	r = serve(t, cfg)
	status, body = ask(r, "ada")
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, body, "proxy_networks")
}

// TestLoginSettings: settings that would let everybody in are refused, with the field's name and what it may be.
func TestLoginSettings(t *testing.T) {
	for want, change := range map[string]func(*server.Config){
		"invalid proxy_networks none":                  func(c *server.Config) { c.PasswordFile, c.ProxyHeader = "", "X-User" },
		`invalid proxy_networks "10.0.0.1": want a n`:  func(c *server.Config) { c.ProxyNetworks = []string{"10.0.0.1"} },
		"invalid proxy_networks 10.0.0.0/8: want none": func(c *server.Config) { c.PasswordFile, c.ProxyNetworks = "", []string{"10.0.0.0/8"} },
		`invalid proxy_header "X-User": want none wit`: func(c *server.Config) { c.ProxyHeader = "X-User" },
		`invalid proxy_header "user-agent": want a he`: func(c *server.Config) { c.PasswordFile, c.ProxyHeader = "", "user-agent" },
		`invalid proxy_header "X User": want a header`: func(c *server.Config) { c.PasswordFile, c.ProxyHeader = "", "X User" },
		"no such file":                     func(c *server.Config) { c.PasswordFile += ".none" },
		"is open to others than its owner": func(c *server.Config) { require.NoError(t, os.Chmod(c.PasswordFile, 0o644)) },
		"want the file that 'verifier password' writes": func(c *server.Config) {
			require.NoError(t, os.WriteFile(c.PasswordFile, []byte(password), 0o600))
		},
		"want m of 1 to 1048576": func(c *server.Config) {
			line, err := os.ReadFile(c.PasswordFile)
			require.NoError(t, err)
			line = bytes.Replace(line, []byte("m=8"), []byte("m=9999999"), 1)
			require.NoError(t, os.WriteFile(c.PasswordFile, line, 0o600))
		},
	} {
		cfg, _ := guarded(t)
		change(&cfg)
		_, err := server.New(cfg)
		require.ErrorContains(t, err, want)
	}
	_, err := server.HashPassword("too short")
	require.ErrorContains(t, err, "invalid password 9 bytes: want 12 to 1024 bytes")
}

// TestPublicPagesWarn: a public address without a login is named in the log.
func TestPublicPagesWarn(t *testing.T) {
	for address, want := range map[string]bool{"0.0.0.0:0": true, "127.0.0.1:0": false, "localhost:0": false} {
		for _, login := range []bool{false, true} {
			cfg, _ := guarded(t)
			if !login {
				cfg.PasswordFile = ""
			}
			var log bytes.Buffer
			cfg.Listen, cfg.Log = address, slog.New(slog.NewTextHandler(&log, nil))
			s, err := server.New(cfg)
			require.NoError(t, err)
			stopped, stop := context.WithCancel(t.Context())
			stop()
			require.NoError(t, s.Run(stopped))
			require.Equal(t, want && !login, strings.Contains(log.String(), "pages without a login"), address)
		}
	}
}

// TestCheck: a check runs beside a server, changes nothing, and warns of what everybody could read or sign.
func TestCheck(t *testing.T) {
	cfg, page := guarded(t)
	serve(t, cfg)
	checked, err := server.Check(cfg)
	require.NoError(t, err)
	require.Equal(t, "/tasks/"+checked.Tasks[0].ID+"/", page)
	require.Empty(t, checked.Warnings)
	cfg.PasswordFile, cfg.Listen, cfg.Data, cfg.Tasks[0].Owner = "", ":8090", filepath.Join(t.TempDir(), "none"), ""
	cfg.Webhook = webhookTo(t, "https://hook.example/")
	checked, err = server.Check(cfg)
	require.NoError(t, err)
	require.Len(t, checked.Warnings, 2)
	require.Contains(t, checked.Warnings[0], "no owner")
	require.Contains(t, checked.Warnings[1], "listen :8090: pages without a login at a public address")
	require.NoDirExists(t, cfg.Data)
	require.NoError(t, os.WriteFile(cfg.Webhook.SecretFile, nil, 0o600))
	_, err = server.Check(cfg)
	require.ErrorContains(t, err, "invalid webhook.secret_file 0 bytes")
}
