package wasm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// Strip removes from a Go module what only tracebacks read: the names of functions and files,
// and the tables of files and lines by instruction. That is a sixth of the download. A module
// that stops then says why, but not where; build without Strip to find out.
//
// The linker keeps these tables for every platform (its -s and -w flags do not touch them); they
// are laid out as runtime.pcHeader and runtime._func say (runtime/symtab.go, runtime2.go). What
// the runtime itself needs stays: stack maps, frame sizes, the ids of its own functions. Of its
// decisions two ask for a name: whether a goroutine is one of the runtime's own, which matters
// for the message about a deadlock, and whether a panic comes from the runtime, which is then a
// panic and not a throw.
//
// Functions are emptied as empty.go says, where the module has their names and is of the toolchain that it
// knows, and so are their entries in the tables: they are never on a stack. Names and all other custom sections go.
//
// ran are the functions of the runtime that stay, by their names in the name section; nil keeps all.
// The error is [ErrLayout] where the module is not laid out as this toolchain does it.
func Strip(module []byte, ran map[string]bool) ([]byte, error) {
	sections, err := readSections(module)
	if err != nil {
		return nil, err
	}
	f, err := readFunctions(sections)
	if err != nil {
		return nil, err
	}
	f.ran = ran
	if !f.known {
		f.names = nil
	}
	out, data := []byte(header), false
	var emptied []bool
	for _, s := range sections {
		body := s.body
		switch s.id {
		case sectionCustom:
			continue
		case sectionCode:
			body, emptied, err = empty(body, f)
		case sectionData:
			data = true
			body, err = stripData(body, emptied)
		}
		if err != nil {
			return nil, err
		}
		out = append(binary.AppendUvarint(append(out, s.id), uint64(len(body))), body...)
	}
	if !data {
		return nil, ErrLayout
	}
	return out, nil
}

// section is a part of a module.
type section struct {
	id   byte
	body []byte
}

func readSections(module []byte) (all []section, err error) {
	rest, ok := bytes.CutPrefix(module, []byte(header))
	r := &segments{rest: rest, bad: !ok}
	for len(r.rest) > 0 && !r.bad {
		id := r.unsigned()
		all = append(all, section{byte(id), r.bytes(r.unsigned())})
	}
	if r.bad {
		return nil, ErrLayout
	}
	return all, nil
}

// ErrLayout is returned for a module that [Strip] does not understand.
var ErrLayout = errors.New("couldn't strip the module: not laid out as by Go 1.26")

const (
	header        = "\x00asm\x01\x00\x00\x00"
	sectionCustom = 0
	sectionImport = 2
	sectionCode   = 10
	sectionData   = 11
)

func stripData(section []byte, emptied []bool) ([]byte, error) {
	memory, err := readSegments(section)
	if err != nil {
		return nil, err
	}
	at := bytes.Index(memory, []byte("\xf1\xff\xff\xff\x00\x00\x01\x08"))
	if at < 0 || len(memory)-at < 8*headerWords {
		return nil, ErrLayout
	}
	t := table(memory[at:])
	if err := t.strip(emptied); err != nil {
		return nil, err
	}
	return writeSegments(memory), nil
}

// table is the runtime's pclntab: a header of nine words, names, compilation units, files,
// tables by instruction, and functions.
type table []byte

// The words of the header, runtime.pcHeader.
const (
	wordFunctions = 1
	wordNames     = 4
	wordUnits     = 5
	wordTables    = 7
	wordEntries   = 8
	headerWords   = 9
)

// The offsets in a function's entry, runtime._func.
const (
	entryName   = 4
	entryFrames = 16 // pcsp, frame sizes by instruction
	entryFile   = 20
	entryLine   = 24
	entryCount  = 28 // npcdata
	entryUnit   = 32
	entryStart  = 36 // first line
	entryID     = 40 // funcID, a byte
	entryFlags  = 41 // a byte
	entryOthers = 43 // nfuncdata, a byte
	entryData   = 44 // pcdata, npcdata offsets into the tables; then funcdata
)

// What of a function's pcdata and funcdata the runtime reads while nothing is traced and no signal preempts,
// internal/abi/symtab.go: which of the maps of pointers holds at an instruction; those maps, for arguments, locals
// and objects on the stack; and deferred calls.
const (
	pagePointers = 1
	dataObjects  = 2
	dataDefers   = 4
)

func (t table) word(i int) int { return int(binary.LittleEndian.Uint64(t[8*i:])) }

func (t table) at(offset int) int { return int(binary.LittleEndian.Uint32(t[offset:])) }

