package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// batchSize is small, so γ is large: most of the tests' privacy comes from the local randomizer.
const batchSize = 10

// newCascade sets up relays for tasks that all ask for the mean of numbers from 0 to 10.
func newCascade(t *testing.T, hops, tasks int, change ...func(*task.Task)) *relaytest.Cascade {
	t.Helper()
	return relaytest.New(t, relaytest.Options{Hops: hops, Tasks: tasks, Task: relaytest.Mean(batchSize, change...)})
}

// config returns the configuration of a verifier of some of the cascade's tasks. data is its folder.
func config(t *testing.T, c *relaytest.Cascade, data string, tasks ...int) server.Config {
	t.Helper()
	out := server.Config{SignKey: c.VerifierSign(), Data: data, PullInterval: 20 * time.Millisecond}
	for _, i := range tasks {
		name := fmt.Sprint("task", i)
		out.Tasks = append(out.Tasks, server.TaskConfig{File: filepath.Join(c.Dir, name+".bundle"), Owner: c.Owner,
			HPKEKeys: c.VerifierKeys(name)})
	}
	return out
}

// running is a verifier that serves over HTTP in this process.
type running struct {
	pages, admin string // URLs of the pages and of the admin address
	stop         func()
}

// serve runs a verifier until the test ends or calls stop.
func serve(t *testing.T, cfg server.Config) *running {
	t.Helper()
	var err error
	cfg.Listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg.AdminListener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := server.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r := &running{pages: "http://" + cfg.Listener.Addr().String(), admin: "http://" + cfg.AdminListener.Addr().String()}
	r.stop = func() {
		if cancel(); done != nil {
			require.NoError(t, <-done)
			done = nil
		}
	}
	t.Cleanup(r.stop)
	return r
}

func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(raw)
}

// summary has the parts of a report that the tests read.
type summary struct {
	Users, Batches, Verified uint64
	Verdict                  string
	Findings                 []finding.Finding
	Progress                 verifier.Progress
	Ledger                   published
}

func (s *summary) names() (out []finding.Name) {
	for _, f := range s.Findings {
		out = append(out, f.Name)
	}
	return out
}

func (r *running) report(t *testing.T, open *taskfile.Open) (out summary) {
	t.Helper()
	status, body := fetch(t, r.pages+"/tasks/"+open.ID.String()+"/api/report")
	require.Equal(t, http.StatusOK, status, body)
	require.NoError(t, json.Unmarshal([]byte(body), &out))
	return out
}

// wait waits until ok accepts the report of a task, and returns that report.
func (r *running) wait(t *testing.T, open *taskfile.Open, ok func(summary) bool) summary {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		got := r.report(t, open)
		if ok(got) {
			return got
		}
		require.True(t, time.Now().Before(deadline), "%+v", got)
	}
}

func batches(n uint64) func(summary) bool { return func(s summary) bool { return s.Batches == n } }

// play sends reports of task i for some batches to the first relay. first numbers the clients' networks.
func play(t *testing.T, c *relaytest.Cascade, i, first, batches int) {
	t.Helper()
	client, err := shufflerclient.Connect(t.Context(),
		shufflerclient.Options{Task: c.TaskURL(i), Owner: c.Owner, MaxEpsilon: 10})
	require.NoError(t, err)
	for n := range batches * batchSize {
		r, err := client.Report(0, []float64{7})
		require.NoError(t, err)
		header := http.Header{"X-Forwarded-For": {relaytest.Network(first + n)}}
		require.NoError(t, client.WithHeader(header).Submit(t.Context(), r))
	}
}

// kept returns the names of the stored batches and ends in a folder.
func kept(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, f := range files {
		if _, ok := collect.ParseFileName(f.Name()); ok {
			names = append(names, f.Name())
		}
	}
	return names
}

