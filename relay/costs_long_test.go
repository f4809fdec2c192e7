//go:build long && linux

package relay_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/doctest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
)

// partyCosts is what one party's process used.
type partyCosts struct {
	Busy float64 `json:"cpu_seconds"`  // for all reports of the day
	Idle float64 `json:"idle_percent"` // percent of a core without reports, with a scrape each 15 s
	RSS  int     `json:"rss_kb"`       // after the idle minute
	Peak int     `json:"peak_rss_kb"`
	Disk int64   `json:"disk_bytes"` // of all its files, with a day's batches
}

// traffic is what went over one way, in both directions, without TLS.
type traffic struct {
	Busy int64 `json:"bytes"`             // for all reports of the day
	Idle int64 `json:"idle_bytes_minute"` // without reports
}

// costFigures are TestSiteCosts' measurements.
type costFigures struct {
	Sites    int                   `json:"sites"`
	Tables   int                   `json:"tables_per_site"`
	Visitors int                   `json:"visitors_per_site"`
	Parties  map[string]partyCosts `json:"parties"`
	Ways     map[string]traffic    `json:"traffic"`
}

const tablesPerSite = 7

// TestSiteCosts measures what a day of sites costs two relays and a verifier, each in a process of its own: CPU time,
// memory, disk and traffic. Each site has a set of seven daily tables of 30 days. Each visitor sends one submission,
// over a connection of their own. DOONA_SITES (1) and DOONA_VISITORS (1000) give the numbers.
func TestSiteCosts(t *testing.T) {
	sites, err := strconv.Atoi(cmp.Or(os.Getenv("DOONA_SITES"), "1"))
	require.NoError(t, err)
	visitors, err := strconv.Atoi(cmp.Or(os.Getenv("DOONA_VISITORS"), "1000"))
	require.NoError(t, err)
	c := relaytest.New(t, relaytest.Options{Pull: "5s"})
	owners := approveSites(t, c, sites)
	meters, visit := map[string]*meter{}, relaytest.FreeAddress(t)
	for hop, name := range []string{"second relay to first", "verifier to second relay"} {
		address := strings.TrimPrefix(c.Open.Relays[hop].URL, "http://")
		behind := moveRelay(t, c.RelayConfig(hop+1), address)
		meters[name] = startMeter(t, address, behind)
		if hop == 0 {
			meters["visitors to first relay"] = startMeter(t, visit, behind)
		}
	}
	relays := [2]*process{startProcess(t, c, 0), startProcess(t, c, 1)}
	sets, verifier := beginSites(t, c, owners, uint64(visitors))
	parties := map[string]*process{"first relay": relays[0], "second relay": relays[1], "verifier": verifier}

	f := costFigures{sites, tablesPerSite, visitors, map[string]partyCosts{}, map[string]traffic{}}
	before, sent := map[string]float64{}, map[string]int64{}
	look := func() {
		for name, p := range parties {
			before[name] = cpuSeconds(t, p)
		}
		for name, m := range meters {
			sent[name] = m.bytes.Load()
		}
	}
	look()
	inParallel(t, len(sets), func(i int) {
		if err := visitSite(t, sets[i], visit, visitors); err != nil {
			t.Error(err)
		}
	})
	require.Eventually(t, func() bool {
		confirmed := 0
		for _, s := range c.Statuses(t, 1) {
			if len(s.Epochs) > 0 && s.Epochs[0].Confirmed >= 1 {
				confirmed++
			}
		}
		return confirmed == sites*tablesPerSite
	}, 20*time.Minute, time.Second)
	time.Sleep(20 * time.Second)
	for name, p := range parties {
		f.Parties[name] = partyCosts{Busy: cpuSeconds(t, p) - before[name]}
	}
	for name, m := range meters {
		f.Ways[name] = traffic{Busy: m.bytes.Load() - sent[name]}
	}
	look()
	begun := time.Now()
	for range 4 {
		for _, p := range parties {
			countSeries(t, p)
		}
		time.Sleep(15 * time.Second)
	}
	for name, p := range parties {
		costs := f.Parties[name]
		costs.Idle = 100 * (cpuSeconds(t, p) - before[name]) / time.Since(begun).Seconds()
		costs.RSS, costs.Peak, costs.Disk = residentMemory(t, p), peakRSS(t, p), sizeOf(t, filepath.Dir(p.config))
		f.Parties[name] = costs
	}
	for name, m := range meters {
		f.Ways[name] = traffic{f.Ways[name].Busy, m.bytes.Load() - sent[name]}
	}
	text, err := json.MarshalIndent(f, "", " ")
	require.NoError(t, err)
	t.Logf("%s", text)
	if path := os.Getenv("DOONA_FIGURES"); path != "" {
		require.NoError(t, os.WriteFile(path, text, 0o644))
	}
}

// meter passes connections on, and counts their bytes.
type meter struct{ bytes atomic.Int64 }

func (m *meter) Write(p []byte) (int, error) {
	m.bytes.Add(int64(len(p)))
	return len(p), nil
}

func startMeter(t *testing.T, address, behind string) *meter {
	t.Helper()
	m := &meter{}
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go m.pass(client, behind)
		}
	}()
	return m
}

