package postlink

import (
	"encoding/binary"
	"regexp"
	"slices"
	"strings"
)

// reach finds what the exports of a frozen module can reach: functions, and symbols in memory.
//
//   - A function reaches what it calls, and the symbols whose addresses the linker wrote into it.
//   - A symbol reaches the symbols whose addresses the linker wrote into it, and what its other words may be the
//     address of: the start may have written them.
//   - So do the module's variables, the used part of the stack, and all memory that the start allocated.
//
// Where the linker did not say what an integer is, it counts as an address if it could be one: of each symbol that
// contains it or ends there. So reach may find too much and not too little, if no code computes the address of one
// symbol from that of another. Only code that reads the linker's tables does so ([moduleTables]), and reach refuses a
// module with such code.
type reach struct {
	f       functions
	bodies  []body
	symbols symbols
	memory  []byte
	layout  layout

	called  []bool   // By function.
	kept    []bool   // By symbol.
	refused []string // Why the module is refused.
	now     string   // What is scanned, and what reached it first.
	reached map[string]string
	pending []func() error
}

// moduleTables are the symbols by which the runtime finds the linker's tables: of types, names, functions and
// interfaces. Code that has none of them can compute no address in a table from an offset. The start leaves pointers to
// them in memory that it allocated, where nothing looks for them.
var moduleTables = []string{"runtime.firstmoduledata", "runtime.lastmoduledatap", "runtime.modulesSlice",
	"runtime.itabTable", "runtime.itabTableInit"}

// systemStack is the stack on which the start ran. Nothing returns to the frames there, as a frozen module has one
// goroutine. A function writes its frame before it reads it. So what the start left there is never read.
const systemStack = "runtime.wasmStack"

// describes matches functions that read of a type what follows its header, or its name. None may remain. It has those
// in which the runtime converts a type to ptrtype, structtype, functype, slicetype or uncommontype.
var describes = regexp.MustCompile(`^runtime\.(typehash|rtype\..*|toRType|resolve(Name|Type|Text)Off|typesEqual|` +
	`assertE2I\w*|typeAssert|interfaceSwitch|makechan\w*|chan(send|recv)\w*|mapiterinit\w*|printany\w*|` +
	`SetFinalizer|cgoCheck\w*|pointerMask|arena_\w+|__userArena_\.\w+)$|` +
	`^internal_abi\.(__Type_\.(Elem|Key|Len|ChanDir|NumMethod|ExportedMethods|Uncommon|StructType|ArrayType|` +
	`FuncType|InterfaceType|MapType|FieldAlign|PointerType|SliceType|ChanType|DescriptorSize)|Name\.|` +
	`__(Struct|Func|Interface|Uncommon|Ptr|Slice|Chan)Type_\.)|` +
	`^(reflect|internal_reflectlite|unique)\.|^internal_runtime_maps\.(mapKeyError2|typeString)$`)

// unreached returns the bodies of the functions that exports reach, the others emptied, and which bytes of memory
// nothing reaches. stack is the unused part of the stack, on which every function writes before it reads.
func unreached(r *reach, exports, globals []int, stack [2]int) (bodies []body, dead []bool, err error) {
	r.called, r.kept = make([]bool, len(r.bodies)), make([]bool, len(r.symbols.all))
	r.now, r.reached = "", map[string]string{}
	for _, number := range exports {
		r.function(number - r.f.imports)
	}
	for _, value := range globals {
		r.address(uint64(value))
	}
	dead = make([]bool, max(len(r.memory), r.symbols.end))
	for _, s := range r.symbols.all {
		fill(dead[s.from:s.to], true)
	}
	fill(dead[stack[0]:stack[1]], true)
	for _, name := range append([]string{systemStack}, moduleTables...) {
		if !slices.ContainsFunc(r.symbols.all, func(s symbol) bool { return s.name == name }) {
			return nil, nil, unknown("there is no " + name)
		}
	}
	r.now = "memory that the start allocated"
	for at := 0; at+8 <= len(r.memory); at += 8 {
		if !dead[at] { // not in a symbol
			r.address(r.word(at))
		}
	}
	for len(r.pending) > 0 {
		next := r.pending[len(r.pending)-1]
		r.pending = r.pending[:len(r.pending)-1]
		if err := next(); err != nil {
			return nil, nil, err
		}
	}
	if len(r.refused) > 0 {
		return nil, nil, unknown(strings.Join(r.refused, "; "))
	}
	for i, kept := range r.kept {
		if s := r.symbols.all[i]; kept {
			fill(dead[s.from:r.end(s)], false)
		}
	}
	bodies = slices.Clone(r.bodies)
	for i := range bodies {
		if !r.called[i] {
			bodies[i].code = trap
		}
	}
	return bodies, dead, nil
}

func fill(all []bool, with bool) {
	for i := range all {
		all[i] = with
	}
}

