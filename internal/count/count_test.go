package count_test

import (
	"go/types"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/count"
)

// load type-checks the module as built for a server, and what is built for browsers and edge workers.
func load(t *testing.T) (packages []*count.Package) {
	t.Helper()
	native, err := count.Load("../..", "linux", "amd64", "./...")
	require.NoError(t, err)
	wasm, err := count.Load("../..", "js", "wasm", "./wasm/...")
	require.NoError(t, err)
	return append(native, wasm...)
}

// most requires that not more places than allowed declare something whose type has what is looked for.
func most(t *testing.T, packages []*count.Package, limit int, has func(types.Type) bool) {
	t.Helper()
	found := count.Declarations(packages, has)
	require.NotEmpty(t, found, "nothing found: does the program still look?")
	require.LessOrEqual(t, len(found), limit, "give these a type with a name:\n%s", strings.Join(found, "\n"))
	t.Logf("%d of at most %d\n%s", len(found), limit, strings.Join(found, "\n"))
}

// TestNouns: the domain's nouns have types. An array of 32 bytes is a task's id, a signing key, the
// hash of a list or the id of a key; it says which.
func TestNouns(t *testing.T) {
	packages := load(t)
	t.Run("arrays of 32 bytes", func(t *testing.T) {
		most(t, packages, 10, func(t types.Type) bool { return types.Identical(t, types.NewArray(types.Typ[types.Byte], 32)) })
	})
}
