package server_test

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/onion"
)

// executable is the path of the verifier command. TestMain builds it once.
var executable string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "verifier")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		executable = filepath.Join(dir, "verifier")
		build := exec.Command("go", "build", "-o", executable, "github.com/doona-dp/doona/cmd/verifier")
		if out, err := build.CombinedOutput(); err != nil {
			panic("couldn't build the verifier: " + err.Error() + "\n" + string(out))
		}
		return m.Run()
	}())
}

// process is a `verifier serve` in its own process.
type process struct {
	running
	cmd *exec.Cmd
	log bytes.Buffer
}

// start starts a process with the given flags and free addresses. It waits until the process is ready.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	pages, admin := relaytest.FreeAddress(t), relaytest.FreeAddress(t)
	return begin(t, pages, admin, append([]string{"--listen", pages, "--admin", admin, "--interval", "20ms"}, args...)...)
}

// startConfig does what start does, with a configuration file that has the addresses.
func startConfig(t *testing.T, file, pages, admin string) *process {
	t.Helper()
	return begin(t, pages, admin, "--config", file)
}

func begin(t *testing.T, pages, admin string, args ...string) *process {
	t.Helper()
	p := &process{running: running{pages: "http://" + pages, admin: "http://" + admin}}
	p.cmd = exec.Command(executable, append([]string{"serve"}, args...)...)
	p.cmd.Stderr = &p.log
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { p.cmd.Process.Kill() })
	require.Eventually(t, func() bool {
		resp, err := http.Get(p.admin + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusNoContent
	}, relaytest.Patience, 10*time.Millisecond)
	return p
}

// TestProcess: SIGTERM must end a verifier with status 0 and release its folder. kill -9 must lose nothing. A second
// process on the folder must end with status 1 and say why.
func TestProcess(t *testing.T) {
	c := newCascade(t, 1, 1)
	rogue := c.StartFirst(t)
	flags := []string{"--task", filepath.Join(c.Dir, "task0.bundle"), "--keys", c.VerifierKeys("task0"), "--sign-key",
		c.VerifierSign(), "--data", filepath.Join(t.TempDir(), "data")}
	rogue.Serve(t, 0, 0, rogue.Batch(t, 0, 0, batchSize, onion.Lanes{sealed(t, c)}))
	p := start(t, flags...)
	p.wait(t, c.Open, batches(1))

	out, err := exec.Command(executable,
		append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...).CombinedOutput()
	require.ErrorContains(t, err, "exit status 1")
	require.Contains(t, string(out), "another process uses it")

	require.NoError(t, p.cmd.Process.Kill())
	p.cmd.Wait()
	rogue.Answer(0, 0, confirmed)
	rogue.Serve(t, 0, 1, rogue.Batch(t, 0, 1, batchSize, onion.Lanes{sealed(t, c)}))
	p = start(t, flags...)
	require.Empty(t, p.wait(t, c.Open, batches(2)).Findings)

	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.cmd.Wait(), p.log.String())
	require.Contains(t, p.log.String(), "drained")
	p = start(t, flags...)
	require.EqualValues(t, 2, p.report(t, c.Open).Batches)
}

// TestProcessDrainsAStuckPull: a relay that never answers must not prevent the verifier from stopping.
func TestProcessDrainsAStuckPull(t *testing.T) {
	c := newCascade(t, 1, 1)
	rogue := c.StartFirst(t)
	asked := make(chan struct{}, 1)
	rogue.Answer(0, 0, func(_ http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		<-req.Context().Done()
	})
	p := start(t, "--task", filepath.Join(c.Dir, "task0.bundle"), "--keys", c.VerifierKeys("task0"), "--sign-key",
		c.VerifierSign(), "--data", t.TempDir())
	<-asked
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.cmd.Wait(), p.log.String())
}

// TestProcessFromAFile: verifier.yaml can set everything without flags.
func TestProcessFromAFile(t *testing.T) {
	c := newCascade(t, 1, 1)
	pages, admin := relaytest.FreeAddress(t), relaytest.FreeAddress(t)
	file := filepath.Join(c.Dir, "verifier", "verifier.yaml")
	text := strings.NewReplacer("PAGES", pages, "ADMIN", admin, "OWNER", c.Owner).Replace(`listen: PAGES
admin: ADMIN
sign_key: sign.key
data: data
late: 30m
tasks:
  - {file: ../task0.bundle, owner: "OWNER", hpke_keys: task0.keys}
`)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	cmd := exec.Command(executable, "serve", "--config", file)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	c.WaitReady(t, admin)
	r := &running{pages: "http://" + pages}
	require.Equal(t, "Nothing has been added yet.", r.report(t, c.Open).Verdict)
	require.DirExists(t, filepath.Join(c.Dir, "verifier", "data", c.Open.ID.String()))
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
	for _, args := range [][]string{{}, {"--config", file, "--data", "x"}, {"--config", file, "--admin", "x"},
		{"--task", "t", "--keys", "k", "--sign-key", "s"}} {
		cmd := exec.Command(executable, append([]string{"serve"}, args...)...)
		require.ErrorContains(t, cmd.Run(), "exit status 2", "%v", args)
	}
}
