package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
	"github.com/doona-dp/doona/wire/task"
)

const module = "github.com/doona-dp/doona/"

// mayImport lists, per package, which packages of this module it may depend on, directly or indirectly. An entry
// includes the folders below the key and below each listed package. A package's own folder and internal/ are always
// allowed; what internal/ packages import counts as imported by their users. Imports go in one direction:
//
//	randomizer, accountant <- wire/task <- protocols, wire <- planner <- clients, verifier, wasm <- cmd
//	wire/task <- wire/onion <- wire/taskfile, wire/keyfile, wire/token <- relay, issuer
//
// Package wire and the relays handle opaque bytes and know no protocol. Of wire, protocols may import only wire/task.
var mayImport = map[string][]string{
	"randomizer":            {},
	"accountant":            {},
	"accountant/relaynoise": {"randomizer", "accountant", "wire/task"},
	"wire/task":             {"randomizer"},
	"wire":                  {"randomizer"},
	"issuer":                {"randomizer", "wire"},
	"relay":                 {"randomizer", "wire"},
	"protocols":             {"randomizer", "accountant", "wire/task"},
	"planner":               {"randomizer", "accountant", "wire", "protocols"},
	"shufflerclient":        {"randomizer", "accountant", "wire", "protocols"},
	"verifier":              {"randomizer", "accountant", "wire", "protocols"},
	"wasm":                  {"randomizer", "accountant", "wire", "protocols"},
	"wasm/edge":             {"randomizer", "accountant", "wire", "protocols", "shufflerclient", "wasm"},
	"wasm/fuzzcases":        {"randomizer", "accountant", "wire", "protocols", "planner", "wasm"},
}

// tops may depend on everything; nothing else may depend on them.
var tops = []string{"cmd", "bench", "www", "docs", "deploy"}

// testOnly packages may be used only by tests, benchmarks and their generators.
var testOnly = []string{"internal/testing"}

// goPackage describes a folder with Go files, without its tests and generators.
type goPackage struct {
	imports []string // packages of this module, relative to it
	outside []string // packages of other modules
	doc     bool
	main    bool // whether it is a program
}

func readPackages(t *testing.T, in string) map[string]*goPackage {
	t.Helper()
	out := map[string]*goPackage{}
	files := token.NewFileSet()
	doctest.EachFile(t, in, func(name string) {
		name = path.Join(in, name)
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return
		}
		file, err := parser.ParseFile(files, name, nil, parser.ImportsOnly|parser.ParseComments)
		require.NoError(t, err)
		if ignored(file) {
			return
		}
		dir := path.Dir(name)
		p := out[dir]
		if p == nil {
			p = &goPackage{}
			out[dir] = p
		}
		p.main = file.Name.Name == "main"
		p.doc = p.doc || file.Doc != nil && len(file.Doc.Text()) > 0
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			if local, ok := strings.CutPrefix(imported, module); ok {
				p.imports = append(p.imports, local)
			} else if strings.Contains(imported, ".") {
				p.outside = append(p.outside, imported)
			}
		}
	})
	require.NotEmpty(t, out)
	return out
}

func ignored(file *ast.File) bool {
	for _, group := range file.Comments {
		for _, c := range group.List {
			if c.Pos() < file.Package && c.Text == "//go:build ignore" {
				return true
			}
		}
	}
	return false
}

// within reports whether a package is root or in a folder below it.
func within(pkg, root string) bool { return pkg == root || strings.HasPrefix(pkg, root+"/") }

func anyWithin(pkg string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return within(pkg, root) })
}

// wallOf returns the longest key of mayImport that applies to a package.
func wallOf(pkg string) (wall string) {
	for root := range mayImport {
		if within(pkg, root) && len(root) > len(wall) {
			wall = root
		}
	}
	return wall
}

// reach returns all packages that pkg imports directly or indirectly.
func reach(packages map[string]*goPackage, pkg string) map[string]bool {
	seen := map[string]bool{}
	for todo := []string{pkg}; len(todo) > 0; todo = todo[1:] {
		if p := packages[todo[0]]; p != nil {
			for _, imported := range p.imports {
				if !seen[imported] {
					seen[imported] = true
					todo = append(todo, imported)
				}
			}
		}
	}
	return seen
}

