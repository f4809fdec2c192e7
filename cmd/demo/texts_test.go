package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
	texts "github.com/doona-dp/doona/protocols/strings"
	"github.com/doona-dp/doona/wire/task"
)

// TestTextsThroughRelays: texts which pass two relays, each of which adds dummies, appear in the verifier's list. The
// long form has 100,000 clients, of whom 200 report from Chromium. Frequent texts must be listed, and no text that no
// client has.
func TestTextsThroughRelays(t *testing.T) {
	full, figures := stattest.Long, os.Getenv("DOONA_FIGURES")
	clients, visitors := 1000, 0
	if full {
		clients, visitors = 100_000, 200
	}
	o := &options{query: task.Strings, length: 32, users: clients, batch: uint64(clients), epsilon: 1, delta: 1e-6,
		honest: 1, noise: "relays", hops: 2, headless: true}
	lines := brokenLinks(clients)
	if !full {
		for i := range 900 {
			lines[i] = "/one.html"
		}
	}
	var values [][]float64
	for _, line := range lines {
		values = append(values, texts.Value(line))
	}
	draft, err := o.draft("links", o.batch, 0)
	require.NoError(t, err)
	begin := time.Now()
	w, err := startWorld(t.Context(), t.TempDir(), o, draft, 0)
	require.NoError(t, err)
	defer w.Stop()
	visit(t, w.main, lines[:visitors])
	require.NoError(t, w.main.send(t.Context(), 0, values[visitors:], func() {}))
	r, err := w.main.finish(t.Context(), o, values, values, clients)
	require.NoError(t, err)
	require.Empty(t, r.Findings)
	require.EqualValues(t, clients, r.Reports)
	r.ElapsedSeconds = time.Since(begin).Seconds()
	var printed strings.Builder
	require.NoError(t, r.printTexts(&printed))
	t.Log(printed.String())

	outside, missed := 0, 0
	for _, c := range r.TrueTexts {
		require.Positive(t, c.Clients, "%q is nobody's", c.Text) // fails in at most one of 200 runs
		switch {
		case !c.Listed:
			missed++
		case float64(c.Clients) < c.Interval[0] || float64(c.Clients) > c.Interval[1]:
			outside++
		}
	}
	require.NotEmpty(t, r.Texts.List)
	require.LessOrEqual(t, outside, 1+len(r.Texts.List)/3) // one in twenty of each is expected
	// Addresses with a common prefix are found or missed together.
	require.LessOrEqual(t, missed, len(r.TrueTexts)/4)
	if full && figures != "" {
		out, err := json.MarshalIndent(map[string]any{"clients": clients, "inChromium": visitors, "relays": 2,
			"dummiesPerRelay": draft.Noise.Pool, "listed": len(r.Texts.List), "outsideTheirInterval": outside,
			"notListed": missed, "foundDownTo": r.Texts.FoundDownTo, "seconds": r.ElapsedSeconds, "texts": r.TrueTexts}, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(figures, out, 0o644))
	}
}

// visit reports texts as visitors do, in Chromium, with the built SDK. Each visitor has a browser profile of their own.
func visit(t *testing.T, r *simulatedTask, lines []string) {
	t.Helper()
	if len(lines) == 0 {
		return
	}
	site := http.NewServeMux()
	site.Handle("GET /", http.FileServer(http.Dir("../../build/www")))
	site.HandleFunc("GET /blank", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>Not found</title>")
	})
	server := httptest.NewServer(site)
	defer server.Close()
	request, err := json.Marshal(map[string]any{"site": server.URL, "relay": r.Open.Relays[0].URL, "task": r.URL,
		"owner": r.Owner, "texts": lines})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "visitors.json")
	require.NoError(t, os.WriteFile(path, request, 0o600))
	node := exec.CommandContext(t.Context(), "node", "test/visitors.mjs", path)
	node.Dir, node.Stderr = "../../www", os.Stderr
	out, err := node.Output()
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintln(len(lines)), string(out))
}
