//go:build long && linux

package relay_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/pgtest"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/task"
)

// balancer is a real proxy in front of two processes of a first relay, by a sample of deploy/.
type balancer struct {
	address string
	remove  func(t *testing.T, process int) // before a process is stopped
	restore func(t *testing.T, process int) // after it runs again
}

// startProxy runs a proxy until the test ends. Its configuration is a sample of deploy/, changed by replace.
func startProxy(t *testing.T, program, sample string, args func(config string) []string, replace ...string) (
	config string, cmd *exec.Cmd,
) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "deploy", sample))
	require.NoError(t, err)
	for i := 0; i < len(replace); i += 2 {
		require.Contains(t, string(text), replace[i])
	}
	config = filepath.Join(t.TempDir(), sample)
	require.NoError(t, os.WriteFile(config, []byte(strings.NewReplacer(replace...).Replace(string(text))), 0o644))
	path, err := exec.LookPath(program)
	require.NoError(t, err, "make test-full PART=operators installs it")
	cmd = exec.Command(path, args(config)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		require.NotContains(t, out.String(), "127.77.", "no address of a client may be logged")
	})
	return config, cmd
}

// startNginx runs nginx by deploy/nginx.conf in front of two addresses.
func startNginx(t *testing.T, cert *relay.TLSConfig, processes [2]string) *balancer {
	t.Helper()
	address, pid := relaytest.FreeAddress(t), filepath.Join(t.TempDir(), "pid")
	lines := [2]string{"server " + processes[0] + ";", "server " + processes[1] + ";"}
	config, cmd := startProxy(t, "nginx", "nginx.conf",
		func(config string) []string { return []string{"-c", config, "-g", "daemon off;"} },
		"listen 443 ssl;", "listen "+address+" ssl;", "listen [::]:443 ssl;", "", "/run/nginx.pid", pid,
		"/etc/nginx/relay.pem", cert.Cert, "/etc/nginx/relay.key", cert.Key,
		"server 127.0.0.1:8081;", lines[0]+"\n"+lines[1])
	require.Eventually(t, func() bool {
		_, err := os.Stat(pid)
		return err == nil
	}, relaytest.Patience, 10*time.Millisecond)
	change := func(t *testing.T, from, to string) {
		text, err := os.ReadFile(config)
		require.NoError(t, err)
		require.Contains(t, string(text), from)
		require.NoError(t, os.WriteFile(config, bytes.Replace(text, []byte(from), []byte(to), 1), 0o644))
		before := children(t, cmd.Process.Pid)
		require.NoError(t, cmd.Process.Signal(syscall.SIGHUP)) // nginx -s reload
		// Wait until the workers of the former configuration have ended.
		require.Eventually(t, func() bool {
			now := children(t, cmd.Process.Pid)
			old := func(pid string) bool { return slices.Contains(before, pid) }
			return len(now) > 0 && !slices.ContainsFunc(now, old)
		}, relaytest.Patience, 20*time.Millisecond)
	}
	down := func(process int) string { return strings.TrimSuffix(lines[process], ";") + " down;" }
	return &balancer{address,
		func(t *testing.T, process int) { change(t, lines[process], down(process)) },
		func(t *testing.T, process int) { change(t, down(process), lines[process]) }}
}

// children lists the processes that a process has started.
func children(t *testing.T, pid int) []string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	require.NoError(t, err)
	return strings.Fields(string(text))
}

// startHAProxy runs HAProxy by deploy/haproxy.cfg in front of two addresses. Nobody tells it of a restart.
func startHAProxy(t *testing.T, cert *relay.TLSConfig, processes [2]string) *balancer {
	t.Helper()
	address, both := relaytest.FreeAddress(t), filepath.Join(t.TempDir(), "relay.pem")
	var pem []byte
	for _, path := range []string{cert.Cert, cert.Key} {
		part, err := os.ReadFile(path)
		require.NoError(t, err)
		pem = append(pem, part...)
	}
	require.NoError(t, os.WriteFile(both, pem, 0o600))
	startProxy(t, "haproxy", "haproxy.cfg", func(config string) []string { return []string{"-db", "-f", config} },
		"bind :443 ", "bind "+address+" ", "/etc/haproxy/relay.pem", both,
		"server one 127.0.0.1:8081", "server one "+processes[0]+"\n\tserver two "+processes[1])
	back := func(t *testing.T, _ int) { time.Sleep(3 * time.Second) } // two good checks
	return &balancer{address, func(*testing.T, int) {}, back}
}

