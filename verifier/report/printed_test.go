package report_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier"
	"github.com/doona-dp/doona/verifier/collect"
	"github.com/doona-dp/doona/verifier/finding"
	"github.com/doona-dp/doona/verifier/report"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// These tests compare what programs print for stored batches with golden files. In testdata/printed, a .zip has a task,
// the verifier's keys and files. The .txt beside it has the terminal's text, and hashes of everything else that is
// printed or stored. A code change should change neither. -renew writes the texts again, -renew-batches everything.
var (
	renew        = flag.Bool("renew", false, "write the printed texts again")
	renewBatches = flag.Bool("renew-batches", false, "make new batches, too")
	printedTo    = flag.String("printed-to", "", "`folder` for all printed texts")
)

// renewed has the names of the cases whose batches this run has made.
var renewed = map[string]bool{}

const printedFolder = "testdata/printed"

func fileOf(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, ",", ""), " ", "-")
}

// smaller reduces the task of a query so that its batches take little space.
func smaller(q planner.Query) planner.Query {
	q.Batch = min(q.Batch, 60)
	if q.Padding == task.PaddingNone {
		q.Batch = 12
	}
	q.Dim = min(q.Dim, 20)
	if q.Query == task.Strings {
		q.Batch, q.Epsilon, q.Length = 150, 4, 2
	}
	return q
}

// printedCases returns the tasks whose batches one relay releases, with the value that all clients have.
func printedCases() (queries map[string]planner.Query, values map[string][]float64) {
	queries = map[string]planner.Query{
		"range": {Query: task.Histogram, Lo: -5, Hi: 5, Bins: 8, Clip: true, Batch: 50, Epsilon: 1, Delta: 1e-6},
		"many":  {Query: task.Histogram, Hi: 520, Bins: 520, Batch: 50, Epsilon: 4, Delta: 1e-6},
		"noisy count": {Query: task.Count, Batch: 50, Epsilon: 2, Delta: 1e-6,
			Relays: &planner.RelayNoise{Batches: 2}},
		"noisy labels": {Query: task.Histogram, Bins: 3, Labels: true, Batch: 50, Epsilon: 2, Delta: 1e-6,
			Relays: &planner.RelayNoise{Batches: 2}},
	}
	values = map[string][]float64{"range": {3}, "many": {3}, "noisy count": {1}, "noisy labels": {2}}
	for name, c := range everyProtocol {
		queries[name], values[name] = smaller(c.Query), c.Value[:min(len(c.Value), 20)]
	}
	return queries, values
}

// layOut sets up relays at fixed addresses.
func layOut(t *testing.T, hops int, draft *task.Task) *relaytest.Cascade {
	t.Helper()
	draft.Epochs = task.Epochs{Start: 1_600_000_000, Length: 86400, Count: 4}
	relays := make([]quickstart.Relay, hops)
	for hop := range relays {
		relays[hop] = quickstart.Relay{URL: fmt.Sprintf("https://relay%d.example", hop+1), Listen: "127.0.0.1:1"}
	}
	d, err := quickstart.Write(filepath.Join(t.TempDir(), "deployment"), relays,
		[]quickstart.Draft{{Name: "task0", Task: draft}})
	require.NoError(t, err)
	return (&relaytest.Cascade{Deployment: d}).Other(t, 0)
}

