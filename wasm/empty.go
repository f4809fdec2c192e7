package wasm

import "regexp"

// Functions that never run in a frozen module get an empty body, which stops it. No linker can know them. There are
// three kinds:
//
//   - What the start alone runs: it has run.
//   - What ends in the end: panics, errors of the runtime, a stack that is too small. The module stops there without
//     a word. The client then goes on with doona-full.wasm, in which nothing is emptied and which says why if it
//     stops, too.
//   - What of the runtime nobody saw run. The evidence is ran.txt: what ran in a trace of all tests of a module,
//     refusals and a soak among them. What these functions call stays as well, and what they call, whether or not
//     it was seen: which of it runs is a matter of how large or full something is. So does what other packages call.
//     That ends at what a frozen module has none of: a collector, a scheduler, timers, profiles, last words.
//
// Of protocols, of package math and of the conversions of numbers nothing is emptied but the start: which functions
// of the runtime run can depend on a value no more than by how much memory it takes. Should a function of a protocol
// stop a module for some values, then whoever serves doona-full.wasm would learn something of the value.
var (
	starts = regexp.MustCompile(`[^_]\.init(\.\d+)?$|^runtime\.(rt0_go|schedinit|__mheap_\.init)$|` +
		`^(internal_cpu|runtime_debug)\.`)
	last = regexp.MustCompile(`^runtime\.(gopanic|goPanic\w+|panic\w+|throw|fatal\w*|sigpanic|newstack|morestack\w*|` +
		`deferreturn|deferproc\w*|gorecover|badsystemstack|abort|saveblockevent)$|^wasm_pc_f_loop`)
	absent = regexp.MustCompile(`^runtime\.(gc\w+|\w*[wW]b[A-Z]\w*|__wbBuf_.*|\w*wb|bulkBarrier\w*|typePointers.*|` +
		`go\w+|schedule|mcall|ready\w*|wakep|stop\w+|start\w+|newproc\w*|deductAssistCredit|__gcControllerState_.*|` +
		`.*[pP]rof.*|stkbucket|callers|__unwinder_.*|findfunc|pcvalue|.*[cC]leanup.*|.*[sS]pecial.*|` +
		`.*[tT]imer.*|.*[tT]race.*|.*[dD]ebug.*|print\w+|g?write\w*|dump\w+|.*sweep.*|.*reclaim.*|.*[sS]cavengeOne.*)$`)
	// runtimes are the functions of the runtime. Its maps stay whole.
	runtimes = regexp.MustCompile(`^(runtime|internal_runtime_\w+|internal_abi|type_)\.`)
	kept     = regexp.MustCompile(`^runtime\.typed\w+$|^internal_runtime_maps\.|github\.com`)
)

// trap is the body that stops a module.
var trap = []byte{0, opUnreachable, opEnd} // no locals

const opUnreachable = 0x00

// empty empties the functions in a code section that never run. ran are the names in ran.txt; nil keeps what the
// runtime may run.
func empty(code []byte, f functions, ran map[string]bool) ([]byte, error) {
	all, err := f.bodies(code)
	if err != nil {
		return nil, err
	}
	stay, err := f.staying(all, ran)
	if err != nil {
		return nil, err
	}
	for i, b := range all {
		if gone := ran != nil && !stay[i]; gone || ends(b.name) {
			all[i].code = trap
		}
	}
	return writeBodies(all), nil
}

// ends tells whether a function is of the start or of the end.
func ends(name string) bool { return starts.MatchString(name) || last.MatchString(name) }

// staying returns which functions stay: all that are not the runtime's, those that ran, and what these call, closures
// among them.
func (f functions) staying(all []body, ran map[string]bool) (stay []bool, err error) {
	stay = make([]bool, len(all))
	closures, next := closures(all), []int(nil)
	keep := func(i int) {
		if !stay[i] && !ends(all[i].name) {
			stay[i], next = true, append(next, i)
		}
	}
	for i, b := range all {
		if !runtimes.MatchString(b.name) || kept.MatchString(b.name) || ran[b.name] {
			keep(i)
		}
	}
	for len(next) > 0 {
		i := next[0]
		next = next[1:]
		for _, closure := range closures[all[i].name] {
			keep(closure)
		}
		numbers, err := calls(all[i].code)
		if err != nil {
			return nil, err
		}
		for _, number := range numbers {
			if called := number - f.imports; called >= len(all) {
				return nil, ErrLayout
			} else if called >= 0 && !absent.MatchString(all[called].name) {
				keep(called)
			}
		}
	}
	return stay, nil
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
