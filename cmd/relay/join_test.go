package main

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

const (
	aKey = "ed25519:TTxOS_eEGvRtmWv5W31BISEQJAaY_HE5TJodDBdPuok"
	bKey = "ed25519:VQ8eevU9BCQof5NG3jbsXcvmgtgqi4WShJyg4nlF6IU"
)

// inviteOf returns an invite of an owner with a new key, whose first relay has the key aKey.
func inviteOf(t *testing.T, address string) *invite {
	t.Helper()
	owner, err := keyfile.NewSign(filepath.Join(t.TempDir(), "owner.key"))
	require.NoError(t, err)
	key := taskfile.FormatKey(task.SignKey(owner.Public().(ed25519.PublicKey)))
	i, err := newInvite("example.org", key, address+","+aKey, "20")
	require.NoError(t, err)
	return i
}

// TestInviteTexts: invite and answer can be read again, also with broken lines. A text with any changed character is
// refused, and so is one that this program cannot understand.
func TestInviteTexts(t *testing.T) {
	i := inviteOf(t, "https://relay1.example")
	text := i.text()
	for _, same := range []string{text, "\n" + strings.ReplaceAll(text, " ", "\r\n") + "\n\n"} {
		again, err := parseInvite(same)
		require.NoError(t, err)
		require.Equal(t, i, again)
	}
	for at := range text {
		changed := []byte(text)
		changed[at] ^= 1
		_, err := parseInvite(string(changed))
		require.Error(t, err, "%s", changed)
	}
	words := func(name string, replacement string) string { // with a right check
		all := strings.Fields(text)
		all = all[:len(all)-1]
		for at, word := range all {
			if strings.HasPrefix(word, name) {
				all[at] = replacement
			}
		}
		all = strings.Fields(strings.Join(all, " "))
		return strings.Join(append(all, checkOf(all)), " ")
	}
	for text, want := range map[string]string{
		"":      "is empty",
		"hello": "not an invite: want a text that begins with doona-invite-1",
		answerText.format("00", "https://a.example,"+aKey, "1"): "not an invite",
		strings.Replace(text, "invite-1", "invite-2", 1):        `has version "2": want version 1`,
		strings.Replace(text, "tasks=20", "tasks=21", 1):        "was changed or cut on its way",
		text[:len(text)-20]: "was changed or cut on its way",
		strings.Replace(text, "example.org", "example\u202e", 1):   "the character U+202E at byte 27",
		strings.Replace(text, "example.org", "\x1b[2Jexample", 1):  "the character U+001B at byte 20",
		strings.Replace(text, "example.org", "ex\u00e4mple.or", 1): "the character U+00E4",
		text + strings.Repeat(" ", maxText):                        "want at most 2048",
		words("site=", ""):                                         "has 3 fields: want site, owner, relay, tasks",
		words("site=", "page=example.org"):                         `field 1 of the invite is "page=example.org": want site=…`,
		words("site=", "site=../etc"):                              `invalid site "../etc"`,
		words("site=", "site="):                                    `invalid site ""`,
		words("owner=", "owner=ed25519:short"):                     "invalid owner",
		words("owner=", "owner="+aKey):                             "the owner and the first relay have one key",
		words("relay=", "relay=https://relay1.example"):            "want URL,ed25519:KEY",
		words("relay=", "relay=ftp://a.example,"+aKey):             "want http:// or https://",
		words("relay=", "relay=https://[::1,"+aKey):                "want a URL with a host",
		words("tasks=", "tasks=0"):                                 `invalid tasks "0": want 1 to 1024`,
		words("tasks=", "tasks=1025"):                              "want 1 to 1024",
		words("tasks=", "tasks=NaN"):                               "want 1 to 1024",
	} {
		_, err := parseInvite(text)
		require.ErrorContains(t, err, want, text)
	}
	a := answer{digitsOf(fingerprintOf(text)), task.Party{URL: "https://relay2.example", SignKey: task.SignKey{1}}, 7}
	again, err := parseAnswer(a.text())
	require.NoError(t, err)
	require.Equal(t, &a, again)
	require.NotEqual(t, fingerprintOf(text), fingerprintOf(a.text()))
}

