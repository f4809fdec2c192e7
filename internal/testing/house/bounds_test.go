package house_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

// TestPathsAreReadWithBounds: relays and issuers read path values through internal/service, which requires a limit, and
// create routes only where tests find them. The verifier's paths contain only task ids.
func TestPathsAreReadWithBounds(t *testing.T) {
	reads := regexp.MustCompile(`\.PathValue\(|http\.NewServeMux\(`)
	wildcard := regexp.MustCompile(`HandleFunc\("[^"]*(\{[a-z]+\})`)
	readers, named := map[string]int{}, map[string]bool{}
	doctest.EachFile(t, ".", func(name string) {
		folder, _, _ := strings.Cut(name, "/")
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			!slices.Contains([]string{"relay", "issuer", "verifier"}, folder) {
			return
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		if n := len(reads.FindAll(text, -1)); n > 0 {
			readers[name] = n
		}
		for _, m := range wildcard.FindAllSubmatch(text, -1) {
			named[string(m[1])] = true
		}
	})
	require.Equal(t, map[string]int{"verifier/report/site.go": 2, "verifier/report/page.go": 2}, readers)
	require.Equal(t, map[string]bool{"{task}": true}, named)
}
