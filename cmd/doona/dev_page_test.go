package main

import (
	"net/http"
	"testing"

	"github.com/doona-dp/doona/internal/display"
	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestDevPagesHaveHeaders: the pages of 'doona dev' must forbid frames and guessed content types. Requests with other
// host names must be refused.
func TestDevPagesHaveHeaders(t *testing.T) {
	c := relaytest.NewMeanCascade(t)
	task := &quickstart.RunningTask{Open: c.Open, Verifier: relaytest.NewVerifier(t, c)}
	clitest.Pages(t, func(hosts *display.Hosts) http.Handler { return devHandler(hosts, task) },
		"/", "/index.html", "/none", "/api/report", "/api/report.csv", "/page.js", "/verifier/")
}
