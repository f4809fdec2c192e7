package house_test

import (
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

// scriptImport matches the imports of a TypeScript file from files of this repository, also imports of types.
var scriptImport = regexp.MustCompile(`(?m)(?:^|[\s;}])(?:from|import)\s*\(?\s*'(\.[^']*)'`)

// scriptImports returns, for each TypeScript file of www/ except tests, the files that it imports.
func scriptImports(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	doctest.EachFile(t, "www", func(name string) {
		name = path.Join("www", name)
		if path.Ext(name) != ".ts" || strings.HasSuffix(name, ".spec.ts") || strings.HasSuffix(name, ".d.ts") ||
			within(name, "www/vendor") || within(name, "www/test") {
			return
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		all[name] = nil
		for _, m := range scriptImport.FindAllStringSubmatch(string(text), -1) {
			all[name] = append(all[name], strings.TrimSuffix(path.Join(path.Dir(name), m[1]), ".js")+".ts")
		}
	})
	require.NotEmpty(t, all["www/sdk/engine.ts"])
	return all
}

// circle returns a path of imports from a file back to the same file, or nil.
func circle(imports map[string][]string) []string {
	done := map[string]bool{}
	var walk func(trail []string) []string
	walk = func(trail []string) []string {
		from := trail[len(trail)-1]
		if at := slices.Index(trail, from); at < len(trail)-1 {
			return trail[at:]
		}
		for _, to := range imports[from] {
			if !done[to] {
				if found := walk(append(slices.Clone(trail), to)); found != nil {
					return found
				}
			}
		}
		done[from] = true
		return nil
	}
	for _, from := range slices.Sorted(maps.Keys(imports)) {
		if found := walk([]string{from}); found != nil {
			return found
		}
	}
	return nil
}

// TestScriptsImportOneWay: TypeScript files do not import each other in a cycle, not even types. The SDK must not
// import a page.
func TestScriptsImportOneWay(t *testing.T) {
	require.Equal(t, []string{"a", "b", "a"}, circle(map[string][]string{"a": {"b"}, "b": {"c", "a"}}))
	require.Nil(t, circle(map[string][]string{"a": {"b", "c"}, "b": {"c"}}))
	imports := scriptImports(t)
	require.Empty(t, circle(imports), "these files import each other in a cycle")
	for from, all := range imports {
		for _, to := range all {
			require.False(t, within(from, "www/sdk") && anyWithin(to, []string{"www/demo", "www/edge"}), "%s must not import %s",
				from, to)
		}
	}
}