// makeBatches writes the .zip file of a case.
func makeBatches(t *testing.T, name string) {
	t.Helper()
	queries, values := printedCases()
	files := map[string][]byte{}
	add := func(at string, b interface{ Bytes() ([]byte, error) }) []byte {
		raw, err := b.Bytes()
		require.NoError(t, err)
		files[at] = raw
		return raw
	}
	var c *relaytest.Cascade
	if q, plain := queries[name]; plain {
		q.Name, q.Honest = name, 0.9
		draft, err := planner.Draft(q)
		require.NoError(t, err)
		c = layOut(t, 1, draft)
		var first []onion.Manifest
		for i, at := range [][2]uint64{{0, 0}, {1, 1}, {2, 0}} {
			b := wholeBatch(t, c, at[0], at[1], values[name])
			if draft.Claim.Assumption == task.NoneHonest {
				b = noisyBatch(t, c, at[0], at[1], values[name])
			}
			add(fmt.Sprintf("%d.batch", i), b)
			m, err := b.Header()
			require.NoError(t, err)
			first = append(first, *m)
		}
		end, err := onion.NewEnd(c.SignKey(t, 0), c.Open.Task, onion.Context{TaskID: c.Open.ID}, first[:1], nil)
		require.NoError(t, err)
		add("0.end", end)
	} else {
		draft := relaytest.Draft()
		relaytest.Mean(batchSize)(draft)
		draft.Batch.Min = max(draft.Batch.DefaultMin(), 1)
		if name == "pulled" {
			c = layOut(t, 1, draft)
			addPulled(t, c, add)
			files["cut.batch"] = files["cut.batch"][:len(files["cut.batch"])-10]
		} else {
			draft.Stream = &task.StreamPosition{Name: "stream"}
			c = layOut(t, 2, draft)
			for i, raw := range c.Faulty(t) {
				files[fmt.Sprintf("%02d.batch", i)] = raw
			}
			add("destroyed.batch", c.Destroyed(t, 9, 3, 1))
		}
	}
	var err error
	files["task.bundle"], err = os.ReadFile(filepath.Join(c.Dir, "task0.bundle"))
	require.NoError(t, err)
	files["keys"], err = os.ReadFile(c.VerifierKeys("task0"))
	require.NoError(t, err)
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, raw := range files {
		f, err := w.Create(name)
		require.NoError(t, err)
		_, err = f.Write(raw)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, os.MkdirAll(printedFolder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(printedFolder, fileOf(name)+".zip"), out.Bytes(), 0o644))
}

// noisyBatch returns a batch like that of wholeBatch, with 24 dummies added.
func noisyBatch(t *testing.T, c *relaytest.Cascade, epoch, dropped uint64, value []float64) *onion.Batch {
	t.Helper()
	client, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: 1000, MaxDelta: 1})
	require.NoError(t, err)
	opener, lane := c.Opener(t, 0, epoch), [][]byte(nil)
	const added = 24
	for i := range c.Open.Batch.Size + added {
		of := value
		if i >= c.Open.Batch.Size {
			of = []float64{float64(i % 2)}
		}
		r, err := client.Report(epoch, of)
		require.NoError(t, err)
		envelope, err := opener.OpenEnvelope(r.Body)
		require.NoError(t, err)
		lane = append(lane, envelope.Lanes[0]...)
	}
	in := []uint64{uint64(len(lane)) - added}
	b, err := onion.NewBatch(c.SignKey(t, 0), onion.BatchDraft{
		Context: onion.Context{TaskID: c.Open.ID, Epoch: epoch}, Submissions: c.Open.Batch.Size, In: in,
		Added: []uint64{added},
	}, onion.Lanes{lane[dropped:]})
	require.NoError(t, err)
	return b
}

// addPulled adds the batches and the end that one relay serves.
func addPulled(t *testing.T, c *relaytest.Cascade, add func(string, interface{ Bytes() ([]byte, error) }) []byte) {
	t.Helper()
	at := func(epoch uint64) onion.Context { return onion.Context{TaskID: c.Open.ID, Epoch: epoch} }
	batch := func(epoch, seq uint64, in int, lane [][]byte) *onion.Batch {
		b, err := onion.NewBatch(c.SignKey(t, 0), onion.BatchDraft{
			Context: at(epoch), Seq: seq, Submissions: uint64(in), In: []uint64{uint64(in)},
		}, onion.Lanes{lane})
		require.NoError(t, err)
		return b
	}
	first := slotsOf(t, c, 0, batchSize)
	second := relaytest.Spoil(slotsOf(t, c, 0, batchSize-1), 1)
	both := []*onion.Batch{batch(0, 0, batchSize, first), batch(0, 1, batchSize, append(second, first[0]))}
	add("00.batch", both[0])
	add("01.batch", both[1])
	var made []onion.Manifest
	for _, b := range both {
		m, err := b.Header()
		require.NoError(t, err)
		made = append(made, *m)
	}
	end, err := onion.NewEnd(c.SignKey(t, 0), c.Open.Task, at(0), made, nil)
	require.NoError(t, err)
	add("0.end", end)
	add("cut.batch", batch(1, 0, batchSize, slotsOf(t, c, 1, batchSize)))
	add("other.batch", batch(1, 0, batchSize, slotsOf(t, c, 1, batchSize)))
	add("11.batch", batch(1, 1, batchSize, slotsOf(t, c, 1, batchSize)))
	add("impossible.batch", batch(1, 2, batchSize, slotsOf(t, c, 1, batchSize-1)))
}

