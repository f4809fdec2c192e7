package postlink

import (
	"cmp"
	"slices"
)

// symbol is a variable, constant, type or table of a Go program: its name, its bytes in memory, [from, to), and the
// addresses that the linker wrote into them.
type symbol struct {
	name      string
	from, to  int
	addresses []address
}

// address is an address that the linker wrote into a function or a symbol: where, its value, and the first byte of the
// symbol that the compiler meant. A value may lie outside of its symbol: a[i+9] has the address of a plus 9 elements.
type address struct{ at, value, symbol int }

// symbols is the content of the custom section that linker/symbols.go.txt writes.
type symbols struct {
	all       []symbol    // Sorted by the first byte.
	reaches   []int       // By symbol: the largest end of this symbol and of those before it.
	functions [][]address // By function: the addresses in it.
	end       int         // The first byte behind all symbols.
}

const sectionSymbols = "doona.symbols"

// readSymbols reads the symbols of a module with a number of functions.
func readSymbols(sections []section, functions int) (out symbols, err error) {
	for _, s := range sections {
		r := &segments{rest: s.body}
		if s.id != sectionCustom || string(r.bytes(r.unsigned())) != sectionSymbols {
			continue
		}
		for range r.unsigned() {
			name, from, size := string(r.bytes(r.unsigned())), r.unsigned(), r.unsigned()
			out.end = max(out.end, from+size)
			out.all = append(out.all, symbol{name, from, from + size, readAddresses(r)})
			out.reaches = append(out.reaches, out.end)
		}
		for range r.unsigned() {
			out.functions = append(out.functions, readAddresses(r))
		}
		sorted := slices.IsSortedFunc(out.all, func(a, b symbol) int { return cmp.Compare(a.from, b.from) })
		if r.bad || !sorted || len(out.all) == 0 || len(out.functions) != functions {
			return out, unknown("the linker's symbols have another form")
		}
		return out, nil
	}
	return out, unknown("the linker wrote no symbols")
}

func readAddresses(r *segments) (list []address) {
	for range r.unsigned() {
		list = append(list, address{r.unsigned(), r.unsigned(), r.unsigned()})
	}
	return list
}

// starting calls f with each symbol whose first byte is at an address.
func (s *symbols) starting(at int, f func(i int)) {
	first, _ := slices.BinarySearchFunc(s.all, at, func(e symbol, at int) int { return cmp.Compare(e.from, at) })
	for i := first; i < len(s.all) && s.all[i].from == at; i++ {
		f(i)
	}
}

// at calls f with each symbol that contains an address, and with each that ends there: a pointer behind the last byte
// of a symbol counts.
func (s *symbols) at(address int, f func(i int)) {
	after, _ := slices.BinarySearchFunc(s.all, address+1, func(e symbol, at int) int { return cmp.Compare(e.from, at) })
	for i := after - 1; i >= 0 && s.reaches[i] >= address; i-- {
		if s.all[i].to >= address {
			f(i)
		}
	}
}
