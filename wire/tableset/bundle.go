package tableset

import (
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/doona-dp/doona/internal/invalid"
	"github.com/doona-dp/doona/wire/codec"
	"github.com/doona-dp/doona/wire/endpoint"
	"github.com/doona-dp/doona/wire/onion"
	"github.com/doona-dp/doona/wire/signing"
	"github.com/doona-dp/doona/wire/task"
	"github.com/doona-dp/doona/wire/taskfile"
)

// Bundle is a signed set with the tasks of its tables and, for each of its clocks, the signed key lists of all
// parties without their keys. Tables whose epochs are the same have one clock, and the same key lists. Its msgpack form
// is [set, owner, signature, [task …], [[list …] …]]. [BlockKeys] has the keys.
type Bundle struct {
	Set       []byte   // The set's canonical form.
	Owner     []byte   // The owner's Ed25519 public key, 32 bytes.
	Signature []byte   // The owner's signature of Set.
	Tasks     [][]byte // The canonical form of each table's task.
	Lists     [][][]byte
}

// BlockKeys are the keys of one block of epochs of a clock. Its msgpack form is [first, [[keys, path] …]].
type BlockKeys struct {
	First uint64
	Keys  []taskfile.Keys
}

// Bytes returns the keys in msgpack.
func (k *BlockKeys) Bytes() ([]byte, error) { return codec.Marshal(k) }

// Handed is a set that an owner hands to a relay. Its msgpack form is [set, [table …]].
type Handed struct {
	Set    []byte   // The set's bundle.
	Tables [][]byte // The bundles of the tables' tasks, with all keys.
}

// Bytes returns the handed set in msgpack.
func (h *Handed) Bytes() ([]byte, error) { return codec.Marshal(h) }

// ParseHanded parses a handed set from msgpack without checking its bundles.
func ParseHanded(in []byte) (*Handed, error) {
	h := &Handed{}
	if err := codec.Unmarshal(in, h); err != nil {
		return nil, fmt.Errorf("couldn't read the set: %w", err)
	}
	return h, nil
}

// URL returns the set's URL at its first relay. With the id of the set at position 0, a relay answers with the latest
// renewal that has begun.
func (o *Open) URL() string { return o.url(endpoint.SetPath, nil) }

// KeysURL returns the URL of the keys of a clock's block of epochs.
func (o *Open) KeysURL(clock int, block uint64) string {
	return o.url(endpoint.SetKeysPath, []string{"{clock}", strconv.Itoa(clock), "{block}", strconv.FormatUint(block, 10)})
}

// ReportsURL returns the URL to which clients post the submissions of a day.
func (o *Open) ReportsURL(day uint64) string {
	return o.url(endpoint.SetReportsPath, []string{"{epoch}", strconv.FormatUint(day, 10)})
}

func (o *Open) url(path string, names []string) string {
	return o.Tasks[0].Relays[0].URL + strings.NewReplacer(append(names, "{set}", o.ID.String())...).Replace(path)
}

// OwnersURL returns the URL at which a relay accepts sets of an owner that it has approved.
func OwnersURL(relay task.Party, owner task.SignKey) string {
	return relay.URL + strings.Replace(endpoint.OwnersSetsPath, "{owner}", hex.EncodeToString(owner[:]), 1)
}

// Open is a set from a bundle whose signature and tasks have been checked. It says nothing of the total: whether
// that follows from the tables' laws, package wire cannot know.
type Open struct {
	*Set
	ID    task.ID
	Owner task.SignKey
	Tasks []*task.Task // By table.
	Clock []int        // By table: its clock.
	Lists [][]*onion.SignedKeyList
}

// Sign signs a set. tables are the opened tasks of its tables.
func Sign(s *Set, owner ed25519.PrivateKey, tables []*taskfile.Open) (*Bundle, error) {
	set := s.Canonical()
	b := &Bundle{Set: set, Owner: owner.Public().(ed25519.PublicKey), Signature: signing.Sign(owner, signing.Set, set),
		Tasks: [][]byte{}, Lists: [][][]byte{}}
	clocks := clocksOf(tasksOf(tables))
	for i, t := range tables {
		b.Tasks = append(b.Tasks, t.Canonical())
		if clocks[i] < len(b.Lists) {
			continue
		}
		var heads [][]byte
		for _, list := range t.Lists() {
			head, err := list.Head()
			if err != nil {
				return nil, err
			}
			heads = append(heads, head)
		}
		b.Lists = append(b.Lists, heads)
	}
	_, err := b.Open(nil)
	return b, err
}

