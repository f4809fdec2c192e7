package handover

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"
)

// MaxConnections is how many connections to one party are kept open: who serves many tasks asks it so many things at once.
const MaxConnections = 16

// LoadTransport returns a transport with bounded waits for connection and answer, which speaks
// TLS 1.3 and trusts the system's authorities and those in a PEM file, if one is named.
func LoadTransport(ca string) (http.RoundTripper, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = time.Minute
	t.MaxIdleConnsPerHost = MaxConnections
	t.DisableCompression = true // ciphertexts do not compress, and bombs do
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS13}
	if ca == "" {
		return t, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the certificate authorities: %w", err)
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
