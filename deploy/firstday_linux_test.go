package main_test

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// TestFirstDay follows the first day of deployment.md letter by letter. It uses the document's own paths, where
// [TestManuals] uses other folders: the program in /usr/local/bin, the relay's user by useradd, its folder by install,
// and the relay as the unit starts it. In the test's mount namespace, /etc, /usr/local/bin and /var/lib are folders of
// the test, so the machine does not change.
func TestFirstDay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may make users and mount folders over the machine's")
	}
	users, err := os.ReadFile("/etc/passwd")
	require.NoError(t, err)
	m := newMachine(t)
	doc := &manuals{t: t}
	day := doc.code("deployment.md", "## First day")
	build := m.as("root", doc.one(day, "go build "))
	build.Dir = ".."
	build.Env = append(os.Environ(), "PATH="+filepath.Join(goroot(t), "bin")+":"+os.Getenv("PATH"))
	m.do(build)
	m.do(m.as("root", doc.one(day, "useradd ")))
	m.do(m.as("root", doc.one(day, "install ")))
	const home = "/var/lib/doona-relay"
	folder, err := os.Stat(m.path(home))
	require.NoError(t, err)
	require.Equal(t, os.ModeDir|0o700, folder.Mode())
	uid := strconv.Itoa(int(folder.Sys().(*syscall.Stat_t).Uid))
	passwd, err := os.ReadFile(m.path("/etc/passwd"))
	require.NoError(t, err)
	require.Regexp(t, `(?m)^doona-relay:[^:]*:`+uid+`:`, string(passwd))

	for _, kind := range []string{"sign", "hpke"} {
		keygen := m.as("doona-relay", doc.one(day, "relay keygen --kind "+kind))
		keygen.Dir = m.path(home)
		m.do(keygen)
	}
	listen, admin := relaytest.FreeAddress(t), relaytest.FreeAddress(t)
	m.configure(home, doc.blocks("relay.md", "## Run two relays")[1], listen, admin)

	check := doc.one(day, "sudo -u doona-relay ")
	if _, err := exec.LookPath("sudo"); err != nil { // where it is not there, runuser does the same
		check = strings.Replace(check, "sudo -u doona-relay ", "runuser -u doona-relay -- ", 1)
	}
	m.do(m.as("root", check))
	m.serveByUnit(home, admin, uid)
	after, err := os.ReadFile("/etc/passwd")
	require.NoError(t, err)
	require.Equal(t, users, after)
}

// machine is a mount namespace in which folders of the test replace some of the machine's.
type machine struct {
	t    *testing.T
	root string
	pid  int // of who is in it
}

// owned lists the folders that the test replaces. true: the test's folder begins as a copy of the machine's.
var owned = map[string]bool{"/etc": true, "/usr/local/bin": false, "/var/lib": false}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t}
	var err error
	m.root, err = os.MkdirTemp("", "machine") // other users cannot read t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(m.root) })
	require.NoError(t, os.Chmod(m.root, 0o755))
	script := "set -e\n"
	for folder, copied := range owned {
		require.NoError(t, os.MkdirAll(m.path(folder), 0o755))
		if copied {
			script += "cp -a " + folder + "/. " + m.path(folder) + "\n"
		}
		script += "mount --bind " + m.path(folder) + " " + folder + "\n"
	}
	within := exec.Command("sh", "-c", script+"echo ready\nread end\n")
	within.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // its mounts are visible only inside
	var errs bytes.Buffer
	within.Stderr = &errs
	in, err := within.StdinPipe()
	require.NoError(t, err)
	out, err := within.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, within.Start())
	t.Cleanup(func() {
		in.Close()
		_ = within.Wait() // it reads no line
	})
	line, _ := bufio.NewReader(out).ReadString('\n')
	require.Equal(t, "ready\n", line, "%s", &errs)
	m.pid = within.Process.Pid
	return m
}

