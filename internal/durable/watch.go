package durable

import "sync/atomic"

// What follows lets a test stand between this package and the disk.

// Op is what a step of [WriteFile], or of a [Mark], does.
type Op string

// The steps of [WriteFile], in their order. A [Mark] has some of them.
const (
	OpRemove     Op = "remove" // of what is at Path, if anything
	OpCreate     Op = "create"
	OpWrite      Op = "write" // Data, at At
	OpSync       Op = "sync"
	OpRename     Op = "rename"      // Path to To
	OpSyncFolder Op = "sync folder" // that Path is in

	OpMakeFolder Op = "make folder" // of [MakeFolder]
)

// Step is one change of the disk.
type Step struct {
	Op       Op
	Path, To string
	At       int64 // offset of Data
	Data     []byte
}

// watcher is what [Watch] was given.
var watcher atomic.Pointer[func(Step) (skip bool, err error)]

// Watch has a function see every step before it is done, and skip it or have it fail.
func Watch(see func(Step) (skip bool, err error)) { watcher.Store(&see) }

// step does a step, unless who watches says otherwise.
func step(s Step, do func() error) error {
	if see := watcher.Load(); see != nil {
		if skip, err := (*see)(s); skip || err != nil {
			return err
		}
	}
	return do()
}
