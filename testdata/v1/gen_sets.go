//go:build ignore

package main

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"slices"

	"github.com/doona-dp/doona/internal/testing/fixture"
	"github.com/doona-dp/doona/randomizer"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/tableset"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// setWorld is a set of four tables with three clocks, through two relays, and its keys by clock, hop and epoch.
type setWorld struct {
	tableset.Set
	tables []*taskfile.Open
	keys   [][][]*onion.PrivateKey
	lists  [][]*onion.SignedKeyList
	open   *tableset.Open
}

const (
	monday = 1_812_326_400 // 7 June 2027.
	oneDay = 86_400
)

// newSetWorld returns the set, after a change of the tables' drafts.
func newSetWorld(change ...func(drafts []*task.Task)) *setWorld {
	w := &setWorld{Set: tableset.Set{Name: "vectors", Through: []string{"https://pay.example"},
		Total: tableset.Total{Epsilon: task.NewEpsilon("10"), Delta: task.NewDelta("1e-5"), Days: 365}}}
	month := task.Epochs{Start: 1_814_400_000, Length: task.Month, Count: 1} // July 2027.
	days := task.Epochs{Start: monday, Length: oneDay, Count: 56}
	drafts := []*task.Task{draftOf("visitors", 2, days), draftOf("page", 20, days),
		draftOf("vitals", 300, task.Epochs{Start: monday, Length: 7 * oneDay, Count: 8}), draftOf("country", 5, month)}
	drafts[1].Epochs.Cap, drafts[1].Epochs.Pace = task.Cap{Reports: 56, Window: 365}, task.Cap{Reports: 4, Window: 28}
	rest, all := uint64(2), uint64(13)
	drafts[3].Epochs.Events = task.Events{Most: 1, Window: 12, Default: rest}
	drafts[3].Noise.Total, drafts[3].Noise.Rest = &all, &rest
	for _, c := range change {
		c(drafts)
	}
	clocks := map[task.Epochs]int{}
	for i, t := range drafts {
		clock := task.Epochs{Start: t.Epochs.Start, Length: t.Epochs.Length, Count: t.Epochs.Count}
		at, known := clocks[clock]
		if !known {
			at = len(w.lists)
			clocks[clock] = at
			w.addClock(at, t)
		}
		for hop, list := range w.lists[at] {
			name := []string{"one", "two", "verifier"}[hop]
			party := task.Party{URL: "https://" + name + ".example", SignKey: signKey(sign(name)), KeyList: list.Hash()}
			if hop == 2 {
				party.URL = ""
				t.Verifier = party
				break
			}
			t.Relays = append(t.Relays, party)
		}
		bundle, err := taskfile.Sign(t, sign("owner"), w.lists[at])
		check(err)
		open, err := bundle.Open(nil)
		check(err)
		w.tables = append(w.tables, open)
		w.Tables = append(w.Tables, tableset.Table{Name: t.Name, Task: open.ID, Bare: i == 0})
	}
	return w
}

// draftOf returns the draft of a table. Its noise has no claim that would hold: these are vectors of the format.
func draftOf(name string, bins uint64, epochs task.Epochs) *task.Task {
	t := &task.Task{Name: name, Query: task.Histogram, Protocol: "augmented", Rule: "relays", KEM: task.KEMX25519,
		Input: task.Input{Lo: randomizer.NewRational(0, 1), Hi: randomizer.NewRational(1, 1), Bins: bins,
			Labels: true},
		Claim:   task.NewClaim("1", "1e-6"),
		Batch:   task.Batch{Size: 1000, Honest: randomizer.NewRational(1, 1), Min: 1},
		Slots:   task.Slots{Padding: task.PaddingFull, Lanes: 1, PerLane: 1, MessageBytes: 1},
		Clients: task.Clients{Kind: task.ClientAddress, Quota: 20, Origins: []string{"https://example.org"}},
		Noise:   &task.Noise{Kind: task.NoiseCells, Cells: bins, Tables: [][]uint64{{1, 3, 9, 3, 1}}}, Epochs: epochs}
	if bins > 256 {
		t.Slots.MessageBytes = 2
	}
	t.Claim.Assumption = task.NoneHonest
	return t
}

