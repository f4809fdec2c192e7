//go:build long

package wasm_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wasm"
)

// budgets lists, by file, the functions of doona.wasm that compose ε and δ over epochs or parse streams. If they are
// empty, the linker also drops what only they call. The composition for relays' noise stays.
var budgets = map[string][]string{
	"protocols/total.go":              {"CheckTotal"},
	"protocols/within.go":             {"EpochsEpsilon"},
	"protocols/krr.go":                {"KRR.Law"},
	"protocols/augmented/privacy.go":  {"Mechanism.Law"},
	"protocols/correlated/privacy.go": {"Mechanism.Law"},
	"protocols/rappor/privacy.go":     {"Mechanism.Law"},
	"protocols/splitmix/privacy.go":   {"Mechanism.Law"},
	"protocols/strings/privacy.go":    {"Mechanism.Law"},
	"protocols/vectormean/privacy.go": {"Mechanism.Law"},
	"protocols/vectorsum/privacy.go":  {"Mechanism.Law", "composedBound.law"},
	"protocols/histogram/privacy.go":  {"Mechanism.Law"},
	"protocols/realsum/privacy.go":    {"Mechanism.Law"},
	"protocols/vectorgrid/privacy.go": {"Mechanism.Law"},
	"wasm/internal/client/client.go":  {"Client.TotalEpsilon", "Client.EpsilonWithin"},
	"wire/task/stream.go":             {"Task.validateStream", "writer.stream", "reader.stream"},
}

// mostForBudgets is the most bytes that the functions of budgets and their callees may add to the module, after brotli.
const mostForBudgets = 15_000

// TestBudgetsAreSmall measures how many bytes the functions of [budgets] add to doona.wasm, after brotli. docs/wasm.md
// contains the figures that it logs.
func TestBudgetsAreSmall(t *testing.T) {
	replace := map[string][]byte{}
	for name, functions := range budgets {
		file, err := filepath.Abs(filepath.Join("..", name))
		require.NoError(t, err)
		replace[file] = withoutBodies(t, file, functions)
	}
	module := filepath.Join(t.TempDir(), "module.wasm")
	o := wasm.Options{Replace: replace}
	require.NoError(t, wasm.BuildFrozen(t.Context(), wasm.Browser.Package(), module, o))
	without, err := os.ReadFile(module)
	require.NoError(t, err)
	with, least := brotlied(t, built(t, wasm.Browser)), brotlied(t, without)
	t.Logf("with %d, without %d: %d bytes", with, least, with-least)
	require.Greater(t, with-least, 1000)
	require.LessOrEqual(t, with-least, mostForBudgets)
}

// withoutBodies returns the source of a file in which the given functions only return zeros.
func withoutBodies(t *testing.T, file string, functions []string) []byte {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, 0)
	require.NoError(t, err)
	for _, want := range functions {
		emptied := 0
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && nameOf(f) == want {
				emptied++
				f.Body = zeros(f)
			}
		}
		require.Equal(t, 1, emptied, "%s: %s", file, want)
	}
	used := map[string]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				used[x.Name] = true
			}
		}
		return true
	})
	for _, spec := range parsed.Imports {
		if spec.Name == nil && !used[path.Base(strings.Trim(spec.Path.Value, `"`))] {
			spec.Name = ast.NewIdent("_")
		}
	}
	var out bytes.Buffer
	require.NoError(t, format.Node(&out, set, parsed))
	return out.Bytes()
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	return fmt.Sprint(of) + "." + f.Name.Name
}

// zeros returns a body for a function that returns the zero value of each result.
func zeros(f *ast.FuncDecl) *ast.BlockStmt {
	result := &ast.ReturnStmt{}
	if f.Type.Results == nil {
		return &ast.BlockStmt{List: []ast.Stmt{result}}
	}
	for _, field := range f.Type.Results.List {
		for range max(1, len(field.Names)) {
			call := &ast.CallExpr{Fun: ast.NewIdent("new"), Args: []ast.Expr{field.Type}}
			result.Results = append(result.Results, &ast.StarExpr{X: call})
		}
	}
	return &ast.BlockStmt{List: []ast.Stmt{result}}
}
