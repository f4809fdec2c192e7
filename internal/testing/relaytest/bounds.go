package relaytest

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
	"github.com/doona-dp/doona/internal/testing/stattest"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/problem"
)

// Bound is a row of the table of limits in docs/SPEC.md.
type Bound struct {
	Name   string       // A path value in braces, a header, or a parameter.
	Beyond problem.Name // The problem for a value beyond the limit.
	in     []string     // Last words of the paths of requests with this value.
}

// Bounds reads the table from the file spec.
func Bounds(t *testing.T, spec string) (out []Bound) {
	t.Helper()
	for _, row := range doctest.Table(t, spec, "named", "in", "beyond it") {
		b := Bound{doctest.Code(row[0])[0], problem.Name(doctest.Code(row[2])[0]), doctest.Code(row[1])}
		require.True(t, slices.IsSorted(b.in), b.Name)
		out = append(out, b)
	}
	return out
}

// In reports whether requests with a path pattern contain the limited value.
func (b Bound) In(pattern string) bool {
	return slices.Contains(b.in, lastWord(pattern)) && (b.Name[0] != '{' || strings.Contains(pattern, b.Name))
}

// lastWord returns the last word of a pattern's path that is no path value, with the previous word if it is ambiguous.
func lastWord(pattern string) (last string) {
	before := ""
	for word := range strings.SplitSeq(pattern, "/") {
		if word != "" && word[0] != '{' {
			before, last = last, word
		}
	}
	if before == "owners" || before == "successors" {
		return before + "/" + last
	}
	return last
}

// CheckBounds checks that the table has a row for every path value in some requests' patterns.
func CheckBounds(t testing.TB, bounds []Bound, patterns []string) {
	t.Helper()
	for _, pattern := range patterns {
		for word := range strings.SplitSeq(pattern, "/") {
			if strings.HasPrefix(word, "{") {
				has := func(b Bound) bool { return b.Name == word && b.In(pattern) }
				require.True(t, slices.ContainsFunc(bounds, has),
					"docs/SPEC.md: the table of bounds has no row for %s in %s", word, pattern)
			}
		}
	}
}

// Answer returns the problem with which a handler answers a request, or nil.
func Answer(handler http.Handler, req *http.Request) *problem.Problem {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	if w.Code/100 == 2 {
		return nil
	}
	return problem.Read(w.Result())
}

// Flood sends 10,000 requests to a handler, which must refuse all of them. It takes the requests from some kinds in
// turn. In the long form it sends 10,000 of each kind.
func Flood(t testing.TB, handler http.Handler, kinds [][]*http.Request) {
	t.Helper()
	n := 10_000/len(kinds) + 1
	if stattest.Long {
		n = 10_000
	}
	for _, kind := range kinds {
		for i := range n {
			w := &status{header: http.Header{}}
			handler.ServeHTTP(w, kind[i%len(kind)])
			require.GreaterOrEqual(t, w.code, http.StatusBadRequest)
		}
	}
}

// status is a ResponseWriter that only keeps the status of an answer.
type status struct {
	header http.Header
	code   int
}

// Header implements [http.ResponseWriter].
func (s *status) Header() http.Header { return s.header }

// Write implements [http.ResponseWriter].
func (s *status) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader implements [http.ResponseWriter].
func (s *status) WriteHeader(code int) { s.code = code }

// Scan sends 10,000 requests for different paths, such as a scanner for weaknesses sends, to a handler. It must answer
// none of them.
func Scan(t testing.TB, handler http.Handler) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2)) // no line of a test may depend on luck
	for i := range 10_000 {
		name := strconv.FormatUint(random.Uint64(), 36)
		reports := strings.NewReplacer("{task}", name, "{epoch}", "0")
		path := []string{
			"/" + name + ".php?" + name, "/v1/" + name + "/", reports.Replace(endpoint.ReportsPath), "/tasks/" + name,
			"/tasks/" + name + "/", "/%2e%2e/" + name, "/" + strings.Repeat(name+"/", 100), "/metrics/" + name,
		}[i%8]
		method := []string{http.MethodGet, http.MethodPost}[i/8%2]
		w := &status{header: http.Header{}}
		handler.ServeHTTP(w, httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(name)))
		require.GreaterOrEqual(t, w.code, http.StatusMultipleChoices, path)
	}
}

// Series returns the lines of /metrics at a party's admin address, without their values.
func Series(t testing.TB, admin http.Handler) (series []string) {
	t.Helper()
	w := httptest.NewRecorder()
	admin.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			line = line[:strings.LastIndexByte(line, ' ')]
		}
		series = append(series, line)
	}
	return series
}
