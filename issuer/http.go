package issuer

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"math/big"
	"mime"
	"net/http"
	"strings"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/token"
)

// AccountHeader is the header in which a backend names the account that requests a token: 1 to 256 printable ASCII
// characters, opaque to the issuer. A person must keep the same name for a whole epoch.
const AccountHeader = "Doona-Account"

// Handler returns the public HTTP interface.
func (i *Issuer) Handler() http.Handler { return display.ProtectPublic(i.mux()) }

func (i *Issuer) mux() *service.Mux {
	mux := &service.Mux{}
	mux.HandleFunc("GET "+endpoint.DirectoryPath, i.answer(i.handleDirectory))
	mux.HandleFunc("POST "+endpoint.TokenRequestPath, service.Answer(i.cfg.Log, i.handleRequest))
	if i.signers != nil {
		mux.HandleFunc("GET "+endpoint.TimePath, i.answer(i.handleTime))
	}
	if i.cfg.Clients == clientsAddress {
		mux.HandleFunc("OPTIONS "+endpoint.TokenRequestPath, service.Answer(i.cfg.Log, i.handlePreflight))
	}
	mux.HandleHealth(func(context.Context) error { return i.isReady() })
	mux.HandleFunc("/", i.answer(service.NotFound))
	return mux
}

// answer is [service.Answer] for responses that a page of any origin may read: all GET responses, and all others if
// networks are clients.
func (i *Issuer) answer(handle service.Handler) http.HandlerFunc {
	return service.Answer(i.cfg.Log, func(w http.ResponseWriter, req *http.Request) error {
		if i.cfg.Clients == clientsAddress || req.Method == http.MethodGet {
			service.AllowOrigins(w)
		}
		return handle(w, req)
	})
}

// epochOf returns the task and the epoch in a request's path, and the epoch's key. It returns an error if the issuer
// does not issue tokens for this epoch now.
func (i *Issuer) epochOf(req *http.Request) (*hostedTask, uint64, *epochKey, error) {
	s, err := service.PathTask(req, i.hosted().tasks)
	if err != nil {
		return nil, 0, nil, err
	}
	epoch, err := service.PathEpoch(req, s.Task)
	if err != nil {
		return nil, 0, nil, err
	}
	start, end := i.window(s, epoch)
	read := i.clock.Read()
	now := read.Now
	if read.Doubt != "" {
		return nil, 0, nil, service.TryLater(problem.ClockInDoubt, "")
	}
	if now.Before(start) {
		return nil, 0, nil, problem.New(problem.EpochNotOpen, "").Retry(start.Sub(now)).At(now)
	}
	key, err := s.epochKey(epoch)
	if !now.Before(end) || errors.Is(err, keyfile.ErrErased) {
		return nil, 0, nil, problem.New(problem.EpochClosed, "").At(now)
	}
	return s, epoch, key, err
}

func (i *Issuer) handleDirectory(w http.ResponseWriter, req *http.Request) error {
	_, _, key, err := i.epochOf(req)
	if err != nil {
		return err
	}
	body, err := token.Directory(endpoint.TokenRequest, key.Public())
	if err != nil {
		return err
	}
	return service.Write(w, token.DirectoryType, body)
}

// checkOrigin refuses a request from a page that may not ask for tokens. It runs before every check that depends on the
// issuer's state. If networks are clients, only pages of the task's origins may ask. If accounts are clients,
// checkOrigin allows all: a page must ask through its site's backend.
func (i *Issuer) checkOrigin(w http.ResponseWriter, req *http.Request) error {
	if i.cfg.Clients != clientsAddress {
		return nil
	}
	s, err := service.PathTask(req, i.hosted().tasks)
	if err != nil {
		service.AllowOrigins(w)
		return err
	}
	return service.CheckOrigin(w, req, s.Clients)
}

// handlePreflight answers a browser's CORS preflight: whether a page may post a token request.
func (i *Issuer) handlePreflight(w http.ResponseWriter, req *http.Request) error {
	if err := i.checkOrigin(w, req); errors.Is(err, problem.New(problem.ForeignOrigin, "")) {
		return err
	} // an unknown task passes: then the page may post, and can read the error
	service.AllowPost(w, "Content-Type")
	return nil
}

