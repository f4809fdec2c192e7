package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"
)

// index holds the replay set and client counts of an SQLite store's open epochs in memory. On disk they are in
// encrypted runs ([nameRuns]), from which the store rebuilds the index if it is missing or may differ: after a start,
// and after a commit with an unknown outcome. Only one process uses an SQLite store.
type index struct {
	mu     sync.Mutex // held during a whole Commit
	epochs map[EpochID]*known
}

func newIndex() *index { return &index{epochs: map[EpochID]*known{}} }

// forget frees the memory of an epoch that accepts no more reports.
func (x *index) forget(id EpochID) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.drop(id)
}

// drop frees an epoch's memory. The caller holds x.mu.
func (x *index) drop(id EpochID) {
	x.epochs[id].free()
	delete(x.epochs, id)
}

func (x *index) close() {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for id := range x.epochs {
		x.drop(id)
	}
}

// known is the index of one epoch. It takes up to about 25 bytes per report: 14 for the tag, 11 for the client.
type known struct {
	tags    table            // by tag: 4 bytes of the submission's receipt
	clients table            // by client: number of submissions, at most many
	more    map[Short]uint64 // by client: number of submissions, if at least many
	reports uint64           // number of reports whose tags were added
	counted uint64           // number of reports whose clients were added
	fresh   int              // bytes of the epoch's level 0 runs on disk
}

// offHeap is the size in bytes from which a shard is allocated outside of Go's heap.
var offHeap = 64 << 10

const (
	tagValue    = 4
	clientValue = 1
	many        = math.MaxUint8
)

func newKnown() *known {
	return &known{tags: table{value: tagValue}, clients: table{value: clientValue}, more: map[Short]uint64{}}
}

func (k *known) free() {
	if k != nil {
		k.tags.free()
		k.clients.free()
	}
}

// addTag adds the tag and receipt of one report and reports whether the tag is new.
func (k *known) addTag(tag Short, r receipt) (fresh bool) {
	k.reports++
	return k.tags.set(tag, uint32(r))
}

func (k *known) addClient(client Short) {
	n := k.count(client) + 1
	k.clients.set(client, uint32(min(n, many)))
	if n >= many {
		k.more[client] = n
	}
	k.counted++
}

// has reports whether the index has the tags and clients of exactly this many reports.
func (k *known) has(reports uint64) bool { return k.reports == reports && k.counted == reports }

// count returns how many submissions of a client are stored.
func (k *known) count(client Short) uint64 {
	if n := k.clients.get(client); n < many {
		return uint64(n)
	}
	return k.more[client]
}

// memory returns what the index has about a group's tags and clients.
func (k *known) memory(group []*Submission) *memory {
	m := newMemory()
	for _, sub := range group {
		if r := k.tags.get(sub.Tag); r != 0 {
			m.receipts[sub.Tag] = receipt(r)
		}
		if n := k.count(sub.Client); n > 0 {
			m.counts[sub.Client] = n
		}
	}
	return m
}

const shardBits = 6

// table is a hash table from shorts to positive numbers, without pointers: open addressing with linear probing, in
// shards that grow one at a time. Keys are keyed hashes, so an outsider cannot choose colliding ones. Between 4/5 and
// 9/10 of the entries are used.
type table struct {
	value  int // size of each number in bytes: clientValue or tagValue
	shards [1 << shardBits]shard
}

type shard struct {
	entries []byte // each entry is a key and a number; 0 for an empty entry
	used    int
}

// find returns the entry of a key, or else the empty entry where the key belongs. The shard must not be full.
func (t *table) find(s *shard, key Short) (entry []byte, found bool) {
	width := len(key) + t.value
	n := len(s.entries) / width
	at, _ := bits.Mul64(spread(key)<<shardBits, uint64(n))
	for i := int(at); ; i++ {
		if i == n {
			i = 0
		}
		entry = s.entries[i*width : (i+1)*width]
		switch {
		case t.number(entry) == 0:
			return entry, false
		case Short(entry[:len(key)]) == key:
			return entry, true
		}
	}
}

func (t *table) shard(key Short) *shard { return &t.shards[spread(key)>>(64-shardBits)] }

// spread returns mixed bits of a key. Their upper bits determine the key's position, so that a growing shard is read
// and written sequentially. The factor, 2^64 over the golden ratio, spreads consecutive keys.
func spread(key Short) uint64 { return binary.BigEndian.Uint64(key[:]) * 0x9e3779b97f4a7c15 }

