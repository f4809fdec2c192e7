package display

import (
	"net/http"
	"strings"
)

// Bare is the Content-Security-Policy of answers that are not pages. A browser that shows such an answer loads and runs
// nothing.
const Bare = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// PagePolicy returns the Content-Security-Policy of a page that loads only from its own origin. script adds sources of
// scripts, such as 'wasm-unsafe-eval'. connect adds targets of connections, such as a relay.
func PagePolicy(script, connect string) string {
	return "default-src 'none'; style-src 'self'; img-src 'self'; script-src " + strings.TrimSpace("'self' "+script) +
		"; connect-src " + strings.TrimSpace("'self' "+connect) +
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// All answers share these header values: do not modify them.
var (
	nosniff     = []string{"nosniff"}
	deny        = []string{"DENY"}
	noReferrer  = []string{"no-referrer"}
	sameOrigin  = []string{"same-origin"}
	crossOrigin = []string{"cross-origin"}
	bare        = []string{Bare}
)

// setCommon sets the headers of every answer. They forbid guessing content types, frames and referrers, and set the
// content security policy.
func setCommon(h http.Header, policy []string) {
	h["Content-Security-Policy"] = policy
	h["X-Content-Type-Options"] = nosniff
	h["X-Frame-Options"] = deny
	h["Referrer-Policy"] = noReferrer
}

// Protect sets the headers of every answer of a server whose answers only its own pages may read. The handler next may
// replace the policy.
func Protect(policy string, next http.Handler) http.Handler {
	policies := []string{policy}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		setCommon(h, policies)
		h["Cross-Origin-Resource-Policy"] = sameOrigin
		h["Cross-Origin-Opener-Policy"] = sameOrigin
		next.ServeHTTP(w, r)
	})
}

// ProtectPublic sets the headers of every answer of a server whose answers pages of any origin may read.
func ProtectPublic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		setCommon(h, bare)
		h["Cross-Origin-Resource-Policy"] = crossOrigin
		next.ServeHTTP(w, r)
	})
}
