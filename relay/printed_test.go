package relay_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
)

// These tests pin the relay's output: metrics, status, log, and the answer to each refused request. A change that only
// restructures the relay must not change a file of testdata/printed. The flag -update writes the files again.

var update = flag.Bool("update", false, "write the files again")

// scene is one run of relays and their recorded output.
type scene struct {
	*relaytest.Cascade
	t     *testing.T
	logs  []*buffer // by hop
	out   strings.Builder
	names []string // replacements: a text that differs from run to run, and its placeholder
	label string   // describes the next answer
}

// buffer collects a log.
type buffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// newScene creates a cascade and records its relays' logs.
func newScene(t *testing.T, o relaytest.Options, wrap ...func(relaytest.Options) relaytest.Options) *scene {
	t.Helper()
	s := &scene{t: t}
	change := o.Config
	o.Config = func(hop int, cfg *relay.Config) {
		for len(s.logs) <= hop {
			s.logs = append(s.logs, &buffer{})
		}
		cfg.Log = slog.New(slog.NewTextHandler(s.logs[hop], &slog.HandlerOptions{Level: slog.LevelDebug}))
		if change != nil {
			change(hop, cfg)
		}
	}
	for _, f := range wrap {
		o = f(o)
	}
	s.Cascade = relaytest.New(t, o)
	for i, task := range s.Bundles {
		s.name(task.ID.String(), fmt.Sprintf("<task %d>", i))
	}
	for hop := range s.Open.Relays {
		cfg := s.Config(t, hop)
		s.name(cfg.Listen, fmt.Sprintf("<relay %d>", hop))
		s.name(cfg.Admin, fmt.Sprintf("<admin of relay %d>", hop))
	}
	for hop := range s.Open.VerifierHop() + 1 {
		key := s.Open.Party(hop).SignKey
		s.name(hex.EncodeToString(key[:]), fmt.Sprintf("<key of hop %d>", hop))
	}
	s.name(hex.EncodeToString(s.Open.Owner[:]), "<key of the owner>")
	s.name(s.Dir, "<folder>")
	s.name(s.Owner, "<owner>")
	s.name(shortKey(s.Owner), "<short owner>")
	return s
}

// name sets the placeholder for a text that differs from run to run. It also replaces the short form of a task's id.
func (s *scene) name(value, as string) {
	s.names = append(s.names, value, as)
	if strings.HasPrefix(as, "<task") {
		s.names = append(s.names, value[:8], as)
	}
}

// plain replaces all texts that have a placeholder.
func (s *scene) plain(text string) string { return strings.NewReplacer(s.names...).Replace(text) }

func (s *scene) section(format string, args ...any) {
	fmt.Fprintf(&s.out, "\n== %s\n", s.plain(fmt.Sprintf(format, args...)))
}

// as describes the next answer in the recorded output.
func (s *scene) as(format string, args ...any) *scene {
	s.label = fmt.Sprintf(format, args...)
	return s
}

// RoundTrip sends a request and records the answer: the status, the headers, and the body if the request is refused.
func (s *scene) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	fmt.Fprintf(&s.out, "\n-- %s\n%s %s\n%d\n", s.label, req.Method, s.plain(req.URL.Path), resp.StatusCode)
	drawn := strings.Contains(string(body), "error:overloaded") || strings.Contains(string(body), "error:slow-down") ||
		strings.Contains(string(body), "error:clock-in-doubt")
	protected := 0
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		value := s.plain(strings.Join(resp.Header.Values(name), " | "))
		switch {
		case name == "Date" || name == "Content-Length" || name == "Etag":
			continue
		case protection[name] == value:
			protected++
			continue
		case name == "Retry-After" && drawn:
			value = "<drawn>"
		case name == "Retry-After" && strings.Contains(string(body), "error:epoch-not-open"):
			value = "<until then>"
		}
		fmt.Fprintf(&s.out, "%s: %s\n", name, keyText.ReplaceAllString(value, `"<bytes>"`))
	}
	fmt.Fprintf(&s.out, "protected by %d of %d headers\n", protected, len(protection))
	if resp.StatusCode >= 400 {
		fmt.Fprintln(&s.out, nowField.ReplaceAllString(s.plain(strings.TrimSpace(string(body))), `"now":<minute>`))
	}
	return resp, nil
}

// protection is the headers that every answer must have.
var protection = map[string]string{
	"Content-Security-Policy":      "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	"Cross-Origin-Resource-Policy": "cross-origin",
	"Referrer-Policy":              "no-referrer",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
}

var keyText = regexp.MustCompile(`"[A-Za-z0-9_-]{40,}"`)

var nowField = regexp.MustCompile(`"now":\d+`)

// client returns a requester that signs with the key in keyFile. Its answers are recorded.
func (s *scene) client(keyFile string) *handover.Requester {
	s.t.Helper()
	key, err := keyfile.LoadSign(keyFile)
	require.NoError(s.t, err)
	return handover.NewRequester(key, s)
}

// hop returns the requester with which the relay at a hop asks its upstream relay.
func (s *scene) hop(hop int) *handover.Requester {
	return s.client(filepath.Join(s.Dir, fmt.Sprintf("relay%d", hop+1), "sign.key"))
}

// send makes a request and records the answer. headers alternates names and values.
func (s *scene) send(method, url string, body []byte, headers ...string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, bytes.NewReader(body))
	require.NoError(s.t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := s.RoundTrip(req)
	require.NoError(s.t, err)
	resp.Body.Close()
}

