package relay_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
)

// authority is a private certificate authority in a folder.
type authority struct {
	dir    string
	file   string // path of its certificate
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	dir := t.TempDir()
	a := &authority{dir: dir, file: filepath.Join(dir, "ca.pem")}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(raw)
	require.NoError(t, err)
	writePEM(t, a.file, "CERTIFICATE", raw)
	return a
}

// issue writes a certificate for localhost and 127.0.0.1, with the next serial number.
func (a *authority) issue(t *testing.T) *relay.TLSConfig {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	a.serial++
	template := &x509.Certificate{SerialNumber: big.NewInt(a.serial), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	out := &relay.TLSConfig{Cert: filepath.Join(a.dir, "cert.pem"), Key: filepath.Join(a.dir, "key.pem")}
	writePEM(t, out.Cert, "CERTIFICATE", raw)
	writePEM(t, out.Key, "PRIVATE KEY", private)
	return out
}

func (a *authority) roots() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return roots
}

// serialOf returns the serial number of the certificate that a relay presents.
func serialOf(t *testing.T, c *relaytest.Cascade, a *authority) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", c.Config(t, 0).Listen,
		&tls.Config{RootCAs: a.roots(), NextProtos: []string{"h2", "http/1.1"}})
	require.NoError(t, err)
	defer conn.Close()
	state := conn.ConnectionState()
	require.EqualValues(t, tls.VersionTLS13, state.Version)
	require.Equal(t, "http/1.1", state.NegotiatedProtocol)
	return state.PeerCertificates[0].SerialNumber.Int64()
}

func writePEM(t *testing.T, path, kind string, raw []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600))
}

// TestTLS sends a batch through two relays with TLS under a private authority. It replaces their certificates while
// they run, and tries connections that they must refuse.
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	files := a.issue(t)
	c := relaytest.New(t, relaytest.Options{CA: a.file,
		Config: func(_ int, cfg *relay.Config) { cfg.TLS, cfg.CA = files, a.file }})
	c.StartAll(t)
	for i := range 10 {
		require.NoError(t, c.Post(t.Context(), 0, c.Seal(t, 0, uint64(i)), relaytest.Network(i)))
	}
	batch, _ := c.Pull(t, 0, 0)
	require.ElementsMatch(t, span(0, 10), c.Values(t, 0, batch)[0])

	require.EqualValues(t, 1, serialOf(t, c, a))
	cert, err := os.ReadFile(files.Cert)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(files.Cert, cert[:100], 0o600))
	require.EqualValues(t, 1, serialOf(t, c, a), "the relay must keep the old certificate until the new one is complete")
	a.issue(t)
	require.EqualValues(t, 2, serialOf(t, c, a))

	_, err = tls.Dial("tcp", c.Config(t, 0).Listen, &tls.Config{RootCAs: a.roots(), MaxVersion: tls.VersionTLS12})
	require.ErrorContains(t, err, "version")
	resp, err := http.Get("http://" + c.Config(t, 0).Listen + "/v1/keys")
	if err == nil {
		defer resp.Body.Close()
		require.NotEqual(t, http.StatusOK, resp.StatusCode, "the relay must not answer without TLS")
	}
	sign, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	_, err = handover.NewRequester(sign, nil).Pull(t.Context(), c.Open, 1, 0, 0)
	require.ErrorContains(t, err, "certificate", "a client must refuse an unknown authority")
}

// TestTLSByLinks: Kubernetes replaces the files of a volume at once, by renaming a link to their folder. The relay must
// then load the new certificate.
func TestTLSByLinks(t *testing.T) {
	a := newAuthority(t)
	volume := t.TempDir()
	mount := func(version string) {
		a.dir = filepath.Join(volume, version)
		require.NoError(t, os.Mkdir(a.dir, 0o700))
		a.issue(t)
		link := filepath.Join(volume, "..data_tmp")
		require.NoError(t, os.Symlink(version, link))
		require.NoError(t, os.Rename(link, filepath.Join(volume, "..data")))
	}
	mount("..1")
	for _, name := range []string{"cert.pem", "key.pem"} {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(volume, name)))
	}
	files := &relay.TLSConfig{Cert: filepath.Join(volume, "cert.pem"), Key: filepath.Join(volume, "key.pem")}
	c := relaytest.New(t, relaytest.Options{Hops: 1, CA: a.file,
		Config: func(_ int, cfg *relay.Config) { cfg.TLS, cfg.CA = files, a.file }})
	c.Start(t, 0)
	require.EqualValues(t, 1, serialOf(t, c, a))
	mount("..2")
	require.EqualValues(t, 2, serialOf(t, c, a))
}

// TestTLSIssuer: the relay must trust the configured authority when it fetches the issuer's keys.
func TestTLSIssuer(t *testing.T) {
	a := newAuthority(t)
	files := a.issue(t)
	c := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens, CA: a.file,
		Config: func(_ int, cfg *relay.Config) { cfg.TLS, cfg.CA = files, a.file }})
	c.StartIssuer(t, c.IssuerConfig())
	c.Start(t, 0)
	waitForKey(t, c)
}

// TestBadTLS: the error for a bad TLS configuration must name the bad field.
func TestBadTLS(t *testing.T) {
	a := newAuthority(t)
	files := a.issue(t)
	c := relaytest.New(t, relaytest.Options{})
	auto := func(change func(*relay.AutocertConfig)) func(*relay.Config) {
		return func(cfg *relay.Config) {
			cfg.Autocert = &relay.AutocertConfig{Hosts: []string{"a.example"}, Cache: a.dir}
			change(cfg.Autocert)
		}
	}
	for want, change := range map[string]func(*relay.Config){
		"invalid autocert set: want either tls or autocert": func(cfg *relay.Config) {
			auto(func(*relay.AutocertConfig) {})(cfg)
			cfg.TLS = files
		},
		"invalid tls cert":            func(cfg *relay.Config) { cfg.TLS = &relay.TLSConfig{Cert: files.Cert} },
		"invalid autocert.hosts none": auto(func(a *relay.AutocertConfig) { a.Hosts = nil }),
		"invalid autocert.cache":      auto(func(a *relay.AutocertConfig) { a.Cache = "" }),
		"invalid autocert.directory":  auto(func(a *relay.AutocertConfig) { a.Directory = "http://acme.example" }),
		"no such file": func(cfg *relay.Config) {
			cfg.TLS = &relay.TLSConfig{Cert: files.Cert,
				Key: files.Key + "x"}
		},
		"private key does not match": func(cfg *relay.Config) {
			cfg.TLS = &relay.TLSConfig{Cert: a.file,
				Key: files.Key}
		},
		"has no PEM certificate": func(cfg *relay.Config) { cfg.CA = files.Key },
	} {
		t.Run(want, func(t *testing.T) {
			cfg := c.Config(t, 0)
			change(&cfg)
			_, err := relay.New(cfg)
			require.ErrorContains(t, err, want)
		})
	}
}