// client returns an HTTP client with the address 127.77.x.y, which is a network of its own for each 256th number.
func (b *balancer) client(network int) *http.Client {
	from := net.IPv4(127, 77+byte(network>>8), byte(network), 1)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", b.address)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the test's own certificate
	}}
}

// userAgent is the clients' user agent, which no log may have.
const userAgent = "Visitor/77"

// requireSilentLogs requires that no relay has logged a client's address or user agent.
func requireSilentLogs(t *testing.T, c *relaytest.Cascade) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(c.Dir, "*.log"))
	require.NoError(t, err)
	require.NotEmpty(t, logs)
	for _, log := range logs {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		require.Contains(t, string(text), "serving")
		for _, trace := range []string{`127\.(7[7-9]|[89]\d|1\d\d)\.`, `192\.0\.2\.1`, userAgent} {
			require.NotRegexp(t, trace, string(text), log)
		}
	}
}

// report sends a report once, from a network.
func (b *balancer) report(c *relaytest.Cascade, body []byte, network int) error {
	url := "https://relay.example.org" + strings.TrimPrefix(c.ReportsURL(0), c.Open.Relays[0].URL)
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/msgpack")
	req.Header.Set("X-Forwarded-For", "192.0.2.1") // what a client writes must not count
	req.Header.Set("User-Agent", userAgent)
	resp, err := b.client(network).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	return nil
}

// stop ends a process as its service manager does.
func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.cmd.Wait())
}

// configure replaces parts of a relay's configuration file.
func configure(t *testing.T, config string, replace ...string) {
	t.Helper()
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	changed := strings.NewReplacer(replace...).Replace(string(text))
	require.NoError(t, os.WriteFile(config, []byte(changed), 0o600))
}

// trustsOnlyTheProxy makes 127.0.0.1 the only trusted proxy, as the clients of the test have other loopback addresses.
func trustsOnlyTheProxy(t *testing.T, config string) {
	t.Helper()
	configure(t, config, "127.0.0.0/8", "127.0.0.1/32")
	text, err := os.ReadFile(config)
	require.NoError(t, err)
	require.Regexp(t, regexp.MustCompile(`127\.0\.0\.1/32`), string(text))
}

// TestOperatorsRollingRestart: two processes of a first relay are behind the shipped nginx.conf or haproxy.cfg, and
// each is restarted twice while 10,000 clients report. No report may be refused, although no client tries again, and
// each must come out of the second relay once.
func TestOperatorsRollingRestart(t *testing.T) {
	const n, perSecond, connections, restarts = 10_000, 180, 24, 4
	for name, start := range map[string]func(*testing.T, *relay.TLSConfig, [2]string) *balancer{
		"nginx": startNginx, "haproxy": startHAProxy,
	} {
		t.Run(name, func(t *testing.T) {
			c := relaytest.New(t, relaytest.Options{Postgres: true, Task: func(t *task.Task) { t.Batch.Size = 100 }})
			bodies := sealAll(t, c, n)
			trustsOnlyTheProxy(t, c.RelayConfig(1))
			appendTo(t, c.RelayConfig(1), "drain_delay: 5s\n")
			processes := []*process{startProcess(t, c, 0)}
			config, twin := c.Twin(t, 0)
			processes = append(processes, startConfig(t, twin, 0, config))
			startProcess(t, c, 1)
			var addresses [2]string
			for i, p := range processes {
				cfg, err := relay.LoadConfig(p.config)
				require.NoError(t, err)
				addresses[i] = cfg.Listen
			}
			b := start(t, newAuthority(t).issue(t), addresses)
			require.Eventually(t, func() bool { return b.healthy() }, relaytest.Patience, 50*time.Millisecond)

			var sent, failed atomic.Int64
			queue := make(chan int)
			go func() {
				defer close(queue)
				tick := time.NewTicker(time.Second / perSecond)
				defer tick.Stop()
				for i := range n {
					<-tick.C
					queue <- i
				}
			}()
			var clients sync.WaitGroup
			for range connections {
				clients.Go(func() {
					for i := range queue {
						if err := b.report(c, bodies[i], i); err != nil && failed.Add(1) < 10 {
							t.Errorf("report %d: %v", i, err)
						}
						sent.Add(1)
					}
				})
			}
			for k := range restarts {
				for sent.Load() < int64(k*n/(restarts+1)) {
					time.Sleep(10 * time.Millisecond)
				}
				p := processes[k%2]
				b.remove(t, k%2)
				p.stop(t)
				p.start(t)
				b.restore(t, k%2)
			}
			during := sent.Load()
			clients.Wait()
			require.Zero(t, failed.Load())
			require.Less(t, during, int64(n), "the restarts ended after the load")
			requireExactlyOnce(t, c, n)
			requireSilentLogs(t, c)
			t.Logf("%s: %d reports, %d restarts, 0 refused, 0 lost", name, n, restarts)
		})
	}
}

