//go:build !js

package shufflerclient

import (
	"net/http"
	"time"
)

func defaultHTTP() HTTP {
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Timeout: 30 * time.Second, CheckRedirect: refuse}
}
