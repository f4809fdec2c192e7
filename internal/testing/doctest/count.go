package doctest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The functions below count declarations in type-checked code. With them, TestNouns limits values without a named type:
// arrays of 32 bytes, messages by lane, ε as text.

// Package is one type-checked package without its tests.
type Package struct {
	Path  string // Import path.
	Files []*ast.File
	Info  *types.Info
	Fset  *token.FileSet
}

// listed is the output of `go list -export -json` for a package.
type listed struct {
	Dir, ImportPath, Export string
	DepOnly                 bool
	GoFiles                 []string
}

// Load type-checks the packages below dir that the patterns name, for the given GOOS and GOARCH. It runs the go
// command, which compiles changed packages.
func Load(dir, goos, goarch string, patterns ...string) ([]*Package, error) {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps",
		"-json=Dir,ImportPath,Export,DepOnly,GoFiles"}, patterns...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	raw, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("couldn't list packages: %w", err)
	}
	exports := map[string]string{}
	var own []listed
	for dec := json.NewDecoder(bytes.NewReader(raw)); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && len(p.GoFiles) > 0 {
			own = append(own, p)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var out []*Package
	for _, p := range own {
		checked, err := parse(fset, imports, p)
		if err != nil {
			return nil, err
		}
		out = append(out, checked)
	}
	return out, nil
}

func parse(fset *token.FileSet, imports types.Importer, p listed) (*Package, error) {
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return checkTypes(p.ImportPath, fset, imports, files)
}

func checkTypes(path string, fset *token.FileSet, imports types.Importer, files []*ast.File) (*Package, error) {
	out := &Package{Path: path, Files: files, Fset: fset, Info: &types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Implicits: map[ast.Node]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{},
	}}
	config := types.Config{Importer: imports}
	if _, err := config.Check(path, fset, files, out.Info); err != nil {
		return nil, fmt.Errorf("couldn't check %s: %w", path, err)
	}
	return out, nil
}

// Declarations returns the fields, parameters, results, variables and map keys whose type contains an unnamed type for
// which has is true. It looks inside pointers, slices, arrays, maps and channels, but not inside named types. It
// resolves aliases. It counts a file that two platforms compile only once.
func Declarations(packages []*Package, has func(types.Type) bool) []string {
	found := map[string]bool{}
	for _, p := range packages {
		add := func(pos token.Pos, object types.Object) {
			if v, ok := object.(*types.Var); ok && contains(v.Type(), has) {
				found[fmt.Sprintf("%s: %s %s", p.Fset.Position(pos), v.Name(), v.Type())] = true
			}
		}
		for ident, object := range p.Info.Defs {
			add(ident.Pos(), object)
		}
		for expr, t := range p.Info.Types {
			if _, ok := expr.(*ast.MapType); ok && contains(t.Type.(*types.Map).Key(), has) {
				found[fmt.Sprintf("%s: key of %s", p.Fset.Position(expr.Pos()), t.Type)] = true
			}
		}
		for node, object := range p.Info.Implicits { // parameters and results without names
			add(node.Pos(), object)
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// contains reports whether has is true for an unnamed part of a type.
func contains(t types.Type, has func(types.Type) bool) bool {
	t = types.Unalias(t)
	if has(t) {
		return true
	}
	switch t := t.(type) {
	case *types.Map:
		return contains(t.Key(), has) || contains(t.Elem(), has)
	case interface{ Elem() types.Type }:
		return contains(t.Elem(), has)
	}
	return false
}

// Branches returns the files that switch over or compare values of a named type, except packages with the given
// prefixes.
func Branches(packages []*Package, of string, outside ...string) []string {
	found := map[string]bool{}
	for _, p := range packages {
		if slices.ContainsFunc(outside, func(root string) bool { return within(p.Path, root) }) {
			continue
		}
		is := func(e ast.Expr) bool { return e != nil && p.Info.TypeOf(e) != nil && p.Info.TypeOf(e).String() == of }
		for _, file := range p.Files {
			ast.Inspect(file, func(n ast.Node) bool {
				s, isSwitch := n.(*ast.SwitchStmt)
				b, isBinary := n.(*ast.BinaryExpr)
				if isSwitch && is(s.Tag) || isBinary && (b.Op == token.EQL || b.Op == token.NEQ) && is(b.X) {
					found[p.Fset.Position(file.Pos()).Filename] = true
				}
				return true
			})
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Calls returns the positions that name a function (package path and name), except in packages with the given prefixes.
func Calls(packages []*Package, name string, outside ...string) []string {
	found := map[string]bool{}
	for _, p := range packages {
		if slices.ContainsFunc(outside, func(root string) bool { return within(p.Path, root) }) {
			continue
		}
		for ident, object := range p.Info.Uses {
			if f, ok := object.(*types.Func); ok && f.FullName() == name {
				found[p.Fset.Position(ident.Pos()).String()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }
