package problem_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/problem"
)

// response is a response as a client receives it.
func response(status int, retryAfter, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: "999 \x1b[2Jfree text",
		Header: http.Header{"Retry-After": {retryAfter}}, Body: io.NopCloser(strings.NewReader(body))}
}

func TestProblemsTravel(t *testing.T) {
	for _, name := range []problem.Name{problem.NotFound, problem.Overloaded, problem.Complete, problem.Internal} {
		sent := problem.New(name, "at most %d bytes", 7).Retry(1500 * time.Millisecond)
		w := httptest.NewRecorder()
		sent.Write(w)
		require.Equal(t, problem.ContentType, w.Result().Header.Get("Content-Type"))
		require.Equal(t, "no-store", w.Result().Header.Get("Cache-Control"))
		got := problem.Read(w.Result())
		require.Equal(t, sent, got)
		require.Equal(t, 2*time.Second, got.RetryAfter)
		require.ErrorIs(t, got, problem.New(name, ""))
	}
}

// TestClocksTravel: a problem must carry the sender's time to the minute, if the time fits the format.
func TestClocksTravel(t *testing.T) {
	now := time.Unix(1_700_000_039, 5)
	w := httptest.NewRecorder()
	problem.New(problem.EpochClosed, "").At(now).Write(w)
	require.Equal(t, now.Add(-59*time.Second-5), problem.Read(w.Result()).Now)
	for _, bad := range []string{"-5", "1e3", "99999999999999", `"5"`} {
		in := response(410, "", `{"type":"urn:doona:error:epoch-closed","now":`+bad+`}`)
		require.Zero(t, problem.Read(in).Now, bad)
	}
}

// TestHostileProblems: Read must make a hostile relay's answer harmless, because the result reaches logs and terminals,
// and decides how long a client waits.
func TestHostileProblems(t *testing.T) {
	const overloaded = `"type":"urn:doona:error:overloaded"`
	for _, tt := range []struct {
		name, retry, body string
		want              problem.Name
		detail            string
		retryAfter        time.Duration
	}{
		{"a name that is not of the list", "", `{"type":"urn:doona:error:\u001b[2Jx"}`, "", "", 0},
		{"a name without the prefix", "", `{"type":"overloaded"}`, "", "", 0},
		{"an empty name", "", `{"type":"urn:doona:error:"}`, "", "", 0},
		{"terminal escapes", "", `{` + overloaded +
			`,"title":"\u001b]0;x\u0007","detail":"a\u001b[31m\r\nb\u202e\u0000"}`, problem.Overloaded, "a[31mb", 0},
		{"a long detail", "", `{` + overloaded + `,"detail":"` + strings.Repeat("x", 3000) + `"}`, problem.Overloaded,
			strings.Repeat("x", 200), 0},
		{"cut within a letter", "", `{` + overloaded + `,"detail":"x` + strings.Repeat("é", 150) + `"}`,
			problem.Overloaded, "x" + strings.Repeat("é", 99), 0},
		{"a document without end", "", `{` + overloaded + `,"detail":"` + strings.Repeat("x", 1<<20), "", "", 0},
		{"trailing bytes", "", `{` + overloaded + `} {}`, "", "", 0},
		{"years", "315360000", `{` + overloaded + `}`, problem.Overloaded, "", 24 * time.Hour},
		{"an overflow", "9223372036854775807", `{` + overloaded + `}`, problem.Overloaded, "", 24 * time.Hour},
		{"beyond 64 bits", "92233720368547758070", `{` + overloaded + `}`, problem.Overloaded, "", 0},
		{"negative", "-5", `{` + overloaded + `}`, problem.Overloaded, "", 0},
		{"a date", "Fri, 20 Nov 2099 00:00:00 GMT", `{` + overloaded + `}`, problem.Overloaded, "", 0},
		{"a fraction", "1.5", `{` + overloaded + `}`, problem.Overloaded, "", 0},
		{"not JSON", "7", `<html>`, "", "", 7 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := problem.Read(response(503, tt.retry, tt.body))
			require.Equal(t, tt.want, p.Name)
			require.Equal(t, tt.detail, p.Detail)
			require.Equal(t, tt.retryAfter, p.RetryAfter)
			require.NotContains(t, p.Error(), "free text")
		})
	}
}

// FuzzRead: any answer must become a known problem, or one without a name. The result must be short and printable, and
// must not change when it is sent and read again.
func FuzzRead(f *testing.F) {
	f.Add(503, "7", `{"type":"urn:doona:error:overloaded","title":"t","status":503,"detail":"d"}`)
	f.Add(404, "9223372036854775807", `{"type":"urn:doona:error:not-sealed","detail":"\u001b[2J\u202e"}`)
	f.Add(200, "-1", `{"type":["urn:doona:error:"]}`)
	f.Fuzz(func(t *testing.T, status int, retry, body string) {
		p := problem.Read(response(status, retry, body))
		require.LessOrEqual(t, len(p.Error()), 400)
		for _, r := range p.Error() {
			require.True(t, unicode.IsPrint(r), "%q", p.Error())
		}
		require.LessOrEqual(t, time.Duration(0), p.RetryAfter)
		require.LessOrEqual(t, p.RetryAfter, 24*time.Hour)
		require.Equal(t, status, p.Status)
		if p.Name == "" {
			return
		}
		w := httptest.NewRecorder()
		p.Status = problem.New(p.Name, "").Status
		p.Write(w)
		require.Equal(t, fmt.Sprintf("%+v", p), fmt.Sprintf("%+v", problem.Read(w.Result())))
	})
}
