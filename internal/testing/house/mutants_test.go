package house_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/stretchr/testify/require"
)

const (
	root        = "." // TestMain changes into the repository's root
	mutantsFile = "testdata/mutants.json"
)

var fix = flag.Bool("fix", false, "update mutants whose functions, names or tests have moved")

// mutant is a small change that breaks a promise, and the test that must then fail. Go code is found by its syntax
// tree: it may move within its folder and be reformatted. TypeScript code must occur once in its file, with any white
// space.
type mutant struct {
	Name        string `json:"name"`
	File        string `json:"file,omitempty"`     // the TypeScript file, from the module's root
	Folder      string `json:"folder,omitempty"`   // the folder of the Go code
	Function    string `json:"function,omitempty"` // F, (*T).F, or the name of a variable, constant or type
	Code        string `json:"code"`               // an expression, statement or case, or consecutive ones
	Nth         int    `json:"nth,omitempty"`      // which occurrence, from 1, if the function has several
	Replacement string `json:"replacement"`
	Promise     string `json:"promise"` // what the change breaks
	Package     string `json:"package"` // the test's Go package, or its TypeScript file
	Test        string `json:"test"`
}

func (m *mutant) script() bool { return m.File != "" }

func readMutants(t *testing.T) (all []*mutant) {
	t.Helper()
	text, err := os.ReadFile(mutantsFile)
	require.NoError(t, err)
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	require.NoError(t, in.Decode(&all))
	require.NotEmpty(t, all)
	return all
}

func writeMutants(t *testing.T, all []*mutant) {
	t.Helper()
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetEscapeHTML(false)
	out.SetIndent("", " ")
	require.NoError(t, out.Encode(all))
	require.NoError(t, os.WriteFile(mutantsFile, text.Bytes(), 0o644))
}

// apply returns the path of the file that the mutant changes, relative to the root, and the changed text.
func (m *mutant) apply(h house) (file string, changed []byte, err error) {
	if m.script() {
		text, err := os.ReadFile(filepath.Join(root, m.File))
		if err != nil {
			return "", nil, err
		}
		at, err := one(findScript(string(text), m.Code), m.Nth, m.File)
		return m.File, replace(text, at, m.Replacement), err
	}
	of := h.named(m.Folder, m.Function)
	if len(of) != 1 {
		return "", nil, fmt.Errorf("folder %s has %d declarations of %s, want 1", m.Folder, len(of), m.Function)
	}
	d := of[0]
	found, _ := d.find(m.Code, false)
	at, err := one(found, m.Nth, d.file+", "+m.Function)
	if err != nil {
		return "", nil, err
	}
	changed = replace(d.text, at, m.Replacement)
	after, err := declarations(d.folder, d.file, changed)
	if err != nil {
		return "", nil, err
	}
	if added := tokens([]byte(m.Replacement)); len(added) > 0 {
		same := slices.IndexFunc(after, func(a declaration) bool { return a.name == d.name && a.from == d.from })
		now := span{at.from + added[0].from, at.from + added[len(added)-1].to}
		if same < 0 || !after[same].isNode(now) {
			return "", nil, errors.New("the replacement merges with the code next to it: put it in parentheses or choose a larger node")
		}
	}
	return d.file, changed, nil
}

// one returns the only place found, or the nth place if there are several and nth is given.
func one(found []span, nth int, where string) (span, error) {
	switch {
	case nth == 0 && len(found) == 1:
		return found[0], nil
	case nth > 0 && nth <= len(found) && len(found) > 1:
		return found[nth-1], nil
	}
	return span{}, fmt.Errorf("%s contains the code %d times (nth is %d)", where, len(found), nth)
}

func replace(text []byte, at span, replacement string) []byte {
	return slices.Concat(text[:at.from], []byte(replacement), text[at.to:])
}

// findScript returns where the code occurs in a text, ignoring white space.
func findScript(text, code string) (found []span) {
	var dense strings.Builder
	var places []int // offset in text of each byte of dense
	for i := range len(text) {
		if !unicode.IsSpace(rune(text[i])) {
			dense.WriteByte(text[i])
			places = append(places, i)
		}
	}
	want := strings.Join(strings.Fields(code), "")
	for from := 0; want != ""; {
		i := strings.Index(dense.String()[from:], want)
		if i < 0 {
			break
		}
		from += i + len(want)
		found = append(found, span{places[from-len(want)], places[from-1] + 1})
	}
	return found
}

// TestMutantsApply: every mutant still changes exactly one place, the changed file parses, and the mutant's test
// exists. With -fix, it updates mutants whose function, names or test have moved, if the new place is unambiguous.
func TestMutantsApply(t *testing.T) {
	h, names, all := readHouse(t), map[string]bool{}, readMutants(t)
	for _, m := range all {
		require.False(t, names[m.Name], m.Name)
		names[m.Name] = true
		require.NotEmpty(t, m.Promise, m.Name)
		if _, _, err := m.apply(h); err != nil {
			t.Log(m.follow(t, h, err))
		}
		if !hasTest(t, m.Package, m.Test) {
			t.Log(m.followTest(t))
		}
		_, changed, err := m.apply(h)
		if err != nil || !hasTest(t, m.Package, m.Test) {
			t.Fail()
			continue
		}
		if m.script() {
			require.Empty(t, api.Transform(string(changed), api.TransformOptions{Loader: api.LoaderTS}).Errors, m.Name)
		}
	}
	if *fix {
		writeMutants(t, all)
	}
	require.False(t, t.Failed(), "mutants do not apply: run go test -run MutantsApply ./internal/testing/house -fix and read the diff")
}

