package house_test

import (
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/wire/task"
)

func eachDocument(t *testing.T, f func(name, text string)) {
	t.Helper()
	doctest.EachFile(t, ".", func(name string) {
		if strings.HasSuffix(name, ".md") {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			f(name, string(text))
		}
	})
}

// TestLinksInDocuments: every link in a Markdown file to this repository leads to an existing file and heading. The
// README must link to every document.
func TestLinksInDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	found := 0
	eachDocument(t, func(name, text string) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if file, ours := strings.CutPrefix(target, "https://github.com/doona-dp/doona/blob/main/"); ours {
				target = file
			} else if strings.Contains(target, ":") {
				continue
			} else if target = path.Join(path.Dir(name), target); m[1][0] == '#' {
				target = name
			}
			linked, _ := os.ReadFile(target) // nil for a folder
			_, statErr := os.Stat(target)
			assert.NoError(t, statErr, "%s: %s", name, m[1])
			if anchor != "" {
				assert.Contains(t, anchors(string(linked)), anchor, "%s: %s", name, m[1])
			}
			found++
		}
	})
	require.NotZero(t, found)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	for _, document := range append(documents, "www/sdk/README.md") {
		assert.Contains(t, string(readme), "]("+document+")")
	}
}

// anchors returns the link names that GitHub makes of a Markdown text's headings.
func anchors(text string) (names []string) {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		names = append(names, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return names
}

// TestMentionedDocuments: every Markdown file that a source file or document mentions exists.
func TestMentionedDocuments(t *testing.T) {
	mention := regexp.MustCompile(`[\w./-]*\w\.md\b`)
	found := 0
	doctest.EachFile(t, ".", func(name string) {
		if !slices.Contains([]string{".go", ".md", ".mjs", ".sh", ".ts"}, path.Ext(name)) ||
			strings.Contains(name, "/vendor/") {
			return
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range mention.FindAllString(string(text), -1) {
			_, url, _ := strings.Cut(m, "/main/")
			assert.True(t, slices.ContainsFunc([]string{m, url, path.Join(path.Dir(name), m), path.Join("docs", m)},
				func(at string) bool {
					info, err := os.Stat(at)
					return err == nil && !info.IsDir()
				}), "%s: %s", name, m)
			found++
		}
	})
	require.NotZero(t, found)
}

// TestNamesInDocuments: the files, tests and make targets that documents name exist. It ignores names of files that a
// build or a user creates: those in build/ or bin/, or outside the repository's folders.
func TestNamesInDocuments(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	full, err := os.ReadFile("scripts/test-full.sh")
	require.NoError(t, err)
	parts := strings.Fields(regexp.MustCompile(`(?m)^parts="(.*)"$`).FindStringSubmatch(string(full))[1])
	tests := map[string]bool{}
	doctest.EachFile(t, ".", func(name string) {
		if strings.HasSuffix(name, "_test.go") {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllStringSubmatch(string(text), -1) {
				tests[m[1]] = true
			}
		}
	})
	file := regexp.MustCompile(`^(?:\./)?([a-z]+/[\w./*-]+)$`)
	target := regexp.MustCompile(`^make ([a-z-]+)(?: PART=(\S+))?`)
	found := map[string]int{}
	eachDocument(t, func(name, text string) {
		for _, m := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(text, -1) {
			assert.True(t, tests[m], "%s names the test %s, which does not exist", name, m)
			found["test"]++
		}
		for _, code := range doctest.Code(text) {
			if m := target.FindStringSubmatch(code); m != nil {
				assert.Contains(t, string(makefile), "\n"+m[1]+":", "%s: %s", name, code)
				for _, part := range strings.Split(m[2], "|") {
					assert.True(t, part == "" || part == "…" || slices.Contains(parts, part), "%s: %s", name, code)
				}
				found["target"]++
			}
			for _, word := range strings.Fields(code) {
				m := file.FindStringSubmatch(word)
				if m == nil {
					continue
				}
				top, _, _ := strings.Cut(m[1], "/")
				if _, err := os.Stat(top); err != nil || top == "build" || top == "bin" {
					continue
				}
				files, err := filepath.Glob(strings.TrimSuffix(m[1], "/..."))
				require.NoError(t, err)
				assert.NotEmpty(t, files, "%s names the file %s, which does not exist", name, m[1])
				found["file"]++
			}
		}
	})
	require.Len(t, found, 3)
}

// TestTheInventoryIsWhole: docs/data-inventory.md names every store in a visitor's browser. It or docs/relay.md must
// name every table of a relay.
func TestTheInventoryIsWhole(t *testing.T) {
	inventory, err := os.ReadFile("docs/data-inventory.md")
	require.NoError(t, err)
	manual, err := os.ReadFile("docs/relay.md")
	require.NoError(t, err)
	tables := 0
	for pattern, create := range map[string]*regexp.Regexp{
		"relay/internal/store/migrations/*/*.sql": regexp.MustCompile(`CREATE TABLE (\w+)`),
		"www/edge/report.ts":                      regexp.MustCompile(`(?m)^const store = '(\w+)';$`),
		"www/sdk/store-indexeddb.ts":              regexp.MustCompile(`(?m)^const \w+ = '(\w+)';$`),
		"www/sdk/document-cache.ts":               regexp.MustCompile(`(?m)^const \w+ = '(\w+)';$`),
	} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range files {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			for _, m := range create.FindAllStringSubmatch(string(text), -1) {
				where := string(inventory)
				if strings.HasSuffix(name, ".sql") {
					where += string(manual)
				}
				assert.Contains(t, where, "`"+m[1]+"`", "%s", name)
				tables++
			}
		}
	}
	require.Greater(t, tables, 30)
}

// TestProtocolsInDocument checks the table of docs/protocols.md against the code: every protocol, the queries it
// answers, and whether a client keeps any privacy if all relays collude.
func TestProtocolsInDocument(t *testing.T) {
	table := doctest.Table(t, "docs/protocols.md", "protocol", "queries", "what remains if all relays collude")
	all := registry.All()
	require.Len(t, table, len(all))
	for i, p := range all {
		require.Equal(t, fmt.Sprintf("[%[1]s](../protocols/%[1]s/%[1]s.go)", p.ProtocolName()), table[i][0])
		var queries []task.Query
		for _, word := range regexp.MustCompile(`\w+`).FindAllString(table[i][1], -1) {
			if query := task.Query(word); answers(all, query) {
				queries = append(queries, query)
			}
		}
		require.ElementsMatch(t, p.Row().Queries, queries, p.ProtocolName())
		draft, err := planner.Draft(planner.Example(p.ProtocolName(), p.Row().Trials[0], 1))
		require.NoError(t, err)
		m, err := registry.Open(draft)
		require.NoError(t, err)
		require.Equal(t, math.IsInf(m.Epsilon0(), 1), table[i][2] == "nothing", p.ProtocolName())
	}
}

func answers(all []protocols.Protocol, query task.Query) bool {
	return slices.ContainsFunc(all, func(p protocols.Protocol) bool { return slices.Contains(p.Row().Queries, query) })
}

// Limits in words, for each document: the median and the 95 % quantile of its sentences, and its longest paragraph.
const (
	medianSentence   = 14
	longSentence     = 28
	longestParagraph = 80
)

// prose returns the paragraphs and list items of a Markdown text. It leaves out code, tables and link targets.
func prose(text string) (paragraphs []string) {
	text = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```").ReplaceAllString(text, "")
	text = regexp.MustCompile(`\]\([^)]*\)|(?m)^\[[^]]+\]: .*$`).ReplaceAllString(text, "]")
	item := regexp.MustCompile(`\n\s*(?:[*-] |\d+\. |#+ |> )`)
	for _, block := range regexp.MustCompile(`\n\s*\n`).Split(text, -1) {
		for _, paragraph := range item.Split("\n"+block, -1) {
			if words := strings.Fields(paragraph); len(words) > 0 && words[0][0] != '|' {
				paragraphs = append(paragraphs, strings.Join(words, " "))
			}
		}
	}
	return paragraphs
}