func tasksOf(tables []*taskfile.Open) (out []*task.Task) {
	for _, t := range tables {
		out = append(out, t.Task)
	}
	return out
}

// clocksOf returns the clock of each table: those with the same epochs share one, numbered by its first table.
func clocksOf(tables []*task.Task) (clocks []int) {
	type clock struct {
		start, count uint64
		length       task.Length
	}
	var seen []clock
	for _, t := range tables {
		this := clock{t.Epochs.Start, t.Epochs.Count, t.Epochs.Length}
		at := slices.Index(seen, this)
		if at < 0 {
			at, seen = len(seen), append(seen, this)
		}
		clocks = append(clocks, at)
	}
	return clocks
}

// Bytes returns the bundle in msgpack.
func (b *Bundle) Bytes() ([]byte, error) { return codec.Marshal(b) }

// Pack compresses a set's bundle, in the form that clients fetch: gzip. Tables' tasks have many bytes in common.
func Pack(bundle []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(bundle)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic("tableset: " + err.Error()) // the level is valid, and memory takes all bytes
	}
	return out.Bytes()
}

// unpack reverses Pack. It returns other bytes as they are: something on the way may have unpacked them.
func unpack(in []byte) ([]byte, error) {
	if !bytes.HasPrefix(in, []byte{0x1f, 0x8b}) {
		return in, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(in))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, MaxBundle+1))
}

// ParseBundle parses a set's bundle from msgpack, which [Pack] may have compressed, without checking it; see
// [Bundle.Open].
func ParseBundle(in []byte) (*Bundle, error) {
	in, err := unpack(in)
	if err != nil {
		return nil, fmt.Errorf("couldn't read the set: %w", err)
	}
	if len(in) > MaxBundle {
		return nil, fmt.Errorf("couldn't read the set: a bundle of %d bytes, at most %d", len(in), MaxBundle)
	}
	b := &Bundle{}
	if err := codec.Unmarshal(in, b); err != nil {
		return nil, fmt.Errorf("couldn't read the set: %w", err)
	}
	return b, nil
}

// Open checks a bundle: the owner's signature, that the tasks are those that the set names, that they may be tables of
// one set, and that the key lists are those that the tasks name. If owner is not nil, it must be the set's owner.
func (b *Bundle) Open(owner *task.SignKey) (*Open, error) {
	if len(b.Owner) != len(task.SignKey{}) {
		return nil, fmt.Errorf("couldn't accept the set: an owner's key of %d bytes, want 32", len(b.Owner))
	}
	if owner != nil && task.SignKey(b.Owner) != *owner {
		return nil, fmt.Errorf("couldn't accept the set: its owner is %s, want %s", taskfile.FormatKey(task.SignKey(b.Owner)),
			taskfile.FormatKey(*owner))
	}
	if !signing.Verify(b.Owner, signing.Set, b.Set, b.Signature) {
		return nil, fmt.Errorf("couldn't accept the set: %w", signing.ErrSigner)
	}
	s, err := parseSet(b.Set)
	if err != nil {
		return nil, err
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	open := &Open{Set: s, ID: sha256.Sum256(b.Set), Owner: task.SignKey(b.Owner)}
	if len(b.Tasks) != len(s.Tables) {
		return nil, fmt.Errorf("couldn't accept the set: %d tasks of %d tables", len(b.Tasks), len(s.Tables))
	}
	for i, raw := range b.Tasks {
		if sha256.Sum256(raw) != s.Tables[i].Task {
			return nil, fmt.Errorf("couldn't accept the set: the task of table %s is not the one that it names",
				s.Tables[i].Name)
		}
		t, err := task.Parse(raw)
		if err == nil {
			err = taskfile.CheckSize(t)
		}
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", s.Tables[i].Name, err)
		}
		open.Tasks = append(open.Tasks, t)
	}
	if err := open.checkTables(); err != nil {
		return nil, err
	}
	open.Clock = clocksOf(open.Tasks)
	return open, b.openLists(open)
}

