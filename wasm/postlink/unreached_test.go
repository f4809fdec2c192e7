package postlink

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// program is a small frozen module: symbols in memory, and functions whose code is a list of instructions.
type program struct {
	reach
	exports, globals []int
	stack            [2]int
}

// newProgram has 64 words of memory and these symbols, of two words each: a at 64, b at 80, c at 96; then a type of 64
// bytes at 120, and the first module table at 192. The rest belongs to no symbol.
func newProgram(bodies ...body) *program {
	p := &program{}
	p.memory, p.layout = make([]byte, 512), layouts["go1.26"]
	p.symbols.end = 208
	p.symbols.all = []symbol{{"a", 64, 80, nil}, {"b", 80, 96, nil}, {"c", 96, 112, nil},
		{"type:T", typeAt, typeAt + 64, nil}}
	for _, name := range append([]string{systemStack}, moduleTables[1:]...) {
		p.symbols.all = append(p.symbols.all, symbol{name, 192, 192, nil})
	}
	p.symbols.all = append(p.symbols.all, symbol{firstModule, 192, 208, nil})
	for _, s := range p.symbols.all {
		p.symbols.reaches = append(p.symbols.reaches, s.to)
	}
	p.bodies, p.symbols.functions = bodies, make([][]address, len(bodies))
	p.exports = []int{0}
	return p
}

const (
	firstModule = "runtime.firstmoduledata"
	typeAt      = 120
)

func (p *program) set(at, word int) { binary.LittleEndian.PutUint64(p.memory[at:], uint64(word)) }

// kept returns the names of the symbols of which a byte stays, and whether each function does.
func (p *program) kept(t *testing.T) (names []string, called []bool) {
	bodies, dead, err := unreached(&p.reach, p.exports, p.globals, p.stack)
	require.NoError(t, err)
	for _, s := range p.symbols.all {
		if !dead[s.from] {
			names = append(names, s.name)
		}
	}
	for _, b := range bodies {
		called = append(called, !slices.Equal(b.code, trap))
	}
	return names, called
}

// code returns a function that has constants and calls.
func code(constants []int, calls ...int) body {
	out := []byte{0}
	for _, c := range constants {
		out = append(appendSigned(append(out, opConst64), c), opDrop)
	}
	for _, c := range calls {
		out = append(binary.AppendUvarint(append(out, opCall), uint64(c)), opDrop)
	}
	return body{"main.f", append(out, opReturn, opEnd)}
}

func TestNothingIsReachedByNothing(t *testing.T) {
	p := newProgram(code(nil), code([]int{64}))
	p.symbols.functions[1] = []address{{0, 64, 64}}
	names, called := p.kept(t)
	require.Empty(t, names)
	require.Equal(t, []bool{true, false}, called)
}

// TestWrittenAddressesReach: an address that the linker wrote into a called function, or into a kept symbol, reaches
// its symbol and no other, also from outside. Another constant in a function is a number.
func TestWrittenAddressesReach(t *testing.T) {
	p := newProgram(code(nil, 1), code([]int{80, 300}))
	names, called := p.kept(t)
	require.Empty(t, names)
	require.Equal(t, []bool{true, true}, called)
	p.symbols.functions[1] = []address{{0, 80, 80}}
	names, _ = p.kept(t)
	require.Equal(t, []string{"b"}, names, "80 is also behind the last byte of a")
	p.symbols.functions[1] = []address{{0, 300, 96}}
	names, _ = p.kept(t)
	require.Equal(t, []string{"c"}, names)
	p.set(96, 80)
	p.symbols.all[2].addresses = []address{{0, 80, 64}}
	names, _ = p.kept(t)
	require.Equal(t, []string{"a", "c"}, names, "the word in c points behind a")
	p.set(96, 81)
	names, _ = p.kept(t)
	require.Equal(t, []string{"b", "c"}, names, "the start has changed the word")
}

// TestWordsReach: a word of a kept symbol that the start wrote, a variable of the module, and a word outside of all
// symbols reach a symbol. An address inside counts, and one behind the last byte.
func TestWordsReach(t *testing.T) {
	p := newProgram(code(nil))
	p.globals = []int{0, 72}
	p.set(64, 111)
	names, _ := p.kept(t)
	require.Equal(t, []string{"a", "c"}, names)

	p = newProgram(code(nil))
	p.set(400, 80)
	names, _ = p.kept(t)
	require.Equal(t, []string{"a", "b"}, names, "80 is the first byte of b, and behind the last of a")
}

// TestUnusedStackReachesNothing: a word in the unused part of the stack is no root.
func TestUnusedStackReachesNothing(t *testing.T) {
	p := newProgram(code(nil))
	p.set(400, 65)
	p.stack = [2]int{400, 408}
	names, _ := p.kept(t)
	require.Empty(t, names)
}

// TestFunctionsAreReachedByAddress: a word in a kept symbol that is a function's address keeps the function.
func TestFunctionsAreReachedByAddress(t *testing.T) {
	p := newProgram(code([]int{(firstFunction + 3) << 16}), code(nil), code(nil), code(nil))
	p.globals = []int{64}
	p.set(64, (firstFunction+2)<<16)
	_, called := p.kept(t)
	require.Equal(t, []bool{true, false, true, true}, called)
}