var sentenceEnd = regexp.MustCompile("[.!?][\"”)\\]*`]*\\s+")

// sentences returns the number of words in each sentence, sorted.
func sentences(paragraphs []string) (lengths []int) {
	for _, p := range paragraphs {
		for _, sentence := range sentenceEnd.Split(p, -1) {
			if n := len(strings.Fields(sentence)); n > 0 {
				lengths = append(lengths, n)
			}
		}
	}
	slices.Sort(lengths)
	return lengths
}

// TestDocumentsAreReadable checks the lengths of sentences and paragraphs in all documents and logs them. To see them:
// go test -count=1 -run DocumentsAreReadable -v ./internal/testing/house
func TestDocumentsAreReadable(t *testing.T) {
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-40s %9s %6s %5s %9s\n", "document", "sentences", "median", "95 %", "paragraph")
	eachDocument(t, func(name, text string) {
		if strings.Contains(name, "/vendor/") {
			return
		}
		paragraphs, longest := prose(text), 0
		for _, p := range paragraphs {
			longest = max(longest, len(strings.Fields(p)))
		}
		lengths := sentences(paragraphs)
		median, long := lengths[len(lengths)/2], lengths[len(lengths)*95/100]
		fmt.Fprintf(&table, "%-40s %9d %6d %5d %9d\n", name, len(lengths), median, long, longest)
		assert.False(t, median > medianSentence || long > longSentence || longest > longestParagraph,
			"%s: median %d of %d words, 95 %% within %d of %d, longest paragraph %d of %d",
			name, median, medianSentence, long, longSentence, longest, longestParagraph)
	})
	t.Log(table.String())
}

// TestReadmeIsShort: the README has at most 120 lines and 700 words.
func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(text), "\n"), 120, "lines")
	require.LessOrEqual(t, len(strings.Fields(string(text))), 700, "words")
}
