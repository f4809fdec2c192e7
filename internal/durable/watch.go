package durable

import "sync/atomic"

// With the functions of this file, a test can intercept every change of the disk.

// Op is the kind of a [Step].
type Op string

// The steps of [WriteFile], in order. A [SlotFile] uses some of them.
const (
	OpRemove     Op = "remove" // delete the file at Path, if any
	OpCreate     Op = "create"
	OpWrite      Op = "write" // write Data at offset At
	OpSync       Op = "sync"
	OpRename     Op = "rename"      // from Path to To
	OpSyncFolder Op = "sync folder" // sync the folder that holds Path

	OpMakeFolder Op = "make folder" // only by MakeFolder
)

// Step is one change of the disk.
type Step struct {
	Op       Op
	Path, To string
	At       int64 // offset of Data
	Data     []byte
}

var watcher atomic.Pointer[func(Step) (skip bool, err error)]

// Watch sets a function that sees every step before it runs. The function may skip the step or make it fail.
func Watch(see func(Step) (skip bool, err error)) { watcher.Store(&see) }

// step runs a step, unless the watcher skips it or makes it fail.
func step(s Step, do func() error) error {
	if see := watcher.Load(); see != nil {
		if skip, err := (*see)(s); skip || err != nil {
			return err
		}
	}
	return do()
}
