package postlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Strip removes from a Go module what only tracebacks read: the names of functions and files, and the tables of files
// and lines by instruction. That is a sixth of the download. A stripped module that stops says why, but not where. To
// find out where, build without Strip.
//
// Go's linker keeps these tables on every platform, even with -s and -w. runtime.pcHeader and runtime._func define
// their layout (runtime/symtab.go, runtime2.go). Strip keeps what the runtime itself reads: stack maps, frame sizes and
// the ids of the runtime's functions. The runtime uses a name in only two places. It asks whether a goroutine is its
// own, which changes the message about a deadlock. It asks whether a panic comes from the runtime, which makes a throw
// a panic.
//
// Strip also removes all custom sections, such as names. It returns [ErrLayout] if the module does not have the layout
// of Go 1.26.
func Strip(module []byte) ([]byte, error) {
	sections, err := readSections(module)
	if err != nil {
		return nil, err
	}
	var out []section
	stripped := false
	for _, s := range sections {
		if s.id == sectionCustom {
			continue
		}
		if s.id == sectionData {
			stripped = true
			if s.body, err = stripData(s.body); err != nil {
				return nil, err
			}
		}
		out = append(out, s)
	}
	if !stripped {
		return nil, ErrLayout
	}
	return writeSections(out), nil
}

// ErrLayout is returned for a module whose layout [Strip] and [Freeze] do not know.
var ErrLayout = errors.New("couldn't read the module: not laid out as a known Go does (docs/postlink.md)")

// unknown returns an [ErrLayout] that names the check that failed.
func unknown(check string) error { return fmt.Errorf("%w: %s", ErrLayout, check) }

func stripData(section []byte) ([]byte, error) {
	memory, at, err := readTable(section)
	if err != nil {
		return nil, err
	}
	if err := table(memory[at:]).strip(); err != nil {
		return nil, err
	}
	return writeSegments(memory), nil
}

// readTable returns the memory that a data section initializes, and the offset of the function table in it.
func readTable(section []byte) (memory []byte, at int, err error) {
	if memory, err = readSegments(section); err != nil {
		return nil, 0, err
	}
	at, err = findTable(memory)
	return memory, at, err
}

// findTable returns the offset of the function table.
func findTable(memory []byte) (int, error) {
	at := bytes.Index(memory, []byte("\xf1\xff\xff\xff\x00\x00\x01\x08"))
	if at < 0 || len(memory)-at < 8*headerWords {
		return 0, unknown("there is no runtime.pclntab")
	}
	return at, nil
}

// table is the runtime's function table, pclntab: a header of nine words, names, compilation units, files, tables by
// instruction, and functions.
type table []byte

// Indexes of the header's words (runtime.pcHeader).
const (
	wordFunctions = 1
	wordNames     = 4
	wordUnits     = 5
	wordTables    = 7
	wordEntries   = 8
	headerWords   = 9
)

// Byte offsets of the fields in a function's entry (runtime._func).
const (
	entryName   = 4
	entryFrames = 16 // pcsp: frame sizes by instruction
	entryFile   = 20
	entryLine   = 24
	entryCount  = 28 // npcdata: number of pcdata offsets
	entryUnit   = 32
	entryStart  = 36 // startLine: first line
	entryOthers = 43 // nfuncdata: number of funcdata offsets, one byte
	entryData   = 44 // npcdata offsets into the tables; then funcdata
)

// Indexes into a function's pcdata and funcdata (internal/abi/symtab.go) that the runtime reads without a traceback or
// preemption by signals: which pointer map applies at an instruction; these maps, for arguments, locals and objects on
// the stack; and deferred calls.
const (
	pagePointers = 1
	dataObjects  = 2
	dataDefers   = 4
)

func (t table) word(i int) int { return int(binary.LittleEndian.Uint64(t[8*i:])) }

func (t table) at(offset int) int { return int(binary.LittleEndian.Uint32(t[offset:])) }

// strip zeroes everything in the table that only tracebacks read.
func (t table) strip() error {
	names, units, tables, entries := t.word(wordNames), t.word(wordUnits), t.word(wordTables), t.word(wordEntries)
	if !slices.IsSorted([]int{8 * headerWords, names, units, tables, entries, len(t)}) || names != 8*headerWords {
		return ErrLayout
	}
	pages := t[tables:entries]
	kept := make([]bool, len(pages))
	for i := range t.word(wordFunctions) {
		entry, err := t[entries:].function(i)
		if err != nil {
			return err
		}
		if err := entry.strip(pages, kept); err != nil {
			return err
		}
	}
	clear(t[names:tables])
	for i := range pages {
		if !kept[i] {
			pages[i] = 0
		}
	}
	return nil
}

// function returns the entry of function i, from the last part of the table.
func (t table) function(i int) (function, error) {
	if 8*i+8 > len(t) || t.at(8*i+4)+entryData > len(t) {
		return nil, ErrLayout
	}
	e := function(t[t.at(8*i+4):])
	size := entryData + 4*(table(e).at(entryCount)+int(e[entryOthers]))
	if size > len(e) {
		return nil, ErrLayout
	}
	return e[:size], nil
}

// function is a function's entry in the table (runtime._func). Among others it locates frame sizes and pointer maps.
type function []byte

// strip zeroes the fields of an entry that only tracebacks read. In kept it marks the tables that the runtime reads.
func (e function) strip(pages []byte, kept []bool) error {
	for _, field := range []int{entryName, entryFile, entryLine, entryUnit, entryStart} {
		clear(e[field : field+4])
	}
	count := table(e).at(entryCount)
	for i := range count {
		if i != pagePointers {
			clear(e[entryData+4*i:][:4])
		}
	}
	for i := range int(e[entryOthers]) {
		if i > dataObjects && i != dataDefers {
			copy(e[entryData+4*(count+i):], "\xff\xff\xff\xff")
		}
	}
	if err := keep(pages, kept, table(e).at(entryFrames)); err != nil || count <= pagePointers {
		return err
	}
	return keep(pages, kept, table(e).at(entryData+4*pagePointers))
}

// keep marks one table by instruction. The table is pairs of variable-length integers. A pair whose first integer is 0
// ends it, except the first pair. Offset 0 means no table.
func keep(pages []byte, kept []bool, offset int) error {
	for at, first := offset, true; offset != 0; first = false {
		if at >= len(pages) {
			return ErrLayout
		}
		value, n := binary.Uvarint(pages[at:])
		pair := n
		if value != 0 || first {
			_, m := binary.Uvarint(pages[at+n:])
			pair += m
		}
		for i := range pair {
			kept[at+i] = true
		}
		if at += pair; value == 0 && !first {
			return nil
		}
	}
	return nil
}
