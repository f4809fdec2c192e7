package verifier_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/verifier/finding"
)

// TestTheManualHasEveryFinding: the table in docs/verifier.md must have each finding exactly once, and nothing else.
func TestTheManualHasEveryFinding(t *testing.T) {
	manual, err := os.ReadFile("../docs/verifier.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(manual), "\n## Findings\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	var names []finding.Name
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(row[1], -1) {
			names = append(names, finding.Name(name[1]))
		}
	}
	slices.Sort(names)
	require.Equal(t, finding.Names(), names)
}
