// Command browser is doona.wasm, the module that a page loads. It checks a task's claimed (ε, δ) and randomizes values.
// The page's JavaScript seals the slots (docs/wasm.md).
//
// imports.txt lists every package that it links, because each makes the module larger for every visitor.
package main

import _ "github.com/doona-dp/doona/wasm/internal/client" // its exports are the module's exports

func main() {}

// postlink.Freeze stores the module in its state after the start. From then on Go's stack cannot grow, so init grows it
// to 256 KiB. All exports run on this stack; one that needs more stops the module.
func init() { grow(stack / frame) }

const (
	stack = 256 << 10 // In bytes.
	frame = 4 << 10
)

//go:noinline
func grow(frames int) {
	var used [frame]byte
	use(&used)
	if frames > 0 {
		grow(frames - 1)
	}
}

//go:noinline
func use(*[frame]byte) {}
