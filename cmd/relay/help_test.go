package main

import (
	"testing"

	"github.com/doona-dp/doona/internal/testing/clitest"
)

func TestHelp(t *testing.T) {
	const running = "needs a running relay, as in TestCommandLoad of package relay"
	const invites = "needs keys and another operator, as in TestInvite of package deploy"
	clitest.Help(t, root(), map[string]string{
		"relay serve --config try/relay1/relay.yaml": "runs until it is stopped",
		"relay end-epochs --config relay.yaml --confirm": "needs a store that was rolled back, as in " +
			"TestStateRollbackCommand of package relay",
		"relay invite --site example.org --owner ed25519:OWNER --relay https://relay1.example,ed25519:KEY " +
			"--tasks 20 >invite.txt": invites,
		"relay join invite.txt --config relay.yaml --url https://relay2.example >answer.txt": invites,
		"relay check-answer invite.txt answer.txt":                                           invites,
		"doona task new --query count --batch 1000 --epsilon 1 --delta 1e-6 --owner-key owner.key " +
			"$(relay check-answer invite.txt answer.txt) --verifier ed25519:KEY,v.keys.pub --out t.bundle": invites,
		"relay status --admin http://127.0.0.1:9081 --json": running,
		"relay owners --admin http://127.0.0.1:9081 --json": running,
		"relay health --admin http://127.0.0.1:9081":        running,
	}, "doona")
}
