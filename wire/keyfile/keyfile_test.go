package keyfile_test

import (
	"crypto/ed25519"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/task"
)

func newSign(t *testing.T, path string) ed25519.PrivateKey {
	t.Helper()
	key, err := keyfile.NewSign(path)
	require.NoError(t, err)
	return key
}

func requirePrivate(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	for _, f := range files {
		require.NotContains(t, f.Name(), ".new", "a temporary file is left")
	}
}

func TestSign(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sign.json")
	key := newSign(t, path)
	requirePrivate(t, path)
	got, err := keyfile.LoadSign(path)
	require.NoError(t, err)
	require.Equal(t, key, got)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = keyfile.NewSign(path)
	require.ErrorIs(t, err, os.ErrExist)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after, "an existing key file must not be overwritten")
}

// TestOpenToOthers: a key file that other users may read must be refused.
func TestOpenToOthers(t *testing.T) {
	dir := t.TempDir()
	sign, hpke, rsa := filepath.Join(dir, "sign"), filepath.Join(dir, "hpke"), filepath.Join(dir, "rsa")
	key := newSign(t, sign)
	_, err := keyfile.NewHPKE(hpke, task.KEMX25519, 1, key)
	require.NoError(t, err)
	_, err = keyfile.NewRSA(rsa, 1, nil)
	require.NoError(t, err)
	for path, load := range map[string]func(string) error{
		sign: func(path string) error { _, err := keyfile.LoadSign(path); return err },
		hpke: func(path string) error { _, err := keyfile.LoadHPKE(path); return err },
		rsa:  func(path string) error { _, err := keyfile.LoadRSA(path); return err },
	} {
		require.NoError(t, load(path))
		require.NoError(t, os.Chmod(path, 0o644))
		require.ErrorContains(t, load(path), "couldn't read key: "+path+
			" is open to others than its owner: want mode 0600, have 0644: chmod 600 "+path)
	}
}

// files holds a relay's HPKE key file for three epochs, its signed key list, and the task that names the list.
type files struct {
	hpke string
	list *onion.SignedKeyList
	task *task.Task
}

func newFiles(t *testing.T, kem task.KEM) files {
	t.Helper()
	dir := t.TempDir()
	f := files{hpke: filepath.Join(dir, "hpke.json")}
	sign := newSign(t, filepath.Join(dir, "sign.json"))
	list, err := keyfile.NewHPKE(f.hpke, kem, 3, sign)
	require.NoError(t, err)
	requirePrivate(t, f.hpke)
	other := newSign(t, filepath.Join(dir, "other.json"))
	otherList, err := keyfile.NewHPKE(filepath.Join(dir, "others.json"), kem, 3, other)
	require.NoError(t, err)
	f.list = list
	f.task = &task.Task{
		Name: "t", Query: task.Sum, Protocol: "p", Rule: "r", KEM: kem,
		Input:   task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1)},
		Claim:   task.NewClaim("1", "1e-6"),
		Batch:   task.Batch{Size: 1, Honest: randomizer.NewRational(1, 1), Min: 1},
		Slots:   task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1, MessageBytes: 1},
		Epochs:  task.Epochs{Start: 1, Length: 1, Count: 3},
		Clients: task.Clients{Kind: task.ClientAddress, Quota: 1},
		Relays: []task.Party{{URL: "http://one", SignKey: task.SignKey(sign.Public().(ed25519.PublicKey)),
			KeyList: list.Hash()}},
		Verifier: task.Party{SignKey: task.SignKey(other.Public().(ed25519.PublicKey)), KeyList: otherList.Hash()},
	}
	require.NoError(t, f.task.Validate())
	return f
}

