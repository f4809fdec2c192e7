package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/internal/testing/relaytest"
)

// TestInvite runs the commands of "Invites" in relay.md, with two relays that run already for other owners. The second
// operator joins while the relay runs, and the invited owner makes a task without any operator. Reports through both
// relays must come out at the verifier.
func TestInvite(t *testing.T) {
	m := newManuals(t)
	m.build("relay", "verifier", "doona")
	commands := strings.Split(strings.TrimSpace(m.blocks("relay.md", "## Invites")[0]), "\n")
	require.Len(t, commands, 3)
	first, second, judge, owner := m.folder("relay1"), m.folder("relay2"), m.folder("verifier"), m.folder("owner")
	key := m.key(m.run(owner, "doona keygen --out owner.key"))
	other := m.key(m.run(owner, "doona keygen --out other.key"))
	config := func(folder, approved string) (address string) {
		m.run(folder, "relay keygen --kind sign --out relay.sign")
		address = relaytest.FreeAddress(t)
		m.write(filepath.Join(folder, "relay.yaml"), "listen: "+address+"\nadmin: "+relaytest.FreeAddress(t)+`
sign_key: relay.sign
store: sqlite:relay.db
secret: relay.secret
pull_interval: 100ms
trusted_proxies: [127.0.0.0/8]
owners: # of other sites
  - {owner: "`+approved+`", folder: approved, tasks: 2}
`)
		if m.as != nil {
			require.NoError(t, os.Chown(filepath.Join(folder, "relay.yaml"), 65532, 65532))
		}
		return address
	}
	one := "http://" + config(first, key)
	_, port, _ := strings.Cut(config(second, other), ":")
	two := "http://localhost:" + port
	m.start(first, "relay serve --config relay.yaml")
	running := m.start(second, "relay serve --config relay.yaml")
	fill := strings.NewReplacer("OWNER", strings.TrimPrefix(key, "ed25519:"), "ed25519:KEY",
		m.public(first, "relay.sign"), "https://relay1.example", one, "https://relay2.example", two, "--tasks 20",
		"--tasks 2", "invite.txt", owner+"/invite.txt", "answer.txt", second+"/answer.txt")

	said := m.run(owner, fill.Replace(commands[0]))
	join := fill.Replace(commands[1])
	before, err := os.ReadFile(filepath.Join(second, "relay.yaml"))
	require.NoError(t, err)
	for _, wrong := range []string{"", " --yes '0000 0000 0000 0000 0000 0000'"} {
		cmd, out := m.command(second, join+wrong)
		require.Error(t, cmd.Run(), "%s", out)
	}
	unchanged, err := os.ReadFile(filepath.Join(second, "relay.yaml"))
	require.NoError(t, err)
	require.Equal(t, string(before), string(unchanged))
	said = m.run(second, join+" --yes '"+fingerprint(t, said)+"'")
	require.Contains(t, said, "example.org asks you to run the second relay of up to 2 tasks at a time.")
	after, err := os.ReadFile(filepath.Join(second, "relay.yaml"))
	require.NoError(t, err)
	line := `  - {owner: "` + key + `", folder: "owner-example.org", tasks: 2}`
	require.Equal(t, strings.Replace(string(before), "sites\n", "sites\n"+line+"\n", 1), string(after))
	require.NoFileExists(t, filepath.Join(second, "relay.yaml.new"))
	require.NoError(t, running.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool {
		return strings.Contains(m.run(second, "relay owners --config relay.yaml --json"), key) &&
			strings.Contains(m.run(second, "relay status --admin "+adminOf(string(after))), "was reloaded at")
	}, relaytest.Patience, 100*time.Millisecond)

	fingerprints := regexp.MustCompile(`(?m)^  ([0-9a-f]{4}(?: [0-9a-f]{4}){5})$`).FindAllStringSubmatch(said, -1)
	require.Len(t, fingerprints, 1)
	relays := filepath.Join(owner, "relays")
	m.run(owner, fill.Replace(commands[2])+" --yes '"+fingerprints[0][1]+"' >"+relays)
	flags, err := os.ReadFile(relays)
	require.NoError(t, err)
	require.Equal(t, "--relay "+one+","+m.public(first, "relay.sign")+" --relay "+two+","+
		m.public(second, "relay.sign")+"\n", string(flags))

	m.run(judge, "verifier keygen --kind sign --out verifier.sign")
	m.run(judge, "verifier keygen --kind hpke --sign-key verifier.sign --epochs 2 --out mean.keys")
	m.run(owner, "doona task new --query mean --range 0,10 --batch 20 --epsilon 2 --delta 1e-4 --name mean --epochs 2 "+
		"--owner-key owner.key $(cat "+relays+") --verifier "+m.public(judge, "verifier.sign")+","+judge+
		"/mean.keys.pub --out mean.bundle")
	bundle, err := os.ReadFile(filepath.Join(owner, "mean.bundle"))
	require.NoError(t, err)
	m.write(filepath.Join(judge, "mean.bundle"), string(bundle))
	report := relaytest.FreeAddress(t)
	text := strings.NewReplacer("127.0.0.1:8090", report, "127.0.0.1:9090", relaytest.FreeAddress(t), "ed25519:…", key).
		Replace(m.blocks("verifier.md", "## Run one")[1])
	m.write(filepath.Join(judge, "verifier.yaml"), text)
	m.start(judge, "verifier serve --config verifier.yaml")
	id := regexp.MustCompile(`[0-9a-f]{64}`).FindString(m.run(judge, "doona task check mean.bundle"))
	out := m.run(first, "doona load --task "+one+"/v1/tasks/"+id+" --owner "+key+" --rate 0 --clients 40 --values zipf "+
		"--report http://"+report+"/tasks/"+id+" --json")
	require.Contains(t, out, `"accepted":40`)
	require.Contains(t, out, `"truth":`)
}

// fingerprint returns the fingerprint that a command printed.
func fingerprint(t *testing.T, said string) string {
	t.Helper()
	found := regexp.MustCompile(`[0-9a-f]{4}(?: [0-9a-f]{4}){5}`).FindString(said)
	require.NotEmpty(t, found, said)
	return found
}

// adminOf returns the URL of the admin address in a configuration.
func adminOf(config string) string {
	_, after, _ := strings.Cut(config, "\nadmin: ")
	address, _, _ := strings.Cut(after, "\n")
	return "http://" + address
}
