package taskfile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestPaths: the paths must be those of docs/SPEC.md, because clients in other languages contain them.
func TestPaths(t *testing.T) {
	open := &taskfile.Open{ID: task.ID{0xab}, Task: &task.Task{
		Relays:  []task.Party{{URL: "https://one.example/a"}, {URL: "http://two.example:81"}},
		Clients: task.Clients{Issuer: task.Party{URL: "https://issuer.example"}},
	}}
	id := "ab" + strings.Repeat("00", 31)
	require.Equal(t, "/v1/keys", endpoint.KeysPath)
	require.Equal(t, "/v1/tasks/"+id, endpoint.PathOf(open.ID))
	for want, got := range map[string]string{
		"https://one.example/a/v1/tasks/" + id:                                          open.URL(),
		"https://one.example/a/v1/tasks/" + id + "/epochs/18446744073709551615/reports": open.ReportsURL(1<<64 - 1),
		"http://two.example:81/v1/tasks/" + id + "/epochs/3/batches/14":                 open.BatchURL(1, 3, 14),
		"http://two.example:81/v1/tasks/" + id + "/epochs/3/batches/14/confirm":         open.ConfirmURL(1, 3, 14),
		"https://issuer.example/v1/tasks/" + id + "/epochs/2/issuer-directory":          open.DirectoryURL(2),
		"https://issuer.example/v1/tasks/" + id + "/epochs/2/token-request":             open.TokenRequestURL(2),
	} {
		require.Equal(t, want, got)
	}
}