// TestTypesKeepTheirHeader: the bytes behind a type's header are dead, but for the kinds of which more is read.
func TestTypesKeepTheirHeader(t *testing.T) {
	for kind, whole := range map[byte]bool{kindMap: true, kindArray: true, 25: false, 22: false} {
		p := newProgram(code(nil))
		p.globals = []int{130}
		p.memory[typeAt+typeKind] = kind
		p.set(typeAt+typeHeader, 64) // reaches a
		_, dead, err := unreached(&p.reach, p.exports, p.globals, p.stack)
		require.NoError(t, err)
		require.False(t, dead[typeAt+typeHeader-1])
		require.Equal(t, whole, !dead[typeAt+typeHeader], "kind %d", kind)
		require.Equal(t, whole, !dead[64], "kind %d", kind)
	}
}

// TestTablesOfTheModuleAreRefused: code or data that knows where the linker's tables are could compute any address in
// them. The pointer that the start leaves in allocated memory is known and no reason.
func TestTablesOfTheModuleAreRefused(t *testing.T) {
	p := newProgram(code(nil))
	p.set(400, 192)
	names, _ := p.kept(t)
	require.Empty(t, names)

	p = newProgram(code([]int{192}))
	p.symbols.functions[0] = []address{{0, 192, 192}}
	_, _, err := unreached(&p.reach, p.exports, nil, p.stack)
	require.ErrorIs(t, err, ErrLayout)
	require.ErrorContains(t, err, "main.f knows the address of "+firstModule)

	p = newProgram(code(nil))
	p.set(72, 200)
	_, _, err = unreached(&p.reach, p.exports, []int{64}, p.stack)
	require.ErrorContains(t, err, "a knows the address of "+firstModule)
}

// TestReflectionIsRefused: a reached function that reads a type's fields or name is refused.
func TestReflectionIsRefused(t *testing.T) {
	for _, name := range []string{"reflect.Value.Field", "runtime.typehash", "internal_abi.__Type_.Elem",
		"internal_reflectlite.rtype.String", "internal_runtime_maps.mapKeyError2", "runtime.SetFinalizer",
		"unique.buildStructCloneSeq", "runtime.arena_arena_New", "runtime.__userArena_.slice"} {
		p := newProgram(code(nil, 1), body{name, code(nil).code})
		_, _, err := unreached(&p.reach, p.exports, nil, p.stack)
		require.ErrorIs(t, err, ErrLayout)
		require.ErrorContains(t, err, name)
		p = newProgram(code(nil), body{name, code(nil).code})
		_, _, err = unreached(&p.reach, p.exports, nil, p.stack)
		require.NoError(t, err, "nothing calls it")
	}
}

// TestMapsOfInterfacesAreRefused: a lookup in such a map, if it is empty, would call a function that is emptied.
func TestMapsOfInterfacesAreRefused(t *testing.T) {
	check := func(kind, flags byte) error {
		p := newProgram(code(nil))
		p.globals = []int{typeAt}
		p.memory[typeAt+typeKind], p.memory[typeAt+p.layout.mapFlags] = kind, flags
		_, _, err := unreached(&p.reach, p.exports, p.globals, p.stack)
		return err
	}
	require.NoError(t, check(kindMap, 0xff&^mapHashMightPanic))
	require.ErrorContains(t, check(kindMap, mapHashMightPanic), "type:T has keys that may hold interfaces")
	require.NoError(t, check(kindInterface, mapHashMightPanic))
}

// TestSymbolsAreRead: readSymbols refuses a module without the linker's list, and one that is cut or has other
// functions.
func TestSymbolsAreRead(t *testing.T) {
	list := append(binary.AppendUvarint(nil, uint64(len(sectionSymbols))), sectionSymbols...)
	list = append(list, 2, 1, 'a', 64, 16, 0) // two symbols: name, address, size, addresses
	list = append(list, 1, 'b', 80, 8, 1, 0, 65, 64)
	list = append(list, 1, 1, 3, 72, 64) // one function with one address
	sections := []section{{sectionCustom, list}}
	got, err := readSymbols(sections, 1)
	require.NoError(t, err)
	require.Equal(t, symbols{[]symbol{{"a", 64, 80, nil}, {"b", 80, 88, []address{{0, 65, 64}}}}, []int{80, 88},
		[][]address{{{3, 72, 64}}}, 88}, got)
	_, err = readSymbols(sections, 2)
	require.ErrorIs(t, err, ErrLayout)
	_, err = readSymbols(nil, 1)
	require.ErrorContains(t, err, "the linker wrote no symbols")
	for n := len(sectionSymbols) + 1; n < len(list); n++ {
		_, err := readSymbols([]section{{sectionCustom, list[:n]}}, 1)
		require.ErrorIs(t, err, ErrLayout, "%d bytes", n)
	}
}