func TestImportsFlowOneWay(t *testing.T) {
	packages := readPackages(t, ".")
	for root := range mayImport {
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(packages)),
			func(pkg string) bool { return within(pkg, root) }), "mayImport names %s, which does not exist", root)
	}
	for pkg := range packages {
		wall := wallOf(pkg)
		if anyWithin(pkg, tops) || within(pkg, "internal") {
			continue
		}
		require.NotEmpty(t, wall, "package %s has no entry in mayImport", pkg)
		if anyWithin(pkg, testOnly) {
			continue
		}
		allowed := append([]string{wall, "internal"}, mayImport[wall]...)
		for imported := range reach(packages, pkg) {
			require.False(t, anyWithin(imported, testOnly), "%s must not depend on %s, which is for tests", pkg, imported)
			require.True(t, anyWithin(imported, allowed), "%s must not depend on %s: mayImport allows %v", pkg, imported,
				mayImport[wall])
		}
	}
	for pkg, p := range packages {
		for _, imported := range p.imports {
			if anyWithin(imported, tops) {
				require.True(t, anyWithin(pkg, tops), "%s must not import %s", pkg, imported)
			}
			require.Contains(t, packages, imported, "%s imports a package that does not exist", pkg)
		}
	}
	// The most important rules, stated again without the table.
	for _, bytesOnly := range []string{"wire", "relay", "issuer", "accountant", "randomizer"} {
		for imported := range reach(packages, bytesOnly) {
			require.False(t, within(imported, "protocols"), "%s must not depend on %s", bytesOnly, imported)
		}
	}
}

// servers are the programs that run in production. notInServers matches what none of them may link: test helpers, the
// laboratory, WebAssembly engines, builders, and packages only for task owners and readers.
var (
	servers      = []string{"./cmd/relay", "./cmd/issuer", "./cmd/verifier"}
	notInServers = regexp.MustCompile(`^` + module + `(internal/(testing|quickstart|openloop)|lab|planner|wasm|` +
		`shufflerclient)(/|$)|^github.com/(tetratelabs/wazero|evanw/esbuild)(/|$)`)
)

func TestServersLinkOnlyWhatTheyNeed(t *testing.T) {
	out, err := exec.Command("go", append([]string{"list", "-deps"}, servers...)...).Output()
	require.NoError(t, err)
	linked := strings.Fields(string(out))
	require.Contains(t, linked, module+"verifier/server")
	for _, pkg := range linked {
		require.NotRegexp(t, notInServers, pkg)
	}
}

func TestEveryPackageIsDocumented(t *testing.T) {
	for pkg, p := range readModules(t) {
		require.True(t, p.doc, "package %s has no package comment", pkg)
	}
}

// TestPackagesHaveNamesOfTheirOwn: no two packages of this module have the same name, except programs.
func TestPackagesHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]string{}
	for pkg := range readPackages(t, ".") {
		if anyWithin(pkg, tops) {
			continue
		}
		name := path.Base(pkg)
		require.NotContains(t, seen, name, "two packages have one name: %s and %s", seen[name], pkg)
		seen[name] = pkg
	}
}

// Limits on the number of packages: those that others may import, and all, including tests and commands. Before you
// raise a limit, ask whether a new package could be a file of an existing one.
const (
	maxImportable = 41
	maxPackages   = 98
	maxFolders    = 20 // in the repository's root
)

// TestHouseStaysSmall limits the number of packages that other modules may import. TestWalls limits the number of all
// packages.
func TestHouseStaysSmall(t *testing.T) {
	packages, importable := readPackages(t, "."), 0
	for pkg, p := range packages {
		if !p.main && !strings.Contains("/"+pkg+"/", "/internal/") {
			importable++
		}
	}
	require.LessOrEqual(t, importable, maxImportable, "number of packages that other modules may import")
}

// maxDependencies is how many other modules go.mod may require directly.
const maxDependencies = 17

var requirement = regexp.MustCompile(`(?m)^(?:require)?\s+(\S+\.\S+) v\S+$`)

// TestDependencies: go.mod requires few modules directly, and docs/dependencies.md gives a reason for each.
func TestDependencies(t *testing.T) {
	doc, err := os.ReadFile("docs/dependencies.md")
	require.NoError(t, err)
	direct := directDependencies(t)
	require.LessOrEqual(t, len(direct), maxDependencies, "%v", direct)
	for _, name := range direct {
		require.Contains(t, string(doc), "| `"+name+"` |", "docs/dependencies.md must say why go.mod requires it")
	}
}

