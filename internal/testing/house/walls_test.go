package house_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

// wall is a limit on a size, such as the lines of a function. It applies to all modules of the repository, without
// tests.
type wall struct {
	what  string
	limit int
	sizes map[string]int // sizes by folder and name
}

const (
	methods    = "methods of a type"
	interfaces = "methods of an interface"
	parameters = "parameters of a function"
	lines      = "lines of a function"
	exported   = "exported names of a package"
	booleans   = "booleans that a package's functions take"
)

var limits = map[string]int{
	methods: 40, interfaces: 8, parameters: 6, lines: 80, exported: 60, booleans: 0,
}

// offenders lists, for each limit, the types, functions and packages that may exceed it for now. Remove an entry once
// it is below its limit; add none.
var offenders = map[string][]string{}

type survey struct {
	walls   map[string]*wall
	folders map[string]map[string]*ast.InterfaceType // interfaces by folder and name
}

// embeddable lists interfaces of other modules that ours embed, with their number of methods.
var embeddable = map[string]int{
	"io.Reader": 1, "io.Writer": 1, "io.Closer": 1, "io.ReadCloser": 2, "io.ReadWriteCloser": 3, "error": 1,
	"fmt.Stringer": 1, "sort.Interface": 3, "http.Handler": 1, "testing.TB": 20, "comparable": 0, "cipher.AEAD": 4,
}

func newSurvey() *survey {
	s := &survey{walls: map[string]*wall{}, folders: map[string]map[string]*ast.InterfaceType{}}
	for what, limit := range limits {
		s.walls[what] = &wall{what, limit, map[string]int{}}
	}
	return s
}

// outside reports whether a file is outside of the limits: a test, or only for tests or generators.
func outside(name string) bool {
	return !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
		strings.Contains("/"+name, "/testdata/") || anyWithin(path.Dir(name), testOnly)
}

func (s *survey) read(t *testing.T, module string) {
	t.Helper()
	files := token.NewFileSet()
	doctest.EachFile(t, module, func(name string) {
		name = path.Join(module, name)
		if outside(name) {
			return
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		folder := path.Dir(name)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				s.function(files, folder, file.Name.Name, d)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					s.spec(folder, spec)
				}
			}
		}
	})
}

func (s *survey) function(files *token.FileSet, folder, pkg string, f *ast.FuncDecl) {
	name, open := folder+"."+f.Name.Name, f.Name.IsExported() && pkg != "main"
	if f.Recv != nil {
		receiver := typeName(f.Recv.List[0].Type)
		name = folder + "." + receiver + "." + f.Name.Name
		s.walls[methods].sizes[folder+"."+receiver]++
		open = open && ast.IsExported(receiver)
	} else if f.Name.IsExported() {
		s.walls[exported].sizes[folder]++
	}
	s.walls[parameters].sizes[name] = f.Type.Params.NumFields()
	s.walls[lines].sizes[name] = files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1
	if open {
		for _, p := range f.Type.Params.List {
			if id, ok := p.Type.(*ast.Ident); ok && id.Name == "bool" {
				s.walls[booleans].sizes[name] += max(1, len(p.Names))
			}
		}
	}
}

func (s *survey) spec(folder string, spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Name.IsExported() {
			s.walls[exported].sizes[folder]++
		}
		if i, ok := spec.Type.(*ast.InterfaceType); ok {
			if s.folders[folder] == nil {
				s.folders[folder] = map[string]*ast.InterfaceType{}
			}
			s.folders[folder][spec.Name.Name] = i
		}
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() {
				s.walls[exported].sizes[folder]++
			}
		}
	}
}

// count counts the methods of all interfaces, including those of embedded interfaces.
func (s *survey) count(t *testing.T) {
	for folder, all := range s.folders {
		for name, i := range all {
			s.walls[interfaces].sizes[folder+"."+name] = s.methodsOf(t, folder, i)
		}
	}
}

