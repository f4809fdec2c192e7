package postlink

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
// The module must have been linked by [BuildLinker]'s linker, and compiled without write barriers. Without step Start
// it must have them, and Freeze only does what [Strip] does.
//
// It returns an [ErrLayout] that names the check for a module that it does not know. Such a module, if compiled without
// write barriers, must not be used.
func Freeze(ctx context.Context, module []byte, o Options) ([]byte, error) {
	if !o.Does(Start) {
		return Strip(module)
	}
	image, err := freeze(ctx, module, o)
	if err != nil {
		return nil, err
	}
	out := image.write()
	if o.Does(Names) {
		out = slices.DeleteFunc(out, func(s section) bool { return s.id == sectionCustom })
	}
	return writeSections(out), nil
}

// FunctionSizes freezes a module and returns the sizes of its functions in bytes, by name.
func FunctionSizes(ctx context.Context, module []byte) (map[string]int, error) {
	image, err := freeze(ctx, module, Options{})
	if err != nil {
		return nil, err
	}
	sizes := map[string]int{}
	for _, b := range image.bodies {
		sizes[b.name] += len(b.code)
	}
	return sizes, nil
}

// image is a started module.
type image struct {
	sections []section
	f        functions
	layout   layout
	symbols  symbols
	memory   []byte
	bodies   []body
	exports  []int // Numbers of exported functions.
	globals  []int
}

// freeze makes the steps of [Freeze]. It keeps the names of functions.
func freeze(ctx context.Context, module []byte, o Options) (*image, error) {
	i, err := start(ctx, module, o)
	if err != nil {
		return nil, err
	}
	dead := make([]bool, len(i.memory))
	if o.Does(Tables) {
		from, to, err := i.tables()
		if err != nil {
			return nil, err
		}
		fill(dead[from:to], true)
		clear(i.memory[from:to])
	}
	if err := i.empty(o.Does(Functions)); err != nil {
		return nil, err
	}
	if o.Does(Switches) {
		if err := i.squeeze(o.Does(Blocks)); err != nil {
			return nil, err
		}
	}
	if o.Does(Data) {
		if dead, err = i.clearUnreached(dead, o); err != nil {
			return nil, err
		}
	}
	if o.Poison != 0 {
		i.memory = append(i.memory, make([]byte, max(0, len(dead)-len(i.memory)))...)
		for at, unused := range dead {
			if unused {
				i.memory[at] = o.Poison
			}
		}
	}
	return i, nil
}

// clearUnreached clears the data that nothing reaches, and empties the functions that nothing reaches then. It returns
// which bytes are cleared, with those that were before.
func (i *image) clearUnreached(before []bool, o Options) (dead []bool, err error) {
	from, to, err := i.unusedStack()
	if err != nil {
		return nil, err
	}
	r := &reach{f: i.f, bodies: i.bodies, symbols: i.symbols, memory: i.memory, layout: i.layout}
	if i.bodies, dead, err = unreached(r, i.exports, i.globals, [2]int{from, to}); err != nil {
		return nil, err
	}
	for _, s := range i.symbols.all {
		if slices.Contains(o.Plant, s.name) {
			fill(dead[s.from:s.to], true)
		}
	}
	cleared, all := 0, 0
	for at, b := range i.memory {
		if b != 0 {
			all++
		}
		if b != 0 && dead[at] {
			cleared++
			i.memory[at] = 0
		}
		dead[at] = dead[at] || before[at]
	}
	if o.Dead != nil {
		o.Dead(cleared, all)
	}
	return dead, nil
}

// unusedStack returns the part of the goroutine's stack below the stack pointer.
func (i *image) unusedStack() (from, to int, err error) {
	if len(i.globals) <= globalG || i.globals[globalG]+16 > len(i.memory) {
		return 0, 0, unknown("there is no goroutine")
	}
	word := func(n int) int { return int(binary.LittleEndian.Uint64(i.memory[i.globals[globalG]+8*n:])) }
	from, to = word(0), i.globals[globalSP]
	if from < i.symbols.end || from > to || to > word(1) || to > len(i.memory) {
		return 0, 0, unknown("the stack pointer is not in the goroutine's stack")
	}
	return from, to, nil
}

