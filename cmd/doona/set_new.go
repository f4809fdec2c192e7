package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/doona-dp/doona/internal/cli"
	"github.com/doona-dp/doona/internal/decimal"
	"github.com/doona-dp/doona/internal/durable"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/protocols"
	"github.com/doona-dp/doona/protocols/registry"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/handover"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// setNewFlags are the flags of `doona set new`.
type setNewFlags struct {
	name, owner, verifier, start, out, ca string
	issuer                                string
	relays, origins, through              []string
	days, quota                           uint64
	trial                                 bool
}

const aboutSetNew = `New plans all queries of FILE under one total, makes a task of each, and signs the set that binds them.
A visitor sends one submission a day for all tables, and a browser charges the set's total once. FILE is
YAML or JSON, as for 'doona plan --set', which shows the errors before you sign:

  users: 5000                # submissions on a usual day
  days: 365                  # the total holds in any 365 days
  total_epsilon: 10
  total_delta: 1e-5
  queries:
    - {name: visitors, bare: true}
    - {name: entry, query: histogram, bins: 251, labels: true, noise: relays, cap: 56/365, share: 60}
    - {name: countries, query: histogram, bins: 60, labels: true, noise: relays, per: month, share: 10}

A query with 'bare' has no values: it counts the days on which browsers came. The first table must have days
as epochs, so the first such query of FILE comes first. Relays add the noise of all tables.

All clocks begin at midnight in UTC, weeks on Mondays. A week or month that does not lie within the set's
days is not counted.

A relay's operator can give you its key lists, one for each clock with as many keys as the clock has epochs,
and list the tables and the set. Or it has approved you: then leave the key lists out, and New asks the relay
for keys, and sends it the set; each table takes one of your task slots. The verifier's key lists are given
in any order.

With --issuer every submission needs an anonymous token, as in 'doona task new'. The issuer's key list has as
many keys as the set has days.

FOLDER gets set.bundle, and NAME.bundle and NAME.json of each table. If it has a set already, New signs
nothing and sends that set again. So run the same command again after a relay could not be reached.`

func setNewCommand() *cobra.Command {
	var f setNewFlags
	cmd := &cobra.Command{
		Use:   "new FILE --owner-key FILE --relay URL,KEY[,LIST…] --verifier KEY,LIST… --out FOLDER",
		Short: "Plan and sign a set of tables",
		Long:  aboutSetNew,
		Example: `  doona set new site.yaml --name example.org --owner-key owner.key --origin https://example.org \
      --relay https://r1.example,ed25519:KEY --relay https://r2.example,ed25519:KEY \
      --verifier ed25519:KEY,days.keys.pub,months.keys.pub --quota 500 --out site`,
		Args: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "set", "name, 1 to 64 printable ASCII characters")
	flags.StringVar(&f.owner, "owner-key", "", "owner's signing key file")
	flags.StringArrayVar(&f.relays, "relay", nil, "URL,ed25519:KEY,LIST… of a relay, in order, with a key list for each "+
		"clock; without lists if the relay has approved you; may be repeated")
	flags.StringVar(&f.verifier, "verifier", "", "ed25519:KEY,LIST… of the verifier, with a key list for each clock")
	flags.StringVar(&f.issuer, "issuer", "", "URL,ed25519:KEY,KEYLIST of an issuer of tokens: one submission per token")
	flags.StringVar(&f.start, "start", "", "first day, such as 2026-12-01 (default: tomorrow in UTC)")
	flags.Uint64Var(&f.days, "days", 365, "number of days, 1 to 65536")
	flags.Uint64Var(&f.quota, "quota", 1, "q, submissions per client network (IPv4 /24, IPv6 /48) and day, 1 to 65535; "+
		"above 1 each network's is drawn from q to 2q−1; with --issuer 1")
	flags.StringArrayVar(&f.origins, "origin", nil, originUsage)
	flags.StringArrayVar(&f.through, "through", nil, "origin that belongs to a visit, such as a checkout's; may be repeated")
	flags.BoolVar(&f.trial, "trial", false, "one operator runs all relays: nothing is promised, and no ε is shown")
	flags.StringVar(&f.out, "out", "", "folder to write to")
	flags.StringVar(&f.ca, "ca", "", "file of certificates (PEM) of authorities to trust besides the system's")
	cli.Require(cmd, "owner-key", "relay", "verifier", "out")
	return cmd
}