// TestOneTaskThenTwoThenOne: restarting with other tasks on the same data folder must not lose anything.
func TestOneTaskThenTwoThenOne(t *testing.T) {
	c := newCascade(t, 2, 3)
	c.StartAll(t)
	data := filepath.Join(t.TempDir(), "data")
	play(t, c, 0, 0, 2)
	play(t, c, 1, 0, 1)
	play(t, c, 2, 0, 3)

	r := serve(t, config(t, c, data, 0))
	r.wait(t, c.Bundles[0], batches(2))
	r.stop()
	first := filepath.Join(data, c.Bundles[0].ID.String())
	require.Len(t, kept(t, first), 2)

	r = serve(t, config(t, c, data, 1, 2)) // not the task whose files are in the folder
	r.wait(t, c.Bundles[1], batches(1))
	r.wait(t, c.Bundles[2], batches(3))
	r.stop()
	require.Empty(t, kept(t, data))
	require.Len(t, kept(t, first), 2)

	for _, tasks := range [][]int{{0, 1, 2}, {0}, {2, 0}, {1}, {0, 1}} {
		r = serve(t, config(t, c, data, tasks...))
		for _, i := range tasks {
			got := r.report(t, c.Bundles[i])
			require.EqualValues(t, []uint64{2, 1, 3}[i], got.Batches, "task %d of %v", i, tasks)
			require.Empty(t, got.Findings)
		}
		r.stop()
	}
	play(t, c, 0, 100, 1)
	r = serve(t, config(t, c, data, 0))
	require.Empty(t, r.wait(t, c.Bundles[0], batches(3)).Findings)
}

func quarantineFile(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(folder, collect.QuarantineFolder))
	require.NoError(t, err)
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// TestADamagedFileIsPutAsideAndFetchedAnew: a damaged file must move to quarantine, and be pulled again if the relay
// still has the batch. Otherwise the batch is missing. The others count in any case.
func TestADamagedFileIsPutAsideAndFetchedAnew(t *testing.T) {
	for name, damage := range map[string]func(raw []byte) []byte{
		"truncated": func(raw []byte) []byte { return raw[:len(raw)/2] },
		"empty":     func([]byte) []byte { return nil },
		"a bit":     func(raw []byte) []byte { return append(raw[:len(raw)-1:len(raw)-1], raw[len(raw)-1]^1) },
		"longer":    func(raw []byte) []byte { return append(raw[:len(raw):len(raw)], 0) },
		"garbage":   func([]byte) []byte { return []byte("nothing of the kind") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCascade(t, 1, 1)
			rogue := c.StartFirst(t)
			data := filepath.Join(t.TempDir(), "data")
			for seq := range uint64(3) {
				rogue.Serve(t, 0, seq, rogue.Batch(t, 0, seq, batchSize, onion.Lanes{sealed(t, c)}))
			}
			r := serve(t, config(t, c, data, 0))
			r.wait(t, c.Open, batches(3))
			r.stop()
			folder := filepath.Join(data, c.Open.ID.String())
			path := filepath.Join(folder, kept(t, folder)[1])
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			spoil := func() { require.NoError(t, os.WriteFile(path, damage(raw), 0o600)) }
			forget := func() { // as if the verifier had crashed before it stored the record
				records, err := filepath.Glob(filepath.Join(folder, "000000-000001-*.record"))
				require.NoError(t, err)
				require.Len(t, records, 1)
				require.NoError(t, os.Remove(records[0]))
			}
			spoil()
			forget()

			r = serve(t, config(t, c, data, 0))
			got := r.wait(t, c.Open, batches(3)) // this relay still serves the batch after its confirmation
			require.Equal(t, []finding.Name{finding.Quarantined}, got.names())
			require.Equal(t, "Not everything added up.", got.Verdict)
			require.Equal(t, []string{filepath.Base(path)}, quarantineFile(t, folder))
			r.stop()

			spoil()
			rogue.Answer(0, 1, confirmed)
			r = serve(t, config(t, c, data, 0))
			got = r.report(t, c.Open)
			require.EqualValues(t, 3, got.Batches, "what it held is written down")
			require.Equal(t, []finding.Name{finding.Quarantined}, got.names())
			require.EqualValues(t, 2, got.Findings[0].Count, "a file stays a finding until the operator removes it from quarantine")
			r.stop()

			forget()
			r = serve(t, config(t, c, data, 0))
			got = r.wait(t, c.Open, func(s summary) bool { return len(s.Findings) == 3 })
			require.EqualValues(t, 2, got.Batches)
			require.Equal(t, []finding.Name{finding.Gap, finding.Missing,
				finding.Quarantined}, got.names())
		})
	}
}

