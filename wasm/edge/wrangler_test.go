//go:build workerd

package edge_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/workerd"
)

// TestWranglerDev runs wrangler dev with the shipped wrangler.jsonc, with only the tasks replaced. A posted value must
// reach a real relay, which makes a batch of it. The Durable Object in the file must not count a returning visitor
// twice. The environment variable WRANGLER names the program; scripts/edge-wrangler.sh installs wrangler and sets it.
func TestWranglerDev(t *testing.T) {
	program := os.Getenv("WRANGLER")
	if program == "" {
		t.Skip("needs wrangler: run scripts/edge-wrangler.sh")
	}
	c := cascade(t, nil)
	entry := sourced(map[string]any{"task": c.TaskURL(0), "owner": c.Owner, "maxEpsilon": 4})
	visit := map[string]any{"task": c.TaskURL(0), "owner": c.Owner, "maxEpsilon": 4, "source": "page"}
	doona, err := json.Marshal(map[string]any{"delay": 0, "tasks": map[string]any{"rating": entry, "visit": visit}})
	require.NoError(t, err)
	dev, log := startWrangler(t, program, string(doona))

	page := fromPage(t, dev, "/doona/visit", "192.0.2.77")
	for range 5 { // all from one network, which may report once
		status, answer, _ := send(t, dev, "POST", "/doona/visit", body(7), page)
		require.Equal(t, http.StatusNoContent, status, answer)
	}
	batch := func() uint64 { return c.Status(t, 0).Epochs[0].Batches }
	for i := range 18 {
		status, answer, _ := send(t, dev, "POST", "/doona/rating", body(i/2), nil)
		require.Equal(t, http.StatusNoContent, status, answer)
	}
	time.Sleep(3 * time.Second)
	require.Zero(t, batch(), "a batch was sealed with 19 of 20 reports: one network was counted twice")
	status, answer, _ := send(t, dev, "POST", "/doona/rating", body(3), nil)
	require.Equal(t, http.StatusNoContent, status, answer)
	require.Eventually(t, sealed(t, c), 20*time.Second, 20*time.Millisecond,
		"the relay did not seal a batch of 20 reports")

	status, answer, _ = send(t, dev, "POST", "/doona/rating", body("NaN"), nil)
	require.Equal(t, http.StatusBadRequest, status, answer)
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.NotContains(t, string(text), "doona: ", "the worker logged a dropped report")
	require.NotContains(t, string(text), "192.0.2.77")
}

// startWrangler runs wrangler dev until the test ends, with a value of the variable DOONA. It returns the running
// server and the path of its log.
func startWrangler(t *testing.T, program, doona string) (dev *workerd.Process, log string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	log = filepath.Join(t.TempDir(), "log")
	out, err := os.Create(log)
	require.NoError(t, err)
	command := exec.Command(program, "dev", "--local", "--config", "wrangler.jsonc", "--ip", "127.0.0.1", "--port",
		strconv.Itoa(port), "--inspector-port", "0", "--persist-to", t.TempDir(), "--show-interactive-dev-session=false",
		"--var", "DOONA:"+doona, "--var", "BACKEND:"+secret)
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a group of its own, as wrangler starts node and workerd
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		command.Wait()
		out.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Log(string(text))
		}
	})
	dev = &workerd.Process{URL: "http://127.0.0.1:" + strconv.Itoa(port)}
	require.Eventually(t, func() bool {
		resp, err := http.Get(dev.URL + "/doona/")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	}, time.Minute, 200*time.Millisecond, "wrangler dev did not start")
	return dev, log
}