// openLists checks the hashes of the key lists. [Open.Keys] checks signatures.
func (b *Bundle) openLists(open *Open) error {
	clocks := slices.Max(open.Clock) + 1
	if len(b.Lists) != clocks {
		return fmt.Errorf("couldn't accept the set: key lists of %d clocks, want %d", len(b.Lists), clocks)
	}
	open.Lists = make([][]*onion.SignedKeyList, clocks)
	for i, t := range open.Tasks {
		clock := open.Clock[i]
		lists := listsOf(t)
		if open.Lists[clock] == nil {
			if len(b.Lists[clock]) != lists {
				return fmt.Errorf("couldn't accept the set: %d key lists of clock %d, want %d", len(b.Lists[clock]), clock,
					lists)
			}
			for hop, raw := range b.Lists[clock] {
				list := &onion.SignedKeyList{}
				if err := list.ParseHead(raw); err != nil {
					return fmt.Errorf("couldn't accept the keys of clock %d, hop %d: %w", clock, hop, err)
				}
				open.Lists[clock] = append(open.Lists[clock], list)
			}
		}
		for hop := range t.VerifierHop() + 1 {
			if open.Lists[clock][hop].Hash() != t.Party(hop).KeyList {
				return invalid.Field("tables."+open.Tables[i].Name, "another list of keys of hop "+strconv.Itoa(hop),
					"the list that all tables with these epochs have")
			}
		}
	}
	if t := open.Tasks[0]; t.Clients.Kind == task.ClientToken &&
		open.Lists[0][t.VerifierHop()+1].Hash() != t.Clients.Issuer.KeyList {
		return errors.New("couldn't accept the set: the issuer's key list is not the one that the first table names")
	}
	return nil
}

// listsOf returns how many key lists a task names.
func listsOf(t *task.Task) int {
	if t.Clients.Kind == task.ClientToken {
		return t.VerifierHop() + 2
	}
	return t.VerifierHop() + 1
}

// checkTables checks that the tasks may be tables of one set.
func (o *Open) checkTables() error {
	first := o.Tasks[0]
	for i, t := range o.Tasks {
		field := "tables." + o.Tables[i].Name
		if err := checkTable(field, t); err != nil {
			return err
		}
		if err := checkParties(field, first, t); err != nil {
			return err
		}
		if i > 0 && t.Clients.Kind != task.ClientAddress {
			return invalid.Field(field+".clients.kind", string(t.Clients.Kind), "address; only the first table may have tokens")
		}
		if err := o.checkEpochs(field, t); err != nil {
			return err
		}
		if (t.Stream == nil) != (first.Stream == nil) {
			return invalid.Field(field+".stream", "one, or none", "one for all tables or for none")
		}
		if t.Stream == nil && o.Position > 0 || t.Stream != nil && t.Stream.Position != o.Position {
			return invalid.Field(field+".stream.position", "another", strconv.FormatUint(o.Position, 10)+", as the set has")
		}
		if err := checkAllow(field, t); err != nil {
			return err
		}
		if err := o.checkRotations(field, i); err != nil {
			return err
		}
		if o.Tables[i].Bare && (!t.Epochs.Cap.IsZero() || !t.Epochs.Events.IsZero()) {
			return invalid.Field(field+".epochs", "a cap or events", "none for a table without values")
		}
	}
	return nil
}

// checkRotations checks that each replaced key of a table's parties signed its successor. The first task has none.
func (o *Open) checkRotations(field string, table int) error {
	if o.Position == 0 {
		return nil
	}
	for _, rotation := range o.Tasks[table].Stream.Rotations {
		if err := taskfile.CheckRotation(o.First[table], rotation); err != nil {
			return invalid.Field(field+".stream.rotations", "a replaced key that did not sign its successor", "its signature")
		}
	}
	return nil
}

// checkAllow checks that the stream of a table's task lets no later task change what the set's total depends on.
func checkAllow(field string, t *task.Task) error {
	if t.Stream == nil {
		return nil
	}
	for _, name := range t.Stream.Allow {
		if !slices.Contains(mayChange(t), name) {
			return invalid.Field(field+".stream.allow", invalid.Quote(name), strings.Join(mayChange(t), ", "))
		}
	}
	return nil
}