func (m *meter) pass(client net.Conn, behind string) {
	defer client.Close()
	server, err := net.Dial("tcp", behind)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		io.Copy(io.MultiWriter(server, m), client)
		server.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(io.MultiWriter(client, m), server)
}

// moveRelay makes a relay listen at another address, which it returns.
func moveRelay(t *testing.T, config, address string) (behind string) {
	t.Helper()
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	behind = relaytest.FreeAddress(t)
	changed := bytes.Replace(text, []byte(address), []byte(behind), 1)
	require.NotEqual(t, text, changed)
	require.NoError(t, os.WriteFile(config, changed, 0o600))
	return behind
}

// beginSites hands a set of each owner to both relays, and starts a verifier of all tables.
func beginSites(t *testing.T, c *relaytest.Cascade, owners []*relaytest.Cascade, visitors uint64) (
	sets []*relaytest.Cascade, verifier *process) {
	t.Helper()
	clocks := make([]task.Epochs, tablesPerSite)
	for i := range clocks {
		clocks[i] = epochsOf(0, 1, 30)
	}
	folder := t.TempDir()
	admin := relaytest.FreeAddress(t)
	config := "listen: " + relaytest.FreeAddress(t) + "\nadmin: " + admin + "\nsign_key: " + c.VerifierSign() +
		"\ndata: data\ntasks:\n"
	for i, owner := range owners {
		set, handed := owner.SignSet(t, setOf(visitors, clocks...))
		for hop := len(c.Open.Relays) - 1; hop >= 0; hop-- {
			require.NoError(t, owner.BeginSet(t.Context(), t, hop, handed))
		}
		sets = append(sets, set)
		config += writeTables(t, folder, i, set, handed)
		made, err := filepath.Glob(filepath.Join(c.Dir, "verifier-*"))
		require.NoError(t, err)
		require.Len(t, made, 1)
		raw, err := os.ReadFile(filepath.Join(made[0], "0"))
		require.NoError(t, err)
		for table := range tablesPerSite { // which have one clock, and so the same keys
			require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d-%d.keys", i, table)), raw, 0o600))
		}
		require.NoError(t, os.RemoveAll(made[0]))
	}
	file := filepath.Join(folder, "verifier.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	program := filepath.Join(t.TempDir(), "verifier")
	build := exec.Command("go", "build", "-o", program, "./cmd/verifier")
	build.Dir = doctest.Root(t)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	verifier = &process{cascade: c, config: file, admin: admin, cmd: exec.Command(program, "serve", "--config", file)}
	require.NoError(t, verifier.cmd.Start())
	t.Cleanup(func() {
		verifier.cmd.Process.Kill()
		verifier.cmd.Wait()
	})
	requireSoon(t, func() bool {
		resp, err := http.Get("http://" + admin + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	return sets, verifier
}

// writeTables writes the bundles of a site's tables, and returns their entries in verifier.yaml.
func writeTables(t *testing.T, folder string, site int, set *relaytest.Cascade, handed *tableset.Handed) (
	entries string) {
	t.Helper()
	for table, raw := range handed.Tables {
		name := fmt.Sprintf("%d-%d", site, table)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name+".bundle"), raw, 0o600))
		entries += fmt.Sprintf("  - {file: %s.bundle, owner: %q, hpke_keys: %s.keys}\n", name, set.Owner, name)
	}
	return entries
}

// browser has the headers that a browser adds to a page's report.
var browser = map[string]string{
	"User-Agent":      "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0",
	"Accept":          "*/*",
	"Accept-Language": "en-US,en;q=0.5",
	"Accept-Encoding": "gzip, deflate, br, zstd",
	"Content-Type":    "application/msgpack",
	"Origin":          "https://www.example.org",
	"Sec-Fetch-Dest":  "empty",
	"Sec-Fetch-Mode":  "cors",
	"Sec-Fetch-Site":  "cross-site",
	"Priority":        "u=4",
}

// visitSite sends the submissions of a site's visitors, each over a connection of its own.
func visitSite(t *testing.T, c *relaytest.Cascade, address string, visitors int) error {
	sealer, values := c.SetSealer(t), make([]int, tablesPerSite)
	url := strings.Replace(c.OpenSet().ReportsURL(0), strings.TrimPrefix(c.Open.Relays[0].URL, "http://"), address, 1)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range visitors {
		body, err := sealer.Seal(0, cells(c.OpenSet(), 0, values...))
		if err != nil {
			return err
		}
		for status := 0; status != http.StatusCreated; { // until the relay has room
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				return err
			}
			for name, value := range browser {
				req.Header.Set(name, value)
			}
			req.Header.Set("X-Forwarded-For", relaytest.Network(i))
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			resp.Body.Close()
			switch status = resp.StatusCode; status {
			case http.StatusCreated:
			case http.StatusServiceUnavailable, http.StatusTooManyRequests:
				time.Sleep(time.Second)
			default:
				return fmt.Errorf("the relay answers %s", resp.Status)
			}
		}
	}
	return nil
}

// sizeOf returns the bytes of all files below a folder.
func sizeOf(t *testing.T, folder string) (sum int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(folder, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		sum += info.Size()
		return err
	}))
	return sum
}
