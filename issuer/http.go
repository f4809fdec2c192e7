package issuer

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/clientaddr"
	"github.com/doona-dp/doona/keyfile"
	"github.com/doona-dp/doona/relay/problem"
	"github.com/doona-dp/doona/token"
)

// AccountHeader is where a backend names the account a request is for: an opaque word of 1 to 256
// printable ASCII characters, the same for a person as long as an epoch lasts.
const AccountHeader = "Doona-Account"

// Handler returns the public HTTP interface.
func (i *Issuer) Handler() http.Handler {
	mux := http.NewServeMux()
	const epoch = "/v1/tasks/{task}/epochs/{epoch}"
	mux.HandleFunc("GET "+epoch+"/issuer-directory", i.answer(i.handleDirectory))
	mux.HandleFunc("POST "+epoch+"/token-request", i.answer(i.handleRequest))
	if i.cfg.Clients == clientsAddress {
		mux.HandleFunc("OPTIONS "+epoch+"/token-request", preflight)
	}
	mux.HandleFunc("/", i.answer(func(http.ResponseWriter, *http.Request) error { return problem.New(problem.NotFound, "") }))
	return mux
}

// answer turns a handler's error into a problem; errors that are none are the issuer's own, are
// logged, and tell the client nothing. Pages of any origin may read directories; and, where
// networks are clients, get tokens: with accounts, a page must go through its site's backend.
func (i *Issuer) answer(handle func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if i.cfg.Clients == clientsAddress || req.Method == http.MethodGet {
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header().Set("Access-Control-Expose-Headers", "Retry-After")
		}
		err := handle(w, req)
		if err == nil {
			return
		}
		var p *problem.Problem
		if !errors.As(err, &p) {
			i.cfg.Log.Error("couldn't answer", "error", err)
			p = problem.New(problem.Internal, "")
		}
		p.Write(w)
	}
}

// preflight lets pages of any origin ask for tokens, and browsers remember so for a day.
func preflight(w http.ResponseWriter, _ *http.Request) {
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", "*")
	header.Set("Access-Control-Allow-Methods", "POST")
	header.Set("Access-Control-Allow-Headers", "Content-Type")
	header.Set("Access-Control-Max-Age", "86400")
	w.WriteHeader(http.StatusNoContent)
}

// epochOf returns the task, the epoch and its key that a request's path names, if tokens of it are
// issued now.
func (i *Issuer) epochOf(req *http.Request) (*served, uint64, *epochKey, error) {
	text := req.PathValue("task")
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != 32 || hex.EncodeToString(raw) != text || i.tasks[[32]byte(raw)] == nil {
		return nil, 0, nil, problem.New(problem.UnknownTask, "")
	}
	s := i.tasks[[32]byte(raw)]
	text = req.PathValue("epoch")
	epoch, err := strconv.ParseUint(text, 10, 63)
	if err != nil || strconv.FormatUint(epoch, 10) != text {
		return nil, 0, nil, problem.New(problem.Malformed, "epoch: want a decimal number")
	}
	if epoch >= s.Epochs.Count {
		return nil, 0, nil, problem.New(problem.EpochNotOpen, "the task has epochs 0 to %d", s.Epochs.Count-1)
	}
	start, end := i.window(s, epoch)
	now := i.cfg.Clock()
	if now.Before(start) {
		return nil, 0, nil, problem.New(problem.EpochNotOpen, "").Retry(start.Sub(now))
	}
	key, err := s.epochKey(epoch)
	if !now.Before(end) || errors.Is(err, keyfile.ErrErased) {
		return nil, 0, nil, problem.New(problem.EpochClosed, "")
	}
	return s, epoch, key, err
}

func (i *Issuer) handleDirectory(w http.ResponseWriter, req *http.Request) error {
	s, epoch, key, err := i.epochOf(req)
	if err != nil {
		return err
	}
	body, err := token.Directory("token-request", key.public)
	if err != nil {
		return err
	}
	_, end := i.window(s, epoch)
	w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", max(0, min(3600, int(end.Sub(i.cfg.Clock())/time.Second)))))
	return write(w, token.DirectoryType, body)
}

func (i *Issuer) handleRequest(w http.ResponseWriter, req *http.Request) error {
	select {
	case i.busy <- struct{}{}:
		defer func() { <-i.busy }()
	default:
		return problem.New(problem.Overloaded, "").Retry(time.Second)
	}
	account, err := i.account(req)
	if err != nil {
		return err
	}
	s, epoch, key, err := i.epochOf(req)
	if err != nil {
		return err
	}
	request, err := readRequest(w, req)
	if err != nil {
		return err
	}
	blinded, err := token.BlindedMessage(key.public, request)
	if err != nil {
		return problem.New(problem.Malformed, "%v", err)
	}
	if b := new(big.Int).SetBytes(blinded); b.Sign() == 0 || b.Cmp(key.private.N) >= 0 {
		return problem.New(problem.Malformed, "invalid blinded message: want a number from 1 to below the modulus")
	}
	// Counted before it is signed: what is sent has been counted, whatever happens in between.
	within, err := i.store.count(req.Context(), s.ID, epoch, key.name("account", account), key.name("request", blinded), s.quota)
	if err != nil {
		return err
	}
	if !within {
		return problem.New(problem.Limit, "at most %d tokens", s.quota)
	}
	reply, err := token.Sign(key.private, key.public, request)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return write(w, token.ReplyType, reply)
}

// account returns who asks: the account that a backend with an API key names, or the network.
func (i *Issuer) account(req *http.Request) ([]byte, error) {
	if i.cfg.Clients == clientsAddress {
		return []byte(clientaddr.Network(i.proxies.Client(req)).String()), nil
	}
	key, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	given, known := sha256.Sum256([]byte(key)), 0
	for _, k := range i.apiKeys {
		known |= subtle.ConstantTimeCompare(k[:], given[:])
	}
	if !ok || known != 1 {
		return nil, problem.New(problem.Unauthorized, "want Authorization: Bearer and an API key")
	}
	account := req.Header.Get(AccountHeader)
	if len(account) < 1 || len(account) > 256 || strings.ContainsFunc(account, func(c rune) bool { return c < 0x20 || c > 0x7e }) {
		return nil, problem.New(problem.Malformed, "%s: want 1 to 256 printable ASCII characters", AccountHeader)
	}
	return []byte(account), nil
}

// readRequest reads a TokenRequest.
func readRequest(w http.ResponseWriter, req *http.Request) ([]byte, error) {
	if kind, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || kind != token.RequestType {
		return nil, problem.New(problem.MediaType, "want %s", token.RequestType)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, token.RequestSize))
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, problem.New(problem.TooLarge, "at most %d bytes", token.RequestSize)
	}
	if err != nil {
		return nil, problem.New(problem.Malformed, "the body ends early")
	}
	return body, nil
}

func write(w http.ResponseWriter, kind string, body []byte) error {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = io.Copy(w, bytes.NewReader(body)) // an error is the peer's leaving
	return nil
}

// AdminHandler returns the private HTTP interface.
func (i *Issuer) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !i.ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /status", i.answer(func(w http.ResponseWriter, req *http.Request) error {
		status, err := i.Status(req.Context())
		if err != nil {
			return err
		}
		out, err := json.Marshal(status)
		if err != nil {
			return fmt.Errorf("couldn't encode the status: %w", err)
		}
		return write(w, "application/json", out)
	}))
	return mux
}
