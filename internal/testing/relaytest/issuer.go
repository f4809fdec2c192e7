package relaytest

import (
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/token"
)

// WithTokens changes a draft so that clients need tokens. New then reserves an address for the issuer, and
// [Cascade.StartIssuer] starts the issuer there.
func WithTokens(draft *task.Task) { draft.Clients = task.Clients{Kind: task.ClientToken, Quota: 1} }

// placeIssuer reserves the issuer's address and writes it into the draft. Until [Cascade.StartIssuer] nothing listens
// there. So a relay that asks the issuer for its time gets an error at once.
func (c *Cascade) placeIssuer(t testing.TB, draft *task.Task) {
	t.Helper()
	c.issuer = FreeAddress(t)
	draft.Clients.Issuer.URL = c.scheme() + c.issuer
}

// IssuerConfig returns a configuration of an issuer that limits tokens per network.
func (c *Cascade) IssuerConfig() issuer.Config {
	cfg := issuer.Config{Store: "sqlite:" + filepath.Join(c.Dir, "issuer", "issuer.db"), Clients: "address",
		TrustedProxies: []string{"127.0.0.0/8"}, Clock: c.Clock.Now}
	for i, open := range c.Bundles {
		t := issuer.TaskConfig{File: filepath.Join(c.Dir, taskName(i)+".bundle"), Owner: c.Owner,
			TokenKeys: filepath.Join(c.Dir, "issuer", taskName(i)+".keys")}
		if open.Stream != nil {
			t.Successors = filepath.Join(c.Dir, "issuer", taskName(i)+".next")
			cfg.FollowInterval = 20 * time.Millisecond
		}
		cfg.Tasks = append(cfg.Tasks, t)
	}
	return cfg
}

// StartIssuer runs the issuer at its address until stop is called or the test ends.
func (c *Cascade) StartIssuer(t testing.TB, cfg issuer.Config) (stop func()) {
	t.Helper()
	var err error
	cfg.Listener, err = net.Listen("tcp", c.issuer)
	require.NoError(t, err)
	if files := c.Config(t, 0).TLS; files != nil { // end TLS here, as a proxy in front of the issuer would
		cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		require.NoError(t, err)
		cfg.Listener = tls.NewListener(cfg.Listener, &tls.Config{Certificates: []tls.Certificate{cert}})
	}
	i, err := issuer.New(cfg)
	require.NoError(t, err)
	end := Run(t, i.Run)
	require.Eventually(t, func() bool { // until the issuer has asked the relays for their time
		resp, err := c.http.Get(c.Open.DirectoryURL(0))
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode != http.StatusServiceUnavailable
	}, Patience, 10*time.Millisecond)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return func() {
		http.DefaultClient.CloseIdleConnections()
		end()
	}
}

// Token makes a valid token of an epoch, with the issuer's private key.
func (c *Cascade) Token(t testing.TB, epoch uint64) []byte {
	t.Helper()
	return c.TokenFor(t, epoch, token.Challenge(c.Open.Task, c.Open.ID, epoch))
}

// TokenFor is Token for a challenge that the caller chooses.
func (c *Cascade) TokenFor(t testing.TB, epoch uint64, challenge []byte) []byte {
	t.Helper()
	keys, err := keyfile.LoadRSA(filepath.Join(c.Dir, "issuer", c.fileName()+".keys"))
	require.NoError(t, err)
	defer keys.Close()
	private, err := keys.Key(epoch)
	require.NoError(t, err)
	pending, err := token.Blind(private.Public(), challenge)
	require.NoError(t, err)
	reply, err := private.Sign(pending.Request)
	require.NoError(t, err)
	out, err := pending.Finalize(reply)
	require.NoError(t, err)
	return out
}
