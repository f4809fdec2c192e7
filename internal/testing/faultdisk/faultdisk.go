// Package faultdisk simulates a disk that fails as disks and machines do, below the parties' real code: below SQLite,
// by a VFS around the system's, and below package durable, by its hook. A [Disk] is the disk of all files in a
// folder. It can
//
//   - stop at any write, as when a process is killed there: no later write reaches a file;
//   - refuse writes for a while, as a full disk does;
//   - record every write, sync and change of a name, so that [Disk.Cut] can produce any state that a power cut may
//     leave.
//
// Faults above the system calls are the same on every machine and in virtual time, and need no tracer; a disk in
// memory makes thousands of cuts a minute. The package relies on SQLite's unix VFS turning xSync into fsync, and the
// first xSync of a new log into an fsync of its folder, too. The files on the real disk are always current, so any
// other code may read them.
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

// ErrFailed is package durable's error on a failing disk.
var ErrFailed = errors.New("the test's disk fails")

// Disk is the disk of a folder. It is safe for concurrent use.
type Disk struct {
	folder string

	mu      sync.Mutex // guards the rest
	dead    bool
	after   int    // remaining writes until it stops; negative: never
	stopped func() // called when it stops
	full    int    // number of writes that will fail
	refused []time.Time
	writes  int
	record  *recording // nil unless it records
	broken  Broken
	apart   string // writes to files whose names contain this word are not counted; "" for none
}

// Broken says in which ways a disk lies, for tests that must detect it.
type Broken struct {
	LosesSyncs bool // A sync does nothing.
}

var disks struct {
	sync.Mutex
	all []*Disk
}

// New simulates the disk of a folder until Remove.
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

// find returns the disk of a file, or nil.
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

// Stop stops the disk at the n-th write from now, or at once if n is 0, and calls then, which must not block.
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

// Revive lets a stopped disk continue, and cancels a planned stop.
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

// Refused reports whether a write failed between two times because the disk was full.
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

// Apart exempts files whose names contain word from counting and from a full disk. Files that change at random times
// would make the n-th change different in each run.
func (d *Disk) Apart(word string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.apart = word
}

// do applies one change to a file, unless the disk has stopped or fails.
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

// create reports whether it created a file; it does not touch an existing one.
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

// Break makes the disk lie from now on.
func (d *Disk) Break(how Broken) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = how
}

// watchFiles makes package durable ask disks before each change.
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
