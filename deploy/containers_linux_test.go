package main_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// container is what compose.yaml or kubernetes.yaml says about the container of a program.
type container struct {
	program  string
	args     []string
	user     string
	config   string // where the configuration is mounted, read-only
	state    string // where the volume is mounted
	live     []string
	stopTime time.Duration
}

// composeFile has the keys of compose.yaml. Others are an error, so that none goes unchecked.
type composeFile struct {
	Services map[string]struct {
		Build struct {
			Context, Dockerfile string
			Args                map[string]string
		}
		Image       string
		Command     []string
		NetworkMode string   `yaml:"network_mode"`
		User        string   `yaml:"user"`
		ReadOnly    bool     `yaml:"read_only"`
		CapDrop     []string `yaml:"cap_drop"`
		CapAdd      []string `yaml:"cap_add"`
		SecurityOpt []string `yaml:"security_opt"`
		Tmpfs       []string
		Volumes     []string
		Healthcheck struct {
			Test              []string
			Interval, Timeout string
			StartPeriod       string `yaml:"start_period"`
		}
		Restart         string
		StopGracePeriod string `yaml:"stop_grace_period"`
		Ulimits         map[string]int
		MemLimit        string `yaml:"mem_limit"`
		MemswapLimit    string `yaml:"memswap_limit"`
		Logging         struct {
			Driver  string
			Options map[string]string
		}
	}
	Volumes map[string]any
}

// readYAML reads the documents of a file, and fails the test at a key that the types lack.
func readYAML(t *testing.T, name string, into ...any) {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	decoder := yaml.NewDecoder(file, yaml.Strict())
	for _, one := range into {
		require.NoError(t, decoder.Decode(one), name)
	}
}

// composed reads the containers of compose.yaml, and checks what no test can run here.
func composed(t *testing.T) map[string]container {
	t.Helper()
	var file composeFile
	readYAML(t, "compose.yaml", &file)
	require.Len(t, file.Services, 4)
	out := map[string]container{}
	for program, s := range file.Services {
		require.Equal(t, "host", s.NetworkMode, program)
		require.True(t, s.ReadOnly, program)
		require.Equal(t, []string{"ALL"}, s.CapDrop, program)
		require.Equal(t, "unless-stopped", s.Restart, program)
		if program == "proxy" {
			require.Equal(t, "none", s.Logging.Driver)
			require.Equal(t, []string{"NET_BIND_SERVICE"}, s.CapAdd)
			continue
		}
		require.Equal(t, program, s.Build.Args["PROGRAM"])
		require.FileExists(t, filepath.Join(s.Build.Context, s.Build.Dockerfile))
		require.Empty(t, s.CapAdd, program)
		require.Equal(t, []string{"no-new-privileges:true"}, s.SecurityOpt, program)
		require.Zero(t, s.Ulimits["core"], program)
		require.Equal(t, s.MemLimit, s.MemswapLimit, program)
		require.Equal(t, []string{"/tmp"}, s.Tmpfs, program)
		require.Len(t, s.Volumes, 2, program)
		state := strings.TrimPrefix(s.Volumes[1], program+":")
		require.Contains(t, file.Volumes, program)
		stop, err := time.ParseDuration(s.StopGracePeriod)
		require.NoError(t, err)
		out[program] = container{program: program, args: s.Command, user: s.User,
			config: strings.TrimSuffix(strings.TrimPrefix(s.Volumes[0], "./etc:"), ":ro"), state: state,
			live: s.Healthcheck.Test, stopTime: stop}
	}
	return out
}

