package postlink

import (
	"encoding/binary"
	"maps"
	"regexp"
	"slices"
	"strings"
)

type functions struct {
	imports int            // Number of imported functions, which have the first numbers.
	names   map[int]string // Names by function number.
	made    []byte         // Section "producers", which names the toolchain.
}

// readModule returns a module's sections and a description of its functions.
func readModule(module []byte) (sections []section, f functions, err error) {
	if sections, err = readSections(module); err == nil {
		f, err = readFunctions(sections)
	}
	return sections, f, err
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
		default: // among them section "producers"
			f.made = append(f.made, s.body...)
		}
		if err != nil {
			return f, err
		}
	}
	return f, nil
}

// layout holds what the steps know of a Go version beside the code: indexes of the words in runtime.moduledata that
// hold the addresses of tables, and where a map's type says what keys it has (internal/abi/map.go).
type layout struct {
	pointerMaps int // Field gofunc.
	tablesEnd   int // Field epclntab.
	mapFlags    int // The offset of field Flags of abi.MapType, in bytes.
}

// layouts are the known Go versions. docs/postlink.md says how to add one.
var layouts = map[string]layout{
	"go1.26": {pointerMaps: 40, tablesEnd: 41, mapFlags: 104},
	"go1.27": {pointerMaps: 43, tablesEnd: 44, mapFlags: 128},
}

// layout returns the layout of the Go version that compiled the module.
func (f functions) layout() (layout, error) {
	version := goVersion.FindSubmatch(f.made)
	if version == nil {
		return layout{}, unknown("the module names no Go version")
	}
	l, ok := layouts[string(version[1])]
	if !ok {
		return layout{}, unknown("Go version " + string(version[0]) + " is not one of " +
			strings.Join(slices.Sorted(maps.Keys(layouts)), ", "))
	}
	return l, nil
}

var goVersion = regexp.MustCompile(`(go1\.\d+)[.\w]*`)

// body is one function in a code section: its name and its code, which is locals and instructions.
type body struct {
	name string
	code []byte
}

// bodies returns the functions in a code section. Their numbers begin after those of the imported functions.
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

func writeBodies(all []body) []byte {
	out := binary.AppendUvarint(nil, uint64(len(all)))
	for _, b := range all {
		out = append(binary.AppendUvarint(out, uint64(len(b.code))), b.code...)
	}
	return out
}

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

// partFunctions is the number of the subsection that holds names of functions.
const partFunctions = 1

// countImports returns the number of imports. All imports must be functions.
func countImports(r *segments) (int, error) {
	count := r.unsigned()
	for range count {
		r.bytes(r.unsigned())
		r.bytes(r.unsigned())
		kind := r.unsigned()
		r.unsigned() // skip the type
		if r.bad || kind != 0 {
			return 0, ErrLayout
		}
	}
	return count, nil
}

const (
	opCall  = 0x10
	opTable = 0x0e // br_table
	opBulk  = 0xfc // prefix of truncations, memory.copy and memory.fill
	subCopy = 10
	subFill = 11
)

// skip skips the operands of an instruction. It returns false for an unknown instruction.
func (r *segments) skip(op byte) bool {
	switch {
	case op == opCallIndirect || op >= 0x28 && op <= 0x3e: // call_indirect, loads, stores
		r.integer()
		r.integer()
	case op >= 0x02 && op <= 0x04 || op == 0x3f || op == 0x40: // block, loop, if; memory.size, memory.grow
		r.bytes(1)
	case op == 0x0c || op == opBranchIf || op == opCall || op >= 0x20 && op <= 0x24 || op == opConst || op == opConst64:
		r.integer()
	case op == opTable:
		for range r.unsigned() + 1 {
			r.integer()
		}
	case op == 0x43: // f32.const
		r.bytes(4)
	case op == 0x44: // f64.const
		r.bytes(8)
	case op == opBulk:
		return r.skipBulk(r.unsigned())
	default: // the other known instructions have no operands
		return op <= 0x01 || op == 0x05 || op == opEnd || op == opReturn || op == opDrop || op == 0x1b ||
			op >= 0x45 && op <= 0xc4
	}
	return true
}

func (r *segments) skipBulk(sub int) bool {
	switch sub {
	case subCopy:
		r.bytes(2)
	case subFill:
		r.bytes(1)
	}
	return sub < 8 || sub == subCopy || sub == subFill
}

func (r *segments) integer() {
	for !r.bad {
		if p := r.bytes(1); !r.bad && p[0] < 0x80 {
			return
		}
	}
}
