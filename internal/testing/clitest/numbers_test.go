package clitest_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/clitest"
)

// TestJudge: a panic, a slow or large run, a number that is none, and an error without flag or range must be faults.
func TestJudge(t *testing.T) {
	const mb = 1 << 20
	refusal := "prog: invalid n 0: want 1 to 9\n"
	require.Empty(t, clitest.Judge(0, "n = 3\n", "", time.Second, 100*mb))
	require.Empty(t, clitest.Judge(2, "", refusal, time.Second, 100*mb))
	require.Empty(t, clitest.Judge(2, "", "prog: invalid n 0: want no --n without --m\n", time.Second, 100*mb))
	require.Empty(t, clitest.Judge(1, "", "prog: no way\n", time.Second, 100*mb))
	require.Empty(t, clitest.Judge(0, "--n=Infinite\n", "", time.Second, 100*mb))
	for _, fault := range []string{
		clitest.Judge(2, "", "panic: runtime error\n\ngoroutine 1 [running]:\n", time.Second, 100*mb),
		clitest.Judge(2, "", refusal+"fatal error: out of memory\n", time.Second, 100*mb),
		clitest.Judge(2, "", refusal, 10*time.Second, 100*mb),
		clitest.Judge(0, "n = 3\n", "", 10*time.Second, 100*mb),
		clitest.Judge(-1, "", "", time.Second, 100*mb),
		clitest.Judge(0, "n = 3\n", "", time.Second, 501*mb),
		clitest.Judge(0, "error NaN\n", "", time.Second, 100*mb),
		clitest.Judge(0, "ε₀ = +Inf\n", "", time.Second, 100*mb),
		clitest.Judge(2, "", "prog: invalid m 0: want 1 to 9\n", time.Second, 100*mb),
		clitest.Judge(2, "", "prog: invalid n 0\n", time.Second, 100*mb),
		clitest.Judge(1, "", "prog: couldn't encode the result\n", time.Second, 100*mb),
		clitest.Judge(2, "", "prog: no way\n", time.Second, 100*mb),
	} {
		require.NotEmpty(t, fault)
	}
}

// program is a program in the shell with a number --n, which it refuses unless it is 7, a server, and a file.
const program = `case "$*" in
run*"--n 7") echo answered ;;
run*) echo "prog: invalid n: want 7" >&2; exit 2 ;;
serve*) sleep 600 >/dev/null 2>&1 & trap "kill $!; exit 0" TERM; echo ready on port 5; wait ;;
read*) grep -q "most: 7$" "$3" && exit; echo "prog: invalid most: want 7" >&2; exit 1 ;;
esac
`

// TestNumbersOfAProgram: the cases come from flags and files. A server is stopped once it says that it serves.
func TestNumbersOfAProgram(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prog"), []byte("#!/bin/sh\n"+program), 0o700))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	root := &cobra.Command{Use: "prog"}
	run := &cobra.Command{Use: "run", Run: func(*cobra.Command, []string) {}}
	run.Flags().Int("n", 1, "a number")
	serve := &cobra.Command{Use: "serve", Run: func(*cobra.Command, []string) {}}
	root.AddCommand(run, serve)
	begin := time.Now()
	clitest.Numbers(t, root, clitest.Examples{Lines: []string{"prog run --n 7", "prog serve # until port [0-9]"}})
	clitest.FileNumbers(t, clitest.Examples{Setup: "echo 'most: 7' >a.yaml",
		Lines: []string{"prog read --file ../given/a.yaml"}}, "a.yaml", "most")
	require.Less(t, time.Since(begin), 4*time.Minute, "the server was not stopped")
}

func TestKeys(t *testing.T) {
	type inner struct {
		Share float64 `yaml:"share"`
		Not   int     `yaml:"-"`
	}
	type outer struct {
		Pause time.Duration `yaml:"pause"`
		Most  *uint16       `yaml:"most,omitempty"`
		Name  string        `yaml:"name"`
		Inner []inner       `yaml:"inner"`
		TLS   *inner        `yaml:"tls"`
	}
	require.Equal(t, []string{"most", "pause", "share"}, clitest.Keys(reflect.TypeFor[outer](), "yaml"))
}