// TestRelaysApart: two relays of one registrable domain are refused, however the addresses are written.
func TestRelaysApart(t *testing.T) {
	for _, pair := range []struct {
		one, two string
		apart    bool
	}{
		{"https://relay1.example.org", "https://relay2.example.org", false},
		{"https://example.org", "https://a.b.example.org:8443", false},
		{"https://example.org/one", "http://example.org/two", false},
		{"https://a.example.co.uk", "https://b.example.co.uk", false},
		{"https://a.example.org.", "https://b.example.org", false},
		{"https://a.xn--mnchen-3ya.de", "https://b.xn--mnchen-3ya.de", false},
		{"https://a.xn--55qx5d.cn", "https://a.xn--55qx5d.cn", false},
		{"http://127.0.0.1:81", "http://127.0.0.1:82", false},
		{"http://[2001:db8::1]:81", "http://[2001:db8::1]", false},
		{"http://localhost:81", "http://localhost:82", false},
		{"https://co.uk", "https://co.uk", false},
		{"https://example.org", "https://example.com", true},
		{"https://one.co.uk", "https://two.co.uk", true},
		{"https://one.github.io", "https://two.github.io", true},
		{"https://one.xn--55qx5d.cn", "https://two.xn--55qx5d.cn", true},
		{"http://127.0.0.1", "http://127.0.0.2", true},
		{"http://[2001:db8::1]", "http://[2001:db8::2]", true},
		{"http://127.0.0.1", "http://localhost", true},
		{"https://relay1.example", "https://relay2.example", true},
	} {
		err := inviteOf(t, pair.one).check(task.Party{URL: pair.two, SignKey: task.SignKey{1}})
		if pair.apart {
			require.NoError(t, err, pair)
		} else {
			require.ErrorContains(t, err, "belong to one domain", pair)
		}
	}
	one, err := domainOf("https://A.Example.ORG.")
	require.NoError(t, err)
	require.Equal(t, "example.org", one)
	i := inviteOf(t, "https://relay1.example")
	two := task.Party{URL: "https://relay2.example", SignKey: i.first.SignKey}
	require.ErrorContains(t, i.check(two), "the two relays have one key")
	two.SignKey = i.owner
	require.ErrorContains(t, i.check(two), "the owner and the second relay have one key")
}

const bareConfig = "listen: 127.0.0.1:8081\nsign_key: relay.sign\nstore: sqlite:relay.db\nsecret: relay.secret\n"

// joinWith runs join for a relay whose relay.yaml is the bare one and this text.
func joinWith(t *testing.T, i *invite, more string, flags ...string) (after, said string, err error) {
	t.Helper()
	config := configured(t, more)
	after, said, err = join(t, config, i, flags...)
	require.NoFileExists(t, config+".new")
	return after, said, err
}

// configured returns the relay.yaml, in a new folder, of a relay with a signing key.
func configured(t *testing.T, more string) (config string) {
	t.Helper()
	folder := t.TempDir()
	_, err := keyfile.NewSign(filepath.Join(folder, "relay.sign"))
	require.NoError(t, err)
	config = filepath.Join(folder, "relay.yaml")
	require.NoError(t, os.WriteFile(config, []byte(bareConfig+more), 0o640))
	return config
}

func join(t *testing.T, config string, i *invite, flags ...string) (after, said string, err error) {
	t.Helper()
	said, err = run("yes\n", append([]string{"join", i.text(), "--config", config, "--url", "https://relay2.example"},
		flags...)...)
	text, readErr := os.ReadFile(config)
	require.NoError(t, readErr)
	return string(text), said, err
}

// run runs a command with standard input, and returns all that it prints.
func run(in string, args ...string) (said string, err error) {
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetArgs(args)
	err = cmd.Execute()
	return out.String(), err
}

// TestJoinChangesOwnersAlone: join adds one entry to relay.yaml, and keeps comments, order and file mode. Where it
// cannot, it changes nothing and names the entry.
func TestJoinChangesOwnersAlone(t *testing.T) {
	i := inviteOf(t, "https://relay1.example")
	entry := `- {owner: "` + taskfile.FormatKey(i.owner) + `", folder: "owner-example.org", tasks: 20}` + "\n"
	other := "owner: " + aKey
	for before, want := range map[string]string{
		"":               "owners:\n  " + entry,
		"# end":          "# end\nowners:\n  " + entry,
		"owners: # none": "owners: # none\n  " + strings.TrimSuffix(entry, "\n"),
		"owners:\n- {" + other + ", folder: a, tasks: 1}\ngroup: 2\n": "owners:\n" + entry + "- {" + other +
			", folder: a, tasks: 1}\ngroup: 2\n",
		"owners:\n\n    # A.\n    - " + other + "\n      folder: a\n      tasks: 1\n": "owners:\n    " + entry +
			"\n    # A.\n    - " + other + "\n      folder: a\n      tasks: 1\n",
	} {
		after, said, err := joinWith(t, i, before)
		require.NoError(t, err)
		require.Equal(t, bareConfig+want, after)
		require.Contains(t, said, "doona-answer-1 invite="+digitsOf(fingerprintOf(i.text())))
	}
	for before, want := range map[string]string{
		"owners: [{" + other + ", folder: a, tasks: 1}]\n": "add to owners: - {owner: ",
		"# end\n...\n": "add to owners: - {owner: ",
		"tasks: [{file: missing.bundle, owner: " + aKey + ", hpke_keys: h}]\n": "relay.yaml is unchanged: ",
		"group: 0.5\n": "couldn't read",
	} {
		after, said, err := joinWith(t, i, before)
		require.ErrorContains(t, err, want)
		require.Equal(t, bareConfig+before, after)
		require.NotContains(t, said, "doona-answer-1")
	}
	after, _, err := joinWith(t, i, "", "--tasks", "3")
	require.NoError(t, err)
	require.Contains(t, after, "tasks: 3}")
	_, _, err = joinWith(t, i, "", "--tasks", "1025")
	require.ErrorContains(t, err, "want 1 to 1024")
}