// testHead returns the text with which a test begins in a file.
func testHead(file, test string) string {
	if strings.HasSuffix(file, ".ts") {
		return "\ntest('" + test + "', "
	}
	return "\nfunc " + test + "(t *testing.T) {"
}

func hasTest(t *testing.T, pkg, test string) bool {
	t.Helper()
	files := []string{filepath.Join(root, pkg)}
	if filepath.Ext(pkg) != ".ts" {
		var err error
		files, err = filepath.Glob(filepath.Join(files[0], "*_test.go"))
		require.NoError(t, err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && bytes.Contains(text, []byte(testHead(file, test)))
	})
}

// follow says where the code of a mutant that no longer applies is now. With -fix, it updates the mutant.
func (m *mutant) follow(t *testing.T, h house, problem error) string {
	t.Helper()
	var where []mutant
	if m.script() {
		for _, file := range filesOf(t, filepath.Dir(filepath.Dir(m.File)), ".ts") {
			moved := *m
			moved.File = file
			where = append(where, moved)
		}
	} else {
		where = m.moved(h)
	}
	where = slices.DeleteFunc(where, func(moved mutant) bool {
		_, _, err := moved.apply(h)
		return err != nil
	})
	for _, sure := range []func(mutant) bool{
		func(moved mutant) bool { return moved.Code == m.Code && moved.Function == m.Function },
		func(moved mutant) bool { return moved.Code == m.Code && bare(moved.Function) == bare(m.Function) },
		func(moved mutant) bool { return moved.Folder == m.Folder && moved.Function == m.Function },
		func(moved mutant) bool { return moved.Code == m.Code },
		func(moved mutant) bool { return bare(moved.Function) == bare(m.Function) },
	} {
		some := slices.DeleteFunc(slices.Clone(where), func(moved mutant) bool { return !sure(moved) })
		if len(some) == 1 {
			return m.become(some[0], problem.Error())
		}
	}
	text := fmt.Sprintf("%s: %v:\n%s", m.Name, problem, m.Code)
	for _, moved := range where {
		text += fmt.Sprintf("\n  perhaps it is now in %s%s, %s", moved.Folder, moved.File, moved.Function)
	}
	return text
}

// become describes how the mutant would change. With -fix, it changes the mutant.
func (m *mutant) become(moved mutant, problem string) string {
	text := fmt.Sprintf("%s: %s; it is now in %s%s, %s", m.Name, problem, moved.Folder, moved.File, moved.Function)
	if moved.Code != m.Code {
		text += fmt.Sprintf("\n%s\n=>\n%s", moved.Code, moved.Replacement)
	}
	if moved.Package != m.Package {
		text += "; its test is in " + moved.Package
	}
	if *fix {
		*m = moved
	}
	return text
}

// bare returns a function's name without the type of its receiver.
func bare(function string) string { return function[strings.LastIndex(function, ".")+1:] }

// moved returns a copy of the mutant for every place at which its code occurs, also with other names.
func (m *mutant) moved(h house) (all []mutant) {
	for _, declarations := range h {
		for _, d := range declarations {
			for _, rename := range []bool{false, true} {
				found, names := d.find(m.Code, rename)
				if rename && bare(d.name) != bare(m.Function) {
					found = nil // too many functions have code of this form
				}
				for i, at := range found {
					if rename && len(names[i]) == 0 {
						continue // already found without renaming
					}
					moved := *m
					moved.Folder, moved.Function = d.folder, d.name
					if rename {
						moved.Code = string(d.text[at.from:at.to])
						moved.Replacement = renameAll(m.Replacement, names[i])
					}
					if !slices.Contains(all, moved) {
						all = append(all, moved)
					}
				}
			}
		}
	}
	return all
}

func renameAll(code string, names map[string]string) string {
	out, done := "", 0
	for _, t := range tokens([]byte(code)) {
		if to, ok := names[t.text]; ok && t.name {
			out, done = out+code[done:t.from]+to, t.to
		}
	}
	return out + code[done:]
}

// followTest says where the mutant's test is now. With -fix, it updates the mutant.
func (m *mutant) followTest(t *testing.T) string {
	t.Helper()
	problem, ext := fmt.Sprintf("there is no test %s in %s", m.Test, m.Package), "_test.go"
	if m.script() {
		ext = ".spec.ts"
	}
	var found []mutant
	for _, file := range filesOf(t, ".", ext) {
		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		if !bytes.Contains(text, []byte(testHead(file, m.Test))) {
			continue
		}
		moved := *m
		if moved.Package = file; !m.script() {
			moved.Package = "./" + filepath.Dir(file)
		}
		found = append(found, moved)
	}
	if len(found) == 1 {
		return m.become(found[0], problem)
	}
	return fmt.Sprintf("%s: %s; %d other files have a test of this name", m.Name, problem, len(found))
}
