// Package house_test checks rules that apply to the whole repository. It checks imports and sizes of packages,
// documents against the code, the headers of every server, the limits of every decoder, and the results of long runs.
// It checks that tests fail for each mutant, a small change that breaks a promise. It also checks all implementations
// against the vectors of testdata/v1. Its tests run in the repository's root.
package house_test

import (
	"flag"
	"os"
	"testing"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

var update = flag.Bool("update", false, "write what tests draw or list: docs/images/imports.svg, docs/results.md")

func TestMain(m *testing.M) { os.Exit(doctest.RunInRoot(m)) }
