// Package house_test checks the whole repository against its rules: import rules and size limits of packages,
// documents that agree with the code, headers of every server, bounds of every decoder, results of long runs, a
// mutant for every promise, and the vectors of testdata/v1, which all implementations share. Its tests run in the
// repository's root.
package house_test

import (
	"flag"
	"os"
	"testing"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

var update = flag.Bool("update", false, "write what tests draw or list: docs/images/imports.svg, docs/results.md")

func TestMain(m *testing.M) { os.Exit(doctest.RunInRoot(m)) }