func (w *setWorld) addClock(clock int, t *task.Task) {
	var keys [][]*onion.PrivateKey
	var lists []*onion.SignedKeyList
	for _, party := range []string{"one", "two", "verifier"} {
		var all []*onion.PrivateKey
		for epoch := range int(t.Epochs.Count) {
			all = append(all, privateKey(t.KEM, fmt.Sprint(party, " clock ", clock, " "), epoch))
		}
		list, err := onion.NewSignedKeyList(t.KEM, all, sign(party))
		check(err)
		keys, lists = append(keys, all), append(lists, list)
	}
	w.keys, w.lists = append(w.keys, keys), append(w.lists, lists)
}

// sign signs the set, and opens it.
func (w *setWorld) sign() *tableset.Bundle {
	b, err := tableset.Sign(&w.Set, sign("owner"), w.tables)
	check(err)
	w.open, err = b.Open(nil)
	check(err)
	return b
}

func (w *setWorld) blockOf(clock int, epoch uint64) []byte {
	raw, err := tableset.KeysOf(w.lists[clock], epoch).Bytes()
	check(err)
	return raw
}

// slot returns what a submission of a day says for a table, sealed for hop 1. A negative value is a cover.
func (w *setWorld) slot(day uint64, table, value int) (slot []byte, plain object) {
	t, clock := w.tables[table], w.open.Clock[table]
	epoch, isOpen := w.open.At(table, day)
	name := fmt.Sprint("set day ", day, " table ", table)
	message := append(make([]byte, 0, 19), tag(name)...)
	body := make([]byte, 1+t.Slots.MessageBytes)
	if value >= 0 {
		body[0], body[1] = 1, byte(value)
		if len(body) == 3 {
			body[1], body[2] = byte(value>>8), byte(value)
		}
	}
	message = append(message, body...)
	inner := w.seal(name+" hop 2", t.ID, epoch, clock, 2, kindSlot, message)
	slot = w.seal(name+" hop 1", t.ID, epoch, clock, 1, kindSlot, append(bytes.Clone(tag(name+" hop 1")), inner...))
	return slot, object{"epoch": epoch, "open": isOpen, "relayTag": hexOf(tag(name + " hop 1")),
		"verifierTag": hexOf(tag(name)), "cover": value < 0, "message": hexOf(body[1:])}
}

func (w *setWorld) seal(name string, id task.ID, epoch uint64, clock, hop int, kind byte, plain []byte) []byte {
	key := w.keys[clock][hop][epoch]
	out, err := fixture.Seal(fixture.X25519, publicKeys(w.lists[clock][hop])[epoch], ephemeral(name),
		info(id, epoch, hop, key), aad(0, kind), plain)
	check(err)
	return out
}

// setContent is encoded as docs/SPEC.md says.
type setContent struct {
	Tag   []byte
	Slots [][]byte
}

func (w *setWorld) body(day uint64, kind byte, c setContent) []byte {
	return marshal(&submission{task.Version, w.seal(fmt.Sprint("set day ", day), w.open.ID, day, 0, 0, kind, marshal(&c))})
}

func (w *setWorld) content(day uint64, values []int) (c setContent, slots []object) {
	c.Tag = tag(fmt.Sprint("set day ", day))
	for table, value := range values {
		slot, plain := w.slot(day, table, value)
		c.Slots, slots = append(c.Slots, slot), append(slots, plain)
	}
	return c, slots
}

// private returns the private keys of the epochs of a day, by clock and hop.
func (w *setWorld) private(day uint64) (out [][]string) {
	for clock, keys := range w.keys {
		epoch, _ := w.open.At(slices.Index(w.open.Clock, clock), day)
		var hops []string
		for _, hop := range keys {
			raw, err := hop[epoch].Bytes()
			check(err)
			hops = append(hops, hexOf(raw))
		}
		out = append(out, hops)
	}
	return out
}

func sets(fault faultFunc) {
	w := newSetWorld()
	bundle := w.sign()
	raw, err := bundle.Bytes()
	check(err)
	var clocks []object
	for clock, lists := range w.lists {
		var blocks []object
		count := uint64(len(lists[0].Keys) / 32)
		for first := uint64(0); first < count; first += onion.BlockEpochs {
			blocks = append(blocks, object{"first": first, "keys": hexOf(w.blockOf(clock, first))})
		}
		clocks = append(clocks, object{"blocks": blocks})
	}
	var submissions []object
	for _, c := range []struct {
		day    uint64
		values []int
	}{{0, []int{-1, 19, 299, -1}}, {23, []int{-1, -1, -1, -1}}, {54, []int{-1, 0, -1, 4}}} {
		content, slots := w.content(c.day, c.values)
		submissions = append(submissions, object{"day": c.day, "private": w.private(c.day), "tag": hexOf(content.Tag),
			"slots": slots, "body": hexOf(w.body(c.day, kindSet, content))})
	}
	write("set", object{"owner": taskfile.FormatKey(signKey(sign("owner"))), "set": hexOf(bundle.Set),
		"id": hexOf(w.open.ID[:]), "bundle": hexOf(raw), "clocks": clocks, "submissions": submissions,
		"renewal": hexOf(renewal(func(first *setWorld, table int) task.ID { return first.Tables[table].Task }))})
	badSets(w, bundle, fault)
	fault("set_rotation", "set", "field:tables.page.stream.rotations",
		"a replaced key that signed for another table only", object{"owner": taskfile.FormatKey(signKey(sign("owner"))),
			"bundle": hexOf(renewal(func(first *setWorld, _ int) task.ID { return first.Tables[0].Task }))})
	badSetKeys(w, raw, fault)
	badSetSubmissions(w, raw, fault)
}

