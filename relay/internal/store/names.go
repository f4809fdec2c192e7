package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"slices"
)

// nameRuns is the batch number of runs that hold an epoch's tags and clients. No batch has so high a number.
const nameRuns = 1 << 32

// receipt is the part of a receipt that an SQLite store keeps. It is never 0. With probability 2⁻³², the store takes
// another client's copy of a report for a retry; it drops the copy in both cases.
type receipt uint32

const receiptSize = 4

// kept returns the part of a receipt that the store compares.
func (s Short) kept() receipt { return max(receipt(binary.BigEndian.Uint32(s[receiptSize:])), 1) }

// nameRun is a run of tags and clients. Each of both is sorted by hash, so that nothing links a tag to a client.
// Packed, it is the number of tags, the tags with receipts, and the clients, each once per submission. It has no
// pointers, because a merge handles hundreds of thousands of tags.
type nameRun struct {
	tags    []tagName
	clients []Short
}

// newNameRun reserves memory for runs of bytes bytes in all. Growing would take as much again.
func newNameRun(bytes int) runMerger {
	n := bytes / nameSize
	return &nameRun{make([]tagName, 0, n), make([]Short, 0, n)}
}

type tagName [len(Short{}) + receiptSize]byte

func newTagName(tag Short, r receipt) (n tagName) {
	copy(n[:], tag[:])
	binary.BigEndian.PutUint32(n[len(tag):], uint32(r))
	return n
}

const nameSize = len(tagName{}) + len(Short{}) // bytes per submission

func namesOf(subs []*Submission) *nameRun {
	n := newNameRun(len(subs) * nameSize).(*nameRun)
	for _, sub := range subs {
		n.tags = append(n.tags, newTagName(sub.Tag, sub.Receipt.kept()))
		n.clients = append(n.clients, sub.Client)
	}
	return n
}

func (n *nameRun) pack() []byte {
	slices.SortFunc(n.tags, func(a, b tagName) int { return bytes.Compare(a[:], b[:]) })
	slices.SortFunc(n.clients, func(a, b Short) int { return bytes.Compare(a[:], b[:]) })
	out := make([]byte, 0, runHead+len(n.tags)*len(tagName{})+len(n.clients)*len(Short{}))
	out = binary.BigEndian.AppendUint32(out, uint32(len(n.tags)))
	for i := range n.tags {
		out = append(out, n.tags[i][:]...)
	}
	for i := range n.clients {
		out = append(out, n.clients[i][:]...)
	}
	return out
}

func (n *nameRun) add(run []byte) error {
	if len(run) < runHead {
		return errRun
	}
	tags, rest := uint64(binary.BigEndian.Uint32(run))*uint64(len(tagName{})), run[runHead:]
	if tags > uint64(len(rest)) || (uint64(len(rest))-tags)%uint64(len(Short{})) != 0 {
		return errRun
	}
	for tag := range slices.Chunk(rest[:tags], len(tagName{})) {
		n.tags = append(n.tags, tagName(tag))
	}
	for client := range slices.Chunk(rest[tags:], len(Short{})) {
		n.clients = append(n.clients, Short(client))
	}
	return nil
}

// loadNames reads an epoch's tags and clients from the store, run by run.
func loadNames(ctx context.Context, from querier, v *Vault, epoch int64, id EpochID) (*known, error) {
	c, err := v.nameCipher(id)
	if err != nil {
		return nil, err
	}
	k := newKnown()
	const query = `SELECT level, bytes FROM runs WHERE epoch = $1 AND seq = $2`
	_, err = collect(ctx, from, query, func(rows *sql.Rows) (_ struct{}, err error) {
		var level int
		var sealed []byte
		if err = rows.Scan(&level, &sealed); err != nil {
			return struct{}{}, err
		}
		if level == 0 {
			k.fresh += len(sealed) + page
		}
		plain, err := decryptRun(c, sealed)
		if err == nil {
			err = k.addRun(plain)
		}
		return struct{}{}, err
	}, epoch, int64(nameRuns))
	if err != nil {
		k.free()
		return nil, err
	}
	return k, nil
}

// addRun adds the tags and clients of a packed run. A tag that is known already is an error: if one run were stored
// twice and another lost, the number of reports would still be right.
func (k *known) addRun(run []byte) error {
	var n nameRun
	if err := n.add(run); err != nil {
		return err
	}
	for _, tag := range n.tags {
		if !k.addTag(Short(tag[:]), receipt(binary.BigEndian.Uint32(tag[len(Short{}):]))) {
			return errRun
		}
	}
	for _, client := range n.clients {
		k.addClient(client)
	}
	return nil
}