func (i *Issuer) handleRequest(w http.ResponseWriter, req *http.Request) error {
	if err := i.checkOrigin(w, req); err != nil {
		return err
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
	blinded, err := token.BlindedMessage(key.Public(), request)
	if err != nil {
		return problem.New(problem.Malformed, "%v", err)
	}
	if b := new(big.Int).SetBytes(blinded); b.Sign() == 0 || b.Cmp(key.Modulus()) >= 0 {
		return problem.New(problem.Malformed, "invalid blinded message: want a number from 1 to below the modulus")
	}
	client := string(account)
	if name := i.requestLimit.take(s, client); name != "" { // after the body, which a client may send slowly
		i.metrics.Add(metricOverloaded, 1, string(name))
		return service.TryLater(name, "too many requests at a time")
	}
	defer i.requestLimit.release(s, client)
	// Count before signing: if a step fails, the issuer may have counted a token that it never sends, but never sends
	// one uncounted.
	withinQuota, err := i.count(s, epoch, key, account, blinded)
	if errors.Is(err, keyfile.ErrErased) {
		return problem.New(problem.EpochClosed, "")
	}
	if err != nil {
		i.recordFailure("couldn't count a request", err)
		return service.TryLater(problem.Overloaded, "not counted; send the same bytes again")
	}
	if !withinQuota {
		return problem.New(problem.Limit, "") // no detail: like a relay, the issuer does not reveal the quota
	}
	reply, err := key.Sign(request)
	if errors.Is(err, keyfile.ErrErased) {
		return problem.New(problem.EpochClosed, "")
	}
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return service.Write(w, token.ReplyType, reply)
}

func (i *Issuer) count(s *hostedTask, epoch uint64, key *epochKey, account, blinded []byte) (withinQuota bool,
	err error) {
	if err := i.reserve.Short(); err != nil {
		return false, err
	}
	name, err := key.name("account", account)
	if err != nil {
		return false, err
	}
	request, err := key.name("request", blinded)
	if err != nil {
		return false, err
	}
	quota, err := i.quota(key, account, s.quota)
	if err != nil {
		return false, err
	}
	return i.store.count(s.ID, epoch, name, request, quota)
}

// keyHash is the SHA-256 of an API key. API keys are random, so the hash reveals nothing about them.
type keyHash [sha256.Size]byte

func hashKey(key string) keyHash { return sha256.Sum256([]byte(key)) }

// account returns the client that asks: the account that a backend names, after a check of the backend's API key, or
// the network of the request's address.
func (i *Issuer) account(req *http.Request) ([]byte, error) {
	if i.cfg.Clients == clientsAddress {
		return []byte(service.Network(i.proxies.Client(req)).String()), nil
	}
	key, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	given, known := hashKey(key), 0
	for _, k := range i.apiKeys {
		known |= subtle.ConstantTimeCompare(k[:], given[:])
	}
	if !ok || known != 1 {
		return nil, problem.New(problem.Unauthorized, "want Authorization: Bearer and an API key")
	}
	account := req.Header.Get(AccountHeader)
	if len(account) < 1 || len(account) > 256 || strings.ContainsFunc(account,
		func(c rune) bool { return c < 0x20 || c > 0x7e }) {
		return nil, problem.New(problem.Malformed, "%s: want 1 to 256 printable ASCII characters", AccountHeader)
	}
	return []byte(account), nil
}

// readRequest reads a TokenRequest from a request's body, and refuses other media types and sizes.
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

// AdminHandler returns the operator's HTTP interface: /healthz, /readyz, /metrics and /status. It must not be public.
func (i *Issuer) AdminHandler() http.Handler {
	admin := service.Admin{
		Ready:        func(context.Context) error { return i.isReady() },
		Status:       func(ctx context.Context) (any, error) { return i.Status(ctx) },
		UpdateGauges: i.setGauges,
		Metrics:      i.metrics,
		Address:      i.cfg.Admin,
		Hosts:        i.cfg.AdminHosts,
	}
	return admin.Handler(i.cfg.Log)
}
