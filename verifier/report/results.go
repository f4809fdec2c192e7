package report

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/wire/task"
)

// Results are the published results of a site's tasks. Each has a moment of its own, and a result that is published
// later has a later moment. So whoever asks for what came after the last moment gets each result once.
type Results interface {
	// After returns results of a task, or of all tasks if task is "", that were published after a moment: the earliest,
	// by moment.
	After(since time.Time, task string) ([]*Result, error)

	// Until is the latest moment after which one may ask.
	Until() time.Time
}

// Result is the published result of an epoch, which does not change any more. A task and an epoch have one.
type Result struct {
	Published Moment          `json:"published"`
	Task      string          `json:"task"`
	Name      string          `json:"name"`
	Query     task.Query      `json:"query"`
	Entry     string          `json:"entry,omitempty"`
	Labels    []string        `json:"labels,omitempty"`
	From      verifier.Values `json:"from,omitempty"`
	To        verifier.Values `json:"to,omitempty"`
	*verifier.EpochReport
	Spent *struct{} `json:"spent,omitempty"` // hides the row's: what earlier epochs cost is in the report

	report *verifier.Report // of the task, without answers
}

// NewResult returns the result of an epoch. overview is a report of its task.
func NewResult(published time.Time, overview *verifier.Report, row *verifier.EpochReport) *Result {
	return &Result{Published: Moment(published), Task: overview.Task, Name: overview.Name, Query: overview.Query,
		Entry: overview.Entry, Labels: overview.Labels, From: overview.From, To: overview.To, EpochReport: row,
		report: overview}
}

// JSON returns the result as the list of results has it, in a form that is safe to show on a terminal.
func (r *Result) JSON() ([]byte, error) {
	out, err := json.Marshal(r)
	return display.JSON(out), err
}

// Moment is when a result was published, to the millisecond.
type Moment time.Time

const momentForm = "2006-01-02T15:04:05.000Z07:00"

func (m Moment) String() string { return time.Time(m).UTC().Format(momentForm) }

// MarshalText implements [encoding.TextMarshaler].
func (m Moment) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// listedResults is the answer to a request for results.
type listedResults struct {
	Results []*Result `json:"results"`
	Next    Moment    `json:"next"` // Ask with this moment next.
}

// handleResults serves results as JSON or CSV. It charges and publishes nothing.
func (s *Site) handleResults(w http.ResponseWriter, req *http.Request) {
	id, page := s.page(req)
	if id != "" && page == nil {
		http.NotFound(w, req)
		return
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	var since time.Time
	if err == nil {
		since, err = parseSince(query["since"], s.Results.Until())
	}
	if err != nil {
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kind := "application/json"
	if strings.HasSuffix(req.URL.Path, ".csv") {
		kind = csvType
	}
	respond(w, kind, func(out io.Writer) error {
		list, err := s.Results.After(since, id)
		if err != nil {
			return err
		}
		if kind == csvType {
			if query.Get("bom") == "1" {
				io.WriteString(out, "\ufeff")
			}
			return writeResults(out, list)
		}
		answer := listedResults{Results: list, Next: Moment(since)}
		if n := len(list); n > 0 {
			answer.Next = list[n-1].Published
		} else {
			answer.Results = []*Result{}
		}
		return writeJSON(out, answer)
	})
}

// writeResults writes a line per entry of each result: when it was published, the task's id, and the columns of
// [WriteCSV].
func writeResults(w io.Writer, list []*Result) error {
	out := csv.NewWriter(w)
	out.Write(slices.Concat([]string{"published", "task"}, csvHeader))
	for _, r := range list {
		writeAnswer(out, r.report, slices.Concat([]string{r.Published.String(), r.Task}, epochCells(r.EpochReport)),
			r.EpochReport)
	}
	out.Flush()
	return out.Error()
}

// maxSince is the maximum length of a moment in a request, in bytes.
const maxSince = 64

// parseSince reads the moment since, of which a request has at most one: as RFC 3339 with a zone, or in whole seconds
// since 1970. Moments have milliseconds, so it cuts off the rest.
func parseSince(values []string, until time.Time) (time.Time, error) {
	first, last := time.Unix(0, 0).UTC(), until.UTC().Truncate(time.Second)
	if len(values) == 0 {
		return first, nil
	}
	text := values[0]
	since, err := time.Parse(time.RFC3339Nano, text)
	if seconds, number := strconv.ParseInt(text, 10, 64); number == nil {
		since, err = time.Unix(seconds, 0), nil
	}
	if len(values) > 1 || len(text) > maxSince || err != nil || since.Before(first) || since.After(last) {
		return first, invalid.Field("since", strconv.QuoteToASCII(text[:min(len(text), maxSince)]), "one moment from "+
			first.Format(time.RFC3339)+" to "+last.Format(time.RFC3339)+", with a zone (a + as %2B), or in seconds since 1970")
	}
	return since.Truncate(time.Millisecond).UTC(), nil
}
