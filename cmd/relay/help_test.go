package main

import (
	"testing"

	"github.com/doona-dp/doona/internal/testing/clitest"
)

func TestHelp(t *testing.T) {
	const (
		running = "needs a running relay, as TestCommandLoad of package relay has it"
		load    = "relay load --task http://127.0.0.1:8081/v1/tasks/ID --owner ed25519:… "
		admin   = "--admin http://127.0.0.1:9081 --json"
	)
	clitest.Help(t, root(), map[string]string{
		"relay serve --config try/relay1/relay.yaml": "runs until it is stopped",
		"relay end-epochs --config relay.yaml --confirm": "needs a store that was set back, as TestSetBackCommand of " +
			"package relay has it",
		"relay status " + admin:                          running,
		"relay health --admin http://127.0.0.1:9081":     running,
		load + "--rate 0 --clients 20000 --duration 10s": running,
		load + "--rate 0 --clients 10000 --values zipf --report http://127.0.0.1:8090/tasks/ID": "needs a running " +
			"relay and verifier, as TestLoadCompares of package relay has them",
		load + "--rate 8000 --clients 50000 --duration 1m " + admin: running,
	}, "verifier")
}