func TestHPKE(t *testing.T) {
	for _, kem := range []task.KEM{task.KEMX25519, task.KEMMLKEM768X25519, task.KEMMLKEM768} {
		f := newFiles(t, kem)
		public, err := onion.PartyKeys(f.task, 0, f.list)
		require.NoError(t, err)
		h, err := keyfile.LoadHPKE(f.hpke)
		require.NoError(t, err)
		require.NoError(t, h.Check(f.task, f.list))
		for epoch := range uint64(3) {
			key, err := h.Key(epoch)
			require.NoError(t, err)
			require.Equal(t, public[epoch].ID(), key.Public().ID(), "%s, epoch %d", kem, epoch)
		}
		_, err = h.Key(3)
		require.ErrorIs(t, err, keyfile.ErrErased)
	}
	f := newFiles(t, task.KEMX25519)
	_, err := keyfile.NewHPKE(f.hpke, task.KEMX25519, 1, ed25519.NewKeyFromSeed(make([]byte, 32)))
	require.ErrorIs(t, err, os.ErrExist)
	_, err = keyfile.NewHPKE(filepath.Join(t.TempDir(), "x"), "rsa", 1, ed25519.NewKeyFromSeed(make([]byte, 32)))
	require.ErrorContains(t, err, "kem")
}

func TestErase(t *testing.T) {
	f := newFiles(t, task.KEMX25519)
	h, err := keyfile.LoadHPKE(f.hpke)
	require.NoError(t, err)
	stale, err := keyfile.LoadHPKE(f.hpke) // stands for another process that loaded the file earlier
	require.NoError(t, err)
	before, err := os.ReadFile(f.hpke)
	require.NoError(t, err)
	_, err = h.Key(1) // parses the key: Erase must also erase this copy in memory
	require.NoError(t, err)

	// Erase must replace a temporary file that a crash left or a stranger made, and must not take over its mode.
	require.NoError(t, os.WriteFile(f.hpke+".new", before, 0o644))
	for range 2 {
		require.NoError(t, h.Erase(1))
		requirePrivate(t, f.hpke)
		_, err = h.Key(1)
		require.ErrorIs(t, err, keyfile.ErrErased)
	}
	after, err := os.ReadFile(f.hpke)
	require.NoError(t, err)
	require.Len(t, keysOf(t, before), 3)
	require.NotContains(t, string(after), keysOf(t, before)[1], "the file still holds the key")

	reloaded, err := keyfile.LoadHPKE(f.hpke)
	require.NoError(t, err)
	_, err = reloaded.Key(1)
	require.ErrorIs(t, err, keyfile.ErrErased)
	_, err = reloaded.Key(2)
	require.NoError(t, err)
	require.NoError(t, reloaded.Check(f.task, f.list), "the remaining keys must be the task's")

	require.NoError(t, stale.Erase(0))
	final, err := os.ReadFile(f.hpke)
	require.NoError(t, err)
	require.NotContains(t, string(final), keysOf(t, before)[1], "an old view brings a key back")
	require.Len(t, keysOf(t, final), 1)
	require.NoError(t, stale.Erase(2))
	require.NoError(t, stale.Check(f.task, f.list), "a file without keys must pass the check")

	require.NoError(t, os.Remove(f.hpke))
	require.Error(t, h.Erase(0), "Erase must fail if it cannot write")
}

// TestEraseThroughALink: Erase must not follow a symbolic link at the name of its temporary file.
func TestEraseThroughALink(t *testing.T) {
	f := newFiles(t, task.KEMX25519)
	target := filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.WriteFile(target, []byte("untouched"), 0o600))
	require.NoError(t, os.Symlink(target, f.hpke+".new"))
	h, err := keyfile.LoadHPKE(f.hpke)
	require.NoError(t, err)
	require.NoError(t, h.Erase(0))
	got, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, "untouched", string(got))
	requirePrivate(t, f.hpke)
}

// TestEraseBehindALink: if path is a symbolic link, Erase must remove the key from the link's target. The link must
// remain a link.
func TestEraseBehindALink(t *testing.T) {
	f := newFiles(t, task.KEMX25519)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(f.hpke, link))
	h, err := keyfile.LoadHPKE(link)
	require.NoError(t, err)
	require.NoError(t, h.Erase(1))
	left, err := os.ReadFile(f.hpke)
	require.NoError(t, err)
	require.Len(t, keysOf(t, left), 2, "the link's target must have lost one key")
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type())
}

