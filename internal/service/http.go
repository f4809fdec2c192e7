package service

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
)

// Handler is an HTTP handler that may fail.
type Handler func(http.ResponseWriter, *http.Request) error

// Mux is an [http.ServeMux] that lists its patterns. For each variable in a pattern, the table of bounds in
// docs/SPEC.md, section 8, has a row.
type Mux struct {
	http.ServeMux
	Patterns []string
}

// HandleFunc calls [http.ServeMux.HandleFunc] and records the pattern.
func (m *Mux) HandleFunc(pattern string, handle func(http.ResponseWriter, *http.Request)) {
	m.Patterns = append(m.Patterns, pattern)
	m.ServeMux.HandleFunc(pattern, handle)
}

// Answer writes a handler's [problem.Problem] as the answer. Any other error is this program's fault: Answer logs it,
// and tells the client nothing about it.
func Answer(log *slog.Logger, handle Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		err := handle(w, req)
		if err == nil {
			return
		}
		var p *problem.Problem
		if !errors.As(err, &p) {
			if req.Context().Err() == nil { // otherwise the client closed the connection
				log.Error("couldn't answer", "error", err)
			}
			p = problem.New(problem.Internal, "")
		}
		p.Write(w)
	}
}

// TryLater returns a problem that asks the client to retry after a random 2 to 8 seconds, so that clients refused
// together do not return together.
func TryLater(name problem.Name, detail string) *problem.Problem {
	return problem.New(name, "%s", detail).Retry(time.Second + rand.N(7*time.Second))
}

// NotFound is the [Handler] of unknown paths.
func NotFound(http.ResponseWriter, *http.Request) error { return problem.New(problem.NotFound, "") }

// AllowOrigins lets pages of any origin read the answer. It forbids caching, because a server could recognize a browser
// by which requests its cache saves. The header values are shared slices: callers must not append to them.
func AllowOrigins(w http.ResponseWriter) {
	header := w.Header()
	header["Access-Control-Allow-Origin"] = anyOrigin
	header["Cache-Control"] = noStore
}

var (
	anyOrigin = []string{"*"}
	noStore   = []string{"no-store"}
)

// CheckOrigin lets the page that sent a request read the answer if the task allows the page's origin. Otherwise it
// returns a problem. Browsers name a page's origin in every POST, and no page can omit or change it. A request without
// an origin does not come from a page.
func CheckOrigin(w http.ResponseWriter, req *http.Request, clients task.Clients) error {
	if len(clients.Origins) == 0 {
		AllowOrigins(w)
		return nil
	}
	w.Header().Set("Vary", "Origin")
	origins := req.Header["Origin"]
	if len(origins) == 0 {
		return nil
	}
	if len(origins) > 1 || !clients.Allows(origins[0]) {
		return problem.New(problem.ForeignOrigin, "")
	}
	w.Header().Set("Access-Control-Allow-Origin", origins[0])
	return nil
}

// AllowPost lets pages that may read an answer also post with the given headers. Browsers remember this for a day.
func AllowPost(w http.ResponseWriter, headers string) {
	header := w.Header()
	header.Set("Access-Control-Allow-Methods", "POST")
	header.Set("Access-Control-Allow-Headers", headers)
	header.Set("Access-Control-Max-Age", "86400")
	w.WriteHeader(http.StatusNoContent)
}

// PathTask returns the task whose ID, in lower-case hex, is in a request's path.
func PathTask[T any](req *http.Request, tasks map[task.ID]*T) (*T, error) {
	id, err := PathKey[task.ID](req, "task")
	if err != nil || tasks[id] == nil {
		return nil, problem.New(problem.UnknownTask, "")
	}
	return tasks[id], nil
}

// PathNumber reads a decimal number from a request's path. lo and hi must be the bounds of what the number counts, so
// that a number outside them causes no lookup or write.
func PathNumber(req *http.Request, name string, lo, hi uint64) (uint64, error) {
	v, err := decimal(req.PathValue(name))
	if err != nil || v < lo || v > hi {
		return 0, problem.New(problem.Malformed, "%s: want a decimal number from %d to %d", name, lo, hi)
	}
	return v, nil
}

func decimal(text string) (uint64, error) {
	v, err := strconv.ParseUint(text, 10, 64)
	if err == nil && strconv.FormatUint(v, 10) != text {
		err = strconv.ErrSyntax
	}
	return v, err
}

// PathEpoch reads an epoch's number from a request's path. An epoch that the task does not have is a problem.
func PathEpoch(req *http.Request, t *task.Task) (uint64, error) {
	epoch, err := decimal(req.PathValue("epoch"))
	switch {
	case err != nil:
		return 0, problem.New(problem.Malformed, "epoch: want a decimal number")
	case epoch >= t.Epochs.Count:
		return 0, problem.New(problem.EpochNotOpen, "the task has epochs 0 to %d", t.Epochs.Count-1)
	}
	return epoch, nil
}

// PathBatch reads a batch's number from a request's path. It also allows the number after the last batch that an epoch
// may have, because a party that has all batches asks for that number.
func PathBatch(req *http.Request, t *task.Task) (uint64, error) {
	return PathNumber(req, "seq", 0, t.MostBatches())
}

// PathKey reads 32 bytes in lower-case hex from a request's path.
func PathKey[T ~[32]byte](req *http.Request, name string) (out T, err error) {
	text := req.PathValue(name)
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(out) || strings.ToLower(text) != text {
		return out, problem.New(problem.Malformed, "%s: want 32 bytes in lower-case hexadecimal digits", name)
	}
	return T(raw), nil
}

// PathWord reads one of the given words from a request's path.
func PathWord[T ~string](req *http.Request, name string, words ...T) (T, error) {
	word := T(req.PathValue(name))
	if !slices.Contains(words, word) {
		return "", problem.New(problem.Malformed, "%s: want one of %v", name, words)
	}
	return word, nil
}

// Write answers with a body and its media type.
func Write(w http.ResponseWriter, mediaType string, body []byte) error {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body) // fails only if the peer closed the connection
	return nil
}

// WriteTime answers with the time of this party's clock, signed with the nonce in the request.
func WriteTime(w http.ResponseWriter, req *http.Request, key ed25519.PrivateKey, id task.ID, hop int,
	now time.Time) error {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(req.URL.Query().Get("nonce"))
	if err != nil || len(raw) != len(signing.Nonce{}) {
		return problem.New(problem.Malformed, "nonce: want 16 bytes as unpadded base64url")
	}
	body, err := signing.NewTime(key, id, hop, signing.Nonce(raw), uint64(max(now.Unix(), 0)))
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return Write(w, codec.MediaType, body)
}