// confirmed answers like a relay that deleted the batch after its confirmation.
func confirmed(w http.ResponseWriter, _ *http.Request) { problem.New(problem.Confirmed, "").Write(w) }

// sealed returns the slots of a batch, as the only relay passes them on.
func sealed(t *testing.T, c *relaytest.Cascade) (out [][]byte) {
	t.Helper()
	client, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: 10})
	require.NoError(t, err)
	opener := c.Opener(t, 0, 0)
	for range batchSize {
		r, err := client.Report(0, []float64{7})
		require.NoError(t, err)
		envelope, err := opener.OpenEnvelope(r.Body)
		require.NoError(t, err)
		out = append(out, envelope.Lanes[0]...)
	}
	return out
}

// over moves a task into the past, so that its first epoch ended one and a half hours ago.
func over(draft *task.Task) { draft.Epochs.Start -= uint64(draft.Epochs.Length * 5 / 2) }

// TestADamagedEnd: the file of an epoch's signed end can be damaged like other files. The sum of the epoch is in
// another file, so nothing may be lost.
func TestADamagedEnd(t *testing.T) {
	c := newCascade(t, 1, 1, over)
	rogue := c.StartFirst(t)
	data := filepath.Join(t.TempDir(), "data")
	rogue.Serve(t, 0, 0, rogue.Batch(t, 0, 0, batchSize, onion.Lanes{sealed(t, c)}))
	rogue.End(0)
	r := serve(t, config(t, c, data, 0))
	epoch := filepath.Join(data, c.Open.ID.String(), "000000.epoch")
	r.wait(t, c.Open, func(summary) bool {
		_, err := os.Stat(epoch)
		return err == nil
	})
	r.stop()
	end := filepath.Join(data, c.Open.ID.String(), collect.FileName{End: true}.String())
	raw, err := os.ReadFile(end)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(end, raw[1:], 0o600))

	got := serve(t, config(t, c, data, 0)).report(t, c.Open)
	require.Equal(t, []finding.Name{finding.Quarantined}, got.names())
	require.Eventually(t, func() bool {
		again, err := os.ReadFile(end)
		return err == nil && bytes.Equal(raw, again)
	}, 10*time.Second, 10*time.Millisecond)
}

// TestTheFormerLayoutIsRefused: an error must name batches in the data folder itself, and they must stay. Other files
// there are the operator's.
func TestTheFormerLayoutIsRefused(t *testing.T) {
	c := newCascade(t, 1, 2)
	for _, name := range []string{"000003-000004.batch", "000003.end", collect.QuarantineFolder} {
		data := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(data, "notes.txt"), []byte("the operator's"), 0o600))
		former := filepath.Join(data, name)
		require.NoError(t, os.WriteFile(former, []byte("nothing"), 0o600))
		for range 2 {
			_, err := server.New(config(t, c, data, 0, 1))
			require.ErrorContains(t, err, name+" has the layout of an old version: move it to")
		}
		require.FileExists(t, former)
		require.NoError(t, os.Remove(former))
		s, err := server.New(config(t, c, data, 0, 1))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		require.FileExists(t, filepath.Join(data, "notes.txt"))
	}
}

