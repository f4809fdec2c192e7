package handover

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/doona-dp/doona/wire/codec"
)

// MaxConnections is how many idle connections to one party stay open for reuse. A verifier of many tasks sends many
// requests at once.
const MaxConnections = 16

// LoadTransport returns an HTTP transport that waits at most a minute for an answer. It speaks TLS 1.3, and trusts the
// system's certificate authorities and, unless ca is empty, those in the PEM file ca.
func LoadTransport(ca string) (http.RoundTripper, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = time.Minute
	t.MaxIdleConnsPerHost = MaxConnections
	t.DisableCompression = true // ciphertexts do not compress, and a small compressed body could expand without bound
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13}
	if ca == "" {
		return t, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the certificate authorities: %w", err)
	}
	if pem, err = codec.Document(pem); err != nil {
		return nil, fmt.Errorf("couldn't read the certificate authorities %s: %w", ca, err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("couldn't read the certificate authorities: %s has no PEM certificate", ca)
	}
	t.TLSClientConfig.RootCAs = roots
	return t, nil
}
