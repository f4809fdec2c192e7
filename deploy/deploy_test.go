package main_test

import (
	"context"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/service"
	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/relay"
	"github.com/doona-dp/doona/shufflerclient"
	"github.com/doona-dp/doona/verifier/server"
	"github.com/doona-dp/doona/wire/task"
)

// TestGenerated: the committed dashboards and alerts must equal those that go generate makes.
func TestGenerated(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "generator")
	build := exec.Command("go", "build", "-o", program, ".")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	generate := exec.Command(program)
	generate.Dir = dir
	require.NoError(t, os.Mkdir(filepath.Join(dir, "grafana"), 0o755))
	out, err = generate.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"relay.json", "issuer.json", "verifier.json", "alerts.yaml"} {
		want, err := os.ReadFile(filepath.Join(dir, "grafana", name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join("grafana", name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "run go generate ./deploy")
	}
}

// TestDashboardsShowWhatIsSaid: each metric of a running relay, issuer and verifier must be on its dashboard. Each
// metric on a dashboard or in an alert must exist in a running program.
func TestDashboardsShowWhatIsSaid(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Task: func(draft *task.Task) {
		relaytest.Mean(10)(draft)
		relaytest.WithTokens(draft)
		relaytest.InStream()(draft)
	}})
	config := c.IssuerConfig()
	config.Admin = relaytest.FreeAddress(t)
	c.StartIssuer(t, config)
	c.Start(t, 0)
	v := relaytest.FreeAddress(t)
	startVerifier(t, c, server.Config{Admin: v, Data: t.TempDir()})
	said := map[string]bool{}
	for program, definitions := range map[string][]service.Metric{"relay": relay.Metrics(),
		"issuer": issuer.Metrics(), "verifier": server.Metrics()} {
		admin := map[string]string{"relay": c.Config(t, 0).Admin, "issuer": config.Admin, "verifier": v}[program]
		c.WaitReady(t, admin)
		text := get(t, "http://"+admin+"/metrics")
		require.Contains(t, text, "doona_"+program+"_ready 1")
		its, defined := map[string]bool{}, map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (doona_\w+)`).FindAllStringSubmatch(text, -1) {
			its[m[1]], said[m[1]] = true, true
		}
		if program == "relay" {
			its["doona_relay_refused"] = true             // when there are any
			its["doona_relay_owner_limited_total"] = true // when an owner is over a limit
		}
		if program != "issuer" {
			its["doona_"+program+"_findings"] = true // when there are any
		}
		for _, m := range definitions {
			if strings.HasSuffix(m.Name, "_clock_offset_seconds") {
				its[m.Name] = true // when a peer has answered
			}
			defined[m.Name] = true
		}
		require.Equal(t, defined, its)
		require.Equal(t, its, shown(t, program+".json"))
	}
	said["doona_relay_findings"], said["doona_verifier_findings"] = true, true
	said["doona_relay_owner_limited_total"] = true
	said["doona_relay_clock_offset_seconds"] = true
	said["doona_issuer_clock_offset_seconds"] = true
	for metric := range shown(t, "alerts.yaml") {
		require.True(t, said[metric], metric)
	}
}

// report posts the reports of some clients to the running first relay.
func report(t *testing.T, c *relaytest.Cascade, clients int) {
	t.Helper()
	client, err := shufflerclient.New(c.Open, shufflerclient.Options{MaxEpsilon: 10})
	require.NoError(t, err)
	for i := range clients {
		r, err := client.Report(0, []float64{7})
		require.NoError(t, err)
		require.NoError(t, c.Post(t.Context(), 0, r.Body, relaytest.Network(i)))
	}
}

// startVerifier runs the verifier of a cascade's task until stop or the end of the test.
func startVerifier(t *testing.T, c *relaytest.Cascade, cfg server.Config) (stop func()) {
	t.Helper()
	cfg.Listen, cfg.SignKey = relaytest.FreeAddress(t), c.VerifierSign()
	cfg.PullInterval = 20 * time.Millisecond
	cfg.Tasks = []server.TaskConfig{{File: filepath.Join(c.Dir, "task0.bundle"), HPKEKeys: c.VerifierKeys("task0")}}
	s, err := server.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	c.WaitReady(t, cfg.Admin)
	return stop
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

// shown returns the metrics that a file names, and fails the test if the file is not well-formed.
func shown(t *testing.T, name string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("grafana", name))
	require.NoError(t, err)
	var rules map[string]any
	require.NoError(t, yaml.Unmarshal(text, &rules)) // JSON is YAML
	out := map[string]bool{}
	for _, metric := range regexp.MustCompile(`doona_[a-z_]+`).FindAllString(string(text), -1) {
		out[strings.TrimSuffix(metric, "_bucket")] = true
	}
	return out
}

// TestHealthChecks: whoever restarts what is unhealthy must ask whether the program lives, and not whether it is ready:
// a restart mends no database.
func TestHealthChecks(t *testing.T) {
	for name, want := range map[string]int{"Dockerfile": 1, "compose.yaml": 3, "kubernetes.yaml": 2} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, want, strings.Count(string(text), `"/program", "health"`), name)
		require.Equal(t, want, strings.Count(string(text), `"/program", "health", "--live"`), name)
	}
}

// buildStatic builds a program as the Dockerfile does, and fails the test if the program needs a shared library.
func buildStatic(t *testing.T, program, into string) {
	t.Helper()
	dockerfile, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	command := `CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o`
	require.Contains(t, string(dockerfile), command+" /program ./cmd/$PROGRAM")
	build := exec.Command("sh", "-c", command+" "+into+" ../cmd/"+program)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	binary, err := elf.Open(into)
	require.NoError(t, err)
	defer binary.Close()
	libraries, err := binary.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries)
	for _, segment := range binary.Progs {
		require.NotEqual(t, elf.PT_INTERP, segment.Type, "it asks for a dynamic loader")
	}
}

// TestStatic: the program that the Dockerfile builds must need no shared library and no system file. It must serve as
// an unprivileged user in a root folder that has only the program's own files.
func TestStatic(t *testing.T) {
	c := relaytest.New(t, relaytest.Options{Hops: 1, Task: relaytest.Mean(10)})
	root, pages, admin := c.Dir, relaytest.FreeAddress(t), relaytest.FreeAddress(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "verifier", "verifier.yaml"), []byte("listen: "+pages+
		"\nadmin: "+admin+"\nsign_key: sign.key\ndata: data\ntasks: [{file: ../task0.bundle, hpke_keys: "+
		"task0.keys}]\n"),
		0o600))
	for _, program := range []string{"relay", "issuer", "verifier"} {
		buildStatic(t, program, filepath.Join(root, "program-"+program))
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may change the root folder")
	}
	const nobody = 65532
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chown(path, nobody, nobody))
	}))
	var running []*exec.Cmd
	for _, args := range [][]string{{"/program-relay", "serve", "--config", "/relay1/relay.yaml"},
		{"/program-verifier", "serve", "--config", "/verifier/verifier.yaml"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { cmd.Process.Kill() })
		running = append(running, cmd)
	}
	c.WaitReady(t, c.Config(t, 0).Admin)
	c.WaitReady(t, admin)
	for _, args := range [][]string{{"/program-relay", "health", "--config", "/relay1/relay.yaml"},
		{"/program-verifier", "health", "--config", "/verifier/verifier.yaml"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.SysProcAttr = "/", running[0].SysProcAttr
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	report(t, c, 1)
	require.Contains(t, get(t, "http://"+pages+"/"), "test 0")
	for _, cmd := range running {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
	}
}

// TestAlertsByPromtool: promtool must accept the rules, and the right alerts must fire: on the first finding of a kind,
// on an upstream relay that has not answered since the relay started, and on a process that stopped.
func TestAlertsByPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not here")
	}
	for _, args := range [][]string{{"check", "rules", "grafana/alerts.yaml"}, {"test", "rules", "alerts_promtool.yaml"}} {
		out, err := exec.Command(promtool, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// TestProxySamples: no sample configuration of a proxy may log addresses, trust the address that a client claims, or
// store a report on disk. A proxy that is installed must accept its sample.
func TestProxySamples(t *testing.T) {
	dir := t.TempDir()
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
		return string(text)
	}
	nginx := read("nginx.conf")
	for _, line := range []string{"\nerror_log /dev/null", "\taccess_log off;", "X-Forwarded-For $remote_addr;",
		`Forwarded "";`, "proxy_request_buffering off;", "ssl_protocols TLSv1.3;"} {
		require.Contains(t, nginx, line)
	}
	require.Equal(t, 2, strings.Count(nginx, "_log "), "no other log")
	caddy := read("Caddyfile")
	for _, line := range []string{"exclude http ", "protocols tls1.3", "request_header -Forwarded"} {
		require.Contains(t, caddy, line)
	}
	if program, err := exec.LookPath("caddy"); err == nil {
		out, err := exec.Command(program, "adapt", "--adapter", "caddyfile", "--config", filepath.Join(dir, "Caddyfile")).
			CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// TestSamples: each program must read its sample configuration, also with all optional lines. All files that it writes
// must lie in folders where the systemd unit lets it write.
func TestSamples(t *testing.T) {
	store := func(setting string) string { return strings.TrimPrefix(setting, service.SchemeSQLite) }
	for program, written := range map[string]func(path string, whole bool) ([]string, error){
		"relay": func(path string, whole bool) ([]string, error) {
			c, err := relay.LoadConfig(path)
			if err != nil || !whole {
				return []string{store(c.Store), c.Secret, c.SignKey, c.Tasks[0].HPKEKeys}, err
			}
			return []string{c.Scratch, c.Autocert.Cache, c.Tasks[0].Successors, c.Owners[0].Folder}, nil
		},
		"issuer": func(path string, whole bool) ([]string, error) {
			c, err := issuer.LoadConfig(path)
			if err != nil || !whole {
				return []string{store(c.Store), c.Tasks[0].TokenKeys}, err
			}
			return []string{c.SignKey, c.Tasks[0].Successors}, nil
		},
		"verifier": func(path string, whole bool) ([]string, error) {
			c, err := server.LoadConfig(path)
			if err != nil || !whole {
				return []string{c.SignKey, c.Data, c.Tasks[0].HPKEKeys}, err
			}
			return []string{c.Ledger, c.Tasks[0].Successors, c.PasswordFile, c.Webhook.SecretFile}, nil
		},
	} {
		t.Run(program, func(t *testing.T) {
			sample := program + ".yaml"
			text, err := os.ReadFile(sample)
			require.NoError(t, err)
			optional := regexp.MustCompile(`(?m)^( *)# ([a-z_]+: )`)
			require.Len(t, optional.FindAll(text, -1), map[string]int{"relay": 13, "issuer": 10, "verifier": 16}[program])
			whole := filepath.Join(t.TempDir(), sample)
			require.NoError(t, os.WriteFile(whole, optional.ReplaceAll(text, []byte("$1$2")), 0o600))
			for _, path := range []string{sample, whole} {
				files, err := written(path, path == whole)
				require.NoError(t, err)
				for _, file := range files {
					require.True(t, strings.HasPrefix(file, "/var/lib/doona-"+program+"/"), file)
				}
			}
		})
	}
}

