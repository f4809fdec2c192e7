package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/doona-dp/doona/internal/quickstart"
	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/planner"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/problem"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// signedSet is a set with all keys, and its bundle as the relay serves it.
type signedSet struct {
	*fixture.SignedSet
	raw []byte
}

// setOffer contains the options with which a page connects to a set.
type setOffer struct {
	URL   string `json:"url"`
	Own   string `json:"own"` // the same at the site's own host
	Owner string `json:"owner"`
	ID    string `json:"id"`
	Start uint64 `json:"start"` // when the first day begins, in Unix seconds

	// Copies are, for each table, the copies of its law that the set's total has.
	Copies []uint64 `json:"copies"`
}

const oneDay = 86400

// setTables returns the drafts of a set's tables: days from the first of this month to the end of the next, weeks
// within them, and the two months.
func setTables() []fixture.SetTable {
	now := time.Now().UTC()
	first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	start, count := uint64(first.Unix()), uint64(first.AddDate(0, 2, 0).Sub(first).Hours())/24
	days := task.Epochs{Start: start, Length: oneDay, Count: count}
	capped, goals := days, days
	capped.Cap, capped.Pace = task.Cap{Reports: 4, Window: 365}, task.Cap{Reports: 1, Window: 122}
	goals.Events = task.Events{Most: 1, Window: 30, Default: 3}
	monday := start + uint64((8-int(first.Weekday()))%7)*oneDay
	weeks := task.Epochs{Start: monday, Length: 7 * oneDay, Count: (start + count*oneDay - monday) / (7 * oneDay),
		Cap: task.Cap{Reports: 4, Window: 53}}
	return []fixture.SetTable{
		{Name: "visitors", Draft: fixture.Table(2, days), Bare: true},
		{Name: "entry", Draft: fixture.Table(20, capped)},
		{Name: "goals", Draft: fixture.Table(5, goals)},
		{Name: "vitals", Draft: fixture.Table(6, weeks)},
		{Name: "countries", Draft: fixture.Table(30, task.Epochs{Start: start, Length: task.Month, Count: 2})},
	}
}

// yearTables returns the drafts of tables of a year, whose limits are reached within weeks.
func yearTables() []fixture.SetTable {
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	start, monday := uint64(first.Unix()), uint64(first.AddDate(0, 0, 4).Unix())
	days := task.Epochs{Start: start, Length: oneDay, Count: 365}
	entry, goals := days, days
	entry.Cap = task.Cap{Reports: 4, Window: 10}
	goals.Events = task.Events{Most: 2, Window: 12, Default: 3}
	return []fixture.SetTable{
		{Name: "entry", Draft: fixture.Table(20, entry)},
		{Name: "goals", Draft: fixture.Table(5, goals)},
		{Name: "vitals", Draft: fixture.Table(6, task.Epochs{Start: monday, Length: 7 * oneDay, Count: 51})},
		{Name: "countries", Draft: fixture.Table(30, task.Epochs{Start: start, Length: task.Month, Count: 12})},
	}
}

