package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestManuals runs the commands of the manuals, line by line, as an unprivileged user: the first blocks of relay.md,
// verifier.md and issuer.md, and the first day of deployment.md, whose relay may only read its configuration. The test
// fills in what a manual leaves to its reader, such as KEY. At the end the verifier must have an estimate. A relay that
// has lost its store, and then its secret, must recover as deployment.md says.
func TestManuals(t *testing.T) {
	m := newManuals(t)
	day := m.code("deployment.md", "## First day")
	m.build("relay", "verifier", "issuer", "doona")
	const epochs = "--epochs 90"
	month := strings.NewReplacer("--epochs 30", epochs)
	relayMD, verifierMD, issuerMD := m.blocks("relay.md", "## Run two relays"), m.blocks("verifier.md", "## Run one"),
		m.blocks("issuer.md", "## Run one")

	// Keys: the first relay by deployment.md, in a folder apart from its configuration, the second by relay.md.
	first, second, judge, mint, owner := m.folder("relay1"), m.folder("relay2"), m.folder("verifier"),
		m.folder("issuer"), m.folder("owner")
	m.run(first, m.one(day, "relay keygen --kind sign"))
	require.Contains(t, m.one(day, "relay keygen --kind hpke"), epochs)
	m.run(first, m.one(day, "relay keygen --kind hpke"))
	m.each(second, month.Replace(relayMD[0]))
	m.each(judge, month.Replace(verifierMD[0]))
	m.each(mint, month.Replace(issuerMD[0]))
	ownerKey := m.key(m.run(owner, "doona keygen --out owner.key"))

	at := map[string]string{} // addresses, as the manuals have them, by party and port
	for _, name := range []string{"relay1", "relay2", "issuer", "verifier"} {
		for _, port := range []string{"8081", "9081", "8085", "9085", "8090", "9090"} {
			at[name+port] = relaytest.FreeAddress(t)
		}
	}
	relayFlag := func(folder, address string) string {
		return "--relay http://" + address + "," + m.public(folder, "relay.sign") + "," + folder + "/mean.keys.pub "
	}
	m.run(owner, "doona task new --query mean --range 0,10 --batch 20 --epsilon 2 --delta 1e-4 --name mean "+
		"--owner-key owner.key "+relayFlag(first, at["relay18081"])+relayFlag(second, at["relay28081"])+
		"--verifier "+m.public(judge, "verifier.sign")+","+judge+"/mean.keys.pub "+
		"--issuer http://"+at["issuer8085"]+","+m.public(mint, "issuer.sign")+","+mint+"/mean.keys.pub "+
		epochs+" --out mean.bundle")
	bundle, err := os.ReadFile(filepath.Join(owner, "mean.bundle"))
	require.NoError(t, err)

	// Each party's configuration from the manual, in its own folder. The first relay may not write to its own.
	etc := filepath.Join(m.root, "etc")
	require.NoError(t, os.Mkdir(etc, 0o755))
	config := func(name, folder, text string, replace ...string) {
		for _, port := range []string{"8081", "9081", "8085", "9085", "8090", "9090"} {
			text = strings.ReplaceAll(text, "127.0.0.1:"+port, at[name+port])
		}
		text = strings.NewReplacer(append(replace, "ed25519:…", ownerKey)...).Replace(text)
		m.write(filepath.Join(folder, strings.TrimRight(name, "12")+".yaml"), text)
		m.write(filepath.Join(folder, "mean.bundle"), string(bundle))
	}
	config("relay1", etc, relayMD[1], ": relay.s", ": "+first+"/relay.s", "sqlite:", "sqlite:"+first+"/",
		"hpke_keys: ", "hpke_keys: "+first+"/")
	config("relay2", second, relayMD[1])
	config("verifier", judge, verifierMD[1])
	config("issuer", mint, issuerMD[2], "clients: account                 # or address",
		"clients: address\ntrusted_proxies: [127.0.0.0/8]", "api_keys: api.keys ", "# ")

	check := strings.ReplaceAll(m.one(day, "sudo -u doona-relay relay check-config"), "/etc/doona", etc)
	m.run(first, strings.TrimPrefix(check, "sudo -u doona-relay "))
	m.each(mint, issuerMD[3]) // Without the issuer's key a relay refuses all reports, and is not ready.
	m.start(first, "relay serve --config "+etc+"/relay.yaml")
	again := m.one(m.code("deployment.md", "## Secrets and backups"), "relay end-epochs")
	m.each(second, relayMD[2])
	m.each(judge, verifierMD[2])
	status := m.run(first, "relay status --config "+etc+"/relay.yaml")
	id := regexp.MustCompile(`[0-9a-f]{64}`).FindString(m.run(second, "relay check-config --config relay.yaml"))
	require.Len(t, id, 64)
	require.Contains(t, status, id[:8])

	load := m.one(day, "doona load ")
	load = strings.NewReplacer("URL", "http://"+at["relay18081"]+"/v1/tasks/"+id, "KEY", ownerKey, "20000", "40").
		Replace(load)
	out := m.run(first, load+" --values zipf --report http://"+at["verifier8090"]+"/tasks/"+id+" --json")
	require.Contains(t, out, `"accepted":40`)
	require.Contains(t, out, `"truth":`)

	for _, lost := range []string{"relay.db*", "relay.db* relay.secret*"} {
		m.running[second]()
		m.run(second, "rm "+lost)
		m.run(second, again)
		m.start(second, "relay serve --config relay.yaml")
	}
}

