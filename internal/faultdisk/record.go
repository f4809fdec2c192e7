package faultdisk

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// sector is what a disk writes whole: of a longer write, any sectors may be there after a cut.
const sector = 512

// recording is every change of a folder, in order.
type recording struct {
	folder string
	inodes map[string]int // of names, now
	last   int
	log    []change
	start  image
}

// kind is what a change does.
type kind int

const (
	kindWrite kind = iota
	kindTruncate
	kindSync
	kindLink   // a name gets an inode, or another one
	kindUnlink // a name is gone
	kindMove   // a name gets the inode of another, which is gone
	kindSyncFolder
	kindMark
)

// change is one step of the log.
type change struct {
	kind    kind
	inode   int
	at      int64 // offset, or size
	data    []byte
	name    string
	to      string
	comment string
}

// image is what is in a folder: names of inodes, and their bytes.
type image struct {
	names map[string]int
	bytes map[int][]byte
}

// Record has the disk remember from now on, when all that is there counts as synced.
func (d *Disk) Record() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &recording{folder: d.folder, inodes: map[string]int{}, start: image{map[string]int{}, map[int][]byte{}}}
	err := filepath.WalkDir(d.folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		r.last++
		r.inodes[path], r.start.names[path], r.start.bytes[r.last] = r.last, r.last, content
		return err
	})
	d.record = r
	return err
}

// Mark notes that something was said to somebody here: after a cut behind it, it must hold.
func (d *Disk) Mark(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.record != nil {
		d.record.log = append(d.record.log, change{kind: kindMark, comment: what})
	}
}

// Steps is the length of the log.
func (d *Disk) Steps() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.record.log)
}

func (r *recording) add(c change) { r.log = append(r.log, c) }

func (r *recording) create(path string) {
	r.last++
	r.inodes[path] = r.last
	r.add(change{kind: kindLink, inode: r.last, name: path})
}

// inode returns that of a name; what others made is first seen here.
func (r *recording) inode(path string) int {
	if _, ok := r.inodes[path]; !ok {
		r.create(path)
	}
	return r.inodes[path]
}

func (r *recording) write(path string, offset int64, data []byte) {
	r.add(change{kind: kindWrite, inode: r.inode(path), at: offset, data: slices.Clone(data)})
}

func (r *recording) truncate(path string, size int64) {
	r.add(change{kind: kindTruncate, inode: r.inode(path), at: size})
}

func (r *recording) sync(path string) { r.add(change{kind: kindSync, inode: r.inode(path)}) }

func (r *recording) syncFolder() { r.add(change{kind: kindSyncFolder}) }

func (r *recording) rename(from, to string) {
	r.inodes[to] = r.inode(from)
	delete(r.inodes, from)
	r.add(change{kind: kindMove, name: from, to: to})
}

func (r *recording) remove(path string) {
	delete(r.inodes, path)
	r.add(change{kind: kindUnlink, name: path})
}

// Cut writes into a folder what may be there when the power goes after the first steps of the log, and
// returns what was marked by then. What was synced is there. Of what was not:
//
//   - each sector of a file has any of the contents that it was given since the file's last sync, so writes
//     are lost, swapped and torn;
//   - a file has any of the lengths that it had since;
//   - names are as after any of the changes of names since the last sync of the folder: file systems with a
//     journal keep those in order.
//
// A third of the cuts lose all of it, and a third keep all but tear the last.
func (d *Disk) Cut(steps int, rng *rand.Rand, into string) (marked []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := newCutter(d.record)
	for _, step := range d.record.log[:steps] {
		if step.kind == kindMark {
			marked = append(marked, step.comment)
		} else {
			c.apply(step)
		}
	}
	return marked, c.write(rng, into)
}

// cutter follows a log: what is on the platter, and what is only in memory.
type cutter struct {
	folder string
	names  []map[string]int // the synced ones, and after each change since
	files  map[int]*versions
}

// versions are a file's contents: the synced one, and after each change since.
type versions struct{ all [][]byte }

func newCutter(r *recording) *cutter {
	c := &cutter{r.folder, []map[string]int{maps.Clone(r.start.names)}, map[int]*versions{}}
	for inode, content := range r.start.bytes {
		c.files[inode] = &versions{[][]byte{content}}
	}
	return c
}

func (c *cutter) apply(s change) {
	if s.kind == kindWrite || s.kind == kindTruncate || s.kind == kindSync {
		c.file(s.inode).apply(s)
		return
	}
	now := maps.Clone(c.names[len(c.names)-1])
	switch s.kind {
	case kindLink:
		now[s.name] = s.inode
		c.file(s.inode)
	case kindUnlink:
		delete(now, s.name)
	case kindMove:
		now[s.to] = now[s.name]
		delete(now, s.name)
	case kindSyncFolder:
		c.names = c.names[:0]
	}
	c.names = append(c.names, now)
}

func (c *cutter) file(inode int) *versions {
	if c.files[inode] == nil {
		c.files[inode] = &versions{[][]byte{{}}}
	}
	return c.files[inode]
}

func (v *versions) apply(s change) {
	now := slices.Clone(v.all[len(v.all)-1])
	switch s.kind {
	case kindWrite:
		if end := int(s.at) + len(s.data); end > len(now) {
			now = append(now, make([]byte, end-len(now))...)
		}
		copy(now[s.at:], s.data)
	case kindTruncate:
		now = append(now[:min(int(s.at), len(now))], make([]byte, max(int(s.at)-len(now), 0))...)
	case kindSync:
		v.all = v.all[:0]
	}
	v.all = append(v.all, now)
}

// after draws what is left of a file.
func (v *versions) after(rng *rand.Rand, mode int) []byte {
	pick := func() []byte {
		switch mode {
		case 0:
			return v.all[0]
		case 1:
			return v.all[max(len(v.all)-1-rng.IntN(2), 0)]
		default:
			return v.all[rng.IntN(len(v.all))]
		}
	}
	out := make([]byte, len(pick()))
	for from := 0; from < len(out); from += sector {
		if of := pick(); from < len(of) {
			copy(out[from:min(from+sector, len(out))], of[from:])
		}
	}
	return out
}

// write draws what a cut leaves, and writes it into a folder.
func (c *cutter) write(rng *rand.Rand, into string) error {
	mode := rng.IntN(3)
	names := c.names[rng.IntN(len(c.names))]
	switch mode {
	case 0:
		names = c.names[0]
	case 1:
		names = c.names[len(c.names)-1]
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		inside, err := filepath.Rel(c.folder, name)
		if err != nil {
			return err
		}
		if filepath.Ext(name) == ".lock" {
			continue
		}
		path := filepath.Join(into, inside)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, c.file(names[name]).after(rng, mode), 0o600); err != nil {
			return fmt.Errorf("couldn't write what a cut leaves: %w", err)
		}
	}
	return nil
}
