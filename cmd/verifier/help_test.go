package main

import (
	"strings"
	"testing"

	"github.com/doona-dp/doona/internal/testing/clitest"
)

func TestHelp(t *testing.T) {
	const batches = "needs batches that came through relays"
	signed := "verifier task new --query histogram --range 0,2400 --bins 24 --batch 5000 --epsilon 1 --delta 1e-6 " +
		"--owner-key owner.key --relay https://r1.example,ed25519:KEY,r1.keys.pub " +
		"--relay https://r2.example,ed25519:KEY,r2.keys.pub --verifier ed25519:KEY,v.keys.pub " +
		"--epochs 30 --epoch-length 24h --out t.bundle"
	serve := "verifier serve --task t.bundle --keys verifier/t.keys --sign-key verifier/sign.key " +
		"--data data --listen 127.0.0.1:8090"
	clitest.Help(t, root(), map[string]string{
		signed: "needs the parties' keys, as TestScripts/parties makes them",
		strings.NewReplacer(",r1.keys.pub", "", ",r2.keys.pub", "").Replace(signed): "needs relays, as " +
			"TestNewTaskToEstimate has them",
		serve: "runs until it is stopped",
		"verifier keygen --kind hpke --sign-key verifier.sign --epochs 30 --out june.keys": "needs relays, as " +
			"TestRenew " +
			"has them",
		"verifier task renew may.bundle --owner-key owner.key --verifier-keys june.keys.pub --epochs 30 " +
			"--out june.bundle": "needs relays, as TestRenew has them",
		"verifier task state may.bundle --sign-key owner.key --to ed25519:… --out on.statement": "needs relays, as " +
			"TestState has them",
		"verifier task state may.bundle --sign-key recovery.key --recovery ed25519:… --to ed25519:… " +
			"--out back.statement": "needs relays, as TestState has them",
		"verifier task state may.bundle --sign-key owner.key --stop --out end.statement": "needs relays, as " +
			"TestState has them",
		"verifier task roll may.bundle --sign-key relay2.sign --to ed25519:… --out relay2.roll": "needs a stream, as " +
			"TestRoll has it",
		"verifier task renew may.bundle … --roll relay2.roll": "needs relays, as TestRoll has them",
		"verifier serve --config try/verifier/verifier.yaml":  "runs until it is stopped",
		"verifier health --admin http://127.0.0.1:9081":       "needs a running verifier",
		"verifier plan --query sum --total-epsilon 5 --total-delta 1e-5 --epochs 30 --users 100000": "takes half a " +
			"minute; TestScripts/total has a short one",
		"verifier plan --table --json": "takes a minute; " +
			"TestDocumentedTablesHaveEveryExample has it",
		"verifier plan --set site.json --out tasks":                                                     "needs a file, as TestScripts/set has it",
		"verifier simulate --table --repeat 5000":                                                       "takes minutes",
		"verifier analyze --task mean.bundle --keys verifier.keys batches/*.batch --json":               batches,
		"verifier verify --task mean.bundle batches/*.batch":                                            batches,
		"verifier merge --task mean.bundle --ledger data/ledger one.state two.state three.state --json": batches,
		"verifier ask --task links.bundle --keys verifier.keys paths.txt batches/*.batch":               batches,
	}, "relay")
}