// siteTables returns the drafts of the tables of a site with 5,000 visitors a day. Their cells and limits are those of
// the default set, and their noise has about its shares of (10, 10⁻⁵) in 365 days.
func siteTables() ([]fixture.SetTable, error) {
	start := uint64(time.Date(time.Now().UTC().Year(), 1, 1, 0, 0, 0, 0, time.UTC).Unix())
	monday := start + uint64((8-int(time.Unix(int64(start), 0).UTC().Weekday()))%7)*oneDay
	days := task.Epochs{Start: start, Length: oneDay, Count: 365}
	tables := []fixture.SetTable{{Name: "visitors", Draft: fixture.Table(2, days), Bare: true}}
	for _, t := range []struct {
		name    string
		cells   uint64
		length  task.Length
		cap     uint64
		events  uint64
		epsilon float64 // Of the table alone, at δ = 10⁻⁵.
	}{{"entry", 251, oneDay, 56, 0, 4.9}, {"sources", 64, oneDay, 56, 0, 3.8}, {"visit", 15, oneDay, 56, 0, 2.7},
		{"goals", 25, oneDay, 0, 6, 2.7}, {"vitals", 144, 7 * oneDay, 28, 0, 2.8}, {"countries", 60, task.Month, 0, 0, 2}} {
		epochs := map[task.Length]task.Epochs{oneDay: days, 7 * oneDay: {Start: monday, Length: 7 * oneDay, Count: 51},
			task.Month: {Start: start, Length: task.Month, Count: 12}}[t.length]
		most := t.length.MostIn(365*oneDay, 1<<20)
		q := planner.Query{Name: t.name, Query: task.Histogram, Bins: t.cells, Labels: true, Batch: 100_000, Honest: 1,
			TotalEpsilon: t.epsilon, TotalDelta: 1e-5, Epochs: most, Relays: &planner.RelayNoise{}}
		if t.events > 0 {
			q.Events = task.Events{Most: t.events, Window: most}
		} else if t.cap > 0 {
			q.Cap = task.Cap{Reports: t.cap, Window: most}
		}
		draft, err := planner.Draft(q)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", t.name, err)
		}
		claim := task.NewClaim(draft.Claim.Epsilon.String(), draft.Claim.Delta.String()) // The total is the set's.
		claim.Assumption = draft.Claim.Assumption
		draft.Claim = claim
		limits := draft.Epochs
		draft.Epochs = epochs
		draft.Epochs.Cap, draft.Epochs.Events = limits.Cap, limits.Events
		tables = append(tables, fixture.SetTable{Name: t.name, Draft: draft})
	}
	return tables, nil
}

// newSets signs the sets that the fake relay serves, by name: more names another one.
func newSets(relayURL, siteURL, more string) (map[string]*signedSet, error) {
	all := map[string]*signedSet{}
	names := []string{"set", "trial", "other"}
	if more != "" {
		names = append(names, more)
	}
	for _, name := range names {
		set := tableset.Set{Name: name, Trial: name == "trial", Through: []string{"https://pay.example"}, Total: tableset.Total{
			Epsilon: task.NewEpsilon("60"), Delta: task.NewDelta("1e-3"), Days: 365}}
		tables := setTables()
		switch name {
		case "site":
			var err error
			if tables, err = siteTables(); err != nil {
				return nil, err
			}
			set.Total.Epsilon, set.Total.Delta = task.NewEpsilon("10.5"), task.NewDelta("1e-5")
		case "year":
			tables, set.Total.Days = yearTables(), 30
		}
		for i := range tables {
			tables[i].Draft.Clients.Origins = []string{siteURL}
		}
		signed, err := fixture.SignSet(set, tables, []string{relayURL, "https://two.example"})
		if err != nil {
			return nil, err
		}
		raw, err := signed.Bundle.Bytes()
		if err != nil {
			return nil, err
		}
		all[name] = &signedSet{signed, raw}
	}
	return all, nil
}

func (r *relay) offerSets(siteURL string, real *setRelays, t *tokens) map[string]setOffer {
	offers := map[string]setOffer{"real": real.offer, "tokens": t.set}
	for name, s := range r.sets {
		offers[name] = offerOf(s.Open, siteURL)
	}
	return offers
}

func offerOf(s *tableset.Open, siteURL string) setOffer {
	return setOffer{URL: s.URL(), Owner: taskfile.FormatKey(s.Owner), ID: s.ID.String(), Start: s.Tasks[0].Epochs.Start,
		Copies: s.Copies(), Own: siteURL + "/doona" + strings.TrimPrefix(s.URL(), s.Tasks[0].Relays[0].URL)}
}

func (r *relay) setOf(req *http.Request) *signedSet {
	for name, s := range r.sets {
		if id := req.PathValue("set"); id == s.ID.String() || id == name {
			return s
		}
	}
	return nil
}

// serveSet answers with a set's bundle, or with the keys of a block.
func (r *relay) serveSet(w http.ResponseWriter, req *http.Request) {
	s := r.setOf(req)
	if s == nil {
		problem.New(problem.UnknownTask, "").Write(w)
		return
	}
	raw := tableset.Pack(s.raw)
	if req.URL.Query().Has("unpacked") {
		raw = s.raw
	}
	if req.PathValue("clock") != "" {
		clock, bad := strconv.Atoi(req.PathValue("clock"))
		block, err := strconv.ParseUint(req.PathValue("block"), 10, 32)
		if at := slices.Index(s.Clock, clock); bad != nil || err != nil || at < 0 ||
			block*onion.BlockEpochs >= s.Tasks[at].Epochs.Count {
			problem.New(problem.NotFound, "").Write(w)
			return
		}
		if raw, err = s.KeysOf(clock, block*onion.BlockEpochs).Bytes(); err != nil {
			problem.New(problem.Internal, "%v", err).Write(w)
			return
		}
	}
	w.Header().Set("Content-Type", "application/msgpack")
	w.Write(raw)
}

