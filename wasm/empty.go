package wasm

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"strings"
)

// emptied tells whether a function of the runtime is one that nobody saw run: its body then stops the module. No
// linker can know. What stands behind variables that nothing here sets, behind GODEBUG, or behind more threads than
// one, is linked and never runs. The evidence is ran.txt: what ran in a trace of all tests of a module, refusals,
// stops and a soak with collections and clocks that jump among them, and whatever the compiler calls of itself. A
// client that meets another loads doona-full.wasm, in which nothing is emptied, and draws anew.
//
// Only the runtime's own functions are: which of them run can depend on a value no more than by how much memory it
// takes. Should a function of a protocol stop a module for some values, then whoever serves doona-full.wasm would
// learn something of the value.
//
// What ran keeps its kin: methods of the same type, and a function's closures. A map that grows, or a timer that is
// put off, is a matter of chance.
func (f functions) emptied(name string) bool {
	return f.ran != nil && runtimes.MatchString(name) && !kept.MatchString(name) && !f.ran[name] && !f.ran[kin(name)]
}

// kin returns the type of which a function is a method, "runtime.__mspan_" or "runtime.typePointers", or the
// function that a closure is in; else its name. Two kinds are alone: comparisons, each of a type of its own, and the
// tracer's, which is only asked whether it runs.
func kin(name string) string {
	if strings.HasPrefix(name, "type_.") || strings.HasPrefix(name, "runtime.traceLocker.") {
		return name
	}
	if i := strings.Index(name, "."); i >= 0 {
		if j := strings.Index(name[i+1:], "."); j >= 0 {
			return name[:i+1+j]
		}
	}
	return name
}

var runtimes = regexp.MustCompile(`^(runtime|internal_runtime_\w+|internal_abi|type_)\.`)

// kept are functions that run or not by where the collector stands, and comparisons of our types.
var kept = regexp.MustCompile(`^runtime\.(gcWriteBarrier\d|typed\w+|bulkBarrier\w+|wb\w+)$|github\.com`)

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

// empty empties the functions in a code section that never run or have nothing to do. It returns which never run.
func empty(code []byte, f functions) (out []byte, gone []bool, err error) {
	bodies, err := f.bodies(code)
	out = binary.AppendUvarint(nil, uint64(len(bodies)))
	gone = make([]bool, len(bodies))
	for i, b := range bodies {
		if idle.MatchString(b.name) {
			b.code = back
		} else if gone[i] = f.emptied(b.name); gone[i] {
			b.code = trap
		}
		out = append(binary.AppendUvarint(out, uint64(len(b.code))), b.code...)
	}
	return out, gone, err
}

// functions is what a module says about its functions.
type functions struct {
	imports int            // Functions of the host, whose numbers come first.
	names   map[int]string // By number.
	known   bool           // Whether they are of the toolchain that ran.txt and idle are of.
	ran     map[string]bool
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

// toolchain is the one that ran.txt and idle are of; another's stays whole.
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
