package faultdisk

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"
	"unsafe"

	_ "modernc.org/sqlite" // registers the driver "sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// This file implements SQLite's side: a VFS around SQLite's own. It is the default of all connections opened after
// Install, and asks the [Disk] before each change of a file. SQLite is C code translated to Go: structs are at fixed
// addresses, pointers are numbers, and a function pointer is the address of a Go function value. Every function first
// takes SQLite's thread, which this code only passes on.

// thread is a *libc.TLS. As only SQLite looks inside it, this package need not import libc.
type thread = unsafe.Pointer

// shim is our VFS, a copy of SQLite's own with some functions replaced. methods are the methods of its files. SQLite
// keeps pointers to both permanently, so they must be variables that the garbage collector never frees.
var (
	shim    sqlite3.Tsqlite3_vfs
	methods sqlite3.Tsqlite3_io_methods
	system  *sqlite3.Tsqlite3_vfs
)

// header is the part of our file struct before the struct of SQLite's own VFS.
type header struct {
	methods uintptr
	number  uint64 // key in open
}

const headerSize = unsafe.Sizeof(header{})

// open holds all open files on simulated disks.
var open struct {
	sync.Mutex
	last  uint64
	files map[uint64]*file
}

type file struct {
	disk  *Disk
	path  string
	fresh bool // a new log: the first sync must also sync its folder, as unixSync does
}

// Install makes all SQLite connections that this process opens later use the disks of [New]. Call it while no
// connection is open.
var Install = sync.OnceFunc(func() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	conn, err := db.Conn(context.Background())
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	err = conn.Raw(func(c any) error {
		// The driver does not export its thread. For this one call at the start, any connection's thread works.
		register(reflect.ValueOf(c).Elem().FieldByName("tls").UnsafePointer())
		return nil
	})
	if err != nil {
		panic(err)
	}
	watchFiles()
})

func register(tls thread) {
	system = (*sqlite3.Tsqlite3_vfs)(at(call2(sqlite3.Xsqlite3_vfs_find, tls, 0)))
	shim = *system
	shim.FszOsFile += int32(headerSize)
	name := append([]byte("doona-faults"), 0)
	names = append(names, name)
	shim.FzName = uintptr(unsafe.Pointer(&name[0]))
	shim.FxOpen, shim.FxDelete = pointer(openFile), pointer(deleteFile)
	methods = sqlite3.Tsqlite3_io_methods{
		FiVersion: 3, FxClose: pointer(closeFile), FxRead: pointer(readFile), FxWrite: pointer(writeFile),
		FxTruncate: pointer(truncateFile), FxSync: pointer(syncFile),
		FxFileSize:          pass2(func(m *sqlite3.Tsqlite3_io_methods) uintptr { return m.FxFileSize }),
		FxLock:              pass1(func(m *sqlite3.Tsqlite3_io_methods) uintptr { return m.FxLock }),
		FxUnlock:            pass1(func(m *sqlite3.Tsqlite3_io_methods) uintptr { return m.FxUnlock }),
		FxCheckReservedLock: pass2(func(m *sqlite3.Tsqlite3_io_methods) uintptr { return m.FxCheckReservedLock }),
		FxFileControl:       pointer(controlFile),
		FxSectorSize:        pass0(func(m *sqlite3.Tsqlite3_io_methods) uintptr { return m.FxSectorSize }),
		FxDeviceCharacteristics: pass0(
			func(m *sqlite3.Tsqlite3_io_methods) uintptr { return m.FxDeviceCharacteristics }),
		FxShmMap: pointer(mapShared), FxShmLock: pointer(lockShared), FxShmBarrier: pointer(barrier),
		FxShmUnmap: pass1(func(m *sqlite3.Tsqlite3_io_methods) uintptr { return m.FxShmUnmap }),
		FxFetch:    pointer(fetch), FxUnfetch: pointer(unfetch),
	}
	if rc := call3(sqlite3.Xsqlite3_vfs_register, tls, uintptr(unsafe.Pointer(&shim)), 1); rc != sqlite3.SQLITE_OK {
		panic(fmt.Sprintf("couldn't register the VFS: SQLite error %d", rc))
	}
}