// checkTable checks that a draft of a task's report may be replaced (docs/proofs/drafts.md), and that no claim needs
// honest clients.
func checkTable(field string, t *task.Task) error {
	if err := t.CheckSupported(); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	_, local := t.Param("gamma")
	switch {
	case t.Noise == nil || t.Noise.Kind != task.NoiseCells || t.Claim.Assumption != task.NoneHonest:
		return invalid.Field(field+".noise", "another", "noise by relays of kind cells, which needs no honest client")
	case !t.Claim.Total.IsZero():
		return invalid.Field(field+".claim.total", "given", "none: a set has one total, for all tables")
	case local:
		return invalid.Field(field+".params.gamma", "given", "none: clients of a table draw nothing that hides a value")
	case t.Slots.Lanes != 1 || t.Slots.PerLane != 1 || t.Slots.Padding != task.PaddingFull:
		return invalid.Field(field+".slots", fmt.Sprintf("%d lanes of %d", t.Slots.Lanes, t.Slots.PerLane),
			"one lane of one slot, under padding full")
	}
	return nil
}

// checkParties checks that a table has the parties of the first table, its KEM and its origins.
func checkParties(field string, first, t *task.Task) error {
	if t.KEM != first.KEM {
		return invalid.Field(field+".kem", string(t.KEM), string(first.KEM)+", as the first table has")
	}
	if len(t.Relays) != len(first.Relays) {
		return invalid.Field(field+".relays", strconv.Itoa(len(t.Relays)), "those of the first table")
	}
	for hop := range t.VerifierHop() + 1 {
		if a, b := t.Party(hop), first.Party(hop); a.URL != b.URL || a.SignKey != b.SignKey {
			return invalid.Field(field, "another party at hop "+strconv.Itoa(hop), "the one of the first table")
		}
	}
	if !slices.Equal(t.Clients.Origins, first.Clients.Origins) {
		return invalid.Field(field+".clients.origins", "others", "those of the first table")
	}
	return nil
}

// checkEpochs checks that a table's epochs begin and end with days of the set, that is with epochs of the first table.
func (o *Open) checkEpochs(field string, t *task.Task) error {
	days := o.Tasks[0].Epochs
	if t.Epochs.Start < days.Start || t.Epochs.Over() > days.Over() {
		return invalid.Field(field+".epochs", "outside of the set", "epochs that begin and end with the first table's or within")
	}
	if t.Epochs.Length == days.Length && t.Epochs.Start == days.Start {
		return nil
	}
	for epoch := range t.Epochs.Count + 1 {
		at := t.Epochs.Begin(epoch)
		if day, ok := days.At(at); at != days.Over() && (!ok || days.Begin(day) != at) {
			return invalid.Field(field+".epochs", "an epoch that begins at "+strconv.FormatUint(at, 10),
				"epochs that begin when one of the first table does")
		}
	}
	return nil
}

// At returns the epoch of a table on a day, and whether the table has an epoch then. Before a table's first epoch it
// returns the first, and after its last the last: a submission then has a cover for that epoch, which the first relay
// drops.
func (o *Open) At(table int, day uint64) (epoch uint64, open bool) {
	t := o.Tasks[table]
	at := o.Tasks[0].Epochs.Begin(day)
	epoch, open = t.Epochs.At(at)
	if !open && at >= t.Epochs.Start {
		epoch = t.Epochs.Count - 1
	}
	return epoch, open
}

// Layouts returns the sizes of the tables' slots.
func (o *Open) Layouts() ([]onion.Layout, error) {
	layouts := make([]onion.Layout, len(o.Tasks))
	for i, t := range o.Tasks {
		var err error
		if layouts[i], err = onion.NewLayout(t); err != nil {
			return nil, err
		}
	}
	return layouts, nil
}

// Copies returns, for each table, how many copies of the privacy law of one epoch cover a browser's reports to it in
// any stretch of the total's days: 0 for a bare table. A renewal may follow, so the number of the task's epochs is no
// limit.
func (o *Open) Copies() []uint64 {
	copies := make([]uint64, len(o.Tasks))
	for i, t := range o.Tasks {
		if !o.Tables[i].Bare {
			copies[i] = t.MostCopies(t.Epochs.Length.MostIn(float64(o.Total.Days)*86400, math.MaxUint32))
		}
	}
	return copies
}