// Numbers of Go's global variables: the stack pointer, and the goroutine, which begins with the bounds of its stack.
const (
	globalSP = 0
	globalG  = 2
)

// write returns the sections of the module.
func (i *image) write() []section {
	out := slices.Clone(i.sections)
	for n, s := range out {
		switch s.id {
		case sectionCode:
			out[n].body = writeBodies(i.bodies)
		case sectionData:
			out[n].body = writeSegments(i.memory)
		}
	}
	return out
}

// start runs the start of a module and reads what it left.
func start(ctx context.Context, module []byte, o Options) (*image, error) {
	sections, f, err := readModule(module)
	if err != nil {
		return nil, err
	}
	i := &image{f: f}
	if i.layout, err = f.layout(); err != nil {
		return nil, err
	}
	if i.sections, err = started(ctx, sections, f, o.Does(Allocator)); err != nil {
		return nil, err
	}
	for _, s := range i.sections {
		switch s.id {
		case sectionExport:
			i.exports, err = exportedFunctions(s.body)
		case sectionGlobal:
			i.globals, err = readGlobals(s.body)
		case sectionCode:
			i.bodies, err = f.bodies(s.body)
		case sectionData:
			i.memory, err = readSegments(s.body)
		}
		if err != nil {
			return nil, err
		}
	}
	if o.Does(Data) {
		i.symbols, err = readSymbols(sections, len(i.bodies))
	}
	return i, err
}

// readGlobals returns the values of a started module's variables.
func readGlobals(section []byte) (values []int, err error) {
	r := &segments{rest: section}
	for range r.unsigned() {
		r.bytes(3) // skip kind, mutability and opcode
		values = append(values, r.signed())
		r.bytes(1)
	}
	if r.bad {
		return nil, unknown("the variables have another form")
	}
	return values, nil
}

// started runs a module's start. It returns the module with the memory and variables that the start left and, if
// wanted, with bump's allocator.
func started(ctx context.Context, sections []section, f functions, withBump bool) ([]section, error) {
	runtime := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer runtime.Close(ctx)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, runtime); err != nil {
		return nil, fmt.Errorf("couldn't create a WASI host: %w", err)
	}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions(initialize).WithEnv("GOGC", "off").
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
	if withBump {
		return bump(out, f, len(memory))
	}
	return out, nil
}

const (
	initialize = "_initialize"
	pageSize   = 65536
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
		number, err := exported(s.body, initialize)
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

// tables returns where three contiguous tables of the Go runtime lie: functions, pointer maps, and the index of
// functions by address.
func (i *image) tables() (from, to int, err error) {
	memory := i.memory
	from, err = findTable(memory)
	if err != nil {
		return 0, 0, err
	}
	// runtime.moduledata begins with the addresses of the function table and of the function names.
	begin := binary.LittleEndian.AppendUint64(nil, uint64(from))
	begin = binary.LittleEndian.AppendUint64(begin, uint64(from+8*headerWords))
	module := bytes.Index(memory, begin)
	if module < 0 || module+8*i.layout.tablesEnd+8 > len(memory) {
		return 0, 0, unknown("there is no runtime.moduledata")
	}
	word := func(n int) int { return int(binary.LittleEndian.Uint64(memory[module+8*n:])) }
	index, pointers, to := word(wordIndex), word(i.layout.pointerMaps), word(i.layout.tablesEnd)
	if !slices.IsSorted([]int{from, pointers, index, to, len(memory)}) {
		return 0, 0, unknown("runtime.moduledata has other words for the tables of functions")
	}
	return from, to, nil
}

// wordIndex is the index of the word in runtime.moduledata that holds the address of the index of functions (field
// findfunctab).
const wordIndex = 19