// TestJoinTwice: the second run of join changes nothing and prints the same answer. A folder or a link in the way is an
// error.
func TestJoinTwice(t *testing.T) {
	config := configured(t, "")
	i := inviteOf(t, "https://relay1.example")
	before, said, err := join(t, config, i, "--tasks", "7")
	require.NoError(t, err)
	info, err := os.Stat(config)
	require.NoError(t, err)
	require.EqualValues(t, 0o640, info.Mode().Perm())
	after, again, err := join(t, config, i)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Contains(t, again, "has this owner already: nothing changed.")
	_, one, _ := strings.Cut(said, "doona-answer-1")
	_, two, _ := strings.Cut(again, "doona-answer-1")
	require.Equal(t, one, two)

	linked := filepath.Join(filepath.Dir(config), "linked.yaml")
	require.NoError(t, os.Symlink(config, linked))
	other := inviteOf(t, "https://relay1.example")
	_, _, err = join(t, linked, other)
	require.ErrorContains(t, err, "is a link")
	require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(config), "owner-example.org"), 0o700))
	_, _, err = join(t, config, other)
	require.ErrorContains(t, err, "must be a new folder")
}

// TestJoinKeepsTheUser: relay.yaml stays the file of the relay's user when root runs join.
func TestJoinKeepsTheUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give a file another user")
	}
	config := configured(t, "")
	require.NoError(t, os.Chown(config, 65532, 65533))
	before, err := os.Stat(config)
	require.NoError(t, err)
	_, _, err = join(t, config, inviteOf(t, "https://relay1.example"))
	require.NoError(t, err)
	after, err := os.Stat(config)
	require.NoError(t, err)
	require.NotEqual(t, before.Size(), after.Size())
	one, two := reflect.ValueOf(before.Sys()).Elem(), reflect.ValueOf(after.Sys()).Elem()
	for _, field := range []string{"Uid", "Gid"} {
		require.Equal(t, one.FieldByName(field).Uint(), two.FieldByName(field).Uint())
	}
}

// TestCheckAnswer: an answer to another invite, or one that was not confirmed, is refused.
func TestCheckAnswer(t *testing.T) {
	i := inviteOf(t, "https://relay1.example")
	reply := answer{digitsOf(fingerprintOf(i.text())), task.Party{URL: "https://relay2.example",
		SignKey: task.SignKey{1}}, 20}
	check := func(i *invite, in string, flags ...string) (string, error) {
		return run(in, append([]string{"check-answer", i.text(), reply.text()}, flags...)...)
	}
	pair := "--relay https://relay1.example," + aKey + " --relay https://relay2.example,"
	for _, in := range []string{"", "no\n", "y\n"} {
		said, err := check(i, in)
		require.ErrorContains(t, err, "not confirmed")
		require.NotContains(t, said, "--relay")
	}
	said, err := check(i, "yes\n")
	require.NoError(t, err)
	require.Contains(t, said, pair)
	said, err = check(i, "", "--yes", strings.ToUpper(fingerprintOf(reply.text())))
	require.NoError(t, err)
	require.Contains(t, said, pair)
	_, err = check(i, "yes\n", "--yes", fingerprintOf(i.text()))
	require.ErrorContains(t, err, "want the fingerprint of this text", "that is the invite's fingerprint")
	_, err = check(inviteOf(t, "https://relay1.example"), "yes\n")
	require.ErrorContains(t, err, "the answer is to another invite")
	reply.second.URL = "https://two.relay1.example"
	_, err = check(i, "yes\n")
	require.ErrorContains(t, err, "belong to one domain")
	_, err = run("yes\n", "join", "-", "--config", "relay.yaml", "--url", "https://relay2.example")
	require.ErrorContains(t, err, "missing flag --yes")
}

// TestAddresses: an invite has exactly the addresses that a task may name.
func TestAddresses(t *testing.T) {
	draft, err := planner.Draft(planner.Query{Name: "count", Query: task.Count, Batch: 1000, Epsilon: 1, Delta: 1e-6,
		Honest: .9})
	require.NoError(t, err)
	for _, address := range []string{"", "https://", "http://a", "https://a.example:8443/relay", "https://[::1]:80",
		"https://a/", "https:///a", "https://:80", "https://A.example", "ftp://a.example", "https://a.example?q",
		"https://a b", "https://a_b~c", "https://a\n", "https://ä.example", "https://" + strings.Repeat("a", 248),
		"https://" + strings.Repeat("a", 249)} {
		draft.Relays = []task.Party{{URL: address, SignKey: task.SignKey{1}}}
		err := draft.Validate()
		isWrong := err != nil && strings.Contains(err.Error(), "relays.url")
		require.Equal(t, isWrong, checkURL("relay", address) != nil, "%q: %v", address, err)
	}
}
