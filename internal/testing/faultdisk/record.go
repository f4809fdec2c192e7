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

// sector is what a disk writes atomically, in bytes: of a longer write, any subset of sectors may survive a cut.
const sector = 512

// recording holds every change of a folder, in order.
type recording struct {
	folder      string
	inodes      map[string]int // current inodes, by name
	last        int
	log         []change
	checkpoints []Checkpoint
	start       image
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
	name  string // the folder, for kindSyncFolder
	to    string
	when  time.Time
}

// folderInode is the inode of every folder.
const folderInode = 0

// image is the content of a folder: inodes by name, and their bytes.
type image struct {
	names map[string]int
	bytes map[int][]byte
}

// Checkpoint is a statement made when the log had this many steps: after any later cut, it must hold.
type Checkpoint struct {
	Step int
	What any
}

// Record starts recording; everything that exists now counts as synced.
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

// Steps returns the length of the log, 0 if the disk does not record.
func (d *Disk) Steps() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.record == nil {
		return 0
	}
	return len(d.record.log)
}

// When returns the time of the last of the first steps ≥ 1 of the log.
func (d *Disk) When(steps int) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.record.log[steps-1].when
}

// AddCheckpoint records a statement made after step steps.
func (d *Disk) AddCheckpoint(step int, what any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.record != nil {
		d.record.checkpoints = append(d.record.checkpoints, Checkpoint{step, what})
	}
}

// Marked returns the statements made up to a step.
func (d *Disk) Marked(step int) (out []any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.record.checkpoints {
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

// inode returns the inode of a name, and assigns one to a file that other code made.
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

// syncFolder syncs the folder of a name.
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

// Cut writes into a folder a state that a power cut after the first steps of the log may leave. Synced data is there.
// For the rest:
//
//   - each sector of a file has one of the contents it was given since the file's last sync, so writes are lost,
//     reordered and torn;
//   - a file has one of its lengths since then;
//   - the names in a folder are those after one of their changes since its last sync: journaling file systems keep
//     these in order.
//
// A third of the cuts lose all unsynced data, and a third keep everything but tear the last write.
func (d *Disk) Cut(steps int, rng *rand.Rand, into string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := newCutter(d.record)
	for _, step := range d.record.log[:steps] {
		c.apply(step)
	}
	return c.write(rng, into)
}

// cutter replays a log. It separates durable state from state in memory.
type cutter struct {
	root    string
	folders map[string][]map[string]int // by folder: its synced names, and the names after each later change
	files   map[int]*versions
}

// versions are a file's contents: the synced one, and those after each later change.
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

// now returns the latest state of the folder of a name.
func (c *cutter) now(name string) map[string]int {
	folder := filepath.Dir(name)
	if len(c.folders[folder]) == 0 {
		c.folders[folder] = []map[string]int{{}}
	}
	all := c.folders[folder]
	return all[len(all)-1]
}

// change adds a state of the folder of a name.
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

// after draws the surviving content of a file. A sector beyond the end of the drawn content is zeros: a file may have
// grown before its bytes arrived. An exception is content newer than the length: then the file was truncated, which
// has not happened yet at its old length.
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

// write draws the state after a cut, and writes it into a folder.
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
