package main

import (
	"testing"

	"github.com/doona-dp/doona/internal/testing/clitest"
)

func TestHelp(t *testing.T) {
	const running = "needs a running relay, as in TestCommandLoad of package relay"
	clitest.Help(t, root(), map[string]string{
		"relay serve --config try/relay1/relay.yaml": "runs until it is stopped",
		"relay end-epochs --config relay.yaml --confirm": "needs a store that was rolled back, as in " +
			"TestStateRollbackCommand of package relay",
		"relay status --admin http://127.0.0.1:9081 --json": running,
		"relay owners --admin http://127.0.0.1:9081 --json": running,
		"relay health --admin http://127.0.0.1:9081":        running,
	}, "doona")
}
