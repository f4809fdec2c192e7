// Package quickstart writes a whole deployment into one folder: the keys of the task owner, the relays and the
// verifier, signed tasks, and the relays' configurations. `doona init` uses it. A [Sandbox] runs a deployment within
// this process, for `doona dev` and the demo. In a real deployment, each party makes its keys on its own machine.
package quickstart

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/doona-dp/doona/issuer"
	"github.com/doona-dp/doona/wire/keyfile"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Relay describes one relay of the deployment.
type Relay struct {
	URL            string   // Where clients and the next hop reach the relay.
	Listen, Admin  string   // host:port.
	TrustedProxies []string // Networks of proxies that the relay trusts to name a client's address.
	Pull           string   // How often the relay asks the previous hop for batches, such as "5s".
	Skew           string   // Maximum error of clients' clocks, such as "5m".
	Store          string   // Setting of the store. Default "sqlite:relay.db".
}

// Draft is a task before its parties are added, and the name of its files. A task with tokens already has the URL of
// its issuer.
type Draft struct {
	Name string
	Task *task.Task
}

// Set is a set before its tables are signed, and the name of its file. The tables in Set have names, and Tables has
// their drafts in the same order; Write fills in the rest.
type Set struct {
	Name   string
	Set    tableset.Set
	Tables []*task.Task
}

// Deployment is a deployment that [Write] has written.
type Deployment struct {
	Dir     string
	Owner   string           // The task owner's public key, "ed25519:…".
	Bundles []*taskfile.Open // The signed tasks, in the order of the drafts; then those of the sets' tables.
	Sets    []*tableset.Open
}

type party struct {
	folder string
	url    string
	sign   ed25519.PrivateKey
}

// Write writes a deployment into dir, which must be empty or absent. Each draft must be valid and have epochs; Write
// adds the parties. It writes these files:
//
//	owner.key, NAME.bundle, NAME.json
//	relayI/sign.key, relayI/NAME.keys, relayI/relay.yaml
//	verifier/sign.key, verifier/NAME.keys
//	issuer/sign.key, issuer/NAME.keys        for tasks with tokens
//	NAME.set                                 for sets; the tables' files have the name NAME-TABLE
//
// Tables whose epochs are the same have the same keys, each in its own files.
func Write(dir string, relays []Relay, drafts []Draft, sets ...Set) (*Deployment, error) {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("couldn't write to %s: it is not empty", dir)
	}
	parties, err := makeParties(dir, relays)
	if err != nil {
		return nil, err
	}
	owner, err := keyfile.NewSign(filepath.Join(dir, "owner.key"))
	if err != nil {
		return nil, err
	}
	d := &Deployment{Dir: dir, Owner: taskfile.FormatKey(task.SignKey(owner.Public().(ed25519.PublicKey)))}
	for _, draft := range drafts {
		open, err := writeTask(dir, draft.Name, draft.Task, parties, owner)
		if err != nil {
			return nil, err
		}
		d.Bundles = append(d.Bundles, open)
	}
	for _, set := range sets {
		tables, err := d.writeSet(set, parties, owner)
		if err != nil {
			return nil, err
		}
		drafts = append(slices.Clip(drafts), tables...)
	}
	for i, relay := range relays {
		if err := os.WriteFile(filepath.Join(parties[i].folder, "relay.yaml"), relay.config(d.Owner, drafts, sets),
			0o600); err != nil {
			return nil, fmt.Errorf("couldn't write the configuration: %w", err)
		}
	}
	return d, nil
}