func (f *setNewFlags) run(cmd *cobra.Command, file string) error {
	if f.issuer != "" && f.quota != 1 {
		return cli.Usagef("invalid quota %d: want 1 with --issuer, who decides how many tokens a person gets", f.quota)
	}
	key, err := cli.LoadSign(os.Stderr, f.owner)
	if err != nil {
		return err
	}
	folder, err := readSetFolder(f.out)
	if errors.Is(err, fs.ErrNotExist) {
		err = f.make(cmd, file, key)
		if err == nil {
			folder, err = readSetFolder(f.out)
		}
	}
	if err != nil {
		return err
	}
	if owner := task.SignKey(key.Public().(ed25519.PublicKey)); folder.set.Owner != owner || folder.set.Name != f.name {
		return fmt.Errorf("%s has the set %s of %s: name another folder", f.out, folder.set.Name,
			taskfile.FormatKey(folder.set.Owner))
	}
	parties, err := f.parties()
	if err == nil {
		err = folder.handOver(cmd.Context(), asked(parties), key, f.ca)
	}
	if err != nil {
		return err
	}
	return printSetFolder(cmd, folder)
}

// make plans and signs a set, and writes its folder. The set's bundle is written last.
func (f *setNewFlags) make(cmd *cobra.Command, path string, key ed25519.PrivateKey) error {
	file, s, err := readSet(path)
	if err != nil {
		return cli.FlagError(err)
	}
	clocks, err := f.clocks(file)
	if err != nil {
		return err
	}
	for i, q := range file.valued {
		if q.Noise == planner.NoiseClients {
			return cli.Usagef("invalid noise of query %s: want relays, because clients of a set draw nothing", q.Name)
		}
		s.Goals[i].Noise = planner.NoiseRelays
	}
	if err := f.checkKeys(clocks); err != nil { // Before planning, which takes some seconds.
		return err
	}
	bar := cli.Progress("calibrating", 2*len(s.Goals))
	plan, err := planner.PlanSet(s, func(int) { bar.Add(1) })
	if err != nil {
		return cli.FlagError(err)
	}
	drafts, err := f.drafts(file, plan, clocks)
	if err != nil {
		return err
	}
	set := tableset.Set{Name: f.name, Trial: f.trial, Through: sortedOrigins(f.through), Total: tableset.Total{
		Epsilon: task.NewEpsilon(decimal.Format(s.Epsilon, -1)), Delta: task.NewDelta(decimal.Format(s.Delta, -1)),
		Days: file.Days}}
	tables, err := f.sign(cmd.Context(), &set, drafts, key)
	if err != nil {
		return err
	}
	bundle, err := tableset.Sign(&set, key, tables)
	if err != nil {
		return cli.FlagError(err)
	}
	return f.writeSet(bundle)
}

func (f *setNewFlags) writeSet(bundle *tableset.Bundle) error {
	raw, err := bundle.Bytes()
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(f.out, setBundleFile), raw, 0o644)
}

// clocks returns the epochs of each clock that the file's queries have, within the set's days.
func (f *setNewFlags) clocks(file *setFile) (map[planner.Clock]task.Epochs, error) {
	if file.Days == 0 {
		return nil, cli.Usagef("invalid days 0 in the file: want the days of the total, 1 to %d", tableset.MaxDays)
	}
	if f.days < 1 || f.days > task.MaxEpochs {
		return nil, cli.Usagef("invalid days %d: want 1 to %d", f.days, task.MaxEpochs)
	}
	first := time.Now().UTC().Add(24 * time.Hour).Truncate(24 * time.Hour)
	if f.start != "" {
		var err error
		if first, err = time.Parse(time.DateOnly, f.start); err != nil || first.Unix() < 1 {
			return nil, cli.Usagef("invalid start %q: want a day after 1970-01-01, such as 2026-12-01", f.start)
		}
	}
	over := first.AddDate(0, 0, int(f.days))
	clocks := map[planner.Clock]task.Epochs{}
	for _, q := range file.Queries {
		clock := cmp.Or(q.Per, planner.Daily)
		e := task.Epochs{Start: uint64(first.Unix()), Length: 86400, Count: f.days}
		switch clock {
		case planner.Weekly:
			monday := first.AddDate(0, 0, int(8-first.Weekday())%7)
			e.Start, e.Length = uint64(monday.Unix()), 7*86400
		case planner.Monthly:
			month := time.Date(first.Year(), first.Month(), 1, 0, 0, 0, 0, time.UTC)
			if month.Before(first) {
				month = month.AddDate(0, 1, 0)
			}
			e.Start, e.Length = uint64(month.Unix()), task.Month
		case planner.Daily:
		default:
			return nil, cli.Usagef("invalid per %q of query %s: want day, week or month", string(q.Per), q.Name)
		}
		if clock != planner.Daily {
			e.Count = uint64(max(0, e.Length.Between(int64(e.Start), over.Unix())))
		}
		if e.Count == 0 {
			return nil, cli.Usagef("invalid days %d: query %s is per %s, and no whole %s lies within", f.days, q.Name,
				clock, clock)
		}
		clocks[clock] = e
	}
	if _, is := clocks[planner.Daily]; !is {
		return nil, cli.Usagef("missing query per day: add {name: visitors, bare: true}, which costs nothing; a visitor " +
			"sends one submission a day")
	}
	return clocks, nil
}