func badSets(w *setWorld, good *tableset.Bundle, fault faultFunc) {
	owner := taskfile.FormatKey(signKey(sign("owner")))
	at := func(name, expect, description string, b *tableset.Bundle) {
		raw, err := b.Bytes()
		check(err)
		fault("set_"+name, "set", expect, description, object{"bundle": hexOf(raw), "owner": owner})
	}
	signed := func(set []byte, key ed25519.PrivateKey) *tableset.Bundle {
		b := *good
		b.Set, b.Signature = set, signing.Sign(key, signing.Set, set)
		return &b
	}
	at("stranger", "signer", "signed by a stranger", signed(good.Set, sign("stranger")))
	other := *good
	other.Owner, other.Signature = public(sign("stranger")), signing.Sign(sign("stranger"), signing.Set, good.Set)
	at("owner", "owner", "of another owner", &other)
	purpose := *good
	purpose.Signature = signing.Sign(sign("owner"), signing.Task, good.Set)
	at("purpose", "signer", "signed as a task", &purpose)
	at("trailing_byte", "encoding", "a byte after the set", signed(append(bytes.Clone(good.Set), 0), sign("owner")))
	for _, c := range []struct{ name, expect, description, old, new string }{
		{"trust", "field:trust", "trust three", "\xa3two", "\xa3six"},
		{"version", "encoding", "version 2", "doona-set\x01", "doona-set\x02"},
		{"days_none", "field:total.days", "a total of 0 days", "\xcd\x01\x6d", "\x00"},
		{"days_long", "encoding", "days in five bytes", "\xcd\x01\x6d", "\xce\x00\x00\x01\x6d"},
		{"epsilon", "field:total.epsilon", "epsilon 0", "\xa210", "\xa200"},
		{"delta", "field:total.delta", "delta 2", "\xa41e-5", "\xa42e-0"},
		{"table_name", "field:tables.name", "a table's name with a space", "\xa4page", "\xa4pa e"},
		{"table_digit", "field:tables.name", "a table's name that begins with a digit", "\xa4page", "\xa44age"},
		{"table_twice", "field:tables.name", "two tables with one name", "\xa7country", "\xa4page"},
		{"through", "field:through", "no origin", "https://pay", "https:/ pay"},
		{"renewal_zero", "field:renewal", "a renewal at position 0", "pay.example\x90",
			"pay.example\x91\x94\x00\xc4\x20" + string(seed("a")) + "\xc4\x20" + string(seed("b")) + "\x90"},
		{"renewal_first", "field:renewal", "a renewal without the tables' first tasks", "pay.example\x90",
			"pay.example\x91\x94\x01\xc4\x20" + string(seed("a")) + "\xc4\x20" + string(seed("b")) + "\x90"},
	} {
		at(c.name, c.expect, c.description, signed(replaced(good.Set, c.old, c.new), sign("owner")))
	}
	bare := bytes.Clone(good.Set)
	bare[bytes.Index(bare, []byte("visitors"))+len("visitors")+34] = 2
	at("bare", "field:tables.bare", "bare 2", signed(bare, sign("owner")))

	lists := func(change func(b *tableset.Bundle)) *tableset.Bundle {
		b := *good
		b.Tasks, b.Lists = slices.Clone(b.Tasks), slices.Clone(b.Lists)
		change(&b)
		return &b
	}
	at("tasks_swapped", "set", "the tasks of two tables swapped", lists(func(b *tableset.Bundle) {
		b.Tasks[0], b.Tasks[1] = b.Tasks[1], b.Tasks[0]
	}))
	at("task_missing", "set", "a task too few", lists(func(b *tableset.Bundle) { b.Tasks = b.Tasks[:3] }))
	at("lists_swapped", "set", "the key lists of two clocks swapped", lists(func(b *tableset.Bundle) {
		b.Lists[1], b.Lists[2] = b.Lists[2], b.Lists[1]
	}))
	at("clock_missing", "set", "the key lists of a clock missing", lists(func(b *tableset.Bundle) { b.Lists = b.Lists[:2] }))
	at("list_missing", "set", "a clock without the verifier's key list", lists(func(b *tableset.Bundle) {
		b.Lists[0] = b.Lists[0][:2]
	}))

	for _, c := range []struct {
		name, field, description string
		change                   func(drafts []*task.Task)
	}{
		{"noise", "tables.page.noise", "a table whose claim needs honest clients", func(d []*task.Task) {
			d[1].Claim.Assumption = task.MinHonest
		}},
		{"pool", "tables.page.noise", "a table with noise from a pool", func(d []*task.Task) {
			d[1].Noise = &task.Noise{Kind: task.NoisePool, Cells: 20, Pool: 9}
			d[1].Epochs.Cap, d[1].Epochs.Pace = task.Cap{}, task.Cap{}
		}},
		{"total", "tables.page.claim.total", "a table that claims a total of its own", func(d []*task.Task) {
			d[1].Claim.SetTotal("9", "1e-5")
		}},
		{"gamma", "tables.page.params.gamma", "a table whose clients randomize", func(d []*task.Task) {
			d[1].Params = []task.Param{{Key: "gamma", Value: randomizer.NewRational(1, 4)}}
		}},
		{"origins", "tables.page.clients.origins", "a table with other origins", func(d []*task.Task) {
			d[1].Clients.Origins = nil
		}},
		{"relays", "tables.page", "a table with another relay's address", nil},
		{"week", "tables.vitals.epochs", "weeks that begin at noon", func(d []*task.Task) {
			d[2].Epochs.Start, d[2].Epochs.Count = d[2].Epochs.Start+oneDay/2, 7
		}},
		{"outside", "tables.vitals.epochs", "a week that ends after the set", func(d []*task.Task) { d[2].Epochs.Count = 9 }},
		{"bare_cap", "tables.visitors.epochs", "a bare table with a cap", func(d []*task.Task) {
			d[0].Epochs.Cap = task.Cap{Reports: 1, Window: 2}
		}},
		{"stream", "tables.page.stream", "one table with a stream, the others without", func(d []*task.Task) {
			d[1].Stream = &task.StreamPosition{Name: "page", Allow: []string{}}
		}},
		{"allow", "tables.visitors.stream.allow", "a stream that may replace relays", func(d []*task.Task) {
			for _, t := range d {
				t.Stream = &task.StreamPosition{Name: t.Name, Allow: []string{"relays.signKey"}}
			}
		}},
	} {
		change := c.change
		var x *setWorld
		if change == nil {
			x = newSetWorld()
			moved := *x.tables[1].Task
			moved.Relays = slices.Clone(moved.Relays)
			moved.Relays[1].URL = "https://three.example"
			x.Tables[1].Task = taskfile.ID(&moved)
			x.tables[1].Task = &moved
		} else {
			x = newSetWorld(change)
		}
		at("table_"+c.name, "field:"+c.field, c.description, x.unchecked())
	}
}

