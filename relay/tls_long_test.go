//go:build long

package relay_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
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
)

// pebble is the ACME test server of Let's Encrypt, and nameServer the name server for it. v2.8.0 is the last version of
// pebble that, like Let's Encrypt, names the order when it answers a finalization. x/crypto/acme needs that
// (golang.org/issue/77704).
const (
	pebble     = "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.8.0"
	nameServer = "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.0"
)

// TestAutocert: a relay must get a certificate from a real ACME authority, which connects to the relay to check its
// name (tls-alpn-01). After a restart it must use the certificate again without the authority. The test downloads the
// authority.
func TestAutocert(t *testing.T) {
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