// kubernetesFile has the keys of kubernetes.yaml that the test reads. The rest is checked by name.
type kubernetesFile struct {
	Kind string
	Spec struct {
		Replicas int
		Template struct {
			Spec struct {
				Automount       bool `yaml:"automountServiceAccountToken"`
				Grace           int  `yaml:"terminationGracePeriodSeconds"`
				SecurityContext struct {
					RunAsNonRoot bool `yaml:"runAsNonRoot"`
					RunAsUser    int  `yaml:"runAsUser"`
					RunAsGroup   int  `yaml:"runAsGroup"`
					FSGroup      int  `yaml:"fsGroup"`
				} `yaml:"securityContext"`
				Containers []struct {
					Args  []string
					Ports []struct {
						ContainerPort int `yaml:"containerPort"`
					}
					SecurityContext struct {
						ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
						Escalation   *bool `yaml:"allowPrivilegeEscalation"`
						Capabilities struct{ Drop []string }
					} `yaml:"securityContext"`
					StartupProbe   probe `yaml:"startupProbe"`
					LivenessProbe  probe `yaml:"livenessProbe"`
					ReadinessProbe probe `yaml:"readinessProbe"`
					VolumeMounts   []struct {
						Name      string
						MountPath string `yaml:"mountPath"`
						ReadOnly  bool   `yaml:"readOnly"`
					} `yaml:"volumeMounts"`
				}
			}
		}
		Claims []struct {
			Spec struct {
				AccessModes []string `yaml:"accessModes"`
			}
		} `yaml:"volumeClaimTemplates"`
	}
}

type probe struct {
	Exec    struct{ Command []string }
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	Period  int                         `yaml:"periodSeconds"`
}

// orchestrated reads the container of kubernetes.yaml, and checks what no test can run here.
func orchestrated(t *testing.T) container {
	t.Helper()
	file, err := os.ReadFile("kubernetes.yaml")
	require.NoError(t, err)
	var set kubernetesFile
	require.NoError(t, yaml.NewDecoder(bytes.NewReader(file)).Decode(&set))
	pod := set.Spec.Template.Spec
	require.Equal(t, []any{"StatefulSet", 1, false, true}, []any{set.Kind, set.Spec.Replicas, pod.Automount,
		pod.SecurityContext.RunAsNonRoot}, "one writer")
	require.Equal(t, []string{"ReadWriteOncePod"}, set.Spec.Claims[0].Spec.AccessModes)
	c := pod.Containers[0]
	require.True(t, c.SecurityContext.ReadOnly)
	require.False(t, *c.SecurityContext.Escalation)
	require.Equal(t, []string{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.Equal(t, c.LivenessProbe.Exec, c.StartupProbe.Exec)
	require.Contains(t, c.LivenessProbe.Exec.Command, "--live", "liveness must not ask for readiness")
	require.Equal(t, "/healthz", c.ReadinessProbe.HTTPGet.Path)
	require.Equal(t, "/tmp", c.VolumeMounts[2].MountPath)
	require.True(t, c.VolumeMounts[0].ReadOnly)
	require.Equal(t, pod.SecurityContext.RunAsGroup, pod.SecurityContext.FSGroup)
	return container{program: "relay", args: c.Args,
		config: c.VolumeMounts[0].MountPath, state: c.VolumeMounts[1].MountPath,
		user: fmt.Sprintf("%d:%d", pod.SecurityContext.RunAsUser, pod.SecurityContext.FSGroup),
		live: append([]string{"CMD"}, c.LivenessProbe.Exec.Command...), stopTime: time.Duration(pod.Grace) * time.Second}
}

// box runs the commands of a container, as far as namespaces of this machine can: its root folder has the program and
// nothing else, and is read-only but for the volume and /tmp.
type box struct {
	container
	t                *testing.T
	root, etc, state string
	uid, gid         int
}

func newBox(t *testing.T, c container, etc string) *box {
	t.Helper()
	dir, err := os.MkdirTemp("", "container") // the container's user cannot read t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	b := &box{container: c, t: t, root: filepath.Join(dir, "root"), etc: etc, state: filepath.Join(dir, "state")}
	user, group, _ := strings.Cut(c.user, ":")
	b.uid, err = strconv.Atoi(user)
	require.NoError(t, err)
	b.gid, err = strconv.Atoi(group)
	require.NoError(t, err)
	for _, folder := range []string{b.root, filepath.Join(b.root, c.config), filepath.Join(b.root, c.state),
		filepath.Join(b.root, "tmp")} {
		require.NoError(t, os.MkdirAll(folder, 0o755))
	}
	require.NoError(t, os.Mkdir(b.state, 0o700)) // as the Dockerfile makes it
	require.NoError(t, os.Chown(b.state, b.uid, b.gid))
	buildStatic(t, c.program, filepath.Join(b.root, "program"))
	return b
}

// command returns a command of the container. A first argument with a slash is the program's path.
func (b *box) command(args ...string) *exec.Cmd {
	if !strings.HasPrefix(args[0], "/") {
		args = append([]string{"/program"}, args...) // the image's ENTRYPOINT
	}
	script := fmt.Sprintf(`set -e
mount --bind %[1]s %[1]s
mount --bind %[2]s %[1]s%[4]s
mount -o remount,bind,ro %[1]s%[4]s
mount --bind %[3]s %[1]s%[5]s
mount -t tmpfs -o mode=1777 none %[1]s/tmp
mount -o remount,bind,ro %[1]s
exec setpriv --no-new-privs unshare --root=%[1]s --setgid=%[6]d --setuid=%[7]d -- "$@"
`, b.root, b.etc, b.state, b.config, b.container.state, b.gid, b.uid)
	cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return cmd
}

func (b *box) do(args ...string) string {
	b.t.Helper()
	out, err := b.command(args...).CombinedOutput()
	require.NoError(b.t, err, "%s %s\n%s", b.program, args, out)
	return string(out)
}

// key reads a signing key that the container has made in its volume.
func (b *box) key(name string) ed25519.PrivateKey {
	b.t.Helper()
	key, err := keyfile.LoadSign(filepath.Join(b.state, name))
	require.NoError(b.t, err)
	return key
}

func (b *box) list(name string) *onion.SignedKeyList {
	b.t.Helper()
	raw, err := os.ReadFile(filepath.Join(b.state, name+".pub"))
	require.NoError(b.t, err)
	list, err := onion.ParseKeyList(raw)
	require.NoError(b.t, err)
	return list
}

// serve runs the container's command until stop is called, and waits until its health check succeeds.
func (b *box) serve() (stop func()) {
	t := b.t
	t.Helper()
	cmd := b.command(b.args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			cmd.Process.Kill()
		}
	})
	require.Equal(t, "CMD", b.live[0])
	require.Eventually(t, func() bool {
		return len(ended) > 0 || b.command(b.live[1:]...).Run() == nil
	}, relaytest.Patience, 200*time.Millisecond, "%s", b.program)
	require.Empty(t, ended, "%s\n%s", b.program, &out)
	return func() {
		stopped = true
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		select {
		case err := <-ended:
			require.NoError(t, err, "%s\n%s", b.program, &out)
		case <-time.After(b.stopTime):
			require.Fail(t, "it does not end in time", b.program)
		}
	}
}