// strip zeroes everything that only tracebacks read, and all of emptied functions, which are numbered as the
// table's are.
func (t table) strip(emptied []bool) error {
	names, units, tables, entries := t.word(wordNames), t.word(wordUnits), t.word(wordTables), t.word(wordEntries)
	if !slices.IsSorted([]int{8 * headerWords, names, units, tables, entries, len(t)}) || names != 8*headerWords {
		return ErrLayout
	}
	if t.word(wordFunctions) != len(emptied) {
		return ErrLayout
	}
	pages := t[tables:entries]
	kept := make([]bool, len(pages))
	var nobody []byte // The offset of the one entry of all emptied functions.
	for i, gone := range emptied {
		offset, entry, err := t[entries:].function(i)
		if err != nil {
			return err
		}
		if gone && !entry.marked() {
			clear(entry)
			if nobody == nil {
				nobody = bytes.Clone(offset)
			}
			copy(offset, nobody)
			continue
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

// function returns the entry of a function in the last part of the table, and the offset that leads to it.
func (t table) function(i int) (offset []byte, e function, err error) {
	if 8*i+8 > len(t) || t.at(8*i+4)+entryData > len(t) {
		return nil, nil, ErrLayout
	}
	e = function(t[t.at(8*i+4):])
	size := entryData + 4*(table(e).at(entryCount)+int(e[entryOthers]))
	if size > len(e) {
		return nil, nil, ErrLayout
	}
	return t[8*i+4 : 8*i+8], e[:size], nil
}

// function is an entry of the table, runtime._func: how large its frames are, and where on them pointers are.
type function []byte

// marked tells whether the runtime knows the function or treats it otherwise than others. Goexit is one: it stands
// under every goroutine's first function, though it was not called.
func (e function) marked() bool { return e[entryID] != 0 || e[entryFlags] != 0 }

// strip marks the tables by instruction that the runtime itself reads, and clears what else there is.
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

// keep marks one table by instruction: pairs of variable-length integers, ended by a zero in the
// place of a first one. Offset 0 stands for no table.
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

// readSegments returns the memory that a data section's segments initialize.
func readSegments(section []byte) ([]byte, error) {
	r := &segments{rest: section}
	var memory []byte
	for range r.unsigned() {
		mode, code, address, end := r.unsigned(), r.unsigned(), r.signed(), r.unsigned()
		content := r.bytes(r.unsigned())
		if r.bad || mode != 0 || code != opConst || end != opEnd || address < 0 || address > 1<<30 {
			return nil, ErrLayout
		}
		if grow := address + len(content) - len(memory); grow > 0 {
			memory = append(memory, make([]byte, grow)...)
		}
		copy(memory[address:], content)
	}
	return memory, nil
}

const (
	opConst = 0x41 // i32.const
	opEnd   = 0x0b
	// segmentCost is the run of zeros at which a new segment is worth its head. Compressed, zeros cost next to
	// nothing, and a head with an address and a length that nobody can guess some three bytes: shorter runs
	// than these made the download an eighth larger.
	segmentCost = 256
)

// writeSegments writes memory as a data section, leaving out runs of zeros as the linker does.
func writeSegments(memory []byte) []byte {
	count, out := 0, []byte{}
	for at := 0; at < len(memory); {
		start := at + zeros(memory[at:])
		end := start
		for end < len(memory) {
			if run := zeros(memory[end:]); run >= segmentCost || end+run == len(memory) {
				break
			} else {
				end += run + 1
			}
		}
		end = min(end, len(memory))
		if end > start {
			count++
			out = append(out, 0, opConst)
			out = appendSigned(out, start)
			out = binary.AppendUvarint(append(out, opEnd), uint64(end-start))
			out = append(out, memory[start:end]...)
		}
		at = max(end, start)
	}
	return append(binary.AppendUvarint(nil, uint64(count)), out...)
}

// zeros returns the number of leading zeros.
func zeros(p []byte) int {
	for i, b := range p {
		if b != 0 {
			return i
		}
	}
	return len(p)
}

// segments reads LEB128 integers and bytes; bad is set at the first that is not there.
type segments struct {
	rest []byte
	bad  bool
}

func (r *segments) unsigned() int {
	value, n := binary.Uvarint(r.rest)
	r.bytes(max(n, 0))
	r.bad = r.bad || n <= 0 || value > 1<<31
	return int(value)
}

func (r *segments) signed() int {
	value, shift := int64(0), 0
	for {
		p := r.bytes(1)
		if r.bad {
			return 0
		}
		value |= int64(p[0]&0x7f) << shift
		shift += 7
		if p[0] < 0x80 || shift > 35 {
			break
		}
	}
	return int(value << (64 - shift) >> (64 - shift))
}

func (r *segments) bytes(n int) []byte {
	if n > len(r.rest) {
		r.bad = true
		return nil
	}
	head := r.rest[:n]
	r.rest = r.rest[n:]
	return head
}

func appendSigned(out []byte, v int) []byte {
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low < 0x40 || v == -1 && low >= 0x40 {
			return append(out, low)
		}
		out = append(out, low|0x80)
	}
}
