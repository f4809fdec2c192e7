package relay_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
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
	file   string // its certificate
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

// issue writes a certificate for loopback, with the next serial number.
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

func writePEM(t *testing.T, path, kind string, raw []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600))
}

// TestTLS sends a batch through two relays that speak TLS under a private authority, replaces their
// certificate while they run, and tries what they must not accept.
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

	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	serial := func() int64 {
		conn, err := tls.Dial("tcp", c.Config(t, 0).Listen,
			&tls.Config{RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}})
		require.NoError(t, err)
		defer conn.Close()
		state := conn.ConnectionState()
		require.EqualValues(t, tls.VersionTLS13, state.Version)
		require.Equal(t, "http/1.1", state.NegotiatedProtocol)
		return state.PeerCertificates[0].SerialNumber.Int64()
	}
	require.EqualValues(t, 1, serial())
	cert, err := os.ReadFile(files.Cert)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(files.Cert, cert[:100], 0o600))
	require.EqualValues(t, 1, serial(), "the old one stays while the new one is being written")
	a.issue(t)
	require.EqualValues(t, 2, serial())

	_, err = tls.Dial("tcp", c.Config(t, 0).Listen, &tls.Config{RootCAs: roots, MaxVersion: tls.VersionTLS12})
	require.ErrorContains(t, err, "version")
	resp, err := http.Get("http://" + c.Config(t, 0).Listen + "/v1/keys")
	if err == nil {
		defer resp.Body.Close()
		require.NotEqual(t, http.StatusOK, resp.StatusCode, "not in clear")
	}
	sign, err := keyfile.LoadSign(c.VerifierSign())
	require.NoError(t, err)
	_, err = handover.NewClient(sign, nil).Pull(t.Context(), c.Open, 1, 0, 0)
	require.ErrorContains(t, err, "certificate", "who does not trust the authority does not ask")
}

// TestTLSIssuer: the relay fetches the issuer's keys under the authority of its configuration, too.
func TestTLSIssuer(t *testing.T) {
	a := newAuthority(t)
	files := a.issue(t)
	c := relaytest.New(t, relaytest.Options{Task: relaytest.WithTokens, CA: a.file,
		Config: func(_ int, cfg *relay.Config) { cfg.TLS, cfg.CA = files, a.file }})
	c.StartIssuer(t, c.IssuerConfig())
	c.Start(t, 0)
	waitForKey(t, c)
}

// TestBadTLS: what is wrong with TLS in a configuration is said by its name.
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

// The ACME test server of Let's Encrypt and its name server; of the first the last version that, like
// Let's Encrypt, names the order in its answer to a finalization: x/crypto/acme needs that
// (golang.org/issue/77704).
const (
	pebble     = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.8.0"
	nameServer = "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.0"
)

// TestAutocert has a relay come by a certificate from a real ACME authority, which connects to it to
// check its name (tls-alpn-01), and use it again after a restart without the authority. Only with
// DOONA_FULL: it downloads the authority.
func TestAutocert(t *testing.T) {
	if os.Getenv("DOONA_FULL") == "" {
		t.Skip("make test-full PART=tls")
	}
	dir := t.TempDir()
	for _, name := range []string{pebble, nameServer} {
		install := exec.Command("go", "install", name)
		install.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=-mod=mod")
		install.Dir = dir
		out, err := install.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	a := newAuthority(t)
	files := a.issue(t)
	cache := filepath.Join(dir, "cache")
	acme, management, dns := relaytest.FreeAddress(t), relaytest.FreeAddress(t), relaytest.FreeAddress(t)
	c := relaytest.New(t, relaytest.Options{Hops: 1, Config: func(_ int, cfg *relay.Config) {
		cfg.CA = a.file
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
		cfg.Autocert = &relay.AutocertConfig{Hosts: []string{"relay.test"}, Cache: cache,
			Directory: "https://" + acme + "/dir"}
	}})
	listen := c.Config(t, 0).Listen
	_, port, err := net.SplitHostPort(listen)
	require.NoError(t, err)
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": acme, "managementListenAddress": management, "certificate": files.Cert,
		"privateKey": files.Key,
		"httpPort":   1, "tlsPort": json.Number(port),
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pebble.json"), config, 0o600))
	background(t, filepath.Join(dir, "pebble-challtestsrv"), "-defaultIPv4", "127.0.0.1", "-defaultIPv6", "",
		"-dnsserver", dns,
		"-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-management", relaytest.FreeAddress(t))
	stopACME := background(t, filepath.Join(dir, "pebble"), "-strict", "-config", filepath.Join(dir, "pebble.json"),
		"-dnsserver", dns)
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	require.Eventually(t, func() bool {
		resp, err := client.Get("https://" + management + "/roots/0")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		pem, err := io.ReadAll(resp.Body)
		return err == nil && roots.AppendCertsFromPEM(pem)
	}, relaytest.Patience, 50*time.Millisecond)

	stop := c.Start(t, 0)
	serial := func() *big.Int {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", listen,
			&tls.Config{RootCAs: roots, ServerName: "relay.test"})
		require.NoError(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber
	}
	issued := serial()
	_, err = tls.Dial("tcp", listen, &tls.Config{RootCAs: roots, ServerName: "other.test"})
	require.Error(t, err, "no certificate for another name")
	info, err := os.Stat(cache)
	require.NoError(t, err)
	require.Zero(t, info.Mode().Perm()&0o077)
	stop()
	stopACME()
	c.Start(t, 0)
	require.Equal(t, issued, serial())
	t.Logf("certificate %x for relay.test by tls-alpn-01 from pebble, kept over a restart", issued)
}

// background runs a command until stop is called or the test ends.
func background(t *testing.T, name string, args ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command(name, args...)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s:\n%s", filepath.Base(name), text)
		}
	})
	return stop
}