// printed collects what is printed for one case.
type printed struct {
	name  string
	files map[string][]byte
	names []string // names of batch and end files, sorted
	open  *taskfile.Open
	keys  string
	slow  map[string]bool // stages without reports, because a report of this task takes a second
	out   strings.Builder
}

func openPrinted(t *testing.T, name string) *printed {
	t.Helper()
	if *renewBatches && !renewed[name] {
		makeBatches(t, name)
		renewed[name] = true
	}
	p := &printed{name: name, files: map[string][]byte{}, keys: filepath.Join(t.TempDir(), "keys")}
	in, err := zip.OpenReader(filepath.Join(printedFolder, fileOf(name)+".zip"))
	require.NoError(t, err)
	defer in.Close()
	for _, f := range in.File {
		r, err := f.Open()
		require.NoError(t, err)
		p.files[f.Name], err = io.ReadAll(r)
		require.NoError(t, err)
		if strings.Contains(f.Name, ".batch") || strings.Contains(f.Name, ".end") {
			p.names = append(p.names, f.Name)
		}
	}
	slices.Sort(p.names)
	p.open, err = taskfile.ParseOpen(p.files["task.bundle"])
	require.NoError(t, err)
	return p
}

func (p *printed) verifier(t *testing.T) *verifier.Verifier {
	t.Helper()
	require.NoError(t, os.WriteFile(p.keys, p.files["keys"], 0o600))
	keys, err := keyfile.LoadHPKE(p.keys)
	require.NoError(t, err)
	v, err := verifier.New(p.open, keys)
	require.NoError(t, err)
	return v
}

func (p *printed) hash(t *testing.T, what string, raw []byte) {
	t.Helper()
	fmt.Fprintf(&p.out, "%x  %s\n", sha256.Sum256(raw), what)
	if *printedTo != "" {
		to := filepath.Join(*printedTo, p.name, strings.ReplaceAll(what, "/", "_"))
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		require.NoError(t, os.WriteFile(to, raw, 0o644))
	}
}

// report records all printed and served forms of a verifier's report.
func (p *printed) report(t *testing.T, stage string, v *verifier.Verifier) {
	t.Helper()
	if p.slow[stage] {
		return
	}
	r, err := v.Report()
	require.NoError(t, err)
	var text, table, page bytes.Buffer
	require.NoError(t, report.Print(&text, r))
	require.NoError(t, report.WriteCSV(&table, r))
	require.NoError(t, report.WriteHTML(&page, r))
	line, err := json.Marshal(r)
	require.NoError(t, err)
	p.hash(t, stage+" text", text.Bytes())
	p.hash(t, stage+" csv", table.Bytes())
	p.hash(t, stage+" html", page.Bytes())
	p.hash(t, stage+" json", line)
	p.pages(t, stage, report.Handler(v), "/", "/api/report", "/api/report.csv", "/page.css", "/page.js", "/icon.svg")
}

func (p *printed) pages(t *testing.T, stage string, h http.Handler, paths ...string) {
	t.Helper()
	for _, path := range paths {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusOK, w.Code, path)
		head, err := json.Marshal(w.Header())
		require.NoError(t, err)
		p.hash(t, stage+" "+path, slices.Concat(head, []byte("\n"), w.Body.Bytes()))
	}
}

func (p *printed) state(t *testing.T, stage string, v *verifier.Verifier) {
	t.Helper()
	var state bytes.Buffer
	require.NoError(t, v.WriteState(&state))
	p.hash(t, stage+" state", state.Bytes())
}

