// Package clitest tests a command line: scripts pin what it prints, which files it writes and its exit status; its
// help must match its examples; and its log tells no time finer than the minute.
//
// A command's scripts are testdata/script/*.txtar beside it, in the language of testscript, with these additional
// commands:
//
//	exits STATUS COMMAND...            runs COMMAND and demands its exit status
//	json EXPRESSION                    demands that EXPRESSION holds of the last line of standard output
//	jsonenv NAME EXPRESSION            sets a variable to what EXPRESSION is of that line
//	expand FILE                        puts variables for their names, such as ${NAME}, in a file
//	rows FILE ROWS COLUMNS EXPRESSION  writes a CSV file: EXPRESSION of the row i and the column l
//
// In the COMMAND of exits, a word @FILE stands for the words of FILE, with variables expanded.
//
// An expression has Go's syntax. Names are the keys of the object; a key of an array is that key of every entry.
// Arithmetic and comparisons work entry by entry; a comparison holds if it holds for all entries. The functions are
// abs, sin, len and sum.
package clitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

// Main is the TestMain of a command: it makes the command's main function a program that scripts can run, under each
// of its names. It does not return.
func Main(m *testing.M, main func(), names ...string) {
	programs := map[string]func(){}
	for _, name := range names {
		programs[name] = main
	}
	testscript.Main(m, programs)
}

// Run runs the scripts of the command in the working folder. It first builds the other commands that they need.
func Run(t *testing.T, others ...string) {
	bin := build(t, others)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(os.PathListSeparator)+env.Getenv("PATH"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "expand": expand, "json": holds, "jsonenv": setenv, "rows": rows,
		},
	})
}

// ByTheMinute demands that no line of a server's log has a time finer than the minute.
func ByTheMinute(t *testing.T, log string) {
	t.Helper()
	for line := range strings.Lines(log) {
		require.Regexp(t, `^time=\S+:00\.000(Z|[+-]\d\d:\d\d) `, line)
	}
}

// build builds commands of the module into a folder.
func build(t *testing.T, commands []string) string {
	t.Helper()
	bin := t.TempDir()
	if len(commands) == 0 {
		return bin
	}
	// Go reruns a cached test if a file that the test has read has changed. Files read by a build do not count, so
	// read all files of the module.
	doctest.EachFile(t, "../..", func(string) {})
	args := []string{"build", "-o", bin + string(filepath.Separator)}
	for _, name := range commands {
		args = append(args, "../"+name)
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND...")
	}
	var words []string
	for _, word := range args[1:] {
		if file, ok := strings.CutPrefix(word, "@"); ok {
			words = append(words, strings.Fields(os.Expand(ts.ReadFile(file), ts.Getenv))...)
		} else {
			words = append(words, word)
		}
	}
	status, err := 0, ts.Exec(words[0], words[1:]...)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		status = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(status) != args[0] {
		ts.Fatalf("exit status %d, want %s", status, args[0])
	}
}

func expand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: expand FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o644))
}

func holds(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: json EXPRESSION")
	}
	if ok := ofLastLine(ts, args[0]); ok != true {
		ts.Fatalf("%s is %v and not true", args[0], ok)
	}
}

func setenv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: jsonenv NAME EXPRESSION")
	}
	ts.Setenv(args[0], fmt.Sprint(ofLastLine(ts, args[1])))
}

// ofLastLine evaluates an expression over the JSON object on the last line of standard output.
func ofLastLine(ts *testscript.TestScript, expression string) any {
	lines := strings.Split(strings.TrimSpace(ts.ReadFile("stdout")), "\n")
	var object map[string]any
	ts.Check(json.Unmarshal([]byte(lines[len(lines)-1]), &object))
	value, err := Eval(expression, object)
	ts.Check(err)
	return value
}

func rows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: rows FILE ROWS COLUMNS EXPRESSION")
	}
	height, err := strconv.Atoi(args[1])
	ts.Check(err)
	width, err := strconv.Atoi(args[2])
	ts.Check(err)
	var out strings.Builder
	for i := range height {
		line := make([]string, width)
		for l := range line {
			v, err := Eval(args[3], map[string]any{"i": float64(i), "l": float64(l)})
			ts.Check(err)
			line[l] = fmt.Sprint(v)
		}
		out.WriteString(strings.Join(line, ",") + "\n")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(out.String()), 0o644))
}