// renewal returns a bundle of a renewal in which a relay's key was replaced. For each table the old key signed the new
// one under the id that root returns.
func renewal(root func(first *setWorld, table int) task.ID) []byte {
	first := newSetWorld(func(drafts []*task.Task) {
		for _, t := range drafts {
			t.Stream = &task.StreamPosition{Name: t.Name, Allow: []string{}}
		}
	})
	first.sign()
	w := newSetWorld(func(drafts []*task.Task) {
		for i, t := range drafts {
			t.Stream = &task.StreamPosition{Name: t.Name, Position: 1, Before: first.Tables[i].Task, Allow: []string{}}
			later := map[task.Length]int64{oneDay: 56, 7 * oneDay: 8, task.Month: 2}[t.Epochs.Length]
			t.Epochs.Start = uint64(t.Epochs.Length.Add(int64(t.Epochs.Start), later))
			if t.Epochs.Length == oneDay {
				t.Epochs.Count = 70 // All of September is in it.
			}
		}
	})
	w.Position, w.Root, w.Before, w.First = 1, first.open.ID, first.open.ID, first.open.FirstTasks()
	for i, opened := range w.tables {
		t := *opened.Task
		position, next := *t.Stream, signKey(sign("later"))
		position.Rotations = []task.Rotation{taskfile.NewRotation(root(first, i), sign("two"), next)}
		t.Relays, t.Stream = slices.Clone(t.Relays), &position
		t.Relays[1].SignKey = next
		opened.Task, w.Tables[i].Task = &t, taskfile.ID(&t)
	}
	raw, err := w.unchecked().Bytes()
	check(err)
	return raw
}

