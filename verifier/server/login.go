package server

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/service"
)

// Paths and the cookie of the login.
const (
	signInPath  = "/sign-in"
	signOutPath = "/sign-out"
	cookieName  = "doona-verifier"
)

// maxForm is the maximum size in bytes of a form with a password.
const maxForm = 8 << 10

// signInPolicy is the Content-Security-Policy of the page on which to sign in. The page has no script.
const signInPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; " +
	"frame-ancestors 'none'"

//go:embed sign-in.html
var signInText string

var signInPage = template.Must(template.New("sign-in").Parse(signInText))

// openFiles are the files of the pages that show nothing of a task. The page on which to sign in uses them.
var openFiles = map[string]bool{"/page.css": true, "/icon.svg": true}

// loginGuard returns the guard of the pages that the configuration asks for; nil if it asks for none.
func (s *Server) loginGuard() (func(next http.Handler) http.Handler, error) {
	switch {
	case s.cfg.PasswordFile != "":
		hash, err := loadPassword(s.cfg.PasswordFile)
		if err != nil {
			return nil, err
		}
		l := &passwordLogin{sessions: newSessions(s.cfg.Clock), attempts: newAttempts(hash, s.cfg.Clock),
			origins: http.NewCrossOriginProtection(), refused: func(reason string) {
				s.metrics.Add(metricSignIns, 1, reason)
			}}
		l.proxies.Trusted, l.proxies.Header = s.cfg.proxyNetworks, "X-Forwarded-For"
		return l.guard, nil
	case s.cfg.ProxyHeader != "":
		p := &proxyLogin{header: s.cfg.ProxyHeader, proxies: service.Proxies{Trusted: s.cfg.proxyNetworks}}
		return p.guard, nil
	}
	return nil, nil
}

// passwordLogin lets those see the pages who have the password: people by a session's cookie, programs by HTTP Basic
// authentication with any user name.
type passwordLogin struct {
	sessions *sessions
	attempts *attempts
	proxies  service.Proxies // name clients for the delays of wrong passwords
	origins  *http.CrossOriginProtection
	refused  func(reason string) // counts passwords that were not accepted
}

func (l *passwordLogin) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		reading := req.Method == http.MethodGet || req.Method == http.MethodHead
		switch err := l.origins.Check(req); {
		case err != nil:
			http.Error(w, "refused: a page of another site sent this, or the browser does not say which page did, because "+
				"the connection is not encrypted: sign in over https, or at localhost", http.StatusForbidden)
		case req.URL.Path == signInPath && reading:
			l.showPage(w, req, http.StatusOK, "")
		case req.URL.Path == signInPath && req.Method == http.MethodPost:
			l.signIn(w, req)
		case req.URL.Path == signOutPath && req.Method == http.MethodPost:
			l.signOut(w, req)
		case openFiles[req.URL.Path]:
			next.ServeHTTP(w, req)
		default:
			l.admit(w, req, next)
		}
	})
}

// admit serves a request with a session or a password. It sends people without one to the page on which to sign in.
func (l *passwordLogin) admit(w http.ResponseWriter, req *http.Request, next http.Handler) {
	if _, password, ok := req.BasicAuth(); ok {
		if err := l.check(req, password); err != nil {
			status := wait(w, err)
			askForLogin(w, status, err.Error())
			return
		}
		next.ServeHTTP(w, req)
		return
	}
	path := req.URL.EscapedPath()
	switch {
	case l.signedIn(req):
		next.ServeHTTP(w, req)
	case req.Method == http.MethodGet && strings.HasPrefix(path, "/") && !strings.Contains(path, "/api/"):
		// Relative, because a proxy may serve the pages under a subfolder.
		w.Header().Set("Location", strings.Repeat("../", strings.Count(path, "/")-1)+signInPath[1:])
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusSeeOther)
	default:
		askForLogin(w, http.StatusUnauthorized, "sign in first, or send the password by HTTP Basic authentication")
	}
}

// askForLogin answers a program. The scheme in the challenge is none that browsers know: for Basic they would ask their
// user, and keep the password.
func askForLogin(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("WWW-Authenticate", `Session realm="verifier"`)
	http.Error(w, text, status)
}

