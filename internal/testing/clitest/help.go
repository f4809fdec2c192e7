package clitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
)

// data is the one data file that examples may read, relative to the module's root.
const data = "cmd/demo/flights.csv.gz"

// Help checks the --help of root and all its commands: each needs a sentence and an example, and each number its range.
// It runs every example in a folder with the demo's flights, except the lines in skip, whose values say why.
func Help(t *testing.T, root *cobra.Command, skip map[string]string, others ...string) {
	t.Setenv("PATH", build(t, others)+string(os.PathListSeparator)+os.Getenv("PATH"))
	flights, err := os.ReadFile(filepath.Join(doctest.Root(t), data))
	require.NoError(t, err)
	skipped := map[string]bool{}
	for _, cmd := range commands(root) {
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			require.NotEmpty(t, cmd.Short)
			require.True(t, cmd.Long != "" || cmd.HasSubCommands(), "no text")
			require.NotEmpty(t, cmd.Example, "no example")
			checkFlags(t, cmd)
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(data)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, data), flights, 0o644))
			for _, line := range exampleLines(cmd) {
				if _, ok := skip[line]; ok {
					skipped[line] = true
				} else {
					runExample(t, dir, line)
				}
			}
		})
	}
	for line := range skip {
		require.True(t, skipped[line], "the list of skipped examples has %q, which is no example", line)
	}
}

// commands returns root and all commands below it, except hidden ones and those that cobra adds.
func commands(root *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{root}
	for _, cmd := range root.Commands() {
		if cmd.Name() != "help" && cmd.Name() != "completion" && !cmd.Hidden {
			out = append(out, commands(cmd)...)
		}
	}
	return out
}

// flagLine matches a line in cobra's list of flags: the name, the type (not for booleans) and the usage.
var flagLine = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)(?: (\w+))?   +(.*)$`)

func checkFlags(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	for _, m := range flagLine.FindAllStringSubmatch(cmd.LocalFlags().FlagUsages(), -1) {
		name, kind, usage := m[1], m[2], m[3]
		require.NotEmpty(t, usage, "--%s", name)
		if slices.Contains([]string{"int", "uint", "float", "duration"}, kind) {
			usage, _, _ = strings.Cut(usage, "(default")
			require.Regexp(t, `[0-9]`, usage, "the usage of --%s must say which numbers are allowed", name)
		}
	}
}

func exampleLines(cmd *cobra.Command) (lines []string) {
	for line := range strings.Lines(strings.ReplaceAll(cmd.Example, "\\\n", "")) {
		if line = strings.Join(strings.Fields(line), " "); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// makeDemo matches a command that runs the demo in a clone.
var makeDemo = regexp.MustCompile(`^make demo ARGS="(.*)"$`)

func runExample(t *testing.T, dir, line string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", makeDemo.ReplaceAllString(line, "demo $1"))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", line, out)
}
