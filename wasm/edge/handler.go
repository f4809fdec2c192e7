package edge

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/doona-dp/doona/wire/problem"
)

// Values are posted to Prefix + the task's name. A post to that path + EpochPath asks which epoch is open.
const (
	Prefix    = "/doona/"
	EpochPath = "/epoch"
)

// EpochHeader is the header in which a page's post names the epoch that EpochPath returned. The page has recorded a
// report in that epoch. A post that arrived in a later epoch would let the page report twice in the later one.
const EpochHeader = "Doona-Epoch"

// Problems that only a worker answers with, beside those of a relay. docs/edge.md lists all.
const (
	Configuration   problem.Name = "configuration"    // The worker's variables are invalid: status 500.
	TaskUnavailable problem.Name = "task-unavailable" // No relay answered, or the task failed a check: status 502.
	InvalidValue    problem.Name = "invalid-value"    // The value is not in the task's domain: status 400.
)

func newProblem(name problem.Name, status int, title, detail string) *problem.Problem {
	return &problem.Problem{Name: name, Status: status, Title: title, Detail: detail}
}

// ServeHTTP takes {"value": number or [number …]} for a task. It answers 204 once the value is randomized and sealed. A
// page also gets 204 if its quota is used up or its value is invalid. Otherwise others in its network could find out
// whether somebody has reported.
func (w *Worker) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	out.Header().Set("Cache-Control", "no-store")
	if err := w.take(out, req); err != nil {
		Refuse(out, err)
	}
}

// Refuse answers with a problem. An error of another kind becomes the problem Configuration.
func Refuse(out http.ResponseWriter, err error) {
	var p *problem.Problem
	if !errors.As(err, &p) {
		p = newProblem(Configuration, http.StatusInternalServerError, "the worker's configuration is wrong",
			err.Error())
	}
	p.Write(out)
}

// take checks a post, cheapest check first: its headers, the instance's load, the task, whether the body arrives, the
// network's quota, and finally the value.
func (w *Worker) take(out http.ResponseWriter, req *http.Request) error {
	path, ok := strings.CutPrefix(req.URL.Path, Prefix)
	name, asks := strings.CutSuffix(path, EpochPath)
	t := w.config.Tasks[name]
	if !ok || t == nil || t.Source == FromRequest || asks && t.Source != FromPage {
		return newProblem(problem.NotFound, http.StatusNotFound, "no task of this name takes posted values", "")
	}
	origin := req.Header.Get("Origin")
	if t.Source == FromPage && slices.Contains(t.Origins, origin) {
		allow(out.Header(), origin)
		if req.Method == http.MethodOptions {
			out.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	if req.Method != http.MethodPost {
		return newProblem(problem.NotFound, http.StatusMethodNotAllowed, "wrong method",
			"method "+req.Method+": want POST")
	}
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return newProblem(problem.MediaType, http.StatusUnsupportedMediaType, "wrong media type",
			"header Content-Type: want application/json")
	}
	if err := w.admit(name, req); err != nil {
		return err
	}
	if req.ContentLength > maxBody {
		return tooLarge(maxBody)
	}
	if asks {
		return w.tellEpoch(out, req, name)
	}
	if err := w.post(req, name); err != nil {
		return err
	}
	out.WriteHeader(http.StatusNoContent)
	return nil
}

// allow adds the CORS headers for a page of a configured foreign origin.
func allow(header http.Header, origin string) {
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Allow-Methods", http.MethodPost)
	header.Set("Access-Control-Allow-Headers", "Content-Type, "+EpochHeader)
	header.Set("Vary", "Origin")
}

// admit returns a problem unless the request comes from the task's source. Browsers send header Origin with every POST,
// and no page can choose it. A program can.
func (w *Worker) admit(name string, req *http.Request) error {
	t, origins := w.config.Tasks[name], req.Header.Values("Origin")
	if t.Source == FromPage {
		own := req.URL.Scheme + "://" + req.URL.Host
		if len(origins) != 1 || origins[0] != own && !slices.Contains(t.Origins, origins[0]) {
			return newProblem(problem.ForeignOrigin, http.StatusForbidden, "only pages of this site report here", "")
		}
		return nil
	}
	if len(origins) > 0 {
		return newProblem(problem.ForeignOrigin, http.StatusForbidden, "only this site's backend reports here, and no page", "")
	}
	// Hashes have one length, so the comparison takes the same time for every secret.
	given, want := credentialOf(req.Header.Get("Authorization")), w.backends[name]
	if subtle.ConstantTimeCompare(given[:], want[:]) != 1 {
		return newProblem(problem.Unauthorized, http.StatusForbidden, "only this site's backend reports here",
			"header Authorization: want Bearer and the task's secret")
	}
	return nil
}

// credential is the SHA-256 hash of an Authorization header.
type credential [sha256.Size]byte

func credentialOf(authorization string) credential { return sha256.Sum256([]byte(authorization)) }

// tellEpoch answers a page with the open epoch's name and its end as a Unix time.
func (w *Worker) tellEpoch(out http.ResponseWriter, req *http.Request, name string) error {
	v, err := w.open(req.Context(), name, awaitedOf(w.config.Tasks[name], req))
	if err != nil {
		return err
	}
	w.load.end(v.job)
	out.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(out).Encode(map[string]any{"epoch": v.key(), "end": v.end()})
}

// post takes a value. It checks the network's quota only after a page's body has arrived. Otherwise a post without a
// body would get an answer only when the quota is used up, which reveals the count.
func (w *Worker) post(req *http.Request, name string) error {
	t := w.config.Tasks[name]
	v, err := w.open(req.Context(), name, awaitedOf(t, req))
	if err != nil {
		return err
	}
	body, err := w.body(req, v)
	admitted := true
	if err == nil && t.Source == FromPage {
		admitted, err = w.claim(v, req.Header.Get("CF-Connecting-IP"), t.quota())
	}
	if err != nil || !admitted {
		w.load.end(v.job)
		return err
	}
	err = w.randomize(req.Context(), v, body)
	if err != nil && t.Source == FromPage {
		w.host.Log(fmt.Sprintf("doona: refused a value to task %s: %v", name, err))
		return nil
	}
	return err
}

// awaitedOf returns the network from which a page's body is awaited, or "" for a backend's post.
func awaitedOf(t *TaskConfig, req *http.Request) string {
	if t.Source != FromPage {
		return ""
	}
	return networkOf(req.Header.Get("CF-Connecting-IP"))
}

// body checks the epoch, the length and the address in the headers and reads the body. If the body never arrives, the
// runtime ends the request.
func (w *Worker) body(req *http.Request, v *visit) ([]byte, error) {
	t, most := w.config.Tasks[v.name], bodyBytes(v.client.Task().Task)
	switch {
	case t.Source == FromPage && req.Header.Get(EpochHeader) != v.key():
		return nil, newProblem(problem.EpochNotOpen, http.StatusConflict, "the post does not name the open epoch",
			"header "+EpochHeader+": want what "+Prefix+v.name+EpochPath+" tells")
	case req.ContentLength > int64(most):
		return nil, tooLarge(most)
	case t.Source == FromPage && awaitedOf(t, req) == "":
		return nil, noAddress()
	}
	if err := w.load.hold(v.job, most); err != nil {
		return nil, err
	}
	defer w.load.arrived(v.job)
	return readBody(req.Body, most)
}

func (w *Worker) randomize(ctx context.Context, v *visit, body []byte) error {
	value, err := parseValue(body)
	if err != nil {
		w.load.end(v.job)
		return err
	}
	return w.report(ctx, v, value)
}
