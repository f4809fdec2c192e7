package wasm

import "context"

// Link compiles a main package as modules are before Strip, with the names of their functions.
func Link(ctx context.Context, main, file string) error {
	return link(ctx, main, file, Environment(), flags())
}

// Runtimes matches the names of functions that Strip empties if they are not in ran.txt.
var Runtimes = runtimes

// BuildOver compiles and strips doona.wasm with some files replaced, as -overlay of the go command has it.
func BuildOver(ctx context.Context, overlay, file string) error {
	return compile(ctx, Browser.Package(), file, Environment(), append(flags(), "-overlay="+overlay), Ran())
}