// writeSet signs the tables of a set and the set, and writes their files. It returns the tables as drafts.
func (d *Deployment) writeSet(set Set, parties []party, owner ed25519.PrivateKey) (drafts []Draft, err error) {
	signed := set.Set
	signed.Tables = slices.Clone(signed.Tables)
	made := map[task.Epochs]madeKeys{} // by clock
	var tables []*taskfile.Open
	for i, t := range set.Tables {
		name := set.Name + "-" + signed.Tables[i].Name
		clock := task.Epochs{Start: t.Epochs.Start, Length: t.Epochs.Length, Count: t.Epochs.Count}
		keys, has := made[clock]
		if has {
			err = keys.copyTo(name, parties)
		} else {
			keys, err = makeKeys(name, t, parties)
			made[clock] = keys
		}
		if err != nil {
			return nil, err
		}
		open, err := signTask(d.Dir, name, t, parties, keys.lists, owner)
		if err != nil {
			return nil, err
		}
		signed.Tables[i].Task = open.ID
		tables, drafts = append(tables, open), append(drafts, Draft{name, t})
	}
	bundle, err := tableset.Sign(&signed, owner, tables)
	if err != nil {
		return nil, err
	}
	raw, err := bundle.Bytes()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(d.Dir, set.Name+".set"), raw, 0o644); err != nil {
		return nil, fmt.Errorf("couldn't write the set: %w", err)
	}
	open, err := bundle.Open(nil)
	d.Bundles, d.Sets = append(d.Bundles, tables...), append(d.Sets, open)
	return drafts, err
}

// madeKeys are the key lists of all parties for a task, and the name of the files with their private keys.
type madeKeys struct {
	name  string
	lists []*onion.SignedKeyList
}

func makeKeys(name string, t *task.Task, parties []party) (made madeKeys, err error) {
	made.name = name
	for _, p := range parties {
		list, err := keyfile.NewHPKE(filepath.Join(p.folder, name+".keys"), t.KEM, t.Epochs.Count, p.sign)
		if err != nil {
			return made, err
		}
		made.lists = append(made.lists, list)
	}
	return made, nil
}

// copyTo copies all parties' private keys for another task.
func (k madeKeys) copyTo(name string, parties []party) error {
	for _, p := range parties {
		raw, err := os.ReadFile(filepath.Join(p.folder, k.name+".keys"))
		if err == nil {
			err = os.WriteFile(filepath.Join(p.folder, name+".keys"), raw, 0o600)
		}
		clear(raw)
		if err != nil {
			return fmt.Errorf("couldn't copy keys: %w", err)
		}
	}
	return nil
}

// VerifierKeys returns the path of the verifier's HPKE keys for a task.
func (d *Deployment) VerifierKeys(name string) string {
	return filepath.Join(d.Dir, "verifier", name+".keys")
}

// VerifierSign returns the path of the verifier's signing key.
func (d *Deployment) VerifierSign() string { return filepath.Join(d.Dir, "verifier", "sign.key") }

// RelayConfig returns the path of a relay's configuration. The first relay has number 1.
func (d *Deployment) RelayConfig(number int) string {
	return filepath.Join(d.Dir, fmt.Sprintf("relay%d", number), "relay.yaml")
}

// TaskURL returns the URL with which clients find task i.
func (d *Deployment) TaskURL(i int) string { return d.Bundles[i].URL() }

func makeParties(dir string, relays []Relay) ([]party, error) {
	var parties []party
	for i, relay := range relays {
		parties = append(parties, party{folder: filepath.Join(dir, fmt.Sprintf("relay%d", i+1)), url: relay.URL})
	}
	parties = append(parties, party{folder: filepath.Join(dir, "verifier")})
	for i := range parties {
		if err := os.MkdirAll(parties[i].folder, 0o700); err != nil {
			return nil, fmt.Errorf("couldn't write the deployment: %w", err)
		}
		var err error
		if parties[i].sign, err = keyfile.NewSign(filepath.Join(parties[i].folder, "sign.key")); err != nil {
			return nil, err
		}
	}
	return parties, nil
}

// writeTask makes the keys of all parties for a task, signs the task and writes its files.
func writeTask(dir, name string, draft *task.Task, parties []party, owner ed25519.PrivateKey) (*taskfile.Open, error) {
	made, err := makeKeys(name, draft, parties)
	if err != nil {
		return nil, err
	}
	return signTask(dir, name, draft, parties, made.lists, owner)
}

