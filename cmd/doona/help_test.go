package main

import (
	"strings"
	"testing"

	"github.com/doona-dp/doona/internal/testing/clitest"
)

func TestHelp(t *testing.T) {
	const (
		sets    = "needs the parties' keys, as TestScripts/sets makes them"
		serves  = "runs until it is stopped"
		renew   = "needs relays, as TestRenew has them"
		state   = "needs relays, as TestStatementCommands has them"
		running = "needs a running relay, as TestCommandLoad of package relay has it"
		load    = "doona load --task http://127.0.0.1:8081/v1/tasks/ID --owner ed25519:… "
	)
	signed := "doona task new --query histogram --range 0,2400 --bins 24 --batch 5000 --epsilon 1 --delta 1e-6 " +
		"--owner-key owner.key --relay https://r1.example,ed25519:KEY,r1.keys.pub " +
		"--relay https://r2.example,ed25519:KEY,r2.keys.pub --verifier ed25519:KEY,v.keys.pub " +
		"--epochs 30 --epoch-length 24h --out t.bundle"
	clitest.Help(t, root(), map[string]string{
		"npx doona copy public/doona": "needs the npm package, as www/test/package.test.mjs has it",
		signed:                        "needs the parties' keys, as TestScripts/parties makes them",
		strings.NewReplacer(",r1.keys.pub", "", ",r2.keys.pub", "").Replace(signed): "needs relays, as " +
			"TestNewTaskToEstimate has them",
		"verifier keygen --kind hpke --sign-key verifier.sign --epochs 30 --out june.keys": renew,
		"doona task renew may.bundle --owner-key owner.key --verifier-keys june.keys.pub --epochs 30 " +
			"--out june.bundle": renew,
		"doona task transfer may.bundle --sign-key owner.key --to ed25519:… --out on.statement":        state,
		"doona task recover may.bundle --sign-key recovery.key --to ed25519:… --out back.statement":    state,
		"doona task stop may.bundle --sign-key owner.key --out end.statement":                          state,
		"doona task withdraw june.bundle --sign-key owner.key":                                         "needs relays, as TestWithdrawATask has them",
		"doona task rotate-key may.bundle --sign-key relay2.sign --to ed25519:… --out relay2.rotation": "needs a stream, as TestRotateKey has it",
		"doona task renew may.bundle … --rotation relay2.rotation":                                     "needs relays, as TestRotateKey has them",
		"doona plan --query sum --total-epsilon 5 --total-delta 1e-5 --epochs 30 --users 100000": "takes half a " +
			"minute; TestScripts/total has a short one",
		"doona plan --query mean --range 0,180 --users 1000000 --epsilon 1 --delta 1e-8": "takes 8 s; TestScripts/plan " +
			"has plans of few users",
		"doona plan --table --json":                              "takes a minute; TestDocumentedTablesHaveEveryExample has it",
		"doona plan --set site.json --out tasks":                 "needs a file, as TestScripts/set has it",
		"doona plan --set site.json --explain --plot shares.svg": "needs a file, as TestScripts/set has it",
		"doona set new site.yaml --owner-key owner.key --relay https://r1.example,ed25519:KEY " +
			"--relay https://r2.example,ed25519:KEY --verifier ed25519:KEY,day.pub,week.pub --out site": sets,
		"doona set new site.yaml --name example.org --owner-key owner.key --origin https://example.org " +
			"--relay https://r1.example,ed25519:KEY --relay https://r2.example,ed25519:KEY " +
			"--verifier ed25519:KEY,days.keys.pub,months.keys.pub --quota 500 --out site": sets,
		"doona set check site": sets,
		"doona renew tasks --owner-key owner.key --verifier-keys data/successors --verifier-sign-key verifier.sign": "needs " +
			"relays, as TestRenewAll has them",
		"doona set renew site --owner-key owner.key --verifier ed25519:KEY,days2.keys.pub,months2.keys.pub": "needs relays, as " +
			"TestSetCommands has them",
		"doona set withdraw site --owner-key owner.key":  "needs relays, as TestSetCommands has them",
		"doona set files site --out public/doona":        sets,
		"doona simulate --table --repeat 5000":           "takes minutes",
		load + "--rate 0 --clients 20000 --duration 10s": running,
		load + "--rate 0 --clients 10000 --values zipf --report http://127.0.0.1:8090/tasks/ID": "needs a running " +
			"relay and verifier, as TestLoadCompares of package relay has them",
		load + "--rate 8000 --clients 50000 --duration 1m --admin http://127.0.0.1:9081 --json": running,
		"doona dev": serves,
		"doona dev --new --query histogram --bins 5 --labels": serves,
		"doona dev --new --batch 3 --epoch 60":                serves,
	}, "relay")
}
