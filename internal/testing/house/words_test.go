package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// retiredWords are words and phrases that were replaced, with the words that replaced them. No text file may have one.
var retiredWords = map[string]string{
	`(?i)\bset[- ]back\b|[sS]etBack|set_back|\bSETBACK\b`: "state rollback",
	`(?i)\brelay before (last|it|this)?\b`:                "upstream relay",
	`\bfor good\b`:                                        "permanently",
	`\bso many\b`:                                         "n",
	`(?i)crowd`:                                           "honest clients, simulated clients or batch",
	`(?i)\bspoilt\b`:                                      "destroyed, faulty",
	`(?i)\bdilut`:                                         "add dummies",
	`/v1/news\b`:                                          "/v1/updates",
	`Doona-Before`:                                        "Doona-History",
	`(?i)alone_?epsilon`:                                  "epsilon_no_honest",
	`added_epsilon`:                                       "epsilon_sum",
	`\bno-place\b|_no_place_|relay_places|verifier_away`:  "owner task limit, unreachable relay",
	`position-taken`:                                      "wrong-position",
	`\btask (state|roll)\b['\x60 ]`:                       "task transfer, stop, recover, rotate-key",
	`--(newest|begin|ahead|roll)\b`:                       "--latest-task, --new-ledger, --preseal-mb, --rotation",
	`\bwitnessed\b|\bWitness\b`:                           "record manifests",
	`internal/(mark|look|succession)\b`:                   "internal/rollback, display, taskstream",
}

// retiredNames may not be declared: nobody can guess what they mean.
var retiredNames = strings.Fields(`SetBack place places room isBehind behind making opening served lineup news heard
	waits had look turn stir beating spare judged meet Together Untold Told owed picture pile Settle SettleData settle
	settled Settlement tie Mood Dry Held Lead crowd crowds road convoy hopeless away Away alone Alone begun spoilt`)

// retiredExempt are files that quote retired words, are made by long runs, or are other people's.
var retiredExempt = regexp.MustCompile(`^(CHANGELOG\.md|docs/results\.(json|md)|docs/benchmarks\.json|` +
	`internal/testing/house/words_test\.go|www/vendor/.*|www/package-lock\.json|LICENSE)$`)

// TestRetiredWords: no text has a word that was replaced, and nothing is declared under a retired name.
func TestRetiredWords(t *testing.T) {
	var phrases []*regexp.Regexp
	for word := range retiredWords {
		phrases = append(phrases, regexp.MustCompile(word))
	}
	texts := 0
	eachFile(t, func(name string) {
		if retiredExempt.MatchString(name) {
			return
		}
		switch path.Ext(name) {
		case ".go", ".ts", ".mjs", ".md", ".sql", ".yaml", ".yml", ".sh", ".html", ".css", ".json", ".txt", ".txtar":
		default:
			return
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		texts++
		for _, phrase := range phrases {
			for _, at := range phrase.FindAllIndex(text, -1) {
				line := 1 + strings.Count(string(text[:at[0]]), "\n")
				assert.Fail(t, "retired word", "%s:%d: %q: want %s", name, line, text[at[0]:at[1]],
					retiredWords[phrase.String()])
			}
		}
		if path.Ext(name) == ".go" {
			for _, declared := range declaredNames(t, name, text) {
				assert.NotContains(t, retiredNames, declared, "%s declares %s", name, declared)
			}
		}
	})
	require.Greater(t, texts, 1000)
}

// declaredNames returns the types, functions, methods, package-level values and fields that a Go file declares.
func declaredNames(t *testing.T, name string, text []byte) (out []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	add := func(all ...*ast.Ident) {
		for _, one := range all {
			out = append(out, one.Name)
		}
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			add(decl.Name)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					add(spec.Names...)
				case *ast.TypeSpec:
					add(spec.Name)
					if form, ok := spec.Type.(*ast.StructType); ok {
						for _, field := range form.Fields.List {
							add(field.Names...)
						}
					}
				}
			}
		}
	}
	return out
}

// termTypes says which type a glossary term names where several packages of the product have a type of that name: the
// others are that type's form in another layer, as the note says.
var termTypes = map[string]string{}

// TestOneTypePerTerm: a term of the glossary names one type of the product. Tests, the laboratory and benches, which
// have models of their own, are exempt.
func TestOneTypePerTerm(t *testing.T) {
	glossary, err := os.ReadFile("docs/glossary.md")
	require.NoError(t, err)
	types := map[string][]string{}
	eachFile(t, func(name string) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || exemptFromTerms.MatchString(name) {
			return
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				term := strings.ToLower(spec.Name.Name)
				types[term] = append(types[term], path.Dir(name)+"."+spec.Name.Name)
			}
			return true
		})
	})
	terms := 0
	for _, m := range regexp.MustCompile(`(?m)^\| \*\*([\w ]+)\*\*`).FindAllStringSubmatch(string(glossary), -1) {
		term := strings.ToLower(strings.Map(func(r rune) rune {
			if unicode.IsSpace(r) {
				return -1
			}
			return r
		}, m[1]))
		terms++
		others := slices.DeleteFunc(slices.Clone(types[term]), func(name string) bool { return termTypes[name] != "" })
		assert.LessOrEqual(t, len(others), 1, "the term %q names %v", m[1], others)
	}
	require.Greater(t, terms, 20)
}

var exemptFromTerms = regexp.MustCompile(`^(lab|bench|beam|internal/testing|testdata|www|cmd/demo)/`)