// tableDraft is a table before its parties are added.
type tableDraft struct {
	tableset.Table
	*task.Task
}

// batchesAhead is how many times as many submissions a batch has room for as an epoch is expected to have. Noise is
// drawn for each batch, so an epoch should be one batch.
const batchesAhead = 20

// drafts returns the drafts of all tables. The first of the shortest clock comes first.
func (f *setNewFlags) drafts(file *setFile, plan *planner.SetPlan, clocks map[planner.Clock]task.Epochs) ([]tableDraft,
	error) {
	var out []tableDraft
	ways := plan.Ways
	for _, q := range file.Queries {
		var t *task.Task
		var err error
		if q.Bare {
			t, err = bareDraft(file)
		} else {
			t, ways = ways[0].Task, ways[1:]
		}
		if err != nil {
			return nil, err
		}
		e := clocks[cmp.Or(q.Per, planner.Daily)]
		e.Cap, e.Pace, e.Events = t.Epochs.Cap, t.Epochs.Pace, t.Epochs.Events
		claim := task.NewClaim(t.Claim.Epsilon.String(), t.Claim.Delta.String()) // The total is the set's.
		claim.Assumption = t.Claim.Assumption
		t.Name, t.Epochs, t.Claim = q.Name, e, claim
		days := (e.Begin(1) - e.Begin(0)) / 86400
		t.Batch.Size = min(batchesAhead*max(1, file.Users)*days, 1<<32-1)
		t.Clients = task.Clients{Kind: task.ClientAddress, Quota: f.quota, Origins: sortedOrigins(f.origins)}
		t.Stream = &task.StreamPosition{Name: f.name + " " + q.Name, Allow: renewable}
		out = append(out, tableDraft{tableset.Table{Name: q.Name, Bare: q.Bare}, t})
	}
	at := slices.IndexFunc(out, func(d tableDraft) bool { return d.Epochs.Length == 86400 })
	first := out[at]
	return append([]tableDraft{first}, slices.Delete(out, at, at+1)...), nil
}

// renewable is what later tasks of a set's tables may change.
var renewable = []string{"clients.issuer.url", "clients.origins", "clients.quota", "relays.url", "verifier.url"}

// bareDraft returns the draft of a table without values. Its task has a histogram of two cells, with the least noise
// that the format allows, because no browser ever sends one of them.
func bareDraft(file *setFile) (*task.Task, error) {
	t := &task.Task{Query: task.Histogram, KEM: task.KEMX25519,
		Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1), Bins: 2, Labels: true},
		Claim: task.NewClaim(decimal.Format(float64(file.TotalEpsilon), -1),
			decimal.Format(float64(file.TotalDelta), -1)),
		Batch: task.Batch{Size: max(1, file.Users), Honest: randomizer.NewRational(1, 1), Min: 1}}
	return t, registry.CalibrateRelayNoise(t, protocols.NoiseOptions{Relays: file.Hops})
}

// sign adds parties and keys to the tables' tasks, signs and writes them, and lists them in the set.
func (f *setNewFlags) sign(ctx context.Context, set *tableset.Set, drafts []tableDraft, key ed25519.PrivateKey) (
	[]*taskfile.Open, error) {
	parties, err := f.parties()
	if err != nil {
		return nil, err
	}
	issuer, tokens, err := f.issuerOf()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return nil, fmt.Errorf("couldn't make the folder: %w", err)
	}
	transport, err := handover.LoadTransport(f.ca)
	if err != nil {
		return nil, err
	}
	owner := handover.NewRequester(key, transport)
	keys := map[task.Length][]*onion.SignedKeyList{} // By clock, in the order of parties.
	var tables []*taskfile.Open
	for i, d := range drafts {
		for hop, p := range parties {
			if hop < len(parties)-1 {
				d.Relays = append(d.Relays, task.Party{URL: p.URL, SignKey: p.SignKey})
			} else {
				d.Verifier.SignKey = p.SignKey
			}
		}
		lists, known := keys[d.Epochs.Length]
		if !known {
			for hop := range parties {
				list, err := parties[hop].keys(ctx, owner, d.Task)
				if err != nil {
					return nil, err
				}
				lists = append(lists, list)
			}
			keys[d.Epochs.Length] = lists
		}
		for hop := range d.Relays {
			d.Relays[hop].KeyList = lists[hop].Hash()
		}
		d.Verifier.KeyList = lists[len(d.Relays)].Hash()
		if i == 0 && f.issuer != "" {
			d.Clients.Kind, d.Clients.Issuer = task.ClientToken, issuer
			lists = append(slices.Clip(lists), tokens)
		}
		open, err := f.writeTable(d, lists, key)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", d.Table.Name, err)
		}
		d.Table.Task = open.ID
		tables, set.Tables = append(tables, open), append(set.Tables, d.Table)
	}
	return tables, nil
}

