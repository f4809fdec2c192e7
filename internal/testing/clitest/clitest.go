// Package clitest tests a command line. Scripts check what a command prints, which files it writes and its exit status.
// Help checks a command's help and runs its examples. Numbers gives extreme numbers to its flags, and FileNumbers to
// its files. ByTheMinute checks that a log contains no time finer than a minute.
//
// A command's scripts are the files testdata/script/*.txtar in its folder. They are written for the tool testscript,
// with these additional commands:
//
//	exits STATUS COMMAND...            runs COMMAND and demands its exit status
//	json EXPRESSION                    demands that EXPRESSION is true for the last line of standard output
//	jsonenv NAME EXPRESSION            sets a variable to the value of EXPRESSION for that line
//	expand FILE                        replaces variables such as ${NAME} in a file by their values
//	rows FILE ROWS COLUMNS EXPRESSION  writes a CSV file: EXPRESSION of the row i and the column l
//
// In the COMMAND of exits, the word @FILE is replaced by the words in FILE, with variables expanded.
//
// An expression has Go's syntax. Its names are keys of the JSON object on the line. A key of an array gives the array
// of that key's values in all entries. Arithmetic and comparisons of arrays work entry by entry. A comparison is true
// if it is true for all entries. The functions are abs, sin, len and sum.
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
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

// Main is the TestMain of a command. It lets scripts run the command's main function as a program, under each of its
// names. It does not return.
func Main(m *testing.M, main func(), names ...string) {
	programs := map[string]func(){}
	for _, name := range names {
		programs[name] = main
	}
	testscript.Main(m, programs)
}

// Run runs the scripts in the working folder. It first builds the other commands that the scripts call.
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

// ByTheMinute fails the test if a line of a server's log has a time with seconds.
func ByTheMinute(t *testing.T, log string) {
	t.Helper()
	for line := range strings.Lines(log) {
		require.Regexp(t, `^time=\S+:00\.000(Z|[+-]\d\d:\d\d) `, line)
	}
}

// JSONByTheMinute fails the test if a line of a server's log is no JSON or has a time with seconds.
func JSONByTheMinute(t *testing.T, log string) {
	t.Helper()
	for line := range strings.Lines(log) {
		var event struct{ Time time.Time }
		require.NoError(t, json.Unmarshal([]byte(line), &event), line)
		require.Equal(t, event.Time, event.Time.Truncate(time.Minute))
	}
}

// build builds commands of this module and returns the folder of the programs.
func build(t *testing.T, commands []string) string {
	t.Helper()
	bin := t.TempDir()
	if len(commands) == 0 {
		return bin
	}
	// Go reruns a cached test if a file that the test has read has changed. It does not count files that go build
	// reads. So read all files of the module here.
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
		ts.Fatalf("%s is %v, want true", args[0], ok)
	}
}

func setenv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: jsonenv NAME EXPRESSION")
	}
	ts.Setenv(args[0], fmt.Sprint(ofLastLine(ts, args[1])))
}

// ofLastLine evaluates an expression for the last line of standard output.
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
