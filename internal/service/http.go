package service

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// Handler is an HTTP handler that may fail.
type Handler func(http.ResponseWriter, *http.Request) error

// Answer turns a handler's error into a problem; errors that are none are the program's own, are
// logged, and tell the client nothing.
func Answer(log *slog.Logger, handle Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		err := handle(w, req)
		if err == nil {
			return
		}
		var p *problem.Problem
		if !errors.As(err, &p) {
			if req.Context().Err() == nil { // else the client has left
				log.Error("couldn't answer", "error", err)
			}
			p = problem.New(problem.Internal, "")
		}
		p.Write(w)
	}
}

// TryLater returns a problem that asks to wait 2 to 8 seconds, at random: so those who were turned away
// together do not return together.
func TryLater(name problem.Name, detail string) *problem.Problem {
	return problem.New(name, "%s", detail).Retry(time.Second + rand.N(7*time.Second))
}

// NotFound is the [Handler] of what there is not.
func NotFound(http.ResponseWriter, *http.Request) error { return problem.New(problem.NotFound, "") }

// AllowOrigins lets pages of any origin read an answer, which no cache is to keep: a browser's would tell by what it
// asks that it comes back. The values are shared, and nobody adds to them.
func AllowOrigins(w http.ResponseWriter) {
	header := w.Header()
	header["Access-Control-Allow-Origin"] = anyOrigin
	header["Cache-Control"] = noStore
}

var (
	anyOrigin = []string{"*"}
	noStore   = []string{"no-store"}
)

// Preflight lets pages of any origin post with some headers, and browsers remember so for a day.
func Preflight(headers string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		header := w.Header()
		header.Set("Access-Control-Allow-Origin", "*")
		header.Set("Access-Control-Allow-Methods", "POST")
		header.Set("Access-Control-Allow-Headers", headers)
		header.Set("Access-Control-Max-Age", "86400")
		w.WriteHeader(http.StatusNoContent)
	}
}

// PathTask returns which of some tasks a request's path names, in lower-case hex.
func PathTask[T any](req *http.Request, tasks map[task.ID]*T) (*T, error) {
	text := req.PathValue("task")
	var id task.ID
	if len(text) == hex.EncodedLen(len(id)) && strings.ToLower(text) == text {
		if _, err := hex.Decode(id[:], []byte(text)); err == nil && tasks[id] != nil {
			return tasks[id], nil
		}
	}
	return nil, problem.New(problem.UnknownTask, "")
}

// PathNumber reads a decimal number from a request's path.
func PathNumber(req *http.Request, name string) (uint64, error) {
	text := req.PathValue(name)
	v, err := strconv.ParseUint(text, 10, 63)
	if err != nil || strconv.FormatUint(v, 10) != text {
		return 0, problem.New(problem.Malformed, "%s: want a decimal number", name)
	}
	return v, nil
}

// Write answers with a body of a media type.
func Write(w http.ResponseWriter, mediaType string, body []byte) error {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body) // an error is the peer's leaving
	return nil
}

// WriteTime answers with what a party's clock says, signed for the nonce that the request brings.
func WriteTime(w http.ResponseWriter, req *http.Request, key ed25519.PrivateKey, id task.ID, hop int,
	now time.Time) error {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(req.URL.Query().Get("nonce"))
	if err != nil || len(raw) != len(onion.Nonce{}) {
		return problem.New(problem.Malformed, "nonce: want 16 bytes as unpadded base64url")
	}
	body, err := onion.NewTime(key, id, hop, onion.Nonce(raw), uint64(max(now.Unix(), 0)))
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return Write(w, "application/msgpack", body)
}