// TestRenewUnits: systemd must find no fault in the units that renew tasks, and doona must take the unit's flags.
func TestRenewUnits(t *testing.T) {
	m := newManuals(t)
	m.build("doona")
	text, err := os.ReadFile("doona-renew.service")
	require.NoError(t, err)
	_, line, found := strings.Cut(string(text), "\nExecStart=/usr/local/bin/")
	require.True(t, found)
	line, _, _ = strings.Cut(line, "\n")
	line = strings.NewReplacer("${CREDENTIALS_DIRECTORY}", m.root, "/var/lib/doona-verifier/", m.root+"/").Replace(line)
	cmd, out := m.command(m.root, line)
	require.Error(t, cmd.Run())
	require.Regexp(t, "^doona renew: couldn't use "+m.root+"/tasks: ", out.String())

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here")
	}
	timer, err := os.ReadFile("doona-renew.timer")
	require.NoError(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{"doona-renew.timer": string(timer),
		"doona-renew.service": strings.Replace(string(text), "/usr/local/bin/", m.bin+"/", 1)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	said, err := exec.Command(analyze, "verify", filepath.Join(dir, "doona-renew.timer")).CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.NotContains(t, string(said), "doona-renew", "%s", said)
}

// TestUnit: systemd must find no fault in the unit, whichever of the programs it starts.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here")
	}
	text, err := os.ReadFile("doona@.service")
	require.NoError(t, err)
	require.Contains(t, string(text), "ExecStart=/usr/local/bin/%i ")
	dir := t.TempDir()
	for _, program := range []string{"relay", "issuer", "verifier"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"), 0o755))
		unit := filepath.Join(dir, "doona@"+program+".service")
		require.NoError(t, os.WriteFile(unit, []byte(strings.Replace(string(text), "/usr/local/bin/", dir+"/", 1)),
			0o644))
		out, err := exec.Command(analyze, "verify", unit).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.NotContains(t, string(out), "doona@", "%s", out)
	}
}
