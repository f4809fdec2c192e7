package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/issuer"
	realrelay "github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/task"
)

// apiKey is the API key with which the site's backend authenticates to the issuer.
const apiKey = "the API key of the test server's site"

// tokens is a task and a set that require tokens, with a real relay and a real issuer. The issuer gives each account of
// the site two tokens.
type tokens struct {
	offer               offer
	set                 setOffer
	issuerURL, relayURL string
	account             atomic.Value // string; the visitor's account at the site
}

// startTokens writes the deployment to dir and starts its relays and its issuer. The proxy wa records all requests to
// the issuer and to the first relay.
func startTokens(ctx context.Context, dir string, wa *watch) (*tokens, error) {
	relayAt, relayURL, err := listenBehind(wa)
	if err != nil {
		return nil, err
	}
	issuerAt, issuerURL, err := listenBehind(wa)
	if err != nil {
		return nil, err
	}
	secondAt, secondURL, err := listenBehind(&watch{})
	if err != nil {
		return nil, err
	}
	t := &tokens{issuerURL: issuerURL, relayURL: relayURL}
	t.account.Store("nobody")
	draft := fixture.Draft(task.Histogram, 4)
	draft.Epochs = hour(1)
	draft.Clients = task.Clients{Kind: task.ClientToken, Quota: 1, Issuer: task.Party{URL: t.issuerURL}}
	set := newSet("token set")
	set.Tables[0].Clients = draft.Clients
	d, err := quickstart.Write(dir, []quickstart.Relay{{URL: t.relayURL}, {URL: secondURL}},
		[]quickstart.Draft{{Name: "tokens", Task: draft}}, set)
	if err != nil {
		return nil, err
	}
	t.offer, t.set = offer{Task: d.TaskURL(0), Owner: d.Owner}, offerOf(d.Sets[0], "")
	// The issuer must start first: a relay that cannot fetch the issuer's key retries only after five seconds.
	if err := t.startIssuer(ctx, d, issuerAt); err != nil {
		return nil, err
	}
	return t, startRelays(ctx, d, relayAt, secondAt)
}

// listenBehind returns a listener for a server, and the URL of a proxy of wa that forwards to it.
func listenBehind(wa *watch) (server net.Listener, public string, err error) {
	if server, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, "", fmt.Errorf("couldn't listen: %w", err)
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("couldn't listen: %w", err)
	}
	proxy, err := wa.proxy("http://" + server.Addr().String())
	if err != nil {
		return nil, "", err
	}
	go http.Serve(at, proxy)
	return server, "http://" + at.Addr().String(), nil
}

// startRelays starts the relays of a deployment.
func startRelays(ctx context.Context, d *quickstart.Deployment, at ...net.Listener) error {
	for i, at := range at {
		cfg, err := realrelay.LoadConfig(d.RelayConfig(i + 1))
		if err != nil {
			return err
		}
		cfg.Listener, cfg.Listen, cfg.Admin = at, "", ""
		r, err := realrelay.New(cfg)
		if err != nil {
			return err
		}
		go r.Run(ctx)
	}
	return nil
}

func (t *tokens) startIssuer(ctx context.Context, d *quickstart.Deployment, at net.Listener) error {
	keys := filepath.Join(d.Dir, "api.keys")
	if err := os.WriteFile(keys, []byte(apiKey), 0o600); err != nil {
		return fmt.Errorf("couldn't write the API key: %w", err)
	}
	var tasks []issuer.TaskConfig
	for _, name := range []string{"tokens", "set-visitors"} {
		tasks = append(tasks, issuer.TaskConfig{File: filepath.Join(d.Dir, name+".bundle"), Owner: d.Owner,
			TokenKeys: filepath.Join(d.Dir, "issuer", name+".keys"), Quota: 2})
	}
	i, err := issuer.New(issuer.Config{Store: "sqlite:" + filepath.Join(d.Dir, "issuer", "issuer.db"),
		Clients: "account", APIKeys: keys, Listener: at, Tasks: tasks})
	if err == nil {
		go i.Run(ctx)
	}
	return err
}

// login sets the visitor's account to the request's body.
func (t *tokens) login(_ http.ResponseWriter, req *http.Request) {
	name := make([]byte, 64)
	n, _ := req.Body.Read(name)
	t.account.Store(strings.TrimSpace(string(name[:n])))
}

// token is the site's backend. It passes a token request on to the issuer, with its API key and a hash of the visitor's
// account. The page's parameter uri is the address, which must be the issuer's.
func (t *tokens) token(w http.ResponseWriter, req *http.Request) {
	uri := req.URL.Query().Get("uri")
	if !strings.HasPrefix(uri, t.issuerURL+strings.TrimSuffix(endpoint.TaskPath, "{task}")) {
		http.Error(w, "uri is not an address of the issuer", http.StatusBadRequest)
		return
	}
	out, err := http.NewRequestWithContext(req.Context(), http.MethodPost, uri, req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out.Header.Set("Content-Type", "application/private-token-request")
	out.Header.Set("Authorization", "Bearer "+apiKey)
	out.Header.Set(issuer.AccountHeader,
		fmt.Sprintf("%x", sha256.Sum256([]byte("secret of the site"+t.account.Load().(string)))))
	resp, err := http.DefaultClient.Do(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	io.Copy(w, resp.Body)
}
