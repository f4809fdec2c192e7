package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

const retiredFile = "internal/testing/house/retired.txt"

// TestRetiredWords: code, documents, file names and messages contain none of the words that [retiredFile] forbids.
func TestRetiredWords(t *testing.T) {
	list, err := os.ReadFile(retiredFile)
	require.NoError(t, err)
	retired, forms, better := []*regexp.Regexp{}, []string{}, []string{}
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimRight(line, "\n"); !strings.HasPrefix(line, "#") {
			form, instead, ok := strings.Cut(line, "\t")
			require.True(t, ok, line)
			retired, forms = append(retired, regexp.MustCompile(form)), append(forms, form)
			better = append(better, instead)
		}
	}
	files, every := 0, regexp.MustCompile(strings.Join(forms, "|"))
	doctest.EachFile(t, ".", func(name string) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		if name == retiredFile || name == "CHANGELOG.md" || strings.HasPrefix(name, "www/vendor/") || isBinary(text) {
			return
		}
		files++
		if !every.MatchString(name) && !every.Match(text) {
			return
		}
		for i, form := range retired {
			if at := form.FindStringIndex(name); at != nil {
				t.Errorf("%s: the file's name contains a retired word: say %s", name, better[i])
			}
			for _, at := range form.FindAllIndex(text, -1) {
				line := strings.Count(string(text[:at[0]]), "\n") + 1
				t.Errorf("%s:%d: retired word %q: say %s", name, line, text[at[0]:at[1]], better[i])
			}
		}
	})
	require.Greater(t, files, 1000)
}

func isBinary(text []byte) bool {
	return strings.IndexByte(string(text[:min(len(text), 8000)]), 0) >= 0
}

// families lists, for the glossary's terms, the packages whose type of that name means the term.
var families = map[string][]string{
	"bundle":    {"testdata/v1", "wire/tableset", "wire/taskfile"},
	"batch":     {"testdata/v1", "wire/onion", "wire/task"},
	"cap":       {"wire/task"},
	"client":    {"shufflerclient", "wasm/internal/client"},
	"epoch":     {"relay/internal/tasks", "verifier"},
	"finding":   {"relay", "relay/internal/store", "verifier/finding"},
	"issuer":    {"issuer"},
	"ledger":    {"internal/ledger", "shufflerclient", "verifier"},
	"manifest":  {"wire/onion"},
	"message":   {"wire/task"},
	"relay":     {"internal/quickstart", "relay", "www/testserver"},
	"report":    {"shufflerclient", "verifier"}, // the verifier's report is what it answers
	"slot":      {"verifier"},
	"statement": {"wire/taskfile"},
	"stream":    {"relay/internal/tasks", "shufflerclient"},
	"task":      {"wire/task"},
	"verifier":  {"verifier"},
	// In both packages a mark is a counter that shows a rollback: of a ledger, or of stores and keys.
	"mark": {"internal/ledger", "internal/rollback"},
}

// TestOneMeaningPerTerm: a type named like a term of the glossary means that term. List a new one in families, or
// rename it.
func TestOneMeaningPerTerm(t *testing.T) {
	glossary, err := os.ReadFile("docs/glossary.md")
	require.NoError(t, err)
	terms := map[string][]string{"mark": nil}
	for _, m := range regexp.MustCompile(`\*\*([a-z]+)\*\*`).FindAllStringSubmatch(string(glossary), -1) {
		terms[m[1]] = nil
	}
	declared := regexp.MustCompile(`(?m)^type (\w+)[ \[]`)
	doctest.EachFile(t, ".", func(name string) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			term := strings.ToLower(string(m[1]))
			if at, ok := terms[term]; ok {
				terms[term] = append(at, filepath.ToSlash(filepath.Dir(name)))
			}
		}
	})
	for term, packages := range terms {
		slices.Sort(packages)
		require.Equal(t, families[term], packages, "type %s: if it means what docs/glossary.md says, add its package to families, else rename it", term)
	}
	require.GreaterOrEqual(t, len(terms), 20)
}
