package stattest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/stattest"
)

// TestCodeHash: only a change of what a file computes changes the hash.
func TestCodeHash(t *testing.T) {
	folder := t.TempDir()
	hash := func(name, text string) string {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
		return stattest.CodeHash(t, filepath.Join(folder, "*.go"))
	}
	one := hash("a.go", "package a\n\n// F is 1.\nfunc F() int { return 1 }\n")
	require.Equal(t, one, hash("a.go", "package a\n\n// F returns one.\nfunc F() int {\n\treturn 1\n}\n"))
	require.Equal(t, one, hash("a_test.go", "package a\n"))
	require.NotEqual(t, one, stattest.CodeHash(t, filepath.Join(folder, "*.go"), filepath.Join(folder, "a_test.go")))
	require.NotEqual(t, one, hash("a.go", "package a\n\nfunc F() int { return 2 }\n"))
	require.Equal(t, one, hash("a.go", "package a\n\nfunc F() int { return 1 }\n"))
	require.NotEqual(t, one, hash("b.go", "package a\n"))
}

// TestCodeHashOfErrors: imports, errors and files after a minus do not count.
func TestCodeHashOfErrors(t *testing.T) {
	const text = "package a\n\nimport (\n\t\"errors\"\n\t\"invalid\"\n)\n\nfunc F(x int) int {\n\tif x < 0 {\n" +
		"\t\tpanic(invalid.Field(\"x\", quote(x), \"0\"))\n\t}\n\treturn x\n}\n"
	folder := t.TempDir()
	all, b := filepath.Join(folder, "*.go"), filepath.Join(folder, "b.go")
	hash := func(old, replacement string) string {
		require.Contains(t, text, old)
		changed := strings.Replace(text, old, replacement, 1)
		require.NoError(t, os.WriteFile(filepath.Join(folder, "a.go"), []byte(changed), 0o600))
		return stattest.CodeHash(t, all)
	}
	one := hash("", "")
	require.Equal(t, one, hash("\t\"errors\"\n", ""))
	require.Equal(t, one, hash("quote(x)", "q(x)+1"))
	require.NotEqual(t, one, hash("< 0", "< 1"))
	require.NotEqual(t, one, hash("return x", "return -x"))
	hash("", "")
	require.NoError(t, os.WriteFile(b, []byte("package a\n"), 0o600))
	require.NotEqual(t, one, stattest.CodeHash(t, all))
	require.Equal(t, one, stattest.CodeHash(t, "-"+b, all))
}

// TestRows: measurements are read as written, but not for other code.
func TestRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.json")
	r := stattest.ReadRows[int](t, path, "one")
	require.Empty(t, r.Rows)
	r.Rows = []int{3, 4}
	r.Write(t, path)
	require.Equal(t, []int{3, 4}, stattest.ReadRows[int](t, path, "one").Rows)
	other := stattest.ReadRows[int](t, path, "two")
	require.Empty(t, other.Rows)
	require.Equal(t, "two", other.Code)
	r.Write(t, "")
}
