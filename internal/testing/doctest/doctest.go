// Package doctest checks documents against programs: every command in a document must exist. It is not part of package
// clitest, because clitest cannot be compiled for a browser.
package doctest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

var (
	fence  = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```")
	inline = regexp.MustCompile("`([^`]+)`")
	help   = regexp.MustCompile("(?m)(?:'|(?:^|[`\"])  )([a-z]+ [^`'\"\n]+)")
	option = regexp.MustCompile(`(?:^|\s|\[)--([a-z0-9-]+)`)
)

// Code returns the code in a Markdown text: the lines of fenced blocks, and inline code.
func Code(text string) (code []string) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		code = append(code, strings.Split(strings.ReplaceAll(m[1], "\\\n", ""), "\n")...)
	}
	return append(code, matches(inline, fence.ReplaceAllString(text, ""))...)
}

// helpCode returns the quoted and the indented code in the help texts of a Go file.
func helpCode(text string) []string { return matches(help, strings.ReplaceAll(text, "\\\n", "")) }

func matches(form *regexp.Regexp, text string) (out []string) {
	for _, m := range form.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// Commands checks every call of the program root in the Markdown files and in the help of all programs. The command and
// its flags must exist. The test must run in a folder of cmd.
func Commands(t *testing.T, root *cobra.Command) {
	form := `^(?:\$ )?(?:\S+/)?` + root.Name() + `((?: +[^\s|;&#]+)*)`
	if !root.HasSubCommands() {
		form = `^make ` + root.Name() + ` ARGS="([^"]*)"`
	}
	call, calls := regexp.MustCompile(form), 0
	EachFile(t, "../..", func(name string) {
		read := helpCode
		switch {
		case strings.HasSuffix(name, ".md"):
			read = Code
		case !strings.HasPrefix(name, "cmd/") && !strings.HasPrefix(name, "internal/cli/"):
			return
		}
		text, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		for _, line := range read(string(text)) {
			if m := call.FindStringSubmatch(line); m != nil {
				calls++
				check(t, root, name, m[1])
			}
		}
	})
	require.NotZero(t, calls)
}

func check(t *testing.T, root *cobra.Command, path, args string) {
	t.Helper()
	cmd, rest, err := root.Find(strings.Fields(args))
	require.NoError(t, err, path)
	if cmd.Hidden && path == "CHANGELOG.md" { // the changelog may name old commands
		return
	}
	require.False(t, cmd.Hidden, "%s: %s%s is an old command: rename it here", path, root.Name(), args)
	require.True(t, cmd.Runnable() || len(rest) == 0 || rest[0] == "--help", "%s: %s%s is not a command", path,
		root.Name(), args)
	cmd.InitDefaultHelpFlag()
	for _, m := range option.FindAllStringSubmatch(args, -1) {
		require.True(t, cmd.Flag(m[1]) != nil, "%s: %s%s has no flag --%s", path, root.Name(), args, m[1])
	}
}

// Root returns the root folder of this repository's main module, which contains the working folder.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := root()
	require.NoError(t, err)
	return dir
}

// RunInRoot runs a package's tests in the repository's root; call it from TestMain. Go reruns a cached test if a file
// that it read has changed, and finds that file by the test's folder. As Go records a change of folder only while tests
// run, RunInRoot records this one itself.
func RunInRoot(m *testing.M) int {
	dir, err := root()
	if err == nil {
		err = os.Chdir(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if log := flag.Lookup("test.testlogfile"); log != nil && log.Value.String() != "" {
		const head = "# test log\n" // cmd/go/internal/test, testlogMagic
		text, err := os.ReadFile(log.Value.String())
		if err == nil {
			text = bytes.Replace(text, []byte(head), []byte(head+"chdir "+dir+"\n"), 1)
			err = os.WriteFile(log.Value.String(), text, 0o600)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/doona-dp/doona\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("couldn't find this repository's go.mod above the working folder")
		}
		dir = filepath.Dir(dir)
	}
}

// EachFile calls f with the path, relative to root, of every file of the module in root, except nested modules, tools
// and build results.
func EachFile(t *testing.T, root string, f func(name string)) {
	t.Helper()
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() {
			f(name)
			return nil
		}
		base := d.Name()
		if name != "." && (strings.HasPrefix(base, ".") || base == "node_modules" || name == "bin" || name == "build") {
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(root, name, "go.mod")); name != "." && err == nil {
			return fs.SkipDir
		}
		return nil
	}))
}

// Table returns some columns of a table in a Markdown file, row by row. It takes the only table that has all these
// columns.
func Table(t *testing.T, file string, columns ...string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var at []int // indexes of the columns in the current table
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			at = nil
		case at == nil:
			at = find(cells, columns)
		case !strings.HasPrefix(line, "|-"):
			row := make([]string, len(at))
			for i, column := range at {
				row[i] = cells[column]
			}
			rows = append(rows, row)
		}
	}
	require.NotEmpty(t, rows, "%s has no table with the columns %v", file, columns)
	return rows
}

// find returns the indexes of columns in a table's header, or nil if one is missing.
func find(header, columns []string) (at []int) {
	for _, c := range columns {
		i := slices.Index(header, c)
		if i < 0 {
			return nil
		}
		at = append(at, i)
	}
	return at
}
