package postlink

import "slices"

// Step names a change to a module: that [Freeze] makes to a linked one. docs/postlink.md explains each.
type Step string

const (
	Start     Step = "start"     // The module is stored in the state after its start.
	Allocator Step = "allocator" // An allocator of a few instructions replaces the runtime's.
	Tables    Step = "tables"    // The tables of functions are cleared.
	Functions Step = "functions" // Functions that never run are emptied.
	Switches  Step = "switches"  // Code that switches goroutines is left out.
	Blocks    Step = "blocks"    // The entry points for such switches are joined.
	Data      Step = "data"      // Data that nothing reaches is cleared.
	Names     Step = "names"     // The names of functions and symbols are left out.
)

// Steps lists all steps in their order.
func Steps() []Step {
	return []Step{Start, Allocator, Tables, Functions, Switches, Blocks, Data, Names}
}

// needed names, for a step, the step without which it cannot be.
var needed = map[Step]Step{Allocator: Start, Tables: Start, Functions: Allocator, Switches: Functions, Blocks: Switches,
	Data: Switches}

// Options changes what [Freeze] does.
type Options struct {
	// Without lists steps to leave out. Those that need them are left out, too.
	Without []Step

	// Poison, if it is not 0, fills what the steps would clear. A module that reads any of it then computes something
	// else or stops, so tests that compare it with the module itself find data that was wrongly cleared.
	Poison byte

	// Replace has files to replace when the module is compiled: the content by the path.
	Replace map[string][]byte

	// Plant lists symbols that step Data clears although something reaches them, to test such tests.
	Plant []string

	// Dead, if it is not nil, receives how many bytes of the memory that are not 0 step Data clears, and of how many.
	Dead func(cleared, all int)
}

// Poison is the byte to poison with. As an address or a function it stops the module.
const Poison = 0xa5

// Does reports whether a step is made.
func (o Options) Does(s Step) bool {
	for ; s != ""; s = needed[s] {
		if slices.Contains(o.Without, s) {
			return false
		}
	}
	return true
}
