package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/clitest"
	"github.com/doona-dp/doona/internal/testing/doctest"
	"github.com/doona-dp/doona/lab/audit"
)

func TestMain(m *testing.M) { clitest.Main(m, main, "lab") }

func TestScripts(t *testing.T) { clitest.Run(t) }

func TestHelp(t *testing.T) {
	clitest.Help(t, root(), map[string]string{
		"lab audit --native-only":                                 "takes a minute; TestScripts/audit has a short one",
		"lab audit --out docs/audit.md":                           "takes minutes",
		"lab audit --trials 100000 --module build/www/doona.wasm": "takes minutes",
		"lab figures --out docs":                                  "takes minutes",
		"lab errata --json":                                       "takes half a minute; TestErrata has it",
	})
}

// TestDocumentedAuditHasEveryCase: the table of docs/audit.md must list exactly the current cases, each with the result
// of a passed audit. If it fails, run `make audit`.
func TestDocumentedAuditHasEveryCase(t *testing.T) {
	var want [][]string
	for _, c := range append(audit.Shipped(), audit.Faulty()...) {
		fault, result := c.Fault, "found"
		if fault == "" {
			fault, result = "–", "holds"
		}
		want = append(want, []string{c.Protocol, c.Client, fault, string(c.View), c.Attack, result})
	}
	require.Equal(t, want, doctest.Table(t, filepath.Join(doctest.Root(t), "docs/audit.md"), "protocol", "client",
		"planted fault", "view of", "attack", "result"), "docs/audit.md is out of date: run make audit")
}