// names keeps memory alive to which SQLite has pointers.
var names [][]byte

// call2 and call3 call an SQLite function with a thread whose type this package cannot name.
func call2[T any](f func(*T, uintptr) uintptr, tls thread, a uintptr) uintptr { return f((*T)(tls), a) }

func call3[T any](f func(*T, uintptr, int32) int32, tls thread, a uintptr, b int32) int32 {
	return f((*T)(tls), a, b)
}

func at(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// kept keeps functions alive to which SQLite has pointers.
var kept []any

// pointer returns a Go function as one of SQLite's function pointers.
func pointer[F any](f F) uintptr {
	kept = append(kept, &f)
	return *(*uintptr)(unsafe.Pointer(&f))
}

// function returns the Go function for one of SQLite's function pointers.
func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }

// text reads a zero-terminated C string.
func text(p uintptr) string {
	if p == 0 {
		return ""
	}
	n := 0
	for *(*byte)(at(p + uintptr(n))) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(at(p)), n))
}

// inner returns the file struct of SQLite's own VFS inside one of our files, and its methods.
func inner(f uintptr) (uintptr, *sqlite3.Tsqlite3_io_methods) {
	real := f + headerSize
	return real, (*sqlite3.Tsqlite3_io_methods)(at((*sqlite3.Tsqlite3_file)(at(real)).FpMethods))
}

func of(f uintptr) *file {
	open.Lock()
	defer open.Unlock()
	return open.files[(*header)(at(f)).number]
}

type method = func(*sqlite3.Tsqlite3_io_methods) uintptr

// pass0, pass1 and pass2 return methods that call the same method of SQLite's own file, with no argument, a number or a
// pointer.
func pass0(of method) uintptr {
	return pointer(func(tls thread, f uintptr) int32 {
		real, m := inner(f)
		return function[func(thread, uintptr) int32](of(m))(tls, real)
	})
}

func pass1(of method) uintptr {
	return pointer(func(tls thread, f uintptr, a int32) int32 {
		real, m := inner(f)
		return function[func(thread, uintptr, int32) int32](of(m))(tls, real, a)
	})
}

func pass2(of method) uintptr {
	return pointer(func(tls thread, f, a uintptr) int32 {
		real, m := inner(f)
		return function[func(thread, uintptr, uintptr) int32](of(m))(tls, real, a)
	})
}

func openFile(tls thread, _, name, f uintptr, flags int32, out uintptr) int32 {
	open := function[func(thread, uintptr, uintptr, uintptr, int32, uintptr) int32](system.FxOpen)
	path := text(name)
	disk := find(path)
	if disk == nil { // a file on no simulated disk: use SQLite's own VFS unchanged
		return open(tls, uintptr(unsafe.Pointer(system)), name, f, flags, out)
	}
	h := (*header)(at(f))
	*h = header{}
	log := flags&(sqlite3.SQLITE_OPEN_WAL|sqlite3.SQLITE_OPEN_MAIN_JOURNAL|sqlite3.SQLITE_OPEN_SUPER_JOURNAL) != 0
	fresh := false
	if flags&sqlite3.SQLITE_OPEN_CREATE != 0 {
		var failed int32
		if fresh, failed = disk.create(path); failed != 0 {
			return failed
		}
	} else if disk.Dead() {
		return sqlite3.SQLITE_CANTOPEN
	}
	rc := open(tls, uintptr(unsafe.Pointer(system)), name, f+headerSize, flags, out)
	if rc == sqlite3.SQLITE_OK {
		remember(h, &file{disk: disk, path: path, fresh: fresh && log})
	}
	return rc
}

