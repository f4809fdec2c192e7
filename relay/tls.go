package relay

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/internal/service"
)

// tlsConfig returns the TLS configuration of the public address, or nil if a proxy in front of it provides TLS.
//
// TLS 1.3 is the minimum. Every browser that runs the WASM module or has X25519 in WebCrypto supports TLS 1.3. So do
// the other relays and the verifier, which run the same code. TLS 1.3 encrypts certificates, and an attacker cannot
// force an older version.
func (c *Config) tlsConfig(outgoing http.RoundTripper) (*tls.Config, error) {
	if c.TLS == nil && c.Autocert == nil {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}
	if c.Autocert != nil {
		out.GetCertificate = c.issued(c.Autocert.manager(outgoing))
		out.NextProtos = append(out.NextProtos, acme.ALPNProto)
		return out, nil
	}
	cert := &certificate{files: *c.TLS, log: c.Log}
	if err := cert.load(); err != nil {
		return nil, err
	}
	out.GetCertificate = cert.get
	return out, nil
}

// manager returns the client that gets certificates from the ACME authority.
func (c *AutocertConfig) manager(outgoing http.RoundTripper) *autocert.Manager {
	return &autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(c.Cache), HostPolicy: autocert.HostWhitelist(c.Hosts...),
		Email: c.Email,
		Client: &acme.Client{DirectoryURL: c.Directory,
			HTTPClient: &http.Client{Transport: outgoing, Timeout: time.Minute}},
	}
}

// issued returns a function that returns the manager's certificates. It logs why there is none, but only for this
// relay's host names: anyone may ask for other names.
func (c *Config) issued(manager *autocert.Manager) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, err := manager.GetCertificate(hello)
		if err != nil && slices.Contains(c.Autocert.Hosts, hello.ServerName) {
			c.Log.Error("couldn't get a certificate", "host", hello.ServerName, "error", err)
		}
		return cert, err
	}
}

func (c *Config) validateTLS() error {
	switch {
	case c.TLS != nil && c.Autocert != nil:
		return invalid.Field("autocert", "set", "either tls or autocert")
	case c.TLS != nil && (c.TLS.Cert == "" || c.TLS.Key == ""):
		return invalid.Field("tls", fmt.Sprintf("cert %q, key %q", c.TLS.Cert, c.TLS.Key), "both files")
	case c.Autocert == nil:
		return nil
	}
	a := c.Autocert
	service.Default(&a.Directory, acme.LetsEncryptURL)
	u, err := url.Parse(a.Directory)
	switch {
	case len(a.Hosts) == 0:
		return invalid.Field("autocert.hosts", "none", "the names in the URLs of this relay")
	case a.Cache == "":
		return invalid.Field("autocert.cache", `""`, "a folder for the keys and certificates")
	case err != nil || u.Scheme != "https" || u.Host == "":
		return invalid.Field("autocert.directory", fmt.Sprintf("%q", a.Directory), "an https URL")
	}
	return nil
}

// certificate is a TLS certificate and its key, loaded from files that the operator may replace.
type certificate struct {
	files TLSConfig
	log   *slog.Logger

	mu    sync.Mutex // guards the rest
	now   *tls.Certificate
	stamp [2]time.Time // modification times of the files at the last attempt to load them
}

// get returns the certificate in the files. While the files are invalid, for example in the middle of a replacement, it
// returns the previous certificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stamps() != c.stamp {
		if err := c.load(); err != nil {
			c.log.Error("couldn't load the new certificate; kept the old one", "error", err)
		}
	}
	return c.now, nil
}

func (c *certificate) stamps() (out [2]time.Time) {
	for i, file := range []string{c.files.Cert, c.files.Key} {
		if info, err := os.Stat(file); err == nil {
			out[i] = info.ModTime()
		}
	}
	return out
}

func (c *certificate) load() error {
	c.stamp = c.stamps()
	loaded, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
	if err != nil {
		return fmt.Errorf("couldn't load the TLS certificate: %w", err)
	}
	c.now = &loaded
	return nil
}