// openToTheGroup changes the volume's files as the kubelet does for fsGroup.
func (b *box) openToTheGroup() {
	b.t.Helper()
	for _, name := range filesIn(b.t, b.state) {
		path := filepath.Join(b.state, name)
		info, err := os.Stat(path)
		require.NoError(b.t, err)
		require.NoError(b.t, os.Chown(path, -1, b.gid))
		require.NoError(b.t, os.Chmod(path, info.Mode().Perm()|0o660))
	}
	require.NoError(b.t, os.Chmod(b.state, os.ModeSetgid|0o770))
}

// configured writes the sample of a program into the folder of configurations, with other ports and the owner's key.
func configured(t *testing.T, etc, program string, replace ...string) {
	t.Helper()
	text, err := os.ReadFile(program + ".yaml")
	require.NoError(t, err)
	changed := strings.NewReplacer(replace...).Replace(string(text))
	require.NoError(t, os.WriteFile(filepath.Join(etc, program+".yaml"), []byte(changed), 0o644))
}

// TestContainers runs relay, issuer and verifier as compose.yaml says, and a relay as kubernetes.yaml says, with the
// samples as their configurations: keygen, check-config, serve, health check, stop and start again. All keys are made
// in the containers' volumes. Between commands, all files are opened to the group, as the kubelet does for fsGroup.
func TestContainers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount folders and change the root folder")
	}
	composed := composed(t)
	for name, containers := range map[string][]container{
		"compose":    {composed["relay"], composed["issuer"], composed["verifier"]},
		"kubernetes": {orchestrated(t)},
	} {
		t.Run(name, func(t *testing.T) { runContainers(t, containers) })
	}
}