func (s *survey) methodsOf(t *testing.T, folder string, i *ast.InterfaceType) (n int) {
	t.Helper()
	for _, m := range i.Methods.List {
		if len(m.Names) > 0 {
			n += len(m.Names)
			continue
		}
		switch e := m.Type.(type) {
		case *ast.Ident:
			if within := s.folders[folder][e.Name]; within != nil {
				n += s.methodsOf(t, folder, within)
				continue
			}
		case *ast.SelectorExpr:
			if other := s.named(e.X.(*ast.Ident).Name, e.Sel.Name); other != "" {
				n += s.methodsOf(t, other, s.folders[other][e.Sel.Name])
				continue
			}
		case *ast.UnaryExpr, *ast.BinaryExpr: // a type constraint, not a method
			continue
		}
		size, ok := embeddable[typeName(m.Type)]
		require.True(t, ok, "%s embeds %s: add it to embeddable with its number of methods", folder, typeName(m.Type))
		n += size
	}
	return n
}

// named returns the folder of the package base, which declares the interface name. All folders have distinct names.
func (s *survey) named(base, name string) string {
	for folder, all := range s.folders {
		if path.Base(folder) == base && all[name] != nil {
			return folder
		}
	}
	return ""
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return fmt.Sprintf("%T", e)
}

var modules = []string{".", "beam", "lab"}

// TestWalls checks the limits on sizes and logs the largest size for each limit. To see them: go test -count=1 -run
// Walls -v ./internal/testing/house
func TestWalls(t *testing.T) {
	s := newSurvey()
	for _, module := range modules {
		s.read(t, module)
	}
	s.count(t)
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-42s %5s  %s\n", "wall", "limit", "the largest")
	row := func(what string, limit int, largest string) {
		fmt.Fprintf(&table, "%-42s %5d  %s\n", what, limit, largest)
	}
	for _, what := range slices.Sorted(maps.Keys(s.walls)) {
		w := s.walls[what]
		require.True(t, what == booleans || len(w.sizes) > 0, what)
		names := slices.SortedFunc(maps.Keys(w.sizes), func(a, b string) int {
			return cmp.Or(cmp.Compare(w.sizes[b], w.sizes[a]), cmp.Compare(a, b))
		})
		var largest []string
		for _, name := range names[:min(3, len(names))] {
			largest = append(largest, strconv.Itoa(w.sizes[name])+" "+name)
		}
		row(what, w.limit, strings.Join(largest, ", "))
		for _, name := range names {
			if !slices.Contains(offenders[what], name) {
				assert.LessOrEqual(t, w.sizes[name], w.limit, "%s: %s", what, name)
			}
		}
		for _, name := range offenders[what] {
			assert.Greater(t, w.sizes[name], w.limit, "%s: %s is below the limit now: remove it from offenders", what, name)
		}
	}
	packages, folders := measure(t)
	row("packages", maxPackages, strconv.Itoa(len(packages)))
	row("folders in the root", maxFolders, strconv.Itoa(len(folders)))
	row("direct dependencies", maxDependencies, strconv.Itoa(len(directDependencies(t))))
	t.Log(table.String())
	require.LessOrEqual(t, len(packages), maxPackages, "%v", slices.Sorted(maps.Keys(packages)))
	require.LessOrEqual(t, len(folders), maxFolders, "%v", slices.Sorted(maps.Keys(folders)))
}

// measure returns the folders with Go files, including tests and commands, and the folders in the repository's root.
func measure(t *testing.T) (packages, tops map[string]bool) {
	t.Helper()
	packages, tops = map[string]bool{}, map[string]bool{}
	eachFile(t, func(name string) {
		if top, _, below := strings.Cut(name, "/"); below && !strings.HasPrefix(top, ".") {
			tops[top] = true
		}
		if strings.HasSuffix(name, ".go") && !strings.Contains(name, "testdata/") {
			packages[path.Dir(name)] = true
		}
	})
	return packages, tops
}

func directDependencies(t *testing.T) (names []string) {
	t.Helper()
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	for _, m := range requirement.FindAllStringSubmatch(string(mod), -1) {
		names = append(names, m[1])
	}
	require.NotEmpty(t, names)
	return names
}