// TestOneVersion: every file that states the version of the format agrees with task.Version. The version occurs in
// labels, HTTP paths and the folder of the vectors.
func TestOneVersion(t *testing.T) {
	mention := regexp.MustCompile(`doona-v(\d+)|/v(\d+)/(?:tasks|keys)|testdata/v(\d+)`)
	found := 0
	doctest.EachFile(t, ".", func(name string) {
		switch filepath.Ext(name) {
		case ".go", ".ts", ".md", ".mjs", ".html":
		default:
			return
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range mention.FindAllStringSubmatch(string(text), -1) {
			require.Equal(t, strconv.Itoa(task.Version), m[1]+m[2]+m[3], "%s: %s", name, m[0])
			found++
		}
	})
	require.NotZero(t, found)
	_, err := os.Stat(filepath.Join("testdata", "v"+strconv.Itoa(task.Version)))
	require.NoError(t, err)
	spec, err := os.ReadFile("docs/SPEC.md")
	require.NoError(t, err)
	require.Contains(t, string(spec), "version "+strconv.Itoa(task.Version))
}

// TestPathsStandInOnePlace: only package wire/endpoint builds HTTP paths in Go. Tests and texts for people may spell
// them out.
func TestPathsStandInOnePlace(t *testing.T) {
	built := regexp.MustCompile(
		`/v\d+/(?:tasks/?(?:[%{]|$)|keys)|/(?:epochs|batches)/(?:[%{]|$)|^/(?:reports|confirm)$`)
	require.Regexp(t, built, "%s/v1/tasks/%s", "the search must match a path")
	require.Regexp(t, built, "/epochs/")
	found := map[string]int{}
	doctest.EachFile(t, ".", func(name string) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			if text, err := strconv.Unquote(literal.Value); err == nil && built.MatchString(text) {
				found[path.Dir(name)]++
			}
			return true
		})
	})
	require.Equal(t, []string{"wire/endpoint"}, slices.Collect(maps.Keys(found)))
}

// maxColumns is the widest line of code, with 4 columns for a tab. String literals do not count, so that no message
// needs a line break.
const maxColumns = 120

func eachFile(t *testing.T, f func(name string)) {
	t.Helper()
	for _, module := range modules {
		doctest.EachFile(t, module, func(name string) { f(path.Join(module, name)) })
	}
}

// TestLinesFit: no line of code is wider than maxColumns. Raw strings may be wider.
func TestLinesFit(t *testing.T) {
	literal := regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|'(?:[^'\\\\]|\\\\.)*'|`[^`]*`")
	tab := strings.NewReplacer("\t", "    ")
	clean := 0
	eachFile(t, func(name string) {
		ext := path.Ext(name)
		if ext != ".go" && ext != ".ts" && ext != ".mjs" || strings.Contains(name, "/vendor/") {
			return
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		raw := false
		for i, line := range strings.Split(string(text), "\n") {
			code := literal.ReplaceAllString(line, "")
			within := raw
			if strings.Count(code, "`")%2 == 1 && !strings.HasPrefix(strings.TrimSpace(line), "//") {
				raw = !raw
				within = true
			}
			width := utf8.RuneCountInString(tab.Replace(code))
			assert.True(t, within || width <= maxColumns, "%s:%d: %d columns", name, i+1, width)
			clean++
		}
	})
	require.NotZero(t, clean)
}

// maxFile is the largest size of a committed file, in bytes. Built programs are larger.
const maxFile = 2 << 20

// TestFilesAreSmall: nobody committed a built program or a dump by mistake. It ignores files that .gitignore names.
func TestFilesAreSmall(t *testing.T) {
	ignored, err := os.ReadFile(".gitignore")
	require.NoError(t, err)
	names := strings.Split(string(ignored), "\n")
	eachFile(t, func(name string) {
		info, err := os.Stat(name)
		require.NoError(t, err)
		if !slices.Contains(names, "/"+name) {
			require.LessOrEqual(t, info.Size(), int64(maxFile), name)
		}
	})
}
