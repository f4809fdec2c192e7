package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"slices"
)

// nameRuns stands for a batch's number where runs are not of a batch, but of an epoch's names: it is above all of them.
const nameRuns = 1 << 32

// receipt is the part of a receipt that an SQLite store keeps, and not 0. Another client's report is taken for a retry
// with probability 2⁻³²: it is not stored either way.
type receipt uint32

const receiptSize = 4

// kept returns the part of a receipt that is compared.
func (s Short) kept() receipt { return max(receipt(binary.BigEndian.Uint32(s[receiptSize:])), 1) }

// nameRun is a run of names, each kind in the order of its hashes: nothing ties a tag to a client. Packed it is the
// number of tags, tags with receipts, and clients, one as often as it has submissions.
type nameRun struct {
	tags    [][]byte // with receipts
	clients [][]byte
}

const (
	tagSizeIn = len(Short{}) + receiptSize
	nameSize  = tagSizeIn + len(Short{}) // of a submission
)

// namesOf returns the run of accepted submissions.
func namesOf(subs []*Submission) *nameRun {
	n := &nameRun{}
	for _, sub := range subs {
		n.tags = append(n.tags, binary.BigEndian.AppendUint32(slices.Clone(sub.Tag[:]), uint32(sub.Receipt.kept())))
		n.clients = append(n.clients, sub.Client[:])
	}
	return n
}

// pack sorts a run and returns its bytes.
func (n *nameRun) pack() []byte {
	slices.SortFunc(n.tags, bytes.Compare)
	slices.SortFunc(n.clients, bytes.Compare)
	out := make([]byte, 0, runHead+len(n.tags)*tagSizeIn+len(n.clients)*len(Short{}))
	out = binary.BigEndian.AppendUint32(out, uint32(len(n.tags)))
	for _, list := range [][][]byte{n.tags, n.clients} {
		for _, name := range list {
			out = append(out, name...)
		}
	}
	return out
}

// addPacked adds the names of a packed run.
func (n *nameRun) addPacked(run []byte) error {
	if len(run) < runHead {
		return errRun
	}
	tags, rest := uint64(binary.BigEndian.Uint32(run))*uint64(tagSizeIn), run[runHead:]
	if tags > uint64(len(rest)) || (uint64(len(rest))-tags)%uint64(len(Short{})) != 0 {
		return errRun
	}
	n.tags = slices.AppendSeq(n.tags, slices.Chunk(rest[:tags], tagSizeIn))
	n.clients = slices.AppendSeq(n.clients, slices.Chunk(rest[tags:], len(Short{})))
	return nil
}

// joinNames makes one run of names of several.
func joinNames(runs [][]byte) ([]byte, error) {
	all := &nameRun{}
	for _, run := range runs {
		if err := all.addPacked(run); err != nil {
			return nil, err
		}
	}
	return all.pack(), nil
}

// loadNames reads the names of an epoch, run by run.
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

// addRun takes note of the names of a packed run. A tag that is known already is damage: a run that stands there twice,
// in place of another, would be counted as that.
func (k *known) addRun(run []byte) error {
	var n nameRun
	if err := n.addPacked(run); err != nil {
		return err
	}
	for _, tag := range n.tags {
		if !k.addTag(Short(tag[:len(Short{})]), receipt(binary.BigEndian.Uint32(tag[len(Short{}):]))) {
			return errRun
		}
	}
	for _, client := range n.clients {
		k.addClient(Short(client))
	}
	return nil
}
