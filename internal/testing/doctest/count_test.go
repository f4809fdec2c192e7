package doctest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sample declares an array of 32 bytes in eleven ways that count, which are numbered, and in others that do not.
const sample = `package sample

type named [32]byte
type alias = [32]byte

type fields struct {
	plain   [32]byte // 1
	aliased alias    // 2
	deep    map[string][]*[32]byte // 3
	other   named
	longer  [33]byte
}

var key map[[32]byte]int // 4, and 5 for the key

func parameter(p [32]byte, q named) {} // 6

func result() [32]byte { return [32]byte{} } // 7

func inferred(v any) {
	local := result() // 8
	for _, each := range [][32]byte{local} { // 9
		_ = each
	}
	switch v := v.(type) {
	case [32]byte: // 10
		_ = v
	}
	_ = map[[32]byte]bool{} // 11
	_ = named(local)
}
`

func TestDeclarations(t *testing.T) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "sample.go", sample, 0)
	require.NoError(t, err)
	p, err := checkTypes("sample", fset, nil, []*ast.File{file})
	require.NoError(t, err)
	found := Declarations([]*Package{p, p}, array32)
	require.Len(t, found, 11, strings.Join(found, "\n"))
}

func TestBranches(t *testing.T) {
	const source = `package sample

type Query string

func switched(q Query) bool {
	switch q {
	}
	return false
}
`
	const compared = `package sample

func compared(q, r Query) bool { return q != "a" && r == q }
`
	const other = `package sample

func other(s string, q Query) bool { return s == string(q) }
`
	fset := token.NewFileSet()
	var files []*ast.File
	for name, text := range map[string]string{"switched.go": source, "compared.go": compared, "other.go": other} {
		file, err := parser.ParseFile(fset, name, text, 0)
		require.NoError(t, err)
		files = append(files, file)
	}
	p, err := checkTypes("sample", fset, nil, files)
	require.NoError(t, err)
	require.Equal(t, []string{"compared.go", "switched.go"}, Branches([]*Package{p}, "sample.Query", "samples"))
	require.Empty(t, Branches([]*Package{p}, "sample.Query", "sample"))
}

func TestCalls(t *testing.T) {
	const source = `package sample

import "strconv"

func one(s string) (float64, error) { return strconv.ParseFloat(s, 64) }

var two = strconv.ParseFloat // named, but not called

func other(s string) (int, error) { return strconv.Atoi(s) }
`
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module sample\n"), 0o600))
	file := filepath.Join(dir, "sample.go")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	loaded, err := Load(dir, runtime.GOOS, runtime.GOARCH, ".")
	require.NoError(t, err)
	require.Equal(t, []string{file + ":5:54", file + ":7:19"}, Calls(loaded, "strconv.ParseFloat"))
	require.Empty(t, Calls(loaded, "strconv.ParseFloat", "sample"))
}

func array32(t types.Type) bool { return types.Identical(t, types.NewArray(types.Typ[types.Byte], 32)) }

// load type-checks the packages as compiled for servers, browsers and edge workers.
func load(t *testing.T) (packages []*Package) {
	t.Helper()
	native, err := Load("../../..", "linux", "amd64", "./...")
	require.NoError(t, err)
	wasm, err := Load("../../..", "js", "wasm", "./wasm/...")
	require.NoError(t, err)
	return append(native, wasm...)
}

// most fails the test if more than limit declarations have a type for which has is true.
func most(t *testing.T, packages []*Package, limit int, has func(types.Type) bool) {
	t.Helper()
	found := Declarations(packages, has)
	require.LessOrEqual(t, len(found), limit, "give these declarations a named type:\n%s", strings.Join(found, "\n"))
	t.Logf("%d of at most %d\n%s", len(found), limit, strings.Join(found, "\n"))
}

// parsers lists the files outside wire/task that may parse floating-point numbers. Only claim.go may parse ε and δ.
// Flags for ε and δ are parsed by package pflag.
var parsers = []string{
	"cli/cli.go",          // The ends of a range.
	"clitest/eval.go",     // Numbers in documents.
	"doona/load.go",       // The relay's metrics.
	"edge/value.go",       // A value that a page posts.
	"openloop/process.go", // The kernel's figures of a process.
	"table/number.go",     // The values of a CSV file.
	"task/claim.go",       // ε and δ.
	"verifier/query.go",   // The probability of a quantile.
}

// elsewhere are path prefixes of all packages except wire/task.
var elsewhere = []string{"github.com/doona-dp/doona/cmd", "github.com/doona-dp/doona/internal",
	"github.com/doona-dp/doona/wasm/edge"}

// TestNouns: the domain's values have named types. For example, an array of 32 bytes is a task id, a signing key, the
// hash of a key list or a key id. Few files switch over queries, and only listed files parse numbers.
func TestNouns(t *testing.T) {
	packages := load(t)
	t.Run("arrays of 32 bytes", func(t *testing.T) {
		most(t, packages, 10, array32)
	})
	t.Run("bytes by lane", func(t *testing.T) {
		lanes := types.NewSlice(types.NewSlice(types.NewSlice(types.Typ[types.Byte])))
		most(t, packages, 5, func(t types.Type) bool { return types.Identical(t, lanes) })
	})
	t.Run("branches over queries", func(t *testing.T) {
		const module = "github.com/doona-dp/doona/"
		found := Branches(packages, module+"wire/task.Query", module+"wire/task", module+"protocols")
		require.LessOrEqual(t, len(found), 3,
			"too many files switch over queries: let these read task.Queries:\n%s", strings.Join(found, "\n"))
		t.Logf("%d files of at most 3\n%s", len(found), strings.Join(found, "\n"))
	})
	t.Run("epsilon and delta are parsed in one place", func(t *testing.T) {
		const parse = "github.com/doona-dp/doona/internal/decimal.Parse"
		var files []string
		for _, place := range slices.Concat(Calls(packages, "strconv.ParseFloat"), Calls(packages, parse)) {
			dir, name := path.Split(strings.Split(filepath.ToSlash(place), ":")[0])
			files = append(files, path.Join(path.Base(dir), name))
		}
		slices.Sort(files)
		require.Equal(t, parsers, slices.Compact(files),
			"a file parses numbers that is not in parsers: let it take task.Epsilon or task.Delta, or add it")
		require.Empty(t, Calls(packages, "strconv.ParseFloat", elsewhere...))
		require.Len(t, Calls(packages, parse, elsewhere...), 1, "wire/task may parse floating-point numbers in one line only")
	})
}
