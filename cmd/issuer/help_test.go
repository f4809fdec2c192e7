package main

import (
	"testing"

	"github.com/doona-dp/doona/internal/testing/clitest"
)

func TestHelp(t *testing.T) {
	const config = "needs the keys of every party, as in TestScripts"
	clitest.Help(t, root(), map[string]string{
		"issuer health --admin http://127.0.0.1:9081":        "needs a running issuer",
		"issuer serve --config /etc/doona/issuer.yaml":       config,
		"issuer check-config --config issuer.yaml":           config,
		"issuer status --config issuer.yaml":                 config,
		"issuer end-epochs --config issuer.yaml":             config,
		"issuer trust-clock --config issuer.yaml":            config,
		"issuer end-epochs --config issuer.yaml --all":       config,
		"issuer status --admin http://127.0.0.1:9085 --json": "needs a running issuer",
	})
}