// Keys checks the keys of one block of epochs of a clock. It returns the clock's key lists with these keys, in the
// order of [Open.Lists]: of the relays, of the verifier, and for the first clock of a set with tokens of the issuer.
func (o *Open) Keys(clock int, k *BlockKeys) ([]*onion.SignedKeyList, error) {
	t := o.Tasks[slices.Index(o.Clock, clock)]
	heads := o.Lists[clock]
	if len(k.Keys) != len(heads) {
		return nil, fmt.Errorf("couldn't accept keys: of %d parties, want %d", len(k.Keys), len(heads))
	}
	lists := make([]*onion.SignedKeyList, len(heads))
	for hop, head := range heads {
		list := &onion.SignedKeyList{List: head.List, Signature: head.Signature, First: k.First, Keys: k.Keys[hop].Keys,
			Path: k.Keys[hop].Path}
		var err error
		if hop > t.VerifierHop() {
			_, err = onion.IssuerKeys(t, list)
		} else {
			_, err = onion.PartyKeys(t, hop, list)
		}
		if err != nil {
			return nil, err
		}
		lists[hop] = list
	}
	return lists, nil
}

// ParseKeys parses the keys of a block from msgpack without checking them; see [Open.Keys].
func ParseKeys(in []byte) (*BlockKeys, error) {
	k := &BlockKeys{}
	if err := codec.Unmarshal(in, k); err != nil {
		return nil, fmt.Errorf("couldn't read a set's keys: %w", err)
	}
	return k, nil
}

// KeysOf returns the keys of the block that contains an epoch. lists are a clock's key lists with all keys.
func KeysOf(lists []*onion.SignedKeyList, epoch uint64) *BlockKeys {
	k := &BlockKeys{Keys: make([]taskfile.Keys, len(lists))}
	for i, list := range lists {
		part := list.Block(epoch)
		k.First, k.Keys[i] = part.First, taskfile.Keys{Keys: part.Keys, Path: part.Path}
	}
	return k
}

// CheckRenewal returns an error unless next may follow before, where o is the set at position 0. It must have the next
// position, the same owner, and the same tables with the same laws, limits and parties. o and before may be the same.
func (o *Open) CheckRenewal(before, next *Open) error {
	switch {
	case next.Owner != o.Owner:
		return invalid.Field("owner", taskfile.FormatKey(next.Owner), taskfile.FormatKey(o.Owner)+", as before")
	case next.Position != before.Position+1 || next.Root != o.ID || next.Before != before.ID:
		return invalid.Field("renewal", fmt.Sprintf("position %d after %s", next.Position, next.Before),
			fmt.Sprintf("position %d after %s, the set before", before.Position+1, before.ID))
	case !slices.Equal(next.First, o.FirstTasks()):
		return invalid.Field("renewal", "other first tasks", "the tasks of the set at position 0")
	case next.Name != o.Name || next.Trial != o.Trial || next.Total != o.Total ||
		!slices.Equal(next.Through, o.Through):
		return invalid.Field("set", "another name, trust, total or through", "those of the set at position 0")
	case len(next.Tables) != len(o.Tables):
		return invalid.Field("tables", strconv.Itoa(len(next.Tables)), strconv.Itoa(len(o.Tables))+", as before")
	}
	for i, t := range next.Tables {
		if was := o.Tables[i]; t.Name != was.Name || t.Bare != was.Bare {
			return invalid.Field("tables.name", invalid.Quote(t.Name), "the tables of the set before, in the same order")
		}
		err := o.Tasks[i].CheckSuccessor(before.Tasks[i], before.Tables[i].Task, next.Tasks[i], mayChange(o.Tasks[i]),
			nil)
		if err != nil {
			return fmt.Errorf("tables.%s: %w", t.Name, err)
		}
	}
	return nil
}

// mayChange lists what a renewal may change in its tables' tasks: nothing that a law, a limit or a cell depends on. The
// relays stay.
func mayChange(t *task.Task) []string {
	return slices.DeleteFunc(t.Stream.Lossless(), func(part string) bool { return part == "relays.signKey" })
}