// get returns a key's number, 0 if there is none.
func (t *table) get(key Short) uint32 {
	s := t.shard(key)
	if len(s.entries) == 0 {
		return 0
	}
	entry, _ := t.find(s, key)
	return t.number(entry)
}

// set gives a key a positive number and reports whether the key is new.
func (t *table) set(key Short, number uint32) (fresh bool) {
	s := t.shard(key)
	if width := len(key) + t.value; (s.used+1)*10*width > len(s.entries)*9 {
		t.grow(s, width)
	}
	entry, found := t.find(s, key)
	if !found {
		s.used++
	}
	copy(entry, key[:])
	for i := range t.value {
		entry[len(key)+i] = byte(number >> (8 * i))
	}
	return !found
}

// grow enlarges a shard by an eighth. width is the size of an entry in bytes.
func (t *table) grow(s *shard, width int) {
	n := len(s.entries) / width
	grown := shard{newEntries(max(8, n+n/8+1) * width), s.used}
	for at := 0; at < len(s.entries); at += width {
		entry := s.entries[at : at+width]
		if t.number(entry) != 0 {
			to, _ := t.find(&grown, Short(entry[:width-t.value]))
			copy(to, entry)
		}
	}
	freeEntries(s.entries)
	*s = grown
}

func (t *table) free() {
	for i := range t.shards {
		freeEntries(t.shards[i].entries)
		t.shards[i] = shard{}
	}
}

func (t *table) bytes() (n int) {
	for i := range t.shards {
		n += len(t.shards[i].entries)
	}
	return n
}

func (t *table) number(entry []byte) uint32 {
	if t.value == clientValue {
		return uint32(entry[len(Short{})])
	}
	return binary.LittleEndian.Uint32(entry[len(Short{}):])
}

// recall loads the index of an open epoch if it is missing. After a start this takes seconds, so recall runs before the
// transaction, while others may write. They add no tags or clients: only Commit does, and the caller holds x.mu.
func (x *index) recall(ctx context.Context, d *database, id EpochID) error {
	if x.epochs[id] != nil || d.rollbackLatch.StateRollback() != nil {
		return nil
	}
	var epoch int64
	const find = `SELECT id FROM epochs WHERE task = $1 AND epoch = $2 AND state = $3`
	err := d.read.QueryRowContext(ctx, find, id.Task[:], id.Epoch, int(StateOpen)).Scan(&epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	k, err := loadNames(ctx, d.read, d.vault, epoch, id)
	if err == nil {
		x.epochs[id] = k
	}
	return err
}

// remember returns what the index has about a group's tags and clients. If the index does not have exactly reports
// reports, as many as the epoch has accepted, remember first reads it from disk again.
func (x *index) remember(t *transaction, e epochRow, id EpochID, reports uint64, group []*Submission) (*memory, error) {
	if k := x.epochs[id]; k == nil || !k.has(reports) {
		k, err := loadNames(t.ctx, t.tx, t.vault, e.id, id)
		if err != nil {
			return nil, fmt.Errorf("couldn't read tags and clients: %w", err)
		}
		if !k.has(reports) {
			defer k.free()
			if k.reports == 0 && k.counted == 0 {
				return nil, fmt.Errorf("epoch %d has %d reports without tags or clients: they came through a set, which must "+
					"be listed until its last day is over, or the store is damaged", id.Epoch, reports)
			}
			return nil, fmt.Errorf("the store is damaged: epoch %[2]d has %[1]d reports, but tags of %[3]d and "+
				"clients of %[4]d", reports, id.Epoch, k.reports, k.counted)
		}
		x.drop(id)
		x.epochs[id] = k
	}
	return x.epochs[id].memory(group), nil
}

// learn stores the tags, receipts and clients of accepted submissions in a run, and after the commit in the index.
func (x *index) learn(t *transaction, e epochRow, id EpochID, taken []*Submission) error {
	k := x.epochs[id]
	c, err := t.vault.nameCipher(id)
	if err != nil {
		return err
	}
	fresh, err := t.runsTx().storeRows(runTarget{e.id, nameRuns, c, newNameRun}, k.fresh,
		len(taken), nameSize, func(from, to int) []byte { return namesOf(taken[from:to]).pack() })
	if err != nil {
		return err
	}
	t.done = append(t.done, func() {
		k.fresh = fresh
		for _, sub := range taken {
			k.addTag(sub.Tag, sub.Receipt.kept())
			k.addClient(sub.Client)
		}
	})
	return nil
}
