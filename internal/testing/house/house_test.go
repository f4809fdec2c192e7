// Package house_test checks rules of the whole repository: imports and sizes of packages, documents against code,
// headers of every server, limits of every decoder, results of long runs, and the vectors of testdata/v1, which all
// implementations share. It also checks that a test fails for each mutant, a small change that breaks a promise. Its
// tests run in the repository's root.
package house_test

import (
	"flag"
	"os"
	"testing"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

var update = flag.Bool("update", false, "write what tests draw or list: docs/images/imports.svg, docs/results.md")

func TestMain(m *testing.M) { os.Exit(doctest.RunInRoot(m)) }