// check checks the password that came with a request, and counts it if it is refused.
func (l *passwordLogin) check(req *http.Request, password string) error {
	err := l.attempts.check(l.proxies.Client(req), password)
	var slow *slowDown
	switch {
	case errors.As(err, &slow):
		l.refused(reasonSlow)
	case err != nil:
		l.refused(reasonWrong)
	}
	return err
}

// wait returns the status of an answer to a refused password. It sets the header that says when to try again.
func wait(w http.ResponseWriter, err error) int {
	var slow *slowDown
	if errors.As(err, &slow) {
		w.Header().Set("Retry-After", strconv.Itoa(slow.seconds()))
		return http.StatusTooManyRequests
	}
	return http.StatusUnauthorized
}

func (l *passwordLogin) signedIn(req *http.Request) bool {
	for _, c := range req.CookiesNamed(cookieName) { // another site of the domain may have set one too
		if l.sessions.has(c.Value) {
			return true
		}
	}
	return false
}

func (l *passwordLogin) signIn(w http.ResponseWriter, req *http.Request) {
	req.Body = http.MaxBytesReader(w, req.Body, maxForm)
	if err := req.ParseForm(); err != nil {
		http.Error(w, fmt.Sprintf("couldn't read the form: want at most %d bytes", maxForm), http.StatusBadRequest)
		return
	}
	if err := l.check(req, req.PostForm.Get("password")); err != nil {
		status, text := wait(w, err), err.Error()
		l.showPage(w, req, status, strings.ToUpper(text[:1])+text[1:]+".")
		return
	}
	l.toTasks(w, &http.Cookie{Value: l.sessions.begin(), MaxAge: int(sessionLength.Seconds()), Secure: needsTLS(req)})
}

func (l *passwordLogin) signOut(w http.ResponseWriter, req *http.Request) {
	for _, c := range req.CookiesNamed(cookieName) {
		l.sessions.end(c.Value)
	}
	l.toTasks(w, &http.Cookie{MaxAge: -1, Secure: needsTLS(req)})
}

// toTasks sets a cookie and sends the browser to the list of tasks. The cookie's path is the folder of the pages.
func (l *passwordLogin) toTasks(w http.ResponseWriter, c *http.Cookie) {
	c.Name, c.HttpOnly, c.SameSite = cookieName, true, http.SameSiteStrictMode
	http.SetCookie(w, c)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

// needsTLS reports whether a browser may send a session's cookie only over TLS. That is so unless it asks this machine
// itself, and no proxy.
func needsTLS(req *http.Request) bool {
	for _, name := range []string{"X-Forwarded-Proto", "X-Forwarded-For", "Forwarded", "Via"} {
		if req.Header.Get(name) != "" {
			return true
		}
	}
	return !isLoopback(req.Host)
}

// isLoopback reports whether an address, with or without a port, is of this machine alone.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return strings.EqualFold(host, "localhost") || err == nil && a.Unmap().IsLoopback()
}

func (l *passwordLogin) showPage(w http.ResponseWriter, req *http.Request, status int, problem string) {
	var page bytes.Buffer
	err := signInPage.Execute(&page, struct {
		Problem  string
		SignedIn bool
	}{problem, problem == "" && l.signedIn(req)})
	if err != nil {
		http.Error(w, "couldn't make the page", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Security-Policy", signInPolicy)
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(page.Bytes())
}

// proxyLogin lets requests see the pages that a trusted proxy passes on with the name of a user.
type proxyLogin struct {
	header  string
	proxies service.Proxies
}

func (p *proxyLogin) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		from, err := netip.ParseAddrPort(req.RemoteAddr)
		users := req.Header.Values(p.header)
		switch {
		case err != nil || !p.proxies.Trusts(from.Addr().WithZone("").Unmap()):
			http.Error(w, "refused: this address answers only the proxies in proxy_networks", http.StatusForbidden)
		case len(users) != 1 || strings.TrimSpace(users[0]) == "":
			askForLogin(w, http.StatusUnauthorized, "the proxy names no user: want one header "+p.header)
		default:
			req.Header.Del(p.header) // nothing behind this needs to know who it is
			next.ServeHTTP(w, req)
		}
	})
}
