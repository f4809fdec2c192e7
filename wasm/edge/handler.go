package edge

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/problem"
)

// Prefix begins the paths under which values are posted: Prefix and the name of a task.
const Prefix = "/doona/"

// The problems that a worker adds to those of a relay; docs/edge.md lists all.
const (
	Configuration   problem.Name = "configuration"    // The worker's variables are wrong: 500.
	TaskUnavailable problem.Name = "task-unavailable" // No relay answered, or the task was refused: 502.
	InvalidValue    problem.Name = "invalid-value"    // Not in the task's domain: 400.
	Foreign         problem.Name = "foreign-origin"   // Sent by a page of another site: 403.
)

// maxBody bounds a posted value, in bytes: a vector of 2¹⁶ numbers of 16 digits.
const maxBody = 1 << 20

func newProblem(name problem.Name, status int, title, detail string) *problem.Problem {
	return &problem.Problem{Name: name, Status: status, Title: title, Detail: detail}
}

// ServeHTTP takes {"value": number or [number …]} for a task and answers 204 once it is
// randomized and sealed.
func (w *Worker) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	if err := w.take(req); err != nil {
		Refuse(out, err)
		return
	}
	out.Header().Set("Cache-Control", "no-store")
	out.WriteHeader(http.StatusNoContent)
}

// Refuse answers with an error.
func Refuse(out http.ResponseWriter, err error) {
	var p *problem.Problem
	if !errors.As(err, &p) {
		p = newProblem(Configuration, http.StatusInternalServerError, "the worker's configuration is wrong",
			err.Error())
	}
	p.Write(out)
}

func (w *Worker) take(req *http.Request) error {
	name, ok := strings.CutPrefix(req.URL.Path, Prefix)
	if t := w.config.Tasks[name]; !ok || t == nil || t.Property != "" {
		return newProblem(problem.NotFound, http.StatusNotFound, "no task of this name takes values", "")
	}
	if req.Method != http.MethodPost {
		return newProblem(problem.NotFound, http.StatusMethodNotAllowed, "values are posted",
			"method "+req.Method+": want POST")
	}
	if !ownOrigin(req) {
		return newProblem(Foreign, http.StatusForbidden, "only this site's own pages and backends report here", "")
	}
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return newProblem(problem.MediaType, http.StatusUnsupportedMediaType, "a value is application/json", "")
	}
	value, err := readValue(req.Body)
	if err != nil {
		return err
	}
	return w.Report(req.Context(), name, req.Header.Get("CF-Connecting-IP"), value)
}

// ownOrigin says whether the request comes from a page of this site, or from no page at all.
// Browsers send Origin with every POST.
func ownOrigin(req *http.Request) bool {
	origin := req.Header.Get("Origin")
	if origin == "" {
		return true
	}
	from, err := url.Parse(origin)
	return err == nil && from.Scheme == req.URL.Scheme && from.Host == req.URL.Host
}

// malformed says what a body is, and nothing of what this one holds.
func malformed() error {
	return newProblem(InvalidValue, http.StatusBadRequest, "not a value of the task",
		`value: want {"value": number} or {"value": [number, …]} and nothing else`)
}

func readValue(body io.Reader) ([]float64, error) {
	if body == nil {
		return nil, malformed()
	}
	raw, err := io.ReadAll(io.LimitReader(body, maxBody+1))
	if err != nil {
		return nil, malformed()
	}
	if len(raw) > maxBody {
		return nil, newProblem(problem.TooLarge, http.StatusRequestEntityTooLarge, "longer than any value",
			"at most 1 MiB")
	}
	var document struct {
		Value json.RawMessage `json:"value"`
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if decoder.Decode(&document) != nil {
		return nil, malformed()
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, malformed()
	}
	var one *float64
	if json.Unmarshal(document.Value, &one) == nil && one != nil {
		return []float64{*one}, nil
	}
	var many []*float64
	if json.Unmarshal(document.Value, &many) != nil || many == nil {
		return nil, malformed()
	}
	value := make([]float64, len(many))
	for i, x := range many {
		if x == nil {
			return nil, malformed()
		}
		value[i] = *x
	}
	return value, nil
}

// valueProblem says what the task allows, without what was given.
func valueProblem(err error) error {
	var field *invalid.FieldError
	if !errors.As(err, &field) {
		return newProblem(problem.Internal, http.StatusInternalServerError, "the value could not be randomized", "")
	}
	return newProblem(InvalidValue, http.StatusBadRequest, "not a value of the task", field.Field+": want "+field.Want)
}
