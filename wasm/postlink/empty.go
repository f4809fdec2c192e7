package postlink

import (
	"encoding/binary"
	"regexp"
)

// Freeze gives functions that never run in a frozen module an empty body, which stops the module. A linker cannot know
// these functions. There are four kinds:
//
//   - Functions that only the start runs, which is over.
//   - Functions that no remaining function calls and whose address none knows. Addresses are constants in memory and in
//     functions: Go's linker writes each as a word, and no remaining function computes one.
//   - Functions that run only at the end: panics, runtime errors, stack overflow, and names of types, which only their
//     messages contain. The module stops there silently. The client then continues with doona-full.wasm, in which
//     nothing is emptied and which reports why it stops.
//   - Runtime functions whose address is in memory but which ran in no test, and those of missing parts: the collector,
//     panic messages. ran.txt lists what ran in all tests of a module, including refusals and a soak test. Runtime
//     functions that a remaining function calls stay in any case, as it depends on sizes which of them runs.
//
// In protocols, package math and number conversions, no function that could run is emptied. If some values stopped the
// module in a protocol's function, the server of doona-full.wasm would learn something about the value. Which runtime
// functions run depends on a value at most through its memory use.
var (
	starts = regexp.MustCompile(`[^_]\.init(\.\d+)?$|^runtime\.(rt0_go|schedinit|__mheap_\.init)$|` +
		`^(internal_cpu|runtime_debug)\.`)
	last = regexp.MustCompile(`^runtime\.(gopanic|goPanic\w+|panic\w+|throw|fatal\w*|sigpanic|newstack|morestack\w*|` +
		`deferreturn|deferproc\w*|gorecover|badsystemstack|abort|saveblockevent|toRType|rtype\.\w+)$|^wasm_pc_f_loop`)
	// mapKeyError2 looks for a key without a hash in an empty map whose keys may hold interfaces. Step Data refuses a
	// module with such a map.
	absent = regexp.MustCompile(`^runtime\.(gc\w+|__wbBuf_.*|bulkBarrier\w*|.*[tT]ypePointers.*|print\w+|` +
		`g?write\w*)$|^internal_runtime_maps\.mapKeyError2$`)
	// foreign matches functions that must not remain. They compute addresses of functions (for reflection or type
	// assertions), or take memory that bump's allocator does not know of.
	foreign = regexp.MustCompile(`^runtime\.(getitab|itabInit|sbrk|growMemory)$|[tT]extOff$`)
	// runtimes matches functions of the Go runtime, and kept those that stay if their address is known.
	runtimes = regexp.MustCompile(`^(runtime|internal_runtime_\w+|internal_abi|type_)\.`)
	kept     = regexp.MustCompile(`^runtime\.typed\w+$|^internal_runtime_maps\.|github\.com`)
)

var trap = []byte{0, opUnreachable, opEnd} // no locals, then unreachable and end

const opUnreachable = 0x00

// empty empties the functions that never run, or only those that run at the start or at the end.
func (i *image) empty(all bool) (err error) {
	stay := make([]bool, len(i.bodies))
	if all {
		if stay, err = i.f.staying(i.bodies, i.memory, i.exports, Ran()); err != nil {
			return err
		}
	}
	for n, b := range i.bodies {
		if all && !stay[n] || ends(b.name) {
			i.bodies[n].code = trap
		}
	}
	return nil
}

// ends reports whether a function runs only at the module's start or when the module stops.
func ends(name string) bool { return starts.MatchString(name) || last.MatchString(name) }

// staying returns which functions remain: the exported functions, the functions whose address is in memory, and,
// transitively, all that these call or whose address they know.
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
			return nil, unknown(all[i].name + " remains")
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

// addressed returns the index of the function at an address, as Go's linker numbers functions. For another address, it
// is outside the code section. Return addresses, whose lower 16 bits are not 0, give -1.
func addressed(address uint64) int {
	if address&0xffff != 0 {
		return -1
	}
	return int(address>>16) - firstFunction
}

// closures returns closures by the name of their function, with which they stay, as they are called by address.
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
