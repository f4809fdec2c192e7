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

// sector is how many bytes a disk writes atomically. After a power cut, any subset of a longer write's sectors may
// remain.
const sector = 512

type recording struct {
	folder      string
	inodes      map[string]int // current inodes, by file name
	last        int
	log         []change
	checkpoints []Checkpoint
	start       image
}

// kind says what a change does.
type kind int

const (
	kindWrite kind = iota
	kindTruncate
	kindSync
	kindLink   // a name gets an inode, new or existing
	kindUnlink // a name is removed
	kindMove   // a file is renamed
	kindSyncFolder
)

type change struct {
	kind  kind
	inode int
	at    int64 // offset of a write, size after a truncation
	data  []byte
	name  string // the file; for kindSyncFolder, the folder
	to    string
	when  time.Time
}

// folderInode is the inode of every folder; files have higher numbers.
const folderInode = 0

// image is a folder's content: an inode number per name, and the bytes per inode.
type image struct {
	names map[string]int
	bytes map[int][]byte
}

// Checkpoint is a statement that a test recorded after Step changes. It must be true after every later power cut.
type Checkpoint struct {
	Step int
	What any
}

// Record starts recording. It treats everything that is in the folder now as synced.
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

// Steps returns the number of recorded changes, or 0 if the disk does not record.
func (d *Disk) Steps() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.record == nil {
		return 0
	}
	return len(d.record.log)
}

// When returns the time of the last of the first steps recorded changes. steps is at least 1.
func (d *Disk) When(steps int) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.record.log[steps-1].when
}

// AddCheckpoint records a [Checkpoint] for a step.
func (d *Disk) AddCheckpoint(step int, what any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.record != nil {
		d.record.checkpoints = append(d.record.checkpoints, Checkpoint{step, what})
	}
}

// Marked returns the statements of all checkpoints up to a step.
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

// inode returns the inode of a file. If other code created the file, it first records the creation.
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

// Cut writes into a folder a state that a power cut after the first steps changes may leave. All synced data survives.
// Of the rest, Cut draws at random:
//
//   - a content of each sector of a file since the file's last sync, so writes are lost, reordered and torn;
//   - a length of each file since its last sync;
//   - the names in a folder after one of the changes since its last sync, as journaling file systems keep their order.
//
// A third of the cuts lose all unsynced data. Another third keep everything but tear the last write.
func (d *Disk) Cut(steps int, rng *rand.Rand, into string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := newCutter(d.record)
	for _, step := range d.record.log[:steps] {
		c.apply(step)
	}
	return c.write(rng, into)
}

// cutter replays the recorded changes. It tracks what is durable and what is only in memory.
type cutter struct {
	root    string
	folders map[string][]map[string]int // by folder: its synced names, then its names after each later change
	files   map[int]*versions
}

// versions are a file's contents: the synced one, then one per later change.
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

// now returns the latest names in the folder that contains a file.
func (c *cutter) now(name string) map[string]int {
	folder := filepath.Dir(name)
	if len(c.folders[folder]) == 0 {
		c.folders[folder] = []map[string]int{{}}
	}
	all := c.folders[folder]
	return all[len(all)-1]
}

// change changes the names in a file's folder. The earlier names remain possible states.
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

// after draws the content of a file after a power cut: a length, and per sector one of its contents. Bytes beyond the
// end of a content are zeros, as a file may grow before its bytes arrive. If a newer content ends within a sector, the
// truncation has not happened yet at the drawn length. Then the sector keeps its content from that time.
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

// write draws a state after the cut and writes it into a folder.
func (c *cutter) write(rng *rand.Rand, into string) error {
	return c.writeFolder(c.root, into, rng, rng.IntN(3))
}

func (c *cutter) writeFolder(folder, into string, rng *rand.Rand, mode int) error {
	if err := os.MkdirAll(into, 0o700); err != nil {
		return fmt.Errorf("couldn't write the state after a power cut: %w", err)
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
			return fmt.Errorf("couldn't write the state after a power cut: %w", err)
		}
	}
	return nil
}