// TestOneProcessAFolder: a second verifier must not start on a folder in use, or on one of its tasks' folders. The
// first must not notice it.
func TestOneProcessAFolder(t *testing.T) {
	c := newCascade(t, 1, 2)
	data := filepath.Join(t.TempDir(), "data")
	r := serve(t, config(t, c, data, 0))
	_, err := server.New(config(t, c, data, 1))
	require.ErrorIs(t, err, durable.ErrClaimed)
	_, err = server.New(config(t, c, filepath.Join(data, c.Bundles[0].ID.String()), 0))
	require.ErrorIs(t, err, durable.ErrClaimed)
	r.report(t, c.Bundles[0])
	r.stop()
	s, err := server.New(config(t, c, data, 1))
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func (r *running) metric(t *testing.T, name string) string {
	t.Helper()
	_, text := fetch(t, r.admin+"/metrics")
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
	require.NotNil(t, m, "%s in\n%s", name, text)
	return m[1]
}

// TestHealth follows a verifier while its relay becomes unreachable and returns, and while its folder cannot be
// written.
func TestHealth(t *testing.T) {
	c := newCascade(t, 1, 1)
	rogue := c.StartFirst(t)
	data := filepath.Join(t.TempDir(), "data")
	r := serve(t, config(t, c, data, 0))
	of := `{task="` + c.Open.ID.String()[:8] + `"}`
	status, _ := fetch(t, r.admin+"/healthz")
	require.Equal(t, http.StatusNoContent, status)
	status, _ = fetch(t, r.pages+"/metrics")
	require.Equal(t, http.StatusNotFound, status, "not on the public address")
	contact := func(want verifier.Contact) func(summary) bool {
		return func(s summary) bool { return s.Progress.Contact == want }
	}
	require.Equal(t, "Nothing has been added yet.", r.wait(t, c.Open, contact(verifier.ContactThere)).Verdict)
	require.Equal(t, "0", r.metric(t, "doona_verifier_relay_unreachable"+of))
	require.NotEqual(t, "0", r.metric(t, "doona_verifier_last_contact_timestamp_seconds"+of))

	rogue.Serve(t, 0, 0, rogue.Batch(t, 0, 0, batchSize, onion.Lanes{sealed(t, c)}))
	require.Equal(t, "Everything added up.", r.wait(t, c.Open, batches(1)).Verdict)
	rogue.Answer(0, 1, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	got := r.wait(t, c.Open, contact(verifier.ContactAway))
	require.Equal(t, "The last relay does not answer, so batches may be missing.", got.Verdict)
	require.NotZero(t, got.Progress.LastContact)
	require.Equal(t, "1", r.metric(t, "doona_verifier_relay_unreachable"+of))
	require.Equal(t, "1", r.metric(t, "doona_verifier_batches"+of))
	require.Equal(t, "1", r.metric(t, "doona_verifier_ready"), "that is not this verifier's to mend")

	folder := filepath.Join(data, c.Open.ID.String())
	require.NoError(t, os.Rename(folder, folder+".away"))
	rogue.Serve(t, 0, 1, rogue.Batch(t, 0, 1, batchSize, onion.Lanes{sealed(t, c)}))
	r.wait(t, c.Open, func(summary) bool { // a batch that cannot be stored makes the verifier not ready
		status, _ := fetch(t, r.admin+"/readyz")
		return status == http.StatusServiceUnavailable
	})
	require.False(t, rogue.Confirmed(0, 1))
	require.NoError(t, os.Rename(folder+".away", folder))
	r.wait(t, c.Open, batches(2))
	r.wait(t, c.Open, func(summary) bool { // it is ready again after a pull that stored everything
		status, _ := fetch(t, r.admin+"/readyz")
		return status == http.StatusNoContent
	})
	_, text := fetch(t, r.admin+"/status")
	var now server.Status
	require.NoError(t, json.Unmarshal([]byte(text), &now))
	require.EqualValues(t, 2, now.Tasks[0].Batches)
	require.Equal(t, c.Open.ID.String(), now.Tasks[0].ID)
	require.Empty(t, now.Tasks[0].Findings)
	_, text = fetch(t, r.admin+"/metrics")
	require.NotContains(t, text, "doona_verifier_findings{", "findings have no series while there are none")
}

// TestLate: an epoch without a signed end must count as late some time after its end, until the signed end comes.
func TestLate(t *testing.T) {
	c := newCascade(t, 1, 1, over)
	rogue := c.StartFirst(t)
	rogue.Serve(t, 0, 0, rogue.Batch(t, 0, 0, batchSize, onion.Lanes{sealed(t, c)}))
	cfg := config(t, c, t.TempDir(), 0)
	cfg.Late = 2 * time.Hour
	r := serve(t, cfg)
	got := r.wait(t, c.Open, batches(1))
	require.Empty(t, got.Progress.Late, "epoch 0 is over for an hour and a half")
	require.Equal(t, "Everything added up.", got.Verdict)
	r.stop()
	cfg.Late = 80 * time.Minute
	r = serve(t, cfg)
	got = r.wait(t, c.Open, func(s summary) bool { return s.Progress.Contact == verifier.ContactThere })
	require.Equal(t, []uint64{0}, got.Progress.Late)
	require.Contains(t, got.Verdict, "overdue")
	rogue.End(0)
	rogue.End(1)
	got = r.wait(t, c.Open, func(s summary) bool { return s.Progress.Contact == verifier.ContactOver })
	require.Empty(t, got.Progress.Late)
	require.EqualValues(t, 2, got.Progress.Ended)
	require.Equal(t, "Everything added up.", got.Verdict)
}

// TestARemainderIsNoFinding: a last batch of an epoch with fewer than n clients is no finding.
func TestARemainderIsNoFinding(t *testing.T) {
	c := newCascade(t, 1, 1)
	rogue := c.StartFirst(t)
	rogue.Serve(t, 0, 0, rogue.Batch(t, 0, 0, batchSize, onion.Lanes{sealed(t, c)}))
	rogue.Serve(t, 0, 1, rogue.Sealed(t, onion.BatchDraft{Seq: 1, Submissions: 3, In: []uint64{3}}, nil))
	r := serve(t, config(t, c, t.TempDir(), 0))
	got := r.wait(t, c.Open, func(s summary) bool { return rogue.Confirmed(0, 1) })
	require.Empty(t, got.Findings)
	require.Equal(t, "Everything added up.", got.Verdict)
}

// TestBadConfig: an error in the configuration must name the field.
func TestBadConfig(t *testing.T) {
	c := newCascade(t, 1, 2)
	for name, change := range map[string]func(*server.Config){
		"listen":        func(cfg *server.Config) { cfg.Listen = "nowhere" },
		"admin":         func(cfg *server.Config) { cfg.Admin = "nowhere" },
		"admin_hosts":   func(cfg *server.Config) { cfg.AdminHosts = []string{"a", "http://b"} },
		"invalid hosts": func(cfg *server.Config) { cfg.Hosts = []string{"a:80"} },
		"sign_key":      func(cfg *server.Config) { cfg.SignKey = "" },
		"data":          func(cfg *server.Config) { cfg.Data = "" },
		"pull_interval": func(cfg *server.Config) { cfg.PullInterval = time.Millisecond },
		"late":          func(cfg *server.Config) { cfg.Late = time.Millisecond },
		"tasks":         func(cfg *server.Config) { cfg.Tasks = nil },
		"both for each": func(cfg *server.Config) { cfg.Tasks[0].HPKEKeys = "" },
		"each task":     func(cfg *server.Config) { cfg.Tasks = append(cfg.Tasks, cfg.Tasks[0]) },
		"owner":         func(cfg *server.Config) { cfg.Tasks[0].Owner = "someone" },
		"its owner is": func(cfg *server.Config) {
			cfg.Tasks[0].Owner = taskfile.FormatKey(c.Open.Verifier.SignKey)
		},
		"the key of the verifier that task": func(cfg *server.Config) {
			cfg.SignKey = filepath.Join(c.Dir, "owner.key")
		},
	} {
		cfg := config(t, c, t.TempDir(), 0)
		change(&cfg)
		_, err := server.New(cfg)
		require.ErrorContains(t, err, name)
	}
	file := filepath.Join(t.TempDir(), "verifier.yaml")
	require.NoError(t, os.WriteFile(file, []byte("lisen: 1"), 0o600))
	_, err := server.LoadConfig(file)
	require.ErrorContains(t, err, "lisen")
	require.NoError(t, os.WriteFile(file, []byte("hosts: [stats.example]\nadmin_hosts: [scraped]"), 0o600))
	cfg, err := server.LoadConfig(file)
	require.NoError(t, err)
	require.Equal(t, []string{"stats.example", "scraped"}, append(cfg.Hosts, cfg.AdminHosts...))
}

// TestScannersMakeNoSeries: requests for 10,000 different paths must add no line to the metrics.
func TestScannersMakeNoSeries(t *testing.T) {
	s, err := server.New(config(t, newCascade(t, 1, 1), t.TempDir(), 0))
	require.NoError(t, err)
	defer s.Close()
	shown := relaytest.Series(t, s.AdminHandler())
	relaytest.Scan(t, s.Handler())
	require.Equal(t, shown, relaytest.Series(t, s.AdminHandler()))
}
