package wasm

import (
	"encoding/binary"
	"regexp"
)

// Functions that never run in a frozen module get an empty body, which stops it. No linker can know them. There are
// four kinds:
//
//   - What the start alone runs: it has run.
//   - What nothing that stays calls, or knows the address of. Addresses are in memory, and in functions: Go's linker
//     writes each as a word, and nothing that stays computes another.
//   - What ends in the end: panics, errors of the runtime, a stack that is too small. The module stops there without
//     a word. The client then goes on with doona-full.wasm, in which nothing is emptied and which says why if it
//     stops, too.
//   - What of the runtime nobody saw run, although its address is in memory, or it belongs to what a frozen module has
//     none of: a collector, last words. The evidence is ran.txt: what ran in a trace of all tests of a module,
//     refusals and a soak among them. What else a function that stays calls stays as well, whether or not it was
//     seen: which of it runs is a matter of how large or full something is.
//
// Of protocols, of package math and of the conversions of numbers nothing is emptied that could run: which functions
// of the runtime run can depend on a value no more than by how much memory it takes. Should a function of a protocol
// stop a module for some values, then whoever serves doona-full.wasm would learn something of the value.
var (
	starts = regexp.MustCompile(`[^_]\.init(\.\d+)?$|^runtime\.(rt0_go|schedinit|__mheap_\.init)$|` +
		`^(internal_cpu|runtime_debug)\.`)
	last = regexp.MustCompile(`^runtime\.(gopanic|goPanic\w+|panic\w+|throw|fatal\w*|sigpanic|newstack|morestack\w*|` +
		`deferreturn|deferproc\w*|gorecover|badsystemstack|abort|saveblockevent)$|^wasm_pc_f_loop`)
	absent = regexp.MustCompile(`^runtime\.(gc\w+|__wbBuf_.*|bulkBarrier\w*|.*[tT]ypePointers.*|print\w+|g?write\w*)$`)
	// foreign are those that must not stay: they would compute addresses of functions, for reflection or assertions, or
	// take memory beside bump's.
	foreign = regexp.MustCompile(`^runtime\.(getitab|itabInit|sbrk|growMemory)$|[tT]extOff$`)
	// runtimes are the functions of the runtime. Its maps stay whole.
	runtimes = regexp.MustCompile(`^(runtime|internal_runtime_\w+|internal_abi|type_)\.`)
	kept     = regexp.MustCompile(`^runtime\.typed\w+$|^internal_runtime_maps\.|github\.com`)
)

// trap is the body that stops a module.
var trap = []byte{0, opUnreachable, opEnd} // no locals

const opUnreachable = 0x00

// empty empties the functions in a code section that never run. memory and exports are the module's; ran are the names
// in ran.txt, and nil keeps all but the start and the end.
func empty(code []byte, f functions, memory []byte, exports []int, ran map[string]bool) ([]byte, error) {
	all, err := f.bodies(code)
	if err != nil {
		return nil, err
	}
	stay := make([]bool, len(all))
	if ran != nil {
		if stay, err = f.staying(all, memory, exports, ran); err != nil {
			return nil, err
		}
	}
	for i, b := range all {
		if ran != nil && !stay[i] || ends(b.name) {
			all[i].code = trap
		}
	}
	return writeBodies(all), nil
}

// ends tells whether a function is of the start or of the end.
func ends(name string) bool { return starts.MatchString(name) || last.MatchString(name) }

// staying returns which functions stay: those that are exported or whose address is in memory, what these call, or know
// the address of, and so on.
func (f functions) staying(all []body, memory []byte, exports []int, ran map[string]bool) (stay []bool, err error) {
	stay = make([]bool, len(all))
	closures, next := closures(all), []int(nil)
	keep := func(i int) {
		if i >= 0 && i < len(all) && !stay[i] && !ends(all[i].name) {
			stay[i], next = true, append(next, i)
		}
	}
	keepAddressed := func(address uint64) {
		i := addressed(address)
		if i >= 0 && i < len(all) && (!runtimes.MatchString(all[i].name) || kept.MatchString(all[i].name) ||
			ran[all[i].name]) {
			keep(i)
		}
	}
	for _, number := range exports {
		keep(number - f.imports)
	}
	for at := 0; at+8 <= len(memory); at += 8 {
		keepAddressed(binary.LittleEndian.Uint64(memory[at:]))
	}
	for len(next) > 0 {
		i := next[0]
		next = next[1:]
		if foreign.MatchString(all[i].name) {
			return nil, ErrLayout
		}
		for _, closure := range closures[all[i].name] {
			keep(closure)
		}
		_, list, err := instructions(all[i].code)
		if err != nil {
			return nil, err
		}
		for _, instruction := range list {
			switch instruction.op {
			case opCall:
				called := int(instruction.operand()) - f.imports
				if called >= len(all) {
					return nil, ErrLayout
				}
				if called >= 0 && (ran[all[called].name] || !absent.MatchString(all[called].name)) {
					keep(called)
				}
			case opConst64:
				keepAddressed(instruction.operand())
			}
		}
	}
	return stay, nil
}

// addressed returns the index of the function that begins at an address, as Go's linker counts them; a number outside
// of the code section where none does. Return addresses, with what is not 0 in their lower part, are not used.
func addressed(address uint64) int {
	if address&0xffff != 0 {
		return -1
	}
	return int(address>>16) - firstFunction
}

// closures returns the closures in a function by its name: they are called by address.
func closures(all []body) map[string][]int {
	in := map[string][]int{}
	for i, b := range all {
		if at := closure.FindStringIndex(b.name); at != nil {
			in[b.name[:at[0]]] = append(in[b.name[:at[0]]], i)
		}
	}
	return in
}

var closure = regexp.MustCompile(`\.func\d+$|\.\d+$`)
