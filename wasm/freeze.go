package wasm

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

// Freeze returns a module in the state after its start: memory and variables hold what the start left, and _initialize
// does nothing. So the download omits the start's code, and no page waits for it.
//
// A frozen module has no garbage collector, nor the pointer maps and write barriers for it; the collector is most of
// the runtime's code. Memory only grows, so the host replaces the instance from time to time (docs/wasm.md).
//
// Freeze runs the start with GOGC=off, a constant clock and zeros as random bytes, so the same source gives the same
// bytes. The start uses random bytes only as seeds of Go's maps. Randomizers draw from the host when they make a
// report.
//
// Freeze empties functions that never run (empty.go), and clears tables that only a collector, a growing stack or a
// panic reads. ran holds the runtime functions that remain ([Ran]); nil keeps all that may run, and names.
//
// It returns [ErrLayout] for a module without the layout of Go 1.26. Such a module, if compiled without write barriers,
// must not be used.
func Freeze(ctx context.Context, module []byte, ran map[string]bool) ([]byte, error) {
	sections, f, err := readModule(module)
	if err != nil {
		return nil, err
	}
	if !f.known {
		return nil, ErrLayout
	}
	if sections, err = frozen(ctx, sections, f, ran); err != nil {
		return nil, err
	}
	if ran != nil {
		sections = slices.DeleteFunc(sections, func(s section) bool { return s.id == sectionCustom })
	}
	return writeSections(sections), nil
}