// writeTable signs a table's task, checks its claim and writes it.
func (f *setNewFlags) writeTable(d tableDraft, lists []*onion.SignedKeyList, key ed25519.PrivateKey) (*taskfile.Open,
	error) {
	m, err := registry.Open(d.Task)
	if err != nil {
		return nil, err
	}
	if err := m.CheckClaim(); err != nil {
		return nil, err
	}
	one := taskFlags{out: filepath.Join(f.out, d.Table.Name+bundleSuffix)}
	bundle, err := one.write(d.Task, lists, key)
	if err != nil {
		return nil, err
	}
	return bundle.Open(nil)
}

// setParty is a relay or the verifier, with its key lists. A relay without lists is asked for them.
type setParty struct {
	task.Party
	asked bool
	lists []*onion.SignedKeyList
}

// parties returns the relays in order, and the verifier.
func (f *setNewFlags) parties() (parties []setParty, err error) {
	for _, text := range append(slices.Clone(f.relays), ","+f.verifier) {
		parts := strings.Split(text, ",")
		flag := "relay"
		if parts[0] == "" {
			flag = "verifier"
		}
		if len(parts) < 2 || flag == "verifier" && len(parts) < 3 {
			return nil, cli.Usagef("invalid %s %q: want a signing key and a key list for each clock, separated by commas", flag,
				strings.TrimPrefix(text, ","))
		}
		p := setParty{Party: task.Party{URL: parts[0]}, asked: len(parts) == 2}
		if p.SignKey, err = taskfile.ParseKey(flag, parts[1]); err != nil {
			return nil, cli.Usage(err)
		}
		for _, path := range parts[2:] {
			_, list, err := parseParty(flag, parts[0], parts[1]+","+path)
			if err != nil {
				return nil, err
			}
			p.lists = append(p.lists, list)
		}
		parties = append(parties, p)
	}
	return parties, nil
}

// issuerOf returns the issuer of tokens and its key list, if there is one.
func (f *setNewFlags) issuerOf() (task.Party, *onion.SignedKeyList, error) {
	if f.issuer == "" {
		return task.Party{}, nil, nil
	}
	url, rest, _ := strings.Cut(f.issuer, ",")
	return parseParty("issuer", url, rest)
}

// checkKeys checks that the key lists of all parties that are not asked suffice for the clocks.
func (f *setNewFlags) checkKeys(clocks map[planner.Clock]task.Epochs) error {
	parties, err := f.parties()
	if err == nil {
		_, _, err = f.issuerOf()
	}
	if err != nil {
		return err
	}
	for _, p := range parties {
		for _, clock := range []planner.Clock{planner.Daily, planner.Weekly, planner.Monthly} {
			if e, used := clocks[clock]; used && !p.asked {
				if _, err := p.take(task.KEMX25519, e.Count, clock); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// keys returns the party's key list for the clock of a task: the next one with as many keys, or one that it makes now.
func (p *setParty) keys(ctx context.Context, owner *handover.Requester, t *task.Task) (*onion.SignedKeyList, error) {
	if p.asked {
		return owner.KeysFor(ctx, p.Party, taskfile.LabelOf(t), t.KEM, t.Epochs.Count)
	}
	return p.take(t.KEM, t.Epochs.Count, map[task.Length]planner.Clock{86400: planner.Daily, 7 * 86400: planner.Weekly,
		task.Month: planner.Monthly}[t.Epochs.Length])
}

// take removes the next of the party's key lists with this many keys, and returns it.
func (p *setParty) take(kem task.KEM, count uint64, clock planner.Clock) (*onion.SignedKeyList, error) {
	_, size, err := onion.KeySizes(kem, count)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(p.lists, func(list *onion.SignedKeyList) bool { return uint64(len(list.Keys)) == size })
	if at < 0 {
		return nil, cli.Usagef("missing key list of %s: want one of %d keys of kem %s, one for each %s of the set",
			cmp.Or(p.URL, "the verifier"), count, kem, clock)
	}
	list := p.lists[at]
	p.lists = slices.Delete(slices.Clone(p.lists), at, at+1)
	return list, nil
}

// asked returns the hops of the relays without key lists, which have approved the owner.
func asked(parties []setParty) (hops []int) {
	for hop, p := range parties {
		if p.asked {
			hops = append(hops, hop)
		}
	}
	return hops
}