func (b *balancer) healthy() bool {
	resp, err := b.client(1).Get("https://relay.example.org/healthz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusNoContent
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	old, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(old, text...), 0o600))
}

// TestOperatorsCDN: behind the shipped nginx.conf, all clients come from one network, as with a CDN in front that
// nobody told the relay of. Within a minute `relay health` and `relay status` must say so.
func TestOperatorsCDN(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: func(t *task.Task) { t.Batch.Size = 1000 }})
	trustsOnlyTheProxy(t, c.RelayConfig(1))
	startProcess(t, c, 0)
	cfg, err := relay.LoadConfig(c.RelayConfig(1))
	require.NoError(t, err)
	b := startNginx(t, newAuthority(t).issue(t), [2]string{cfg.Listen, cfg.Listen})
	require.Eventually(t, b.healthy, relaytest.Patience, 50*time.Millisecond)
	begun := time.Now()
	for i := 0; ; i++ {
		err := b.report(c, c.Seal(t, 0, uint64(i)), 7)
		require.Equal(t, i > 0, err != nil, "%v", err)
		code, out, log := run(t, "status", "--admin", "http://"+cfg.Admin)
		require.Zero(t, code, log)
		if strings.Contains(out, string(problem.Limit)+": ") {
			t.Logf("said after %d reports, %v", i+1, time.Since(begun).Round(time.Second))
			break
		}
		require.Less(t, time.Since(begun), time.Minute, "%s", out)
		time.Sleep(150 * time.Millisecond)
	}
}

// TestOperatorsIdle: a balancer keeps 300 connections and uses each again after its own limit, mostly 60 seconds. The
// relay must not have closed one, by its defaults.
func TestOperatorsIdle(t *testing.T) {
	const connections = 300
	c := relaytest.New(t, relaytest.Options{Hops: 1})
	startProcess(t, c, 0)
	cfg, err := relay.LoadConfig(c.RelayConfig(1))
	require.NoError(t, err)
	var open []net.Conn
	ask := func(conn net.Conn) error {
		_, err := fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: relay\r\n\r\n")
		answer := make([]byte, 64)
		if err == nil {
			_, err = io.ReadAtLeast(conn, answer, 12)
		}
		if err == nil && !bytes.HasPrefix(answer, []byte("HTTP/1.1 204")) {
			err = errors.New(string(answer))
		}
		return err
	}
	for range connections {
		conn, err := net.Dial("tcp", cfg.Listen)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, ask(conn))
		open = append(open, conn)
	}
	time.Sleep(61 * time.Second)
	lost := 0
	for _, conn := range open {
		rest := make([]byte, 4096)
		conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		conn.Read(rest) // the rest of the first answer
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		if ask(conn) != nil {
			lost++
		}
	}
	require.Zero(t, lost)
}

// version is a folder with the programs of one commit.
type version struct{ name, folder string }

// buildVersion builds the programs of a commit in a copy of its files; "" is what is here.
func buildVersion(t *testing.T, commit string) version {
	t.Helper()
	source, err := filepath.Abs("..")
	require.NoError(t, err)
	v := version{"this version", t.TempDir()}
	if commit != "" {
		v.name, source = commit, t.TempDir()
		out, err := exec.Command("sh", "-c", "git -C .. archive "+commit+" | tar -x -C "+source).CombinedOutput()
		require.NoError(t, err, "%s: a clone with history has it\n%s", commit, out)
	}
	build := exec.Command("go", "build", "-o", v.folder+"/", "./cmd/relay", "./cmd/verifier")
	build.Dir = source
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return v
}

// party is a program with its configuration, which the test runs in one version or another.
type party struct {
	program, config, admin string
	cmd                    *exec.Cmd
}

func (p *party) start(t *testing.T, c *relaytest.Cascade, v version) {
	t.Helper()
	p.cmd = exec.Command(filepath.Join(v.folder, p.program), "serve", "--config", p.config)
	var log bytes.Buffer
	p.cmd.Stderr = &log
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { p.cmd.Process.Kill() })
	c.WaitReady(t, p.admin)
}

func (p *party) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.cmd.Wait())
}

