package server_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

// lastContact is when the last relay answered: the only part of a report that is not about results.
var lastContact = regexp.MustCompile(`"last_contact":\d+,`)

// TestRestoredFromABackup: an operator's monitoring asks a real verifier for /status 1,000 times, which must leave the
// ledger unchanged. The data folder is then restored from a backup, on the same machine and on one that has only a copy
// of the keys without a mark. Both must give the same page, JSON and CSV, and charge nothing more.
func TestRestoredFromABackup(t *testing.T) {
	const epochs = 3
	c := newCascade(t, 1, 1, func(draft *task.Task) {
		draft.Epochs.Start -= uint64(5 * draft.Epochs.Length)
		draft.Epochs.Count = 5
	})
	rogue := c.StartFirst(t)
	for epoch := range uint64(epochs) {
		rogue.Serve(t, epoch, 0, rogue.Batch(t, epoch, 0, batchSize, onion.Lanes{sealedIn(t, c, epoch)}))
		if epoch < epochs-1 {
			rogue.End(epoch)
		}
	}
	keys, err := os.ReadFile(c.VerifierKeys("task0"))
	require.NoError(t, err)
	cfg := config(t, c, filepath.Join(t.TempDir(), "data"), 0)
	flags := func(keys, data string) []string {
		return []string{"--task", filepath.Join(c.Dir, "task0.bundle"), "--keys", keys, "--sign-key", c.VerifierSign(),
			"--data", data}
	}
	pages := func(p *process) (all [3]string) {
		p.wait(t, c.Open, func(s summary) bool { return s.Batches == epochs && len(s.Ledger.Epochs) == epochs })
		for i, path := range []string{"", "api/report", "api/report.csv"} {
			_, page := fetch(t, p.pages+"/tasks/"+c.Open.ID.String()+"/"+path)
			all[i] = lastContact.ReplaceAllString(page, "")
		}
		return all
	}
	var want [3]string
	same := func(p *process) { // once the relay has answered all that it was asked at the start
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, want, pages(p)) }, time.Minute,
			100*time.Millisecond)
	}
	stop := func(p *process) {
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, p.cmd.Wait(), p.log.String())
	}
	p := start(t, flags(c.VerifierKeys("task0"), cfg.Data)...)
	pages(p)
	charged := ledgerOf(t, cfg)
	for range 1000 {
		fetch(t, p.admin+"/status")
	}
	require.Equal(t, charged, ledgerOf(t, cfg))
	want = pages(p)
	stop(p)

	backup := filepath.Join(t.TempDir(), "backup")
	require.NoError(t, exec.Command("cp", "-a", cfg.Data, backup).Run())
	require.NoError(t, os.RemoveAll(cfg.Data))
	require.NoError(t, exec.Command("cp", "-a", backup, cfg.Data).Run())
	p = start(t, flags(c.VerifierKeys("task0"), cfg.Data)...)
	same(p)
	require.Equal(t, charged, ledgerOf(t, cfg))
	stop(p)

	elsewhere := filepath.Join(t.TempDir(), "task0.keys")
	require.NoError(t, os.WriteFile(elsewhere, keys, 0o600))
	p = start(t, flags(elsewhere, backup)...)
	same(p)
	restored := cfg
	restored.Data = backup
	for name, content := range ledgerOf(t, restored) {
		if filepath.Dir(name) == filepath.Join(backup, "ledger") {
			require.Equal(t, charged[filepath.Join(cfg.Data, "ledger", filepath.Base(name))], content)
		}
	}
}
