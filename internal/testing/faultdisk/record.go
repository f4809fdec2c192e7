package faultdisk

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// sector is what a disk writes whole: of a longer write, any sectors may be there after a cut.
const sector = 512

// recording is every change of a folder, in order.
type recording struct {
	folder string
	inodes map[string]int // of names, now
	last   int
	log    []change
	marks  []Mark
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
)

// change is one step of the log.
type change struct {
	kind  kind
	inode int
	at    int64 // offset, or size
	data  []byte
	name  string // of a folder, for kindSyncFolder
	to    string
	when  time.Time
}

// folderInode is that of all folders.
const folderInode = 0

// image is what is in a folder: names of inodes, and their bytes.
type image struct {
	names map[string]int
	bytes map[int][]byte
}

// Mark is something that was said to somebody when the log had so many steps: after a cut behind them, it
// must hold.
type Mark struct {
	Step int
	What any
}

// Record has the disk remember from now on, when all that is there counts as synced.
func (d *Disk) Record() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &recording{folder: d.folder, inodes: map[string]int{}, start: image{map[string]int{}, map[int][]byte{}}}
	err := filepath.WalkDir(d.folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || clean(path) == clean(d.folder) {
			return err
		}
		if e.IsDir() {
			r.start.names[path] = folderInode
			return nil
		}
		content, err := os.ReadFile(path)
		r.last++
		r.inodes[path], r.start.names[path], r.start.bytes[r.last] = r.last, r.last, content
		return err
	})
	d.record = r
	return err
}

// Steps is the length of the log, 0 where the disk does not remember.
func (d *Disk) Steps() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.record == nil {
		return 0
	}
	return len(d.record.log)
}

// When is the time of the last of the first steps of the log, which are at least one.
func (d *Disk) When(steps int) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.record.log[steps-1].when
}

// Mark notes what was said after so many steps.
func (d *Disk) Mark(step int, what any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.record != nil {
		d.record.marks = append(d.record.marks, Mark{step, what})
	}
}

// Marked returns what was said by a step.
func (d *Disk) Marked(step int) (out []any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.record.marks {
		if m.Step <= step {
			out = append(out, m.What)
		}
	}
	return out
}

func (r *recording) add(c change) {
	c.when = time.Now()
	r.log = append(r.log, c)
}

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

func (r *recording) makeFolder(path string) {
	r.add(change{kind: kindLink, inode: folderInode, name: path})
}

// syncFolder syncs the folder that a name is in.
func (r *recording) syncFolder(path string) {
	r.add(change{kind: kindSyncFolder, name: filepath.Dir(path)})
}

func (r *recording) rename(from, to string) {
	r.inodes[to] = r.inode(from)
	delete(r.inodes, from)
	r.add(change{kind: kindMove, name: from, to: to})
}

func (r *recording) remove(path string) {
	delete(r.inodes, path)
	r.add(change{kind: kindUnlink, name: path})
}

// Cut writes into a folder what may be there when the power goes after the first steps of the log. What was
// synced is there. Of what was not:
//
//   - each sector of a file has any of the contents that it was given since the file's last sync, so writes
//     are lost, swapped and torn;
//   - a file has any of the lengths that it had since;
//   - the names in a folder are as after any of their changes since its last sync: file systems with a
//     journal keep those in order.
//
// A third of the cuts lose all of it, and a third keep all but tear the last.
func (d *Disk) Cut(steps int, rng *rand.Rand, into string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := newCutter(d.record)
	for _, step := range d.record.log[:steps] {
		c.apply(step)
	}
	return c.write(rng, into)
}

// cutter follows a log: what is on the platter, and what is only in memory.
type cutter struct {
	root    string
	folders map[string][]map[string]int // the synced names of a folder, and those after each change since
	files   map[int]*versions
}

// versions are a file's contents: the synced one, and after each change since.
type versions struct{ all [][]byte }

func newCutter(r *recording) *cutter {
	c := &cutter{clean(r.folder), map[string][]map[string]int{}, map[int]*versions{}}
	for name, inode := range r.start.names {
		c.now(name)[name] = inode
	}
	for inode, content := range r.start.bytes {
		c.files[inode] = &versions{[][]byte{content}}
	}
	return c
}

// now is the latest state of the folder that a name is in.
func (c *cutter) now(name string) map[string]int {
	folder := filepath.Dir(name)
	if len(c.folders[folder]) == 0 {
		c.folders[folder] = []map[string]int{{}}
	}
	all := c.folders[folder]
	return all[len(all)-1]
}

// change adds a state of the folder that a name is in.
func (c *cutter) change(name string, do func(names map[string]int)) {
	names := maps.Clone(c.now(name))
	do(names)
	c.folders[filepath.Dir(name)] = append(c.folders[filepath.Dir(name)], names)
}

func (c *cutter) apply(s change) {
	switch s.kind {
	case kindLink:
		c.change(s.name, func(names map[string]int) { names[s.name] = s.inode })
	case kindUnlink:
		c.change(s.name, func(names map[string]int) { delete(names, s.name) })
	case kindMove:
		c.change(s.name, func(names map[string]int) {
			names[s.to] = names[s.name]
			delete(names, s.name)
		})
	case kindSyncFolder:
		if all := c.folders[s.name]; len(all) > 0 {
			c.folders[s.name] = all[len(all)-1:]
		}
	default:
		c.file(s.inode).apply(s)
	}
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

// after draws what is left of a file. A sector behind the end of the content that it is drawn from is zeros: a file
// may have grown before its bytes came. Not where that content is of later than the length: then the file
// was cut short, which with its old length has not happened.
func (v *versions) after(rng *rand.Rand, mode int) []byte {
	pick := func() int {
		switch mode {
		case 0:
			return 0
		case 1:
			return max(len(v.all)-1-rng.IntN(2), 0)
		default:
			return rng.IntN(len(v.all))
		}
	}
	length := pick()
	out := make([]byte, len(v.all[length]))
	for from := 0; from < len(out); from += sector {
		to, of := min(from+sector, len(out)), pick()
		if of > length && len(v.all[of]) < to {
			of = length
		}
		if from < len(v.all[of]) {
			copy(out[from:to], v.all[of][from:])
		}
	}
	return out
}

// write draws what a cut leaves, and writes it into a folder.
func (c *cutter) write(rng *rand.Rand, into string) error {
	return c.writeFolder(c.root, into, rng, rng.IntN(3))
}

func (c *cutter) writeFolder(folder, into string, rng *rand.Rand, mode int) error {
	if err := os.MkdirAll(into, 0o700); err != nil {
		return fmt.Errorf("couldn't write what a cut leaves: %w", err)
	}
	states := c.folders[folder]
	if len(states) == 0 {
		return nil
	}
	names := states[rng.IntN(len(states))]
	switch mode {
	case 0:
		names = states[0]
	case 1:
		names = states[len(states)-1]
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		path := filepath.Join(into, filepath.Base(name))
		var err error
		if names[name] == folderInode {
			err = c.writeFolder(name, path, rng, mode)
		} else if filepath.Ext(name) != ".lock" {
			err = os.WriteFile(path, c.file(names[name]).after(rng, mode), 0o600)
		}
		if err != nil {
			return fmt.Errorf("couldn't write what a cut leaves: %w", err)
		}
	}
	return nil
}