// TestEraseAtOnce lets several processes erase different keys of one file concurrently. No process may restore an
// erased key or read a partial file.
func TestEraseAtOnce(t *testing.T) {
	const epochs = 24
	path := filepath.Join(t.TempDir(), "keys")
	_, err := keyfile.NewHPKE(path, task.KEMX25519, epochs, ed25519.NewKeyFromSeed(make([]byte, 32)))
	require.NoError(t, err)
	errs := make([]error, epochs)
	var all sync.WaitGroup
	for epoch := range uint64(epochs) {
		h, err := keyfile.LoadHPKE(path)
		require.NoError(t, err)
		all.Go(func() { errs[epoch] = h.Erase(epoch) })
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	left, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Empty(t, keysOf(t, left))
}

// TestBind: keys that were used with one store must be refused for another store, in every process, also in one that
// loaded the file earlier. Erased keys must stay erased.
func TestBind(t *testing.T) {
	f := newFiles(t, task.KEMX25519)
	load := func() *keyfile.HPKE {
		h, err := keyfile.LoadHPKE(f.hpke)
		require.NoError(t, err)
		return h
	}
	early, first := load(), load()
	require.NoError(t, first.Erase(0))
	for range 2 {
		require.NoError(t, first.Bind("one"))
	}
	require.NoError(t, first.Erase(1))
	require.NoError(t, load().Bind("one"))
	for _, h := range []*keyfile.HPKE{early, first, load()} {
		require.ErrorIs(t, h.Bind("two"), keyfile.ErrStore)
	}
	require.NoError(t, early.Bind("one"))
	_, err := early.Key(0)
	require.ErrorIs(t, err, keyfile.ErrErased)
	require.NoError(t, load().Check(f.task, f.list))
	raw, err := os.ReadFile(f.hpke)
	require.NoError(t, err)
	require.Len(t, keysOf(t, raw), 1)
}

func keysOf(t *testing.T, file []byte) (out []string) {
	t.Helper()
	var f struct{ Keys []struct{ Private string } }
	require.NoError(t, json.Unmarshal(file, &f))
	for _, k := range f.Keys {
		out = append(out, k.Private)
	}
	return out
}

func TestCheckRejects(t *testing.T) {
	f, other := newFiles(t, task.KEMX25519), newFiles(t, task.KEMX25519)
	h, err := keyfile.LoadHPKE(f.hpke)
	require.NoError(t, err)
	require.ErrorContains(t, h.Check(other.task, other.list), "epoch 0 is not the one the task names")
	require.ErrorContains(t, h.Check(f.task, other.list), "not the list the task names")
	require.Error(t, h.Check(f.task, &onion.SignedKeyList{List: f.list.List, Signature: other.list.Signature}))

	mlkem := newFiles(t, task.KEMMLKEM768)
	require.ErrorContains(t, h.Check(mlkem.task, mlkem.list), "kem x25519")

	// The test swaps two keys inside the file.
	raw, err := os.ReadFile(f.hpke)
	require.NoError(t, err)
	keys := keysOf(t, raw)
	swapped := strings.Replace(string(raw), keys[2], keys[0], 1)
	require.NoError(t, os.WriteFile(f.hpke, []byte(swapped), 0o600))
	h, err = keyfile.LoadHPKE(f.hpke)
	require.NoError(t, err)
	require.ErrorContains(t, h.Check(f.task, f.list), "epoch 2")
	extra := strings.Replace(string(raw), `"epoch": 2`, `"epoch": 3`, 1)
	require.NoError(t, os.WriteFile(f.hpke, []byte(extra), 0o600))
	h, err = keyfile.LoadHPKE(f.hpke)
	require.NoError(t, err)
	require.ErrorContains(t, h.Check(f.task, f.list), "epoch 3")
}

func TestCorruptedFiles(t *testing.T) {
	f := newFiles(t, task.KEMX25519)
	sign := filepath.Join(filepath.Dir(f.hpke), "sign.json")
	use := func(path string) error {
		h, err := keyfile.LoadHPKE(path)
		if err != nil {
			return err
		}
		return h.Check(f.task, f.list)
	}
	load := func(path string) error { _, err := keyfile.LoadSign(path); return err }
	for path, open := range map[string]func(string) error{f.hpke: use, sign: load} {
		good, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, open(path))
		at := strings.LastIndex(string(good), `"private": "`) + len(`"private": "`)
		for name, bad := range map[string]string{
			"empty": "", "truncated": string(good[:len(good)/2]), "trailing": string(good) + "{}",
			"not JSON":             "private",
			"another kind":         strings.Replace(string(good), "doona", "duvet", 1),
			"a flipped character":  string(good[:at]) + flip(good[at]) + string(good[at+1:]),
			"a removed character":  string(good[:at]) + string(good[at+1:]),
			"a stray one":          string(good[:at]) + "*" + string(good[at+1:]),
			"the other kind":       other(t, path, f.hpke, sign),
			"a list, no document":  "[]",
			"a number for a key":   strings.Replace(string(good), `"private": "`, `"private": 7, "x": "`, 1),
			"spare bits in base64": string(good[:at+42]) + "_" + string(good[at+43:]),
		} {
			require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
			err := open(path)
			require.ErrorContains(t, err, path, "%s: %s", path, name)
			require.NotContains(t, err.Error(), string(good[at:at+20]), "the error shows a private key")
		}
		require.NoError(t, os.WriteFile(path, good, 0o600))
	}
	require.ErrorIs(t, load(filepath.Join(t.TempDir(), "none")), os.ErrNotExist)
	require.ErrorIs(t, use(filepath.Join(t.TempDir(), "none")), os.ErrNotExist)
}