// signTask signs a task with the parties' key lists and writes its files.
func signTask(dir, name string, draft *task.Task, parties []party, lists []*onion.SignedKeyList,
	owner ed25519.PrivateKey) (*taskfile.Open, error) {
	t := *draft
	lists = slices.Clip(lists)
	for i, p := range parties {
		public := task.Party{URL: p.url, SignKey: task.SignKey(p.sign.Public().(ed25519.PublicKey)),
			KeyList: lists[i].Hash()}
		if i < len(parties)-1 {
			t.Relays = append(t.Relays, public)
		} else {
			t.Verifier = public
		}
	}
	if t.Clients.Kind == task.ClientToken {
		list, err := addIssuer(dir, name, &t)
		if err != nil {
			return nil, err
		}
		lists = append(lists, list)
	}
	bundle, err := taskfile.Sign(&t, owner, lists)
	if err != nil {
		return nil, err
	}
	raw, err := bundle.Bytes()
	if err != nil {
		return nil, err
	}
	text, err := taskfile.MarshalJSON(&t)
	if err != nil {
		return nil, fmt.Errorf("couldn't encode the task: %w", err)
	}
	for suffix, content := range map[string][]byte{".bundle": raw, ".json": append(text, '\n')} {
		if err := os.WriteFile(filepath.Join(dir, name+suffix), content, 0o644); err != nil {
			return nil, fmt.Errorf("couldn't write the task: %w", err)
		}
	}
	return bundle.Open(nil)
}

// addIssuer makes the issuer's keys for a task, and adds the issuer to the task.
func addIssuer(dir, name string, t *task.Task) (*onion.SignedKeyList, error) {
	folder := filepath.Join(dir, "issuer")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("couldn't write the deployment: %w", err)
	}
	path := filepath.Join(folder, "sign.key")
	sign, err := keyfile.LoadSign(path)
	if errors.Is(err, fs.ErrNotExist) {
		sign, err = keyfile.NewSign(path)
	}
	if err != nil {
		return nil, err
	}
	list, err := issuer.NewKeys(filepath.Join(folder, name+".keys"), t.Epochs.Count, sign, nil)
	if err != nil {
		return nil, err
	}
	t.Clients.Issuer = task.Party{URL: t.Clients.Issuer.URL, SignKey: task.SignKey(sign.Public().(ed25519.PublicKey)),
		KeyList: list.Hash()}
	return list, nil
}

// config returns the content of relay.yaml. relay.Config documents every field.
func (r Relay) config(owner string, tasks []Draft, sets []Set) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Every field is documented in relay/config.go; relative paths start here.\n")
	fmt.Fprintf(&b, "listen: %q\nadmin: %q\nsign_key: sign.key\nstore: %q\nsecret: relay.secret\n", r.Listen, r.Admin,
		cmp.Or(r.Store, "sqlite:relay.db"))
	if r.Pull != "" {
		fmt.Fprintf(&b, "pull_interval: %s\n", r.Pull)
	}
	if r.Skew != "" {
		fmt.Fprintf(&b, "skew: %s\n", r.Skew)
	}
	if len(r.TrustedProxies) > 0 {
		fmt.Fprintf(&b, "trusted_proxies: [%s]\n", strings.Join(r.TrustedProxies, ", "))
	}
	fmt.Fprintf(&b, "tasks:\n")
	for _, t := range tasks {
		successors := ""
		if t.Task.Stream != nil {
			successors = fmt.Sprintf(", successors: %s.next", t.Name)
		}
		fmt.Fprintf(&b, "  - {file: ../%s.bundle, owner: %q, hpke_keys: %s.keys%s}\n", t.Name, owner, t.Name, successors)
	}
	if len(sets) > 0 {
		fmt.Fprintf(&b, "sets:\n")
	}
	for _, set := range sets {
		fmt.Fprintf(&b, "  - {file: ../%s.set, owner: %q}\n", set.Name, owner)
	}
	return []byte(b.String())
}