// path returns the path outside the namespace of a file in it.
func (m *machine) path(name string) string { return filepath.Join(m.root, name) }

// as returns a shell command that a user of the machine runs in the namespace, from the machine's root folder.
func (m *machine) as(user, line string, more ...string) *exec.Cmd {
	args := []string{"--mount=/proc/" + strconv.Itoa(m.pid) + "/ns/mnt", "--wd=.", "--"}
	if user != "root" {
		args = append(args, "setpriv", "--reuid="+user, "--regid="+user, "--clear-groups", "--no-new-privs")
	}
	cmd := exec.Command("nsenter", append(append(args, more...), "sh", "-c", line)...)
	cmd.Dir, cmd.Env = m.root, []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/"}
	return cmd
}

// do runs a command, and fails the test unless it succeeds.
func (m *machine) do(cmd *exec.Cmd) string {
	m.t.Helper()
	out, err := cmd.CombinedOutput()
	require.NoError(m.t, err, "%s\n%s", cmd, out)
	return string(out)
}

// configure writes the files in /etc/doona as step 3 and relay.md say, with absolute paths, and a task of this relay
// alone.
func (m *machine) configure(home, text, listen, admin string) {
	t := m.t
	t.Helper()
	folder := t.TempDir()
	raw, err := os.ReadFile(m.path(home + "/mean.keys.pub"))
	require.NoError(t, err)
	list, err := onion.ParseKeyList(raw)
	require.NoError(t, err)
	relay, err := keyfile.LoadSign(m.path(home + "/relay.sign"))
	require.NoError(t, err)
	owner, err := keyfile.NewSign(filepath.Join(folder, "owner.key"))
	require.NoError(t, err)
	judge, err := keyfile.NewSign(filepath.Join(folder, "verifier.key"))
	require.NoError(t, err)
	verifier, err := keyfile.NewHPKE(filepath.Join(folder, "verifier.keys"), task.KEMX25519, 90, judge)
	require.NoError(t, err)
	draft := relaytest.Draft()
	draft.Epochs.Count = 90
	draft.Batch.Min = max(draft.Batch.DefaultMin(), 1)
	draft.Relays = []task.Party{{URL: "http://" + listen, SignKey: public(relay), KeyList: list.Hash()}}
	draft.Verifier = task.Party{SignKey: public(judge), KeyList: verifier.Hash()}
	bundle, err := taskfile.Sign(draft, owner, []*onion.SignedKeyList{list, verifier})
	require.NoError(t, err)
	raw, err = bundle.Bytes()
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(m.path("/etc/doona"), 0o755))
	require.NoError(t, os.WriteFile(m.path("/etc/doona/mean.bundle"), raw, 0o644))
	text = strings.NewReplacer("127.0.0.1:8081", listen, "127.0.0.1:9081", admin, "ed25519:…",
		taskfile.FormatKey(public(owner)), ": relay.s", ": "+home+"/relay.s", "sqlite:", "sqlite:"+home+"/",
		"hpke_keys: ", "hpke_keys: "+home+"/").Replace(text)
	require.NoError(t, os.WriteFile(m.path("/etc/doona/relay.yaml"), []byte(text), 0o644))
}

// unit reads the systemd unit of a program.
func unit(t *testing.T, program string) func(key string) string {
	t.Helper()
	text, err := os.ReadFile("doona@.service")
	require.NoError(t, err)
	return func(key string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(string(text))
		require.NotNil(t, found, key)
		return strings.ReplaceAll(found[1], "%i", program)
	}
}