// receiveSet opens a submission of a set with all keys.
func (r *relay) receiveSet(w http.ResponseWriter, req *http.Request) {
	s := r.setOf(req)
	day, err := strconv.ParseUint(req.PathValue("epoch"), 10, 32)
	if s == nil || err != nil {
		problem.New(problem.UnknownTask, "").Write(w)
		return
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	if err != nil {
		problem.New(problem.Malformed, "%v", err).Write(w)
		return
	}
	sub := submission{Path: strings.Replace(endpoint.SetPath, "{set}", s.ID.String(), 1), Epoch: day,
		Body: hex.EncodeToString(body), Header: req.Header}
	s.open(&sub, body)
	answer(w, req, r.record(&sub))
}

func (s *signedSet) open(sub *submission, body []byte) {
	messages, tags, err := s.OpenAll(sub.Epoch, body)
	if err != nil {
		sub.Error = err.Error()
		return
	}
	for _, m := range messages {
		sub.Messages = append(sub.Messages, texts([][]task.Message{{m}})[0])
	}
	for _, tag := range tags {
		sub.Tags = append(sub.Tags, hex.EncodeToString(tag[:]))
	}
}

// openSet opens the submission in the request's body, as the fake relay does, and answers with what is in it.
func (r *relay) openSet(w http.ResponseWriter, req *http.Request) {
	s := r.setOf(req)
	day, err := strconv.ParseUint(req.PathValue("day"), 10, 32)
	body, bad := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	if s == nil || err != nil || bad != nil {
		http.NotFound(w, req)
		return
	}
	sub := submission{Epoch: day}
	s.open(&sub, body)
	answer := struct {
		submission
		Ciphertexts []string `json:"ciphertexts"` // the slots that the first relay sees, hexadecimal
	}{submission: sub}
	if envelope, err := s.OpenEnvelope(day, body); err == nil {
		for _, lane := range envelope.Lanes {
			answer.Ciphertexts = append(answer.Ciphertexts, hex.EncodeToString(lane[0]))
		}
	}
	json.NewEncoder(w).Encode(answer)
}

// badSet is a bundle of a set that clients must refuse, and the field that they must name.
type badSet struct {
	Name   string `json:"name"`
	Field  string `json:"field"`
	ID     string `json:"id"`
	Bundle string `json:"bundle"` // hexadecimal
}

// badSets answers with changes of the first set that clients must refuse. The owner has signed all but one.
func (r *relay) badSets(w http.ResponseWriter, _ *http.Request) {
	var out []badSet
	good := r.sets["set"]
	for _, c := range setChanges {
		set, b := *good.Set, *good.Bundle
		set.Tables, b.Tasks, b.Lists = slices.Clone(set.Tables), slices.Clone(b.Tasks), slices.Clone(b.Lists)
		tables := []*task.Task{}
		for _, t := range good.Tasks {
			copied := *t
			tables = append(tables, &copied)
		}
		c.change(&set, tables, &b)
		for i, t := range tables {
			if raw := t.Canonical(); !slices.Equal(raw, good.Tasks[i].Canonical()) {
				b.Tasks[i], set.Tables[i].Task = raw, taskfile.ID(t)
			}
		}
		b.Set = set.Canonical()
		b.Signature = signing.Sign(good.Key, signing.Set, b.Set)
		if c.last != nil {
			c.last(&b)
		}
		raw, err := b.Bytes()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		open, err := b.Open(&good.Owner)
		if err == nil && !c.onlyClient {
			http.Error(w, fmt.Sprintf("%s: Go accepts it: %v", c.name, open.ID), http.StatusInternalServerError)
			return
		}
		out = append(out, badSet{c.name, c.field, set.ID().String(), hex.EncodeToString(raw)})
	}
	json.NewEncoder(w).Encode(out)
}

// setChange makes a set invalid. With onlyClient, package tableset accepts it: it knows no law.
type setChange struct {
	name, field string
	change      func(set *tableset.Set, tables []*task.Task, b *tableset.Bundle)
	last        func(b *tableset.Bundle)
	onlyClient  bool
}

func ofSet(change func(*tableset.Set)) func(*tableset.Set, []*task.Task, *tableset.Bundle) {
	return func(s *tableset.Set, _ []*task.Task, _ *tableset.Bundle) { change(s) }
}

func ofTable(i int, change func(*task.Task)) func(*tableset.Set, []*task.Task, *tableset.Bundle) {
	return func(_ *tableset.Set, tables []*task.Task, _ *tableset.Bundle) { change(tables[i]) }
}

func unchanged(*tableset.Set, []*task.Task, *tableset.Bundle) {}

var setChanges = []setChange{
	{"a name without letters", "name", ofSet(func(s *tableset.Set) { s.Name = "" }), nil, false},
	{"a control character", "name", ofSet(func(s *tableset.Set) { s.Name = "a\n" }), nil, false},
	{"no epsilon", "total.epsilon", ofSet(func(s *tableset.Set) { s.Total.Epsilon = task.NewEpsilon("0") }), nil, false},
	{"delta 1", "total.delta", ofSet(func(s *tableset.Set) { s.Total.Delta = task.NewDelta("1") }), nil, false},
	{"no days", "total.days", ofSet(func(s *tableset.Set) { s.Total.Days = 0 }), nil, false},
	{"too many days", "total.days", ofSet(func(s *tableset.Set) { s.Total.Days = 36526 }), nil, false},
	{"a table twice", "tables.name", ofSet(func(s *tableset.Set) { s.Tables[1].Name = s.Tables[2].Name }), nil, false},
	{"a digit first", "tables.name", ofSet(func(s *tableset.Set) { s.Tables[1].Name = "1a" }), nil, false},
	{"a task twice", "tables.task", ofSet(func(s *tableset.Set) { s.Tables[1].Task = s.Tables[2].Task }), nil, false},
	{"an origin with a path", "through", ofSet(func(s *tableset.Set) { s.Through = []string{"https://a.example/x"} }), nil,
		false},
	{"origins out of order", "through", ofSet(func(s *tableset.Set) {
		s.Through = []string{"https://b.example", "https://a.example"}
	}), nil, false},
	{"a renewal without a root", "renewal", ofSet(func(s *tableset.Set) { s.Position, s.Before = 1, task.ID{1} }), nil,
		false},
	{"another position than the tables", "tables.visitors.stream.position", ofSet(func(s *tableset.Set) {
		s.Position, s.Root, s.Before, s.First = 1, task.ID{1}, task.ID{1}, s.FirstTasks()
	}), nil, false},
	{"a renewal with too few first tasks", "renewal", ofSet(func(s *tableset.Set) {
		s.Position, s.Root, s.Before, s.First = 1, task.ID{1}, task.ID{1}, s.FirstTasks()[1:]
	}), nil, false},
	{"another task", "tables.entry", unchanged, func(b *tableset.Bundle) { b.Tasks[1] = b.Tasks[2] }, false},
	{"a task too few", "tasks", unchanged, func(b *tableset.Bundle) { b.Tasks = b.Tasks[1:] }, false},
	{"noise of honest clients", "tables.entry.noise", ofTable(1, func(t *task.Task) { t.Claim.Assumption = task.MinHonest }),
		nil, false},
	{"a promise of a table alone", "tables.entry.claim.total", ofTable(1, func(t *task.Task) {
		t.Claim.SetTotal("9", "1e-5")
	}), nil, false},
	{"no noise", "tables.entry.noise", ofTable(1, func(t *task.Task) { t.Noise = nil }), nil, false},
	{"randomized clients", "tables.entry.params.gamma", ofTable(1, func(t *task.Task) {
		t.Params = append(slices.Clone(t.Params), task.Param{Key: "gamma", Value: randomizer.NewRational(1, 10)})
		slices.SortFunc(t.Params, func(a, b task.Param) int { return strings.Compare(a.Key, b.Key) })
	}), nil, false},
	{"two slots", "tables.entry.slots", ofTable(1, func(t *task.Task) { t.Slots.PerLane = 2 }), nil, false},
	{"another KEM", "tables.entry.kem", ofTable(1, func(t *task.Task) { t.KEM = task.KEMMLKEM768X25519 }), nil, false},
	{"a relay fewer", "tables.entry.relays", ofTable(1, func(t *task.Task) { t.Relays = t.Relays[:1] }), nil, false},
	{"another relay", "tables.entry", ofTable(1, func(t *task.Task) {
		t.Relays = slices.Clone(t.Relays)
		t.Relays[1].URL = "https://three.example"
	}), nil, false},
	{"other origins", "tables.entry.clients.origins", ofTable(1, func(t *task.Task) { t.Clients.Origins = nil }), nil, false},
	{"a week that begins at noon", "tables.vitals.epochs", ofTable(3, func(t *task.Task) { t.Epochs.Start += 43200 }), nil,
		false},
	{"epochs before the set", "tables.vitals.epochs", ofTable(3, func(t *task.Task) { t.Epochs.Start -= 70 * oneDay }), nil,
		false},
	{"epochs after the set", "tables.vitals.epochs", ofTable(3, func(t *task.Task) { t.Epochs.Count += 9 }), nil, false},
	{"a stream of one table", "tables.entry.stream", ofTable(1, func(t *task.Task) {
		t.Stream = &task.StreamPosition{Name: "a"}
	}), nil, false},
	{"a bare table with a cap", "tables.visitors.epochs", ofTable(0, func(t *task.Task) {
		t.Epochs.Cap = task.Cap{Reports: 1, Window: 2}
	}), nil, false},
	{"lists of too few clocks", "lists", unchanged, func(b *tableset.Bundle) { b.Lists = b.Lists[1:] }, false},
	{"a list too few", "lists.0", unchanged, func(b *tableset.Bundle) {
		b.Lists = slices.Clone(b.Lists)
		b.Lists[0] = b.Lists[0][1:]
	}, false},
	{"another list", "tables.visitors", unchanged, func(b *tableset.Bundle) {
		b.Lists[0] = slices.Clone(b.Lists[0])
		b.Lists[0][0] = b.Lists[0][1]
	}, false},
	{"keys of its own", "tables.entry", ofTable(1, func(t *task.Task) { t.Verifier.KeyList[0] ^= 1 }), nil, false},
	{"another signature", "signature", unchanged, func(b *tableset.Bundle) {
		b.Signature = slices.Clone(b.Signature)
		b.Signature[3] ^= 1
	}, false},
	{"a smaller total", "total.delta", ofSet(func(s *tableset.Set) { s.Total.Epsilon = task.NewEpsilon("3") }), nil, true},
	{"a table that claims too much", "tables.entry.claim.delta", ofTable(1, func(t *task.Task) {
		t.Claim.Epsilon = task.NewEpsilon("0.5")
	}), nil, true},
}

// setRelays is a set that two real relays serve.
type setRelays struct {
	offer    setOffer
	relayURL string
}

// newSet returns a set that real relays serve, in files named set.
func newSet(name string) quickstart.Set {
	set := quickstart.Set{Name: "set", Set: tableset.Set{Name: name, Total: tableset.Total{
		Epsilon: task.NewEpsilon("60"), Delta: task.NewDelta("1e-3"), Days: 365}}}
	for _, table := range setTables() {
		table.Draft.Batch.Size = 20
		set.Tables = append(set.Tables, table.Draft)
		set.Set.Tables = append(set.Set.Tables, tableset.Table{Name: table.Name, Bare: table.Bare})
	}
	return set
}

// startSetRelays writes the deployment to dir and starts its relays. The proxy wa records all requests to the first.
func startSetRelays(ctx context.Context, dir string, wa *watch) (*setRelays, error) {
	firstAt, firstURL, err := listenBehind(wa)
	if err != nil {
		return nil, err
	}
	secondAt, secondURL, err := listenBehind(&watch{})
	if err != nil {
		return nil, err
	}
	set := newSet("a site")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("couldn't make a folder: %w", err)
	}
	d, err := quickstart.Write(dir, []quickstart.Relay{{URL: firstURL}, {URL: secondURL}}, nil, set)
	if err != nil {
		return nil, err
	}
	if err := startRelays(ctx, d, firstAt, secondAt); err != nil {
		return nil, err
	}
	return &setRelays{offerOf(d.Sets[0], ""), firstURL}, nil
}