func runContainers(t *testing.T, containers []container) {
	etc, err := os.MkdirTemp("", "etc")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(etc) })
	require.NoError(t, os.Chmod(etc, 0o755))
	owner, err := keyfile.NewSign(filepath.Join(t.TempDir(), "owner.key"))
	require.NoError(t, err)
	ports := []string{"ed25519:KEY", taskfile.FormatKey(public(owner))}
	at := map[string]string{}
	for _, port := range []string{"8081", "9081", "8085", "9085", "8090", "9090"} {
		at[port] = relaytest.FreeAddress(t)
		ports = append(ports, "127.0.0.1:"+port, at[port])
	}
	boxes := map[string]*box{}
	for _, c := range containers {
		b := newBox(t, c, etc)
		boxes[c.program] = b
		kind := map[string]string{"issuer": "token"}[c.program]
		if kind == "" {
			kind = "hpke"
		}
		sign, keys := c.state+"/"+c.program+".sign", c.state+"/mean.keys"
		b.do("keygen", "--kind", "sign", "--out", sign)
		b.openToTheGroup()
		b.do("keygen", "--kind", kind, "--sign-key", sign, "--epochs", "2", "--out", keys)
		configured(t, etc, c.program, ports...)
	}
	draft := relaytest.Draft()
	relaytest.Mean(10)(draft)
	draft.Batch.Min = max(draft.Batch.DefaultMin(), 1)
	relay := boxes["relay"]
	draft.Relays = []task.Party{{URL: "http://" + at["8081"], SignKey: public(relay.key("relay.sign")),
		KeyList: relay.list("mean.keys").Hash()}}
	lists := []*onion.SignedKeyList{relay.list("mean.keys")}
	if v := boxes["verifier"]; v != nil {
		draft.Verifier = task.Party{SignKey: public(v.key("verifier.sign")), KeyList: v.list("mean.keys").Hash()}
		lists = append(lists, v.list("mean.keys"))
		i := boxes["issuer"]
		draft.Clients = task.Clients{Kind: task.ClientToken, Quota: 1, Issuer: task.Party{URL: "http://" + at["8085"],
			SignKey: public(i.key("issuer.sign")), KeyList: i.list("mean.keys").Hash()}}
		lists = append(lists, i.list("mean.keys"))
		require.NoError(t, os.WriteFile(filepath.Join(etc, "api.keys"), []byte(strings.Repeat("k", 43)+"\n"), 0o600))
		require.NoError(t, os.Chown(filepath.Join(etc, "api.keys"), i.uid, i.gid))
	} else {
		folder := t.TempDir()
		sign, err := keyfile.NewSign(filepath.Join(folder, "sign"))
		require.NoError(t, err)
		list, err := keyfile.NewHPKE(filepath.Join(folder, "keys"), task.KEMX25519, 2, sign)
		require.NoError(t, err)
		draft.Verifier = task.Party{SignKey: public(sign), KeyList: list.Hash()}
		lists = append(lists, list)
	}
	bundle, err := taskfile.Sign(draft, owner, lists)
	require.NoError(t, err)
	raw, err := bundle.Bytes()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(etc, "mean.bundle"), raw, 0o644))

	for range 2 {
		var stops []func()
		for _, program := range []string{"issuer", "relay", "verifier"} {
			if b := boxes[program]; b != nil {
				if program != "verifier" {
					b.do("check-config", "--config", b.config+"/"+program+".yaml")
				}
				stops = append(stops, b.serve())
			}
		}
		healthy := func() bool {
			resp, err := http.Get("http://" + at["8081"] + "/healthz")
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			return resp.StatusCode == http.StatusNoContent
		}
		require.Eventually(t, healthy, relaytest.Patience, 100*time.Millisecond)
		require.Contains(t, relay.do("status", "--config", relay.config+"/relay.yaml"), "mean")
		if boxes["verifier"] != nil {
			require.Contains(t, get(t, "http://"+at["8090"]+"/"), "mean")
		}
		for _, stop := range stops {
			stop()
		}
		for _, b := range boxes {
			b.openToTheGroup()
		}
	}
	for _, b := range boxes {
		for _, folder := range []string{b.config, ""} {
			out, err := b.command("keygen", "--kind", "sign", "--out", folder+"/x").CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), "read-only file system")
		}
	}
}

// TestCompose: Docker's own tool must find no fault in compose.yaml.
func TestCompose(t *testing.T) {
	program, err := exec.LookPath("docker-compose")
	if err != nil {
		t.Skip("docker-compose is not here")
	}
	out, err := exec.Command(program, "-f", "compose.yaml", "config", "--quiet").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