// serveByUnit runs the relay as systemd would by its unit, because no systemd runs where tests run. User, command and
// file mask are the unit's. Only the relay's folder and one for temporary files are writable. The program must notify
// when it serves and that it is alive, and must end when it is told to. The test tries neither limits above its own nor
// filters of system calls, for which it lacks the rights. If systemd's tools are installed, they check and enable the
// unit.
func (m *machine) serveByUnit(home, admin, uid string) {
	t := m.t
	t.Helper()
	says := unit(t, "relay")
	require.Equal(t, home, "/var/lib/"+says("StateDirectory"))
	require.Equal(t, "strict", says("ProtectSystem"))
	text, err := os.ReadFile("doona@.service")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(m.path("/etc/systemd/system"), 0o755))
	require.NoError(t, os.WriteFile(m.path("/etc/systemd/system/doona@.service"), text, 0o644))
	begin := regexp.MustCompile(`(?m)^#   (systemd-analyze .*)$`).FindStringSubmatch(string(text))
	require.NotNil(t, begin)
	if _, err := exec.LookPath("systemd-analyze"); err == nil {
		enable := m.as("root", strings.Replace(begin[1], " --now", "", 1)) // nothing is here that would start it
		enable.Dir = m.path("/etc/systemd/system")
		m.do(enable)
		require.Contains(t, filesIn(t, m.path("/etc/systemd/system/multi-user.target.wants")), "doona@relay.service")
	}

	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "@" + m.root, Net: "unixgram"})
	require.NoError(t, err)
	defer manager.Close()
	script := "set -e\nmount --bind " + home + " " + home + "\nmount -t tmpfs none /tmp\nmount -o remount,bind,ro /\n"
	for folder := range owned {
		script += "mount -o remount,bind,ro " + folder + "\n"
	}
	script += "cd /\numask " + says("UMask") + "\nulimit -c " + says("LimitCORE") + "\nexec setpriv --reuid=" +
		says("User") + " --regid=" + says("Group") +
		" --init-groups --no-new-privs --bounding-set=-all " + says("ExecStart")
	serve := m.as("root", script, "unshare", "--mount")
	watch, err := strconv.Atoi(says("WatchdogSec"))
	require.NoError(t, err)
	serve.Env = append(serve.Env, "NOTIFY_SOCKET=@"+m.root, "WATCHDOG_USEC="+strconv.Itoa(watch*1_000_000))
	var out bytes.Buffer
	serve.Stdout, serve.Stderr = &out, &out
	require.NoError(t, serve.Start())
	ended := make(chan error, 1)
	go func() { ended <- serve.Wait() }()
	defer serve.Process.Kill()
	said, begun := map[string]bool{}, time.Now()
	for buffer := make([]byte, 100); !said["READY=1"] || !said["WATCHDOG=1"]; {
		require.NoError(t, manager.SetReadDeadline(time.Now().Add(time.Second)))
		n, err := manager.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) && len(ended) == 0 && time.Since(begun) < relaytest.Patience {
			continue
		}
		require.NoError(t, err, "%s", &out)
		said[string(buffer[:n])] = true
	}
	for _, line := range []string{"relay health --config /etc/doona/relay.yaml",
		"relay status --config /etc/doona/relay.yaml"} {
		m.do(m.as("doona-relay", line))
	}
	require.Contains(t, get(t, "http://"+admin+"/metrics"), "doona_relay_ready 1")
	for _, name := range filesIn(t, m.path(home)) {
		info, err := os.Lstat(filepath.Join(m.path(home), name))
		require.NoError(t, err)
		require.Equal(t, uid, strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid)), name)
		if !strings.HasSuffix(name, ".pub") {
			require.Zero(t, info.Mode().Perm()&0o077, name)
		}
	}
	stop, err := strconv.Atoi(says("TimeoutStopSec"))
	require.NoError(t, err)
	require.NoError(t, serve.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		require.NoError(t, err, "%s", &out)
	case <-time.After(time.Duration(stop) * time.Second):
		require.Fail(t, "it does not end", "%s", &out)
	}
}

// filesIn lists the files in a folder, and fails the test if it has none.
func filesIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	require.NotEmpty(t, names)
	return names
}

func goroot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

func public(key ed25519.PrivateKey) task.SignKey {
	return task.SignKey(key.Public().(ed25519.PublicKey))
}
