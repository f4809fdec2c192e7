package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// request is the method, path and header of a request that reached a relay or the issuer.
type request struct {
	Method string              `json:"method"`
	Path   string              `json:"path"`
	Header map[string][]string `json:"header"`
}

// watch is a proxy in front of relays and the issuer. It adds marks to every answer: a cookie, an ETag and a date. A
// server could recognize a browser that sends a mark back. watch records the headers of all requests for the tests.
type watch struct {
	mu       sync.Mutex // guards the fields below
	answers  int
	requests []request
}

// wrap adds marks to the answers of a handler. The marks of each answer are unique.
func (wa *watch) wrap(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mark := wa.note(req)
		handler.ServeHTTP(&markedWriter{ResponseWriter: w, mark: mark}, req)
	})
}

func (wa *watch) note(req *http.Request) (mark int) {
	wa.mu.Lock()
	defer wa.mu.Unlock()
	wa.answers++
	wa.requests = append(wa.requests, request{req.Method, req.URL.Path, req.Header.Clone()})
	return wa.answers
}

// proxy returns a handler that passes requests on to a server and adds marks to the server's answers.
func (wa *watch) proxy(target string) (http.Handler, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("couldn't parse an address: %w", err)
	}
	return wa.wrap(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }}), nil
}

// take answers with the requests since the last call, as JSON, and forgets them.
func (wa *watch) take(w http.ResponseWriter, _ *http.Request) {
	wa.mu.Lock()
	defer wa.mu.Unlock()
	json.NewEncoder(w).Encode(append([]request{}, wa.requests...))
	wa.requests = nil
}

// markedWriter adds the marks to an answer's header before the header is sent.
type markedWriter struct {
	http.ResponseWriter
	mark int
	sent bool
}

func (m *markedWriter) WriteHeader(status int) {
	m.sent = true
	header, day := m.Header(), 24*time.Hour
	header.Set("Cache-Control", "private, max-age=1") // so that the browser revalidates it
	header.Set("ETag", fmt.Sprintf(`"mark-%d"`, m.mark))
	header.Set("Last-Modified", time.Unix(0, 0).Add(time.Duration(m.mark)*day).UTC().Format(http.TimeFormat))
	header.Set("Set-Cookie", fmt.Sprintf("mark=%d; Max-Age=31536000; Path=/", m.mark))
	m.ResponseWriter.WriteHeader(status)
}

func (m *markedWriter) Write(body []byte) (int, error) {
	if !m.sent {
		m.WriteHeader(http.StatusOK)
	}
	return m.ResponseWriter.Write(body)
}

// Unwrap lets http.ResponseController reach the wrapped writer, to flush it.
func (m *markedWriter) Unwrap() http.ResponseWriter { return m.ResponseWriter }