// manuals runs commands of documents.
type manuals struct {
	t         *testing.T
	root, bin string
	as        *syscall.SysProcAttr // nil where the test is no root
	running   map[string]func()    // how to stop what serves from a folder
}

func newManuals(t *testing.T) *manuals {
	root, err := os.MkdirTemp("", "manuals") // other users cannot read t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(root) })
	require.NoError(t, os.Chmod(root, 0o755))
	m := &manuals{t: t, root: root, bin: filepath.Join(root, "bin"), running: map[string]func(){}}
	t.Cleanup(func() {
		for _, stop := range m.running {
			stop()
		}
	})
	if os.Geteuid() == 0 {
		m.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	}
	require.NoError(t, os.Mkdir(m.bin, 0o755))
	return m
}

// build builds programs as deployment.md does.
func (m *manuals) build(programs ...string) {
	m.t.Helper()
	program := m.one(m.code("deployment.md", "## First day"), "go build ")
	for _, name := range programs {
		line := strings.NewReplacer("/usr/local/bin/", m.bin+"/", "cmd/relay", "cmd/"+name).Replace(program)
		require.Contains(m.t, line, m.bin)
		build := exec.Command("sh", "-c", line)
		build.Dir = ".."
		out, err := build.CombinedOutput()
		require.NoError(m.t, err, "%s: %s", line, out)
	}
}

// section returns the text under a heading of a document.
func (m *manuals) section(file, heading string) string {
	text, err := os.ReadFile(filepath.Join("..", "docs", file))
	require.NoError(m.t, err)
	_, after, found := strings.Cut(string(text), heading+"\n")
	require.True(m.t, found, "%s: %s", file, heading)
	section, _, _ := strings.Cut(after, "\n## ")
	return section
}

var (
	block = regexp.MustCompile("(?s)```[a-z]+\n(.*?)```")
	span  = regexp.MustCompile("`([^`\n]+)`")
)

// blocks returns the blocks of code of a section.
func (m *manuals) blocks(file, heading string) (out []string) {
	for _, found := range block.FindAllStringSubmatch(m.section(file, heading), -1) {
		out = append(out, found[1])
	}
	return out
}

// code returns the code in a section's lines.
func (m *manuals) code(file, heading string) (out []string) {
	for _, found := range span.FindAllStringSubmatch(m.section(file, heading), -1) {
		out = append(out, found[1])
	}
	return out
}

// one returns the first piece of code that contains a text.
func (m *manuals) one(code []string, text string) string {
	for _, line := range code {
		if strings.Contains(line, text) {
			return line
		}
	}
	require.Fail(m.t, "no such command", "%s", text)
	return ""
}

// folder makes a folder that only the user can open.
func (m *manuals) folder(name string) string {
	path := filepath.Join(m.root, name)
	require.NoError(m.t, os.Mkdir(path, 0o700))
	if m.as != nil {
		require.NoError(m.t, os.Chown(path, 65532, 65532))
	}
	return path
}

// write writes a file that everybody may read and that the folder's owner may write.
func (m *manuals) write(path, text string) {
	require.NoError(m.t, os.WriteFile(path, []byte(text), 0o644))
}

// each runs the commands of a block. Commands that serve run until the test ends.
func (m *manuals) each(folder, block string) {
	for lines := bufio.NewScanner(strings.NewReader(block)); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "  #")
		if strings.Contains(line, " serve ") {
			m.start(folder, line)
		} else if strings.TrimSpace(line) != "" {
			m.run(folder, line)
		}
	}
}

func (m *manuals) command(folder, line string) (*exec.Cmd, *bytes.Buffer) {
	cmd, out := exec.Command("sh", "-c", "exec "+line), &bytes.Buffer{}
	cmd.Dir, cmd.Env = folder, []string{"PATH=" + m.bin + ":/usr/bin:/bin", "HOME=/"}
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, m.as
	return cmd, out
}

// run runs a command, and fails the test unless it succeeds.
func (m *manuals) run(folder, line string) string {
	m.t.Helper()
	cmd, out := m.command(folder, line)
	require.NoError(m.t, cmd.Run(), "%s\n%s", line, out)
	return out.String()
}

// start starts a command that serves, and waits until it is healthy.
func (m *manuals) start(folder, line string) *os.Process {
	m.t.Helper()
	cmd, out := m.command(folder, line)
	require.NoError(m.t, cmd.Start())
	m.running[folder] = func() {
		delete(m.running, folder)
		err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
		require.NoError(m.t, err, "%s\n%s", line, out)
	}
	health := strings.Replace(line, " serve ", " health ", 1)
	require.Eventually(m.t, func() bool {
		cmd, _ := m.command(folder, health)
		return cmd.Run() == nil
	}, relaytest.Patience, 100*time.Millisecond, "%s", line)
	return cmd.Process
}

var publicKey = regexp.MustCompile(`ed25519:[A-Za-z0-9_-]{43}`)

// key returns the public key that a command printed.
func (m *manuals) key(out string) string {
	found := publicKey.FindString(out)
	require.NotEmpty(m.t, found, out)
	return found
}

// public returns the public key in the file of a signing key.
func (m *manuals) public(folder, name string) string {
	text, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(m.t, err)
	return m.key(string(text))
}
