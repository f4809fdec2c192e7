package wasm

import "context"

// Link compiles a main package as modules are before Strip, with the names of their functions.
func Link(ctx context.Context, main, file string) error {
	return link(ctx, main, file, Environment(), flags())
}

// Runtimes matches the names of functions that Strip empties if they are not in ran.txt.
var Runtimes = runtimes
