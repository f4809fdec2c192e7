package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pinned matches an action with its full commit and its version.
var pinned = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*$`)

// unpinned returns a workflow's actions that are named by a tag or branch, which someone could move.
func unpinned(workflow string) (bad []string) {
	for line := range strings.Lines(workflow) {
		_, action, ok := strings.Cut(line, "uses:")
		if action = strings.TrimSpace(action); ok && !pinned.MatchString(action) {
			bad = append(bad, action)
		}
	}
	return bad
}

// TestActionsArePinned: workflows name every action by its commit, because a tag can be moved to other code.
func TestActionsArePinned(t *testing.T) {
	commit := strings.Repeat("0a", 20)
	for action, good := range map[string]bool{
		"actions/checkout@" + commit + " # v4.4.0": true, "a/b/c@" + commit + " # v1": true, "actions/checkout@v4": false,
		"actions/checkout@main": false, "actions/checkout@" + commit: false, "actions/checkout@" + commit[1:] + " # v4": false,
		"docker://alpine:3": false, "./local": false, `"actions/checkout@v4"`: false,
	} {
		require.Equal(t, good, unpinned("    - uses: "+action+"\n") == nil, action)
	}
	files, err := filepath.Glob(filepath.Join(".github", "*", "*"))
	require.NoError(t, err)
	actions := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Empty(t, unpinned(string(text)), file)
		actions += strings.Count(string(text), "uses:")
	}
	require.Positive(t, actions)
}