// frozen does the work of [Freeze] on a module's sections. It keeps the names of functions.
func frozen(ctx context.Context, sections []section, f functions, ran map[string]bool) ([]section, error) {
	out, err := started(ctx, sections, f)
	if err != nil {
		return nil, err
	}
	var memory []byte
	var exports []int
	for i, s := range out {
		switch s.id {
		case sectionExport:
			exports, err = exportedFunctions(s.body)
		case sectionData:
			if memory, err = clearTables(s.body); err == nil {
				out[i].body = writeSegments(memory)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	for i, s := range out {
		if s.id != sectionCode {
			continue
		}
		if out[i].body, err = empty(s.body, f, memory, exports, ran); err == nil && ran != nil {
			out[i].body, err = squeeze(out[i].body, f)
		}
	}
	return out, err
}

// started runs a module's start. It returns the module with the memory and variables that the start left, and with
// bump's allocator.
func started(ctx context.Context, sections []section, f functions) ([]section, error) {
	runtime := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer runtime.Close(ctx)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, runtime); err != nil {
		return nil, fmt.Errorf("couldn't create a WASI host: %w", err)
	}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions(start).WithEnv("GOGC", "off").
		WithRandSource(zeroes{}).WithNanotime(func() int64 { return 1 }, sys.ClockResolution(1))
	instance, err := runtime.InstantiateWithConfig(ctx, writeSections(exportGlobals(sections)), config)
	if err != nil {
		return nil, fmt.Errorf("couldn't start the module: %w", err)
	}
	memory, ok := instance.Memory().Read(0, instance.Memory().Size())
	if !ok {
		return nil, ErrLayout
	}
	out := slices.Clone(sections)
	for i, s := range sections {
		switch s.id {
		case sectionMemory:
			out[i].body = binary.AppendUvarint([]byte{1, 0}, uint64(len(memory)/pageSize)) // one memory, no maximum
		case sectionGlobal:
			out[i].body, err = globalsOf(instance, s.body)
		case sectionCode:
			out[i].body, err = withoutStart(sections, s.body)
		case sectionData:
			out[i].body = writeSegments(memory)
		}
		if err != nil {
			return nil, err
		}
	}
	return bump(out, f, len(memory))
}

const (
	start    = "_initialize"
	pageSize = 65536
)

// zeroes yields zeros as the random bytes of the start.
type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// exportGlobals exports all globals of a module, so that started can read their values.
func exportGlobals(sections []section) []section {
	out, globals := slices.Clone(sections), 0
	for i, s := range out {
		r := &segments{rest: s.body}
		switch s.id {
		case sectionGlobal:
			globals = r.unsigned()
		case sectionExport:
			body := binary.AppendUvarint(nil, uint64(r.unsigned()+globals))
			body = append(body, r.rest...)
			for g := range globals {
				name := exportOf(g)
				body = append(append(append(body, byte(len(name))), name...), kindGlobal, byte(g))
			}
			out[i].body = body
		}
	}
	return out
}

func exportOf(global int) string { return fmt.Sprintf("global %d", global) }

const kindGlobal = 3

// globalsOf encodes the section of globals with the values that they have in a running instance.
func globalsOf(instance api.Module, section []byte) ([]byte, error) {
	r := &segments{rest: section}
	count := r.unsigned()
	out := binary.AppendUvarint(nil, uint64(count))
	for g := range count {
		kind, mutable := r.unsigned(), r.unsigned()
		op := r.unsigned()
		r.integer()
		if end := r.unsigned(); r.bad || end != opEnd || (op != opConst && op != opConst64) {
			return nil, ErrLayout
		}
		value := int(instance.ExportedGlobal(exportOf(g)).Get())
		if op == opConst {
			value = int(int32(value))
		}
		out = append(appendSigned(append(out, byte(kind), byte(mutable), byte(op)), value), opEnd)
	}
	return out, nil
}

const opConst64 = 0x42

func withoutStart(sections []section, code []byte) ([]byte, error) {
	f, err := readFunctions(sections)
	if err != nil {
		return nil, err
	}
	all, err := f.bodies(code)
	if err != nil {
		return nil, err
	}
	for _, s := range sections {
		if s.id != sectionExport {
			continue
		}
		number, err := exported(s.body, start)
		if err != nil || number < f.imports || number >= f.imports+len(all) {
			return nil, ErrLayout
		}
		all[number-f.imports].code = []byte{0, opEnd} // neither locals nor instructions
	}
	return writeBodies(all), nil
}

func exported(section []byte, name string) (int, error) {
	r := &segments{rest: section}
	for range r.unsigned() {
		found := string(r.bytes(r.unsigned())) == name
		r.unsigned() // skip the kind
		if number := r.unsigned(); found && !r.bad {
			return number, nil
		}
	}
	return 0, ErrLayout
}

func exportedFunctions(section []byte) (numbers []int, err error) {
	r := &segments{rest: section}
	for range r.unsigned() {
		r.bytes(r.unsigned()) // skip the name
		kind, number := r.unsigned(), r.unsigned()
		if r.bad {
			return nil, ErrLayout
		}
		if kind == kindFunction {
			numbers = append(numbers, number)
		}
	}
	return numbers, nil
}

const kindFunction = 0

// clearTables returns the memory of a data section with three contiguous tables of the Go runtime zeroed: functions,
// pointer maps, and the index of functions by address.
func clearTables(section []byte) ([]byte, error) {
	memory, at, err := readTable(section)
	if err != nil {
		return nil, err
	}
	// runtime.moduledata begins with the addresses of the function table and of the function names.
	begin := binary.LittleEndian.AppendUint64(nil, uint64(at))
	begin = binary.LittleEndian.AppendUint64(begin, uint64(at+8*headerWords))
	module := bytes.Index(memory, begin)
	if module < 0 || module+8*wordTablesEnd+8 > len(memory) {
		return nil, ErrLayout
	}
	word := func(i int) int { return int(binary.LittleEndian.Uint64(memory[module+8*i:])) }
	index, pointers, end := word(wordIndex), word(wordPointerMaps), word(wordTablesEnd)
	if !slices.IsSorted([]int{at, pointers, index, end, len(memory)}) {
		return nil, ErrLayout
	}
	clear(memory[at:end])
	return memory, nil
}

// Indexes of the words in runtime.moduledata that hold the addresses of tables.
const (
	wordIndex       = 19 // field findfunctab
	wordPointerMaps = 40 // field gofunc
	wordTablesEnd   = 41 // field epclntab
)