func (r *reach) word(at int) uint64 { return binary.LittleEndian.Uint64(r.memory[at:]) }

// address notes what an integer may be the address of.
func (r *reach) address(value uint64) {
	r.function(addressed(value))
	if value <= uint64(r.symbols.end) {
		r.symbols.at(int(value), r.symbol)
	}
}

// written notes an address that the linker wrote.
func (r *reach) written(a address) {
	known := false
	r.symbols.starting(a.symbol, func(i int) {
		known = true
		r.checkTables(i)
		r.symbol(i)
	})
	if !known {
		r.address(uint64(a.value))
		r.address(uint64(a.symbol))
	}
}

func (r *reach) function(i int) {
	if i < 0 || i >= len(r.bodies) || r.called[i] || slices.Equal(r.bodies[i].code, trap) {
		return
	}
	r.called[i] = true
	r.note(r.bodies[i].name)
	r.pending = append(r.pending, func() error { return r.scanCode(i) })
}

func (r *reach) symbol(i int) {
	name := r.symbols.all[i].name
	if r.kept[i] || name == systemStack || slices.Contains(moduleTables, name) {
		return
	}
	r.kept[i] = true
	r.note(name)
	r.pending = append(r.pending, func() error { return r.scanSymbol(r.symbols.all[i]) })
}

// scanSymbol notes what a symbol's words may be the address of.
func (r *reach) scanSymbol(s symbol) error {
	r.now = s.name
	if r.kind(s) == kindMap && r.memory[s.from+r.layout.mapFlags]&mapHashMightPanic != 0 {
		r.refuse("has keys that may hold interfaces") // see [absent]
	}
	for at := (s.from + 7) &^ 7; at+8 <= min(r.end(s), len(r.memory)); at += 8 {
		word := r.word(at)
		written := slices.IndexFunc(s.addresses, func(a address) bool {
			return a.at == at-s.from && uint64(a.value) == word
		})
		if written >= 0 {
			r.written(s.addresses[written])
			continue
		}
		r.address(word)
		if word > 0 && word <= uint64(r.symbols.end) {
			r.symbols.at(int(word), func(i int) {
				if int(word) < r.symbols.all[i].to {
					r.checkTables(i)
				}
			})
		}
	}
	return nil
}

// scanCode notes what a function calls, and what its constants are the address of.
func (r *reach) scanCode(i int) error {
	b := r.bodies[i]
	r.now = b.name
	if describes.MatchString(b.name) {
		r.refuse("reads more of a type than its header")
	}
	_, list, err := instructions(b.code)
	if err != nil {
		return err
	}
	for _, in := range list {
		switch in.op {
		case opCall:
			r.function(int(in.operand()) - r.f.imports)
		case opConst64, opConst:
			value := uint64(in.signed())
			r.function(addressed(value))
			for _, a := range r.symbols.functions[i] {
				if uint64(a.value) == value {
					r.written(a)
				}
			}
		}
	}
	return nil
}

// checkTables refuses one of [moduleTables] in what is reached.
func (r *reach) checkTables(i int) {
	if name := r.symbols.all[i].name; slices.Contains(moduleTables, name) {
		r.refuse("knows the address of " + name)
	}
}

// note notes what reached a function or symbol first.
func (r *reach) note(name string) {
	if _, known := r.reached[name]; !known {
		r.reached[name] = r.now
	}
}

// refuse refuses the module because of what is scanned now, and says what reached that.
func (r *reach) refuse(why string) {
	const shown = 6
	text := r.now + " " + why
	for name, i := r.reached[r.now], 0; name != "" && i < shown; name, i = r.reached[name], i+1 {
		text += " < " + name
	}
	r.refused = append(r.refused, text)
}

// end returns the first byte behind what is read of a symbol. Of a type it is the header (internal/abi.Type), except
// where the runtime reads more: the elements of arrays and channels, methods of interfaces, and keys of maps.
func (r *reach) end(s symbol) int {
	switch r.kind(s) {
	case noType, kindArray, kindChan, kindInterface, kindMap:
		return s.to
	}
	return s.from + typeHeader
}

// kind returns the kind of the type that a symbol is, or noType.
func (r *reach) kind(s symbol) byte {
	if !strings.HasPrefix(s.name, "type:") || strings.HasPrefix(s.name, "type:.") || s.to-s.from < typeHeader {
		return noType
	}
	return r.memory[s.from+typeKind] & kindMask
}

// Offsets in a type and its kinds (internal/abi/type.go), and what a map's type says of its keys (internal/abi/map.go).
const (
	typeHeader = 48
	typeKind   = 23
	kindMask   = 1<<5 - 1

	mapHashMightPanic = 1 << 1

	noType        = 0
	kindArray     = 17
	kindChan      = 18
	kindInterface = 20
	kindMap       = 21
)
