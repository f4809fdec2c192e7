// Command browser is doona.wasm, the module that a page loads. It checks a task's claim and randomizes values; the
// host seals the slots (docs/wasm.md).
//
// imports.txt lists every package it links: each costs every visitor of every page.
package main

import _ "github.com/doona-dp/doona/wasm/internal/client" // its exports are the module

func main() {}

// wasm.Freeze freezes the module after its start. From then on its stack cannot grow, so init grows it. All exports
// run on this goroutine's stack; one that needs more stops the module.
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
