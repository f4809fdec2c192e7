// Command browser is doona.wasm, the module a page loads: it checks a task's claim and
// randomizes values; the host seals the slots (docs/wasm.md).
//
// Every package it links is listed in imports.txt and costs every visitor of every page.
package main

import _ "github.com/doona-dp/doona/wasm/internal/client" // its exports are the module

func main() {}

// The module is frozen after its start (wasm.Freeze), and its stack doesn't grow any more: it grows here. All exports
// run on this goroutine's. What needs more stops the module.
func init() { grow(stack / frame) }

const (
	stack = 256 << 10 // Bytes.
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