// TestOperatorsUpgrade: each party in turn is upgraded by one version under load, downgraded, and upgraded again. The
// earlier version is the previous commit, or the one that DOONA_BEFORE names. Clients try again while a relay is away.
// The verifier must count every acknowledged report once.
func TestOperatorsUpgrade(t *testing.T) {
	const n, batch = 4_000, 100
	before := os.Getenv("DOONA_BEFORE")
	if before == "" {
		before = "HEAD~1"
	}
	older, newer := buildVersion(t, before), buildVersion(t, "")
	c := relaytest.New(t, relaytest.Options{Task: relaytest.Mean(batch)})
	folder, pages, admin := filepath.Join(c.Dir, "verifier"), relaytest.FreeAddress(t), relaytest.FreeAddress(t)
	judge := filepath.Join(folder, "verifier.yaml")
	require.NoError(t, os.WriteFile(judge, []byte("listen: "+pages+"\nadmin: "+admin+"\nsign_key: sign.key\ndata: data\n"+
		"pull_interval: 50ms\ntasks: [{file: ../task0.bundle, hpke_keys: task0.keys}]\n"), 0o600))
	parties := []*party{{program: "relay", config: c.RelayConfig(1), admin: c.Config(t, 0).Admin},
		{program: "relay", config: c.RelayConfig(2), admin: c.Config(t, 1).Admin},
		{program: "verifier", config: judge, admin: admin}}
	for _, p := range parties {
		p.start(t, c, older)
	}
	client, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: 10})
	require.NoError(t, err)
	bodies := make([][]byte, n)
	for i := range bodies {
		r, err := client.Report(0, []float64{float64(i % 10)})
		require.NoError(t, err)
		bodies[i] = r.Body
	}
	var acked atomic.Int64
	sent := make(chan error, 1)
	changes := []version{newer, older, newer}
	part, at := n/(len(parties)*len(changes)+1), 0
	go func() { sent <- postAll(t.Context(), c, bodies, 4, &acked) }()
	for _, p := range parties {
		for _, v := range changes {
			for at += part; acked.Load() < int64(at); {
				time.Sleep(time.Millisecond)
			}
			p.stop(t)
			p.start(t, c, v)
		}
	}
	require.NoError(t, <-sent)
	var report struct {
		Users, Missing uint64
		Findings       []any
	}
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + pages + "/tasks/" + c.Open.ID.String() + "/api/report")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return json.NewDecoder(resp.Body).Decode(&report) == nil && report.Users >= n
	}, relaytest.Patience, 50*time.Millisecond)
	require.EqualValues(t, n, report.Users)
	require.Zero(t, report.Missing)
	require.Empty(t, report.Findings)
	t.Logf("%d reports, %d changes from %s to %s and back, 0 lost", n, len(parties)*len(changes), older.name, newer.name)
}

// TestOperatorsSwitchover: a relay of two processes moves to a standby of its database in the middle of an epoch, as
// the manual says, with a URL that names both servers and the standby first. All reports must come out once, those
// before and those after. A relay that is killed instead of stopped must find a state rollback.
func TestOperatorsSwitchover(t *testing.T) {
	const n = 400
	for _, planned := range []bool{true, false} {
		t.Run(map[bool]string{true: "planned", false: "killed"}[planned], func(t *testing.T) {
			primary, err := pgtest.Start()
			require.NoError(t, err)
			t.Cleanup(func() { primary.Stop() })
			database, err := primary.Database()
			require.NoError(t, err)
			standby, err := primary.Standby()
			require.NoError(t, err)
			t.Cleanup(func() { standby.Stop() })
			c := relaytest.New(t, relaytest.Options{Task: func(t *task.Task) { t.Batch.Size = 100 }})
			configure(t, c.RelayConfig(1), "sqlite:relay.db", withParameter(t, database, "host",
				standby.Folder()+","+primary.Folder()))
			first := startProcess(t, c, 0)
			config, twin := c.Twin(t, 0)
			second := startConfig(t, twin, 0, config)
			startProcess(t, c, 1)
			bodies := sealAll(t, c, n)
			var acked atomic.Int64
			require.NoError(t, postAll(t.Context(), c, bodies[:n/2-50], 8, &acked))
			for _, p := range []*process{first, second} {
				if planned {
					p.stop(t)
				} else {
					require.NoError(t, p.cmd.Process.Kill())
					p.cmd.Wait()
				}
			}
			require.NoError(t, primary.Halt())
			require.NoError(t, standby.TakeOver())
			code, out, log := run(t, "status", "--config", c.RelayConfig(1))
			require.Zero(t, code, log)
			if !planned {
				require.Contains(t, out, "the store is on another database server or timeline")
				return
			}
			require.NotContains(t, out, "state rollback")
			first.start(t)
			second.start(t)
			require.NoError(t, postAll(t.Context(), c, bodies, 8, &acked), "retries are recognized")
			requireExactlyOnce(t, c, n)
		})
	}
}