// TestEntries: a file must have exactly one key for each of its epochs, or be refused: rewriting such a file would
// write keys that do not exist.
func TestEntries(t *testing.T) {
	f := newFiles(t, task.KEMX25519)
	good, err := os.ReadFile(f.hpke)
	require.NoError(t, err)
	first := keysOf(t, good)[0]
	for entry, want := range map[string]string{
		`{"epoch": 0}`: "epoch 0: it has no key",
		`{"epoch": 7}`: "epoch 7: it has no key",
		`{"epoch": 0, "private": "` + first + `"}`:    "epoch 0: it has two keys, and may have one",
		`{"epoch": 0, "private": "AA"}`:               "epoch 0: it has two keys, and may have one",
		`{}`:                                          "epoch 0: it has no key",
		`{"epoch": 8, "PRIVATE": null}`:               "not a key",
		`{"epoch": 9, "private": "AA"}, {"epoch": 9}`: "epoch 9: it has no key",
	} {
		require.NoError(t, os.WriteFile(f.hpke, good, 0o600))
		early, err := keyfile.LoadHPKE(f.hpke)
		require.NoError(t, err)
		bad := strings.Replace(string(good), "\n ]", ", "+entry+"]", 1)
		require.NotEqual(t, string(good), bad)
		require.NoError(t, os.WriteFile(f.hpke, []byte(bad), 0o600))
		_, err = keyfile.LoadHPKE(f.hpke)
		require.ErrorContains(t, err, want, entry)
		require.NotContains(t, err.Error(), first)
		require.ErrorContains(t, early.Bind("store"), want, entry)
		require.ErrorContains(t, early.Erase(1), want, entry)
		rsa := strings.Replace(bad, "doona hpke keys", "doona token keys", 1)
		require.NoError(t, os.WriteFile(f.hpke, []byte(rsa), 0o600))
		_, err = keyfile.LoadRSA(f.hpke)
		require.ErrorContains(t, err, want, entry)
	}
}

func flip(c byte) string {
	if c == 'Q' {
		return "W"
	}
	return "Q"
}

// other returns the content of the file one or two, whichever is not path.
func other(t *testing.T, path, one, two string) string {
	if path == one {
		one = two
	}
	raw, err := os.ReadFile(one)
	require.NoError(t, err)
	return string(raw)
}