func (p *printed) compare(t *testing.T, v *verifier.Verifier) {
	t.Helper()
	r, err := v.Report()
	require.NoError(t, err)
	p.out.WriteString("\n")
	require.NoError(t, report.Print(&p.out, r))
	path := filepath.Join(printedFolder, fileOf(p.name)+".txt")
	if *renew || *renewBatches {
		require.NoError(t, os.WriteFile(path, []byte(p.out.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	got := strings.Split(p.out.String(), "\n")
	for i, line := range strings.Split(string(want), "\n") {
		require.Equal(t, line, got[min(i, len(got)-1)], "line %d", i+1)
	}
	require.Equal(t, len(string(want)), p.out.Len())
}

// onlyHere skips the test on processors other than amd64. They may multiply and add in one step, and so print another
// last digit.
func onlyHere(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("figures are as printed on amd64")
	}
}

// TestPrintedOfEveryProtocol compares text, JSON, CSV, pages and state with the golden files, for every protocol and
// query: from no batch to several epochs with findings, with withheld epochs, in a dry run, and if unusable.
func TestPrintedOfEveryProtocol(t *testing.T) {
	onlyHere(t)
	queries, _ := printedCases()
	for name := range queries {
		t.Run(name, func(t *testing.T) {
			p := openPrinted(t, name)
			if slow := map[string]bool{"many": true, "correlated, none": true, "vectormean, none": true}; slow[name] {
				p.slow = map[string]bool{"0.batch": true, "0.end": true, "1.batch": true, "2.batch": true, "deduplicated": true,
					"whole budget": true, "dry": true, "overridden": true}
			}
			v := p.verifier(t)
			p.report(t, "empty", v)
			var states []*verifier.Verifier
			for _, name := range p.names {
				require.NoError(t, v.AddFile(name, bytes.NewReader(p.files[name])))
				p.report(t, name, v)
				one := v.Fresh()
				require.NoError(t, one.AddFile(name, bytes.NewReader(p.files[name])))
				p.state(t, name+" alone", one)
				states = append(states, one)
			}
			v.Note(finding.Truncated, "a file & <b>what</b> was wrong")
			p.report(t, "noted", v)
			p.state(t, "all", v)
			p.deduped(t, states)
			p.charged(t, "whole budget", verifier.Publishing{Budget: p.budget(10)})
			p.charged(t, "small budget", verifier.Publishing{Budget: p.budget(1.2)})
			p.charged(t, "dry", verifier.Publishing{DryRun: true, Budget: p.budget(1.2)})
			v.ShowUnusable()
			p.report(t, "overridden", v)
			p.compare(t, v)
		})
	}
}

// budget returns a budget of a number of epochs' ε.
func (p *printed) budget(times float64) *verifier.Budget {
	return &verifier.Budget{Epsilon: times * p.open.Claim.Epsilon.Value(), Delta: 10 * p.open.Claim.Delta.Value()}
}

// charged records the report of all files with a budget.
func (p *printed) charged(t *testing.T, stage string, how verifier.Publishing) {
	t.Helper()
	if p.slow[stage] {
		return
	}
	v := p.verifier(t)
	how.Folder, how.Beside = filepath.Join(t.TempDir(), "ledger"), p.keys
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(how.Folder)) })
	marks, err := filepath.Glob(p.keys + ".*")
	require.NoError(t, err)
	for _, mark := range marks {
		require.NoError(t, os.Remove(mark))
	}
	require.NoError(t, v.Publish(how))
	for _, name := range p.names {
		require.NoError(t, v.AddFile(name, bytes.NewReader(p.files[name])))
	}
	p.report(t, stage, v)
}

// deduped records the state and report of files that were opened separately and deduplicated together, as Beam does.
func (p *printed) deduped(t *testing.T, apart []*verifier.Verifier) {
	t.Helper()
	if len(apart) == 0 {
		return
	}
	all := apart[0].Fresh()
	for _, one := range apart {
		var state bytes.Buffer
		require.NoError(t, one.Dedup(verifier.DedupID{1}, func(uint64, uint64) bool { return false }))
		require.NoError(t, one.WriteState(&state))
		require.NoError(t, all.ReadState(&state))
	}
	p.state(t, "deduplicated", all)
	p.report(t, "deduplicated", all)
}

// TestPrintedOfFaultyFiles makes the same comparison for files with every kind of fault, and for a list of tasks.
func TestPrintedOfFaultyFiles(t *testing.T) {
	onlyHere(t)
	p := openPrinted(t, "faulty")
	v := p.verifier(t)
	checker := verifier.NewChecker(p.open)
	for _, name := range p.names {
		require.NoError(t, v.AddFile(name, bytes.NewReader(p.files[name])))
		require.NoError(t, checker.AddFile(name, bytes.NewReader(p.files[name])))
		p.report(t, name, v)
	}
	p.state(t, "all", v)
	list, err := json.Marshal(checker.Findings())
	require.NoError(t, err)
	p.hash(t, "findings of a checker", list)
	p.charged(t, "small budget", verifier.Publishing{Budget: p.budget(1.5)})
	p.charged(t, "dry", verifier.Publishing{DryRun: true})
	other := openPrinted(t, "range").verifier(t)
	site := report.NewSite(v, other)
	site.Add(v.Fresh(), v)
	p.pages(t, "site", site.Handler(), "/", "/api/tasks", "/tasks/"+p.open.ID.String()+"/",
		"/tasks/"+p.open.ID.String()+"/api/report")
	p.compare(t, v)
}

