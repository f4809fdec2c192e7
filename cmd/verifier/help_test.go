package main

import (
	"testing"

	"github.com/doona-dp/doona/internal/testing/clitest"
)

func TestHelp(t *testing.T) {
	const (
		serves  = "runs until it is stopped"
		batches = "needs batches that came through relays"
	)
	clitest.Help(t, root(), map[string]string{
		"doona init try && verifier serve --config try/verifier/verifier.yaml": serves,
		"verifier serve --task t.bundle --keys verifier/t.keys --sign-key verifier/sign.key --data data " +
			"--listen 127.0.0.1:8090": serves,
		"verifier serve --config try/verifier/verifier.yaml":                                            serves,
		"verifier health --admin http://127.0.0.1:9081":                                                 "needs a running verifier",
		"verifier analyze --task mean.bundle --keys verifier.keys batches/*.batch":                      batches,
		"verifier analyze --task mean.bundle --keys verifier.keys batches/*.batch --json":               batches,
		"verifier verify --task mean.bundle batches/*.batch":                                            batches,
		"verifier merge --task mean.bundle --ledger data/ledger one.state two.state three.state --json": batches,
		"verifier ask --task links.bundle --keys verifier.keys paths.txt batches/*.batch":               batches,
		"verifier query --task speed.bundle --keys verifier.keys --dimensions speed.yaml --by device " +
			"--share lcp=0..2500 --versus desktop --quantile lcp:0.75 batches/*.batch": batches,
	}, "doona")
}
