package relay_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// writtenBytes returns how many bytes a process has caused to be written to disk, in whole pages, as Linux counts them.
func writtenBytes(t testing.TB, p *process) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid))
	require.NoError(t, err)
	return numberIn(t, string(text), "write_bytes:")
}

// metricOf returns a process's metric that has no labels.
func metricOf(t testing.TB, p *process, name string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + p.admin + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return numberIn(t, string(text), name)
}

// numberIn returns the number after name, where name is at the start of a line.
func numberIn(t testing.TB, text, name string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
	require.Len(t, found, 2, "%s in %s", name, text)
	number, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return number
}