// played is an HTTP transport that answers like a relay with some batches and ends.
type played map[string][]byte

func (r played) RoundTrip(req *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	at := req.URL.Path[strings.Index(req.URL.Path, "/epochs/")+1:]
	switch raw := r[at]; {
	case req.Method == http.MethodPost:
		w.WriteHeader(http.StatusNoContent)
	case raw != nil && string(raw) == "complete":
		problem.New(problem.Complete, "").Write(w)
	case raw != nil && string(raw) == "confirmed":
		problem.New(problem.Confirmed, "").Write(w)
	case raw != nil && string(raw) == "away":
		return nil, io.ErrUnexpectedEOF
	case raw != nil:
		w.Write(raw)
	default:
		problem.New(problem.NotSealed, "").Write(w)
	}
	res := w.Result()
	res.Request = req
	return res, nil
}

// TestPrintedOfAFolder compares what a verifier that pulls stores, logs and reports with the golden file.
func TestPrintedOfAFolder(t *testing.T) {
	onlyHere(t)
	p := openPrinted(t, "pulled")
	_, err := keyfile.NewSign(filepath.Join(t.TempDir(), "sign"))
	require.NoError(t, err)
	key, err := keyfile.NewSign(filepath.Join(t.TempDir(), "sign"))
	require.NoError(t, err)
	relay := played{}
	client := handover.NewRequester(key, relay)
	dir := filepath.Join(t.TempDir(), "batches")
	now := time.Unix(1_600_000_000+86400*2+100, 0)
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "ahead" {
				return slog.Attr{}
			}
			a.Value = slog.StringValue(strings.ReplaceAll(a.Value.String(), dir, "DIR"))
			return a
		}}))
	var v *verifier.Verifier
	var puller *collect.Puller
	require.NoError(t, os.WriteFile(p.keys, p.files["keys"], 0o600))
	start := func(stage string) {
		if puller != nil {
			require.NoError(t, puller.Close())
			require.NoError(t, v.Close())
		}
		keys, err := keyfile.LoadHPKE(p.keys)
		require.NoError(t, err)
		v, err = verifier.New(p.open, keys)
		require.NoError(t, err)
		puller, err = collect.NewPuller(v, client, dir, logger)
		require.NoError(t, err)
		puller.Clock = func() time.Time { return now }
		p.folder(t, stage, dir)
		p.report(t, stage, v)
	}
	pull := func(stage string) {
		fmt.Fprintf(&log, "%s: %v\n", stage, puller.Pull(t.Context()))
		p.folder(t, stage, dir)
		p.report(t, stage, v)
	}
	start("new")
	pull("nothing")
	relay["epochs/0/batches/0"] = p.files["00.batch"]
	relay["epochs/0/batches/1"] = p.files["00.batch"]
	relay["epochs/1/batches/0"] = p.files["cut.batch"]
	pull("one")
	pull("again")
	start("restarted")
	relay["epochs/0/batches/1"] = p.files["01.batch"]
	relay["epochs/1/batches/0"] = p.files["other.batch"]
	relay["epochs/1/batches/1"] = p.files["11.batch"]
	pull("two of one number")
	relay["epochs/0/batches/2"], relay["epochs/0/end"] = []byte("complete"), p.files["0.end"]
	relay["epochs/2/batches/0"] = []byte("confirmed")
	pull("ended")
	start("restarted after the end")
	relay["epochs/2/batches/0"], relay["epochs/1/batches/2"] = []byte("away"), p.files["impossible.batch"]
	pull("away")
	raw, err := os.ReadFile(filepath.Join(dir, "000001-000001.batch"))
	require.NoError(t, err)
	raw[len(raw)/2] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(dir, "000001-000001.batch"), raw, 0o600))
	start("damaged")
	now = now.Add(4 * 86400 * time.Second)
	pull("late")
	require.NoError(t, puller.Close())
	p.hash(t, "log", log.Bytes())
	p.out.Write(log.Bytes())
	p.compare(t, v)
}

func (p *printed) folder(t *testing.T, stage, dir string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		p.hash(t, stage+" file "+filepath.ToSlash(name), raw)
		return err
	}))
}