func (s *scene) report(epoch uint64, body []byte, network int, headers ...string) {
	s.t.Helper()
	s.send(http.MethodPost, s.ReportsURL(epoch), body, append([]string{"Content-Type", "application/msgpack",
		"X-Forwarded-For", relaytest.Network(network)}, headers...)...)
}

// post sends the reports from to to-1, each as its own client.
func (s *scene) post(epoch uint64, from, to int) {
	s.t.Helper()
	for i := from; i < to; i++ {
		require.NoError(s.t, s.Post(s.t.Context(), epoch, s.Seal(s.t, epoch, uint64(i)), relaytest.Network(i)))
	}
}

func (s *scene) soon(holds func() bool) {
	s.t.Helper()
	require.Eventually(s.t, holds, relaytest.Patience, 10*time.Millisecond)
}

// admin fetches a page of a relay's admin address.
func (s *scene) admin(hop int, path string) (status int, text string) {
	s.t.Helper()
	var resp *http.Response
	s.soon(func() bool {
		var err error
		resp, err = http.Get("http://" + s.Config(s.t, hop).Admin + path)
		return err == nil
	})
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, string(raw)
}

// epochIs waits until an epoch of all tasks has a state.
func (s *scene) epochIs(hop int, epoch uint64, state string) {
	s.t.Helper()
	there := func(e relay.EpochStatus) bool { return e.Epoch == epoch && e.State == state }
	s.soon(func() bool {
		for _, of := range s.Statuses(s.t, hop) {
			if !slices.ContainsFunc(of.Epochs, there) {
				return false
			}
		}
		return true
	})
}

func (s *scene) ready(hop int) {
	s.t.Helper()
	status, text := s.admin(hop, "/readyz")
	s.section("/readyz of relay %d", hop)
	fmt.Fprintf(&s.out, "%d %s\n", status, strings.TrimSpace(s.plain(text)))
}

// status records the answer of /status, without signatures and manifests, which differ in each run.
func (s *scene) status(hop int) {
	s.t.Helper()
	_, text := s.admin(hop, "/status")
	var out bytes.Buffer
	require.NoError(s.t, json.Indent(&out, []byte(text), "", "  "))
	s.section("/status of relay %d", hop)
	fmt.Fprintln(&s.out, evidence.ReplaceAllString(strings.TrimSpace(s.plain(out.String())), `"$1": <bytes>`))
}

var evidence = regexp.MustCompile(`"(Manifest|Signature|manifest|signature)": "[^"]*"`)

// moving matches metrics whose values differ from run to run.
var moving = regexp.MustCompile(`^doona_\w+_(bucket\{|sum|count|connections |offset_seconds|store_errors_total)|` +
	`_last_(answer|asked)_timestamp_seconds|_connections |_clock_|_peer`)

// logged waits until a relay has logged a message several times.
func (s *scene) logged(hop int, what string, times int) {
	s.t.Helper()
	s.soon(func() bool { return strings.Count(s.logs[hop].String(), what) == times })
}

// metrics records the relay's own metrics, without those of Go and the process.
func (s *scene) metrics(hop int) {
	s.t.Helper()
	_, text := s.admin(hop, "/metrics")
	s.section("/metrics of relay %d", hop)
	var samples []string // of one metric; sorted here, because the task ids differ from run to run
	flush := func() {
		slices.SortStableFunc(samples, func(a, b string) int { return strings.Compare(labels(a), labels(b)) })
		for _, line := range samples {
			fmt.Fprintln(&s.out, line)
		}
		samples = nil
	}
	for line := range strings.Lines(text) {
		line = s.plain(strings.TrimSpace(line))
		switch value := strings.LastIndexByte(line, ' '); {
		case !strings.Contains(line, "doona_"):
			continue
		case line[0] == '#':
			flush()
			fmt.Fprintln(&s.out, line)
			continue
		case strings.Contains(line, "_epochs_end_timestamp_seconds"):
			var end float64
			fmt.Sscan(line[value:], &end)
			line = fmt.Sprintf("%s <start + %v>", line[:value], uint64(end)-s.Open.Epochs.Start)
		case moving.MatchString(line):
			line = line[:value] + " <value>"
		}
		samples = append(samples, line)
	}
	flush()
}

// labels returns the labels of a metric's sample; "" for a histogram's bucket.
func labels(sample string) string {
	_, of, _ := strings.Cut(sample, "{")
	if strings.HasPrefix(of, "le=") {
		return ""
	}
	return of
}

// log records the lines that a relay has logged, each once, sorted. It omits lines about other relays' clocks, because
// they depend on timing. Only in TestPrintedClock no other relay answers.
func (s *scene) log(hop int) {
	s.t.Helper()
	s.section("log of relay %d", hop)
	var lines []string
	for line := range strings.Lines(s.logs[hop].String()) {
		_, line, _ = strings.Cut(s.plain(strings.TrimSpace(line)), " ") // without the time
		if strings.Contains(line, "peer") && s.t.Name() != "TestPrintedClock" || strings.Contains(line, "the clock is good") {
			continue
		}
		if strings.Contains(line, "couldn't pull") || strings.Contains(line, "couldn't follow a stream") {
			line, _, _ = strings.Cut(line, " error=") // without the network's error, which varies
		}
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	fmt.Fprintln(&s.out, strings.Join(lines, "\n"))
}

// done compares the recorded output with the golden file.
func (s *scene) done(name string) {
	s.t.Helper()
	path := filepath.Join("testdata", "printed", name+".txt")
	if *update {
		require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(s.t, os.WriteFile(path, []byte(s.out.String()), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(s.t, err)
	require.Equal(s.t, string(want), s.out.String())
}
