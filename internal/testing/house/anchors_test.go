package house_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

// goToken is a token of Go code with its byte offsets in the text.
type goToken struct {
	text     string
	name     bool // whether it is an identifier
	from, to int
}

// tokens returns the tokens of Go code. It leaves out what formatting decides: comments, semicolons, and a comma before
// the end of a list. Texts with the same tokens are the same program.
func tokens(text []byte) (all []goToken) {
	file := token.NewFileSet().AddFile("", 1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for {
		pos, kind, literal := s.Scan()
		switch kind {
		case token.EOF:
			return all
		case token.SEMICOLON:
			continue
		case token.RPAREN, token.RBRACK, token.RBRACE:
			if n := len(all); n > 0 && all[n-1].text == "," {
				all = all[:n-1]
			}
		}
		if !kind.IsLiteral() {
			literal = kind.String()
		}
		at := file.Offset(pos)
		all = append(all, goToken{literal, kind == token.IDENT, at, at + len(literal)})
	}
}

type span struct{ from, to int }

// declaration is a function, or a variable, constant or type outside of functions.
type declaration struct {
	folder, file, name string
	span
	text   []byte // the whole file's text
	tokens []goToken
	fset   *token.FileSet
	node   ast.Node
}

func declarations(folder, file string, text []byte) (all []declaration, err error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	every := tokens(text)
	add := func(name string, node ast.Node) {
		at := span{fset.Position(node.Pos()).Offset, fset.Position(node.End()).Offset}
		first, _ := slices.BinarySearchFunc(every, at.from, compareStart)
		end, _ := slices.BinarySearchFunc(every, at.to, compareStart)
		all = append(all, declaration{folder, file, name, at, text, every[first:end], fset, node})
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(functionName(d), d)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					add(s.Names[0].Name, s)
				case *ast.TypeSpec:
					add(s.Name.Name, s)
				}
			}
		}
	}
	return all, nil
}

func compareStart(t goToken, at int) int { return cmp.Compare(t.from, at) }

// functionName returns a function's name as F, T.F or (*T).F, as Go's own tools write it.
func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver, form := f.Recv.List[0].Type, "%s.%s"
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver, form = star.X, "(*%s).%s"
	}
	switch generic := receiver.(type) {
	case *ast.IndexExpr:
		receiver = generic.X
	case *ast.IndexListExpr:
		receiver = generic.X
	}
	return fmt.Sprintf(form, receiver.(*ast.Ident).Name, f.Name.Name)
}

// isNode reports whether a range of the declaration is one node of its syntax tree, or consecutive statements, cases or
// expressions in one list.
func (d *declaration) isNode(part span) (found bool) {
	at := func(n ast.Node) span { return span{d.fset.Position(n.Pos()).Offset, d.fset.Position(n.End()).Offset} }
	ast.Inspect(d.node, func(n ast.Node) bool {
		if n == nil || found || at(n).from > part.from || at(n).to < part.to {
			return false
		}
		switch n := n.(type) {
		case *ast.BlockStmt:
			found = isRun(n.List, part, at)
		case *ast.CaseClause:
			found = isRun(n.Body, part, at) || isRun(n.List, part, at)
		case *ast.CommClause:
			found = isRun(n.Body, part, at)
		case *ast.CallExpr:
			found = isRun(n.Args, part, at)
		case *ast.CompositeLit:
			found = isRun(n.Elts, part, at)
		case *ast.ReturnStmt:
			found = isRun(n.Results, part, at)
		}
		found = found || at(n) == part
		return true
	})
	return found
}

func isRun[N ast.Node](list []N, part span, at func(ast.Node) span) bool {
	first := slices.IndexFunc(list, func(n N) bool { return at(n).from == part.from })
	return first >= 0 && slices.ContainsFunc(list[first:], func(n N) bool { return at(n).to == part.to })
}

// find returns the nodes of a declaration that equal the code. With rename, names may differ; renamed then maps the
// code's names to those found.
func (d *declaration) find(code string, rename bool) (found []span, renamed []map[string]string) {
	want := tokens([]byte(code))
	for i := range len(d.tokens) - len(want) + 1 {
		part := d.tokens[i : i+len(want)]
		names, same := map[string]string{}, true
		for j, t := range part {
			now, known := names[want[j].text]
			switch {
			case t.text == want[j].text && !known:
			case rename && t.name && want[j].name && (!known || now == t.text):
				names[want[j].text] = t.text
			default:
				same = false
			}
		}
		if at := (span{part[0].from, part[len(part)-1].to}); same && d.isNode(at) {
			found, renamed = append(found, at), append(renamed, names)
		}
	}
	return found, renamed
}

// house holds the declarations of this module's Go files, by folder. It leaves out tests.
type house map[string][]declaration

func readHouse(t *testing.T) house {
	t.Helper()
	all := house{}
	for _, file := range filesOf(t, ".", ".go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		folder := filepath.Dir(file)
		more, err := declarations(folder, file, text)
		require.NoError(t, err)
		all[folder] = append(all[folder], more...)
	}
	return all
}

func filesOf(t *testing.T, folder, ext string) (files []string) {
	t.Helper()
	doctest.EachFile(t, filepath.Join(root, folder), func(name string) {
		if strings.HasSuffix(name, ext) && !strings.Contains(name, "testdata/") {
			files = append(files, filepath.Join(folder, name))
		}
	})
	return files
}

// named returns the declarations of a name in a folder. If files for several operating systems declare it, named
// returns those for this system.
func (h house) named(folder, name string) (found []declaration) {
	for _, d := range h[folder] {
		if d.name == name {
			found = append(found, d)
		}
	}
	if len(found) < 2 {
		return found
	}
	return slices.DeleteFunc(found, func(d declaration) bool {
		matches, err := build.Default.MatchFile(filepath.Join(root, folder), filepath.Base(d.file))
		return err == nil && !matches
	})
}