func remember(h *header, f *file) {
	open.Lock()
	defer open.Unlock()
	if open.files == nil {
		open.files = map[uint64]*file{}
	}
	open.last++
	open.files[open.last] = f
	*h = header{uintptr(unsafe.Pointer(&methods)), open.last}
}

func closeFile(tls thread, f uintptr) int32 {
	open.Lock()
	delete(open.files, (*header)(at(f)).number)
	open.Unlock()
	real, m := inner(f)
	return function[func(thread, uintptr) int32](m.FxClose)(tls, real)
}

func deleteFile(tls thread, _, name uintptr, syncFolder int32) int32 {
	path := text(name)
	if disk := find(path); disk != nil {
		if rc := disk.remove(path, syncFolder != 0); rc != 0 {
			return rc
		}
	}
	remove := function[func(thread, uintptr, uintptr, int32) int32](system.FxDelete)
	return remove(tls, uintptr(unsafe.Pointer(system)), name, 0)
}

func readFile(tls thread, f, into uintptr, n int32, offset int64) int32 {
	if of(f).disk.Dead() {
		return sqlite3.SQLITE_IOERR_READ
	}
	real, m := inner(f)
	return function[func(thread, uintptr, uintptr, int32, int64) int32](m.FxRead)(tls, real, into, n, offset)
}

func writeFile(tls thread, f, from uintptr, n int32, offset int64) int32 {
	o := of(f)
	if rc := o.disk.write(o.path, offset, unsafe.Slice((*byte)(at(from)), n)); rc != 0 {
		return rc
	}
	real, m := inner(f)
	return function[func(thread, uintptr, uintptr, int32, int64) int32](m.FxWrite)(tls, real, from, n, offset)
}

func truncateFile(tls thread, f uintptr, size int64) int32 {
	o := of(f)
	if rc := o.disk.truncate(o.path, size); rc != 0 {
		return rc
	}
	real, m := inner(f)
	return function[func(thread, uintptr, int64) int32](m.FxTruncate)(tls, real, size)
}

// syncFile lets the disk record a sync. It saves the time to sync the real file.
func syncFile(_ thread, f uintptr, _ int32) int32 {
	o := of(f)
	fresh := o.fresh
	o.fresh = false
	return o.disk.sync(o.path, fresh)
}

// controlFile ignores requests to grow a file in advance, as such growth would not be recorded.
func controlFile(tls thread, f uintptr, op int32, arg uintptr) int32 {
	if op == sqlite3.SQLITE_FCNTL_SIZE_HINT || op == sqlite3.SQLITE_FCNTL_CHUNK_SIZE {
		return sqlite3.SQLITE_OK
	}
	real, m := inner(f)
	return function[func(thread, uintptr, int32, uintptr) int32](m.FxFileControl)(tls, real, op, arg)
}

func mapShared(tls thread, f uintptr, region, size, extend int32, out uintptr) int32 {
	real, m := inner(f)
	return function[func(thread, uintptr, int32, int32, int32, uintptr) int32](m.FxShmMap)(tls, real, region, size,
		extend, out)
}

func lockShared(tls thread, f uintptr, offset, n, flags int32) int32 {
	real, m := inner(f)
	return function[func(thread, uintptr, int32, int32, int32) int32](m.FxShmLock)(tls, real, offset, n, flags)
}

func barrier(tls thread, f uintptr) {
	real, m := inner(f)
	function[func(thread, uintptr)](m.FxShmBarrier)(tls, real)
}

func fetch(tls thread, f uintptr, offset int64, n int32, out uintptr) int32 {
	real, m := inner(f)
	return function[func(thread, uintptr, int64, int32, uintptr) int32](m.FxFetch)(tls, real, offset, n, out)
}

func unfetch(tls thread, f uintptr, offset int64, p uintptr) int32 {
	real, m := inner(f)
	return function[func(thread, uintptr, int64, uintptr) int32](m.FxUnfetch)(tls, real, offset, p)
}

// clean returns a file's absolute path, as disks store it.
func clean(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return abs
}
