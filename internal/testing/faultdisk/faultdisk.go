// Package faultdisk simulates a disk that fails, below the relay's real code. SQLite's files are covered by a VFS
// around SQLite's own, and files of package durable by a hook. A [Disk] simulates the disk of all files in one folder.
// It can
//
//   - stop at any write, as when a process is killed: no later write reaches a file;
//   - refuse writes for a while, as a full disk does;
//   - record every write, sync and change of a name, so that [Disk.Cut] can produce any state that a power cut may
//     leave.
//
// Simulated faults are the same on every machine and in virtual time, and need no tracer. In memory, thousands of cuts
// a minute are possible. The package relies on two facts about SQLite's unix VFS: xSync is an fsync, and the first
// xSync of a new log is an fsync of its folder, too. The real files are always current, so other code may read them.
package faultdisk

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/doona-dp/doona/internal/durable"
)

// ErrFailed is package durable's error on a stopped or full disk.
var ErrFailed = errors.New("the test's disk fails")

// Disk is the simulated disk of a folder. It is safe for concurrent use.
type Disk struct {
	folder string

	mu      sync.Mutex // guards the fields below
	dead    bool
	after   int    // number of writes until it stops; negative: it does not stop
	stopped func() // called when it stops
	full    int    // number of writes that will fail
	refused []time.Time
	writes  int
	record  *recording // nil if it does not record
	broken  Broken
	apart   string // does not count files with this word in their names; "" for none
}

// Broken says how a disk lies. Tests that search for lost data must detect such a disk.
type Broken struct {
	LosesSyncs bool // Syncs do nothing and report success.
}

var disks struct {
	sync.Mutex
	all []*Disk
}

// New simulates the disk of a folder until the caller calls Remove.
func New(folder string) *Disk {
	d := &Disk{folder: clean(folder) + string(filepath.Separator), after: -1}
	disks.Lock()
	defer disks.Unlock()
	disks.all = append(disks.all, d)
	return d
}

// Remove ends the simulation.
func (d *Disk) Remove() {
	disks.Lock()
	defer disks.Unlock()
	for i, other := range disks.all {
		if other == d {
			disks.all = append(disks.all[:i], disks.all[i+1:]...)
			return
		}
	}
}

// find returns the simulated disk of a file, or nil.
func find(path string) *Disk {
	if path == "" {
		return nil
	}
	path = clean(path)
	disks.Lock()
	defer disks.Unlock()
	for _, d := range disks.all {
		if strings.HasPrefix(path, d.folder) {
			return d
		}
	}
	return nil
}

// Stop stops the disk at the n-th write from now, or at once if n is 0. The disk then calls then, which must not block.
func (d *Disk) Stop(n int, then func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.after, d.stopped = n, then
	if n == 0 {
		d.stop()
	}
}

// stop stops the disk. The caller holds d.mu.
func (d *Disk) stop() {
	d.dead, d.after = true, -1
	if d.stopped != nil {
		d.stopped()
	}
	d.stopped = nil
}

// Revive lets a stopped or full disk work again, and cancels a planned stop.
func (d *Disk) Revive() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dead, d.after, d.stopped, d.full = false, -1, nil, 0
}

// Fill makes the next n writes fail.
func (d *Disk) Fill(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = n
}

// Refused reports whether, between two times, the disk refused a write because it was full.
func (d *Disk) Refused(from, to time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.refused, func(at time.Time) bool { return !at.Before(from) && !at.After(to) })
}

// Writes returns the number of completed writes, syncs and changes of names.
func (d *Disk) Writes() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes
}

// Dead reports whether the disk has stopped.
func (d *Disk) Dead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

// Apart exempts files with word in their names from Stop and Fill. Files that change at random times would make the
// n-th write different in each run.
func (d *Disk) Apart(word string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.apart = word
}

// do counts and records a change to a file. It returns SQLITE_IOERR if the disk has stopped, and failed if it is full.
func (d *Disk) do(path string, failed int32, change func(r *recording)) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := d.apart == "" || !strings.Contains(filepath.Base(path), d.apart)
	if d.after > 0 && counts {
		if d.after--; d.after == 0 {
			d.stop()
		}
	}
	switch {
	case d.dead:
		return sqlite3.SQLITE_IOERR
	case d.full > 0 && counts:
		d.full--
		d.refused = append(d.refused, time.Now())
		return failed
	}
	d.writes++
	if d.record != nil {
		change(d.record)
	}
	return sqlite3.SQLITE_OK
}

// create reports whether a file is new. If so, it records the creation.
func (d *Disk) create(path string) (fresh bool, rc int32) {
	if _, err := os.Stat(path); err == nil {
		if d.Dead() {
			return false, sqlite3.SQLITE_CANTOPEN
		}
		return false, sqlite3.SQLITE_OK
	}
	return true, d.do(path, sqlite3.SQLITE_CANTOPEN, func(r *recording) { r.create(clean(path)) })
}

func (d *Disk) write(path string, offset int64, data []byte) int32 {
	return d.do(path, sqlite3.SQLITE_FULL, func(r *recording) { r.write(clean(path), offset, data) })
}

func (d *Disk) truncate(path string, size int64) int32 {
	return d.do(path, sqlite3.SQLITE_IOERR_TRUNCATE, func(r *recording) { r.truncate(clean(path), size) })
}

func (d *Disk) sync(path string, folder bool) int32 {
	return d.do(path, sqlite3.SQLITE_IOERR_FSYNC, func(r *recording) {
		if d.broken.LosesSyncs {
			return
		}
		r.sync(clean(path))
		if folder {
			r.syncFolder(clean(path))
		}
	})
}

func (d *Disk) remove(path string, folder bool) int32 {
	return d.do(path, sqlite3.SQLITE_IOERR_DELETE, func(r *recording) {
		r.remove(clean(path))
		if folder {
			r.syncFolder(clean(path))
		}
	})
}

// Break makes the disk lie from now on, in the given ways.
func (d *Disk) Break(how Broken) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = how
}

// watchFiles makes package durable ask the file's disk before each change of a file.
func watchFiles() {
	durable.Watch(func(s durable.Step) (skip bool, err error) {
		d := find(s.Path)
		if d == nil {
			return false, nil
		}
		var rc int32
		switch s.Op {
		case durable.OpMakeFolder:
			rc = d.do(s.Path, sqlite3.SQLITE_IOERR, func(r *recording) { r.makeFolder(clean(s.Path)) })
		case durable.OpCreate:
			_, rc = d.create(s.Path)
		case durable.OpWrite:
			rc = d.write(s.Path, s.At, s.Data)
		case durable.OpSync:
			rc, skip = d.sync(s.Path, false), true
		case durable.OpRename:
			rc = d.do(s.Path, sqlite3.SQLITE_IOERR, func(r *recording) { r.rename(clean(s.Path), clean(s.To)) })
		case durable.OpRemove:
			if _, err := os.Lstat(s.Path); err != nil {
				return false, nil
			}
			rc = d.remove(s.Path, false)
		case durable.OpSyncFolder:
			skip, rc = true, d.do(s.Path, sqlite3.SQLITE_IOERR, func(r *recording) {
				if !d.broken.LosesSyncs {
					r.syncFolder(clean(s.Path))
				}
			})
		}
		if rc != sqlite3.SQLITE_OK {
			return true, &os.PathError{Op: string(s.Op), Path: s.Path, Err: ErrFailed}
		}
		return skip, nil
	})
}