// unchecked signs the set as tableset.Sign does, without its checks.
func (w *setWorld) unchecked() *tableset.Bundle {
	set := w.Canonical()
	b := &tableset.Bundle{Set: set, Owner: public(sign("owner")), Signature: signing.Sign(sign("owner"), signing.Set, set)}
	for i, t := range w.tables {
		b.Tasks = append(b.Tasks, t.Canonical())
		if i == 1 && t.Epochs.Start == w.tables[0].Epochs.Start {
			continue // The second table has the first one's clock.
		}
		var heads [][]byte
		for _, list := range t.Lists() {
			head, err := list.Head()
			check(err)
			heads = append(heads, head)
		}
		b.Lists = append(b.Lists, heads)
	}
	return b
}

func badSetKeys(w *setWorld, bundle []byte, fault faultFunc) {
	owner := taskfile.FormatKey(signKey(sign("owner")))
	good := tableset.KeysOf(w.lists[0], 8)
	at := func(name, description string, clock int, change func(k *tableset.BlockKeys)) {
		k := *good
		k.Keys = slices.Clone(k.Keys)
		change(&k)
		raw, err := k.Bytes()
		check(err)
		fault("set_keys_"+name, "set_keys", "keylist", description,
			object{"bundle": hexOf(bundle), "owner": owner, "clock": clock, "keys": hexOf(raw)})
	}
	at("place", "a block in the place of another", 0, func(k *tableset.BlockKeys) { k.First = 16 })
	at("between", "a block that begins between two", 0, func(k *tableset.BlockKeys) { k.First = 9 })
	at("clock", "the keys of another clock", 1, func(*tableset.BlockKeys) {})
	at("party", "a party's keys missing", 0, func(k *tableset.BlockKeys) { k.Keys = k.Keys[:2] })
	at("swapped", "two parties' keys swapped", 0, func(k *tableset.BlockKeys) { k.Keys[0], k.Keys[1] = k.Keys[1], k.Keys[0] })
	at("key", "a key changed", 0, func(k *tableset.BlockKeys) {
		k.Keys[1].Keys = bytes.Clone(k.Keys[1].Keys)
		k.Keys[1].Keys[40] ^= 1
	})
	at("path", "a path with a node too few", 0, func(k *tableset.BlockKeys) { k.Keys[2].Path = k.Keys[2].Path[32:] })
}

func badSetSubmissions(w *setWorld, bundle []byte, fault faultFunc) {
	owner := taskfile.FormatKey(signKey(sign("owner")))
	const day = 3
	values := []int{-1, 3, -1, -1}
	good, _ := w.content(day, values)
	at := func(name, expect, description string, body []byte) {
		fault("set_submission_"+name, "set_submission", expect, description, object{"bundle": hexOf(bundle), "owner": owner,
			"epoch": day, "private": w.private(day)[0][0], "body": hexOf(body)})
	}
	with := func(slots ...[]byte) []byte { return w.body(day, kindSet, setContent{good.Tag, slots}) }
	s := good.Slots
	at("few", "size", "a slot too few", with(s[:3]...))
	at("many", "size", "a slot too many", with(append(slices.Clone(s), s[0])...))
	at("lengths", "content", "slots of the right length together, and of wrong lengths", with(s[0], s[2], s[1], s[3]))
	at("kind", "open", "sealed as the envelope of a task", w.body(day, kindEnvelope, good))
	at("day", "open", "sealed for the next day", w.body(day+1, kindSet, good))
	at("trailing_byte", "size", "a byte after the submission", append(w.body(day, kindSet, good), 0))
	short := setContent{good.Tag[:15], slices.Clone(s)}
	short.Slots[3] = append(bytes.Clone(s[3]), 0)
	at("tag", "content", "a tag of 15 bytes", w.body(day, kindSet, short))
	task := *w.open
	task.ID[0] ^= 1
	other := *w
	other.open = &task
	at("set", "open", "sealed for another set", other.body(day, kindSet, good))
}
