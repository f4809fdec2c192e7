package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

// TestScriptsNameTests: each pattern by which a script chooses tests must match the name of a test. A test that was
// renamed would otherwise be left out, and the script would still pass.
func TestScriptsNameTests(t *testing.T) {
	root := doctest.Root(t)
	var goTests, pageTests strings.Builder
	doctest.EachFile(t, root, func(name string) {
		into := &pageTests
		switch {
		case strings.HasSuffix(name, "_test.go"):
			into = &goTests
		case !strings.HasPrefix(name, "www/") || !strings.HasSuffix(name, ".mjs") && !strings.HasSuffix(name, ".ts"):
			return
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		into.Write(text)
	})
	chosen := regexp.MustCompile(`(-run|--test-name-pattern) (?:'([^']+)'|(\w+))`)
	scripts, err := filepath.Glob(filepath.Join(root, "scripts", "*.sh"))
	require.NoError(t, err)
	patterns := 0
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		require.NoError(t, err)
		for _, match := range chosen.FindAllStringSubmatch(string(text), -1) {
			for _, name := range regexp.MustCompile(`[|()]+`).Split(match[2]+match[3], -1) {
				patterns++
				all, names := pageTests.String(), name
				if match[1] == "-run" {
					name, _, _ = strings.Cut(name, "/") // Of a subtest, only the test is looked for.
					all, names = goTests.String(), `(?m)^func (Test|Fuzz)\w*`+
						strings.TrimPrefix(strings.Trim(name, "^$"), "Test")
				}
				require.True(t, regexp.MustCompile(names).MatchString(all), "%s: no test is named %q",
					filepath.Base(script), name)
			}
		}
	}
	require.Greater(t, patterns, 10)
}
