package wasm

import (
	"bytes"
	"encoding/binary"
	"regexp"
)

// unused are functions of the Go runtime that never run in a module, by the names in its name
// section, where all but letters, digits and dots are underscores. No linker can know: they stand
// behind variables that nothing here sets. Those of the execution tracer and the profiles are set by
// packages that are not linked, the others by the environment variable GODEBUG; a module's
// environment is empty. Should one run, the module stops.
var unused = regexp.MustCompile(`^runtime\.(` +
	`traceLocker\.[^o]|traceWriter\.|traceEventWriter\.|__trace[A-Z]\w*_\.|` + // but traceLocker.ok
	`trace(Advance|ReadCPU|StopReadCPU|Stack|SyncBatch|Register|CPUFlush|BufFlush|Reader$|AcquireEnabled|ClockNow|HeapObjectID|GoroutineStackID)|` +
	`makeTraceFrame|startPCForTrace|goStatusToTraceGoStatus|__Frames_|expandFrames|` +
	`__profBuf_|(try|do)RecordGoroutineProfile|saveblockevent|fpTracebackPartialExpand|` +
	`schedtrace|dump(ScanStats|TypesRec|StacksRec)|checkFinalizersAndCleanups|printScavTrace|` +
	// And what only idle functions call:
	`traceback2|traceback(1|Hexdump|others|someothers)\.|print(Args|createdby|OneCgoTraceback|AncestorTraceback|CgoTraceback|FuncName)|` +
	`__hexdumper_|hexdumpWords\.)`)

// idle are functions without results that run and have nothing to do in a module: they print what
// follows the reason when the runtime stops (stacks, without names and lines), read an empty GODEBUG,
// look at further modules, and check the linker's work, which tests do once for all.
var idle = regexp.MustCompile(
	`^(runtime\.(goroutineheader|traceback(|1|Hexdump|others|someothers)|dumpgstatus|hexdumpWords|printanycustomtype|` +
		`parsegodebug|typelinksinit|moduledataverify1)|internal_cpu\.processOptions)$`)

// The bodies that take their places: one stops the module, the other returns, which is to take the
// return address from Go's stack, whose pointer is global 0, and to say that nothing was unwound.
var (
	trap = []byte{0, 0x00, opEnd} // no locals, unreachable
	back = []byte{0, opGlobalGet, 0, opConst, 8, opAdd, opGlobalSet, 0, opConst, 0, opEnd}
)

const (
	opGlobalGet = 0x23
	opGlobalSet = 0x24
	opAdd       = 0x6a
)

// dropUnused empties the functions in a code section that never run or have nothing to do.
func dropUnused(code []byte, f functions) ([]byte, error) {
	bodies, err := f.bodies(code)
	out := binary.AppendUvarint(nil, uint64(len(bodies)))
	for _, b := range bodies {
		if unused.MatchString(b.name) {
			b.code = trap
		} else if idle.MatchString(b.name) {
			b.code = back
		}
		out = append(binary.AppendUvarint(out, uint64(len(b.code))), b.code...)
	}
	return out, err
}

// functions is what a module says about its functions.
type functions struct {
	imports int            // Functions of the host, whose numbers come first.
	names   map[int]string // By number.
	known   bool           // Whether they are of the toolchain that unused.go knows.
}

func readFunctions(sections []section) (f functions, err error) {
	for _, s := range sections {
		r := &segments{rest: s.body}
		switch {
		case s.id == sectionImport:
			f.imports, err = countImports(r)
		case s.id != sectionCustom:
		case string(r.bytes(r.unsigned())) == "name":
			f.names, err = functionNames(r)
		default: // among them "producers"
			f.known = f.known || bytes.Contains(s.body, []byte(toolchain))
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// body is a function in a code section.
type body struct {
	name string
	code []byte
}

func (f functions) bodies(code []byte) (all []body, err error) {
	r := &segments{rest: code}
	for i := range r.unsigned() {
		all = append(all, body{f.names[f.imports+i], r.bytes(r.unsigned())})
		if r.bad {
			return nil, ErrLayout
		}
	}
	return all, nil
}

// toolchain is the one whose runtime unused and idle were read from; another's stays whole.
const toolchain = "go1.26"

// functionNames reads a name section: the functions' names by number.
func functionNames(r *segments) (names map[int]string, err error) {
	names = map[int]string{}
	for len(r.rest) > 0 && !r.bad {
		kind, size := r.unsigned(), r.unsigned()
		part := &segments{rest: r.bytes(size)}
		if kind != partFunctions {
			continue
		}
		for range part.unsigned() {
			number := part.unsigned()
			names[number] = string(part.bytes(part.unsigned()))
			if part.bad {
				return nil, ErrLayout
			}
		}
	}
	if r.bad {
		return nil, ErrLayout
	}
	return names, nil
}

// partFunctions is the part of the name section that names functions.
const partFunctions = 1

// countImports reads an import section, of functions only.
func countImports(r *segments) (int, error) {
	count := r.unsigned()
	for range count {
		r.bytes(r.unsigned())
		r.bytes(r.unsigned())
		kind := r.unsigned()
		r.unsigned() // type
		if r.bad || kind != 0 {
			return 0, ErrLayout
		}
	}
	return count, nil
}
