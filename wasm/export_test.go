package wasm

import (
	"context"

	"github.com/doona-dp/doona/wasm/postlink"
)

// Link compiles a main package like doona-full.wasm but does not strip it, so function names remain.
func Link(ctx context.Context, main, file string) error {
	return link(ctx, main, file, Environment(), flags(""))
}

// LinkSymbols compiles a module like doona.wasm, and does none of the steps after linking.
func LinkSymbols(ctx context.Context, m Module, file string) error {
	return linkWithSymbols(ctx, m.Package(), file, Options{}, append(flags(collectsNothing), m.tags()...))
}

// LinkFrozen compiles a main package like doona.wasm. It keeps all functions that may run, and function names.
func LinkFrozen(ctx context.Context, main, file string) error {
	return BuildFrozen(ctx, main, file, Options{Without: []postlink.Step{postlink.Functions, postlink.Names}})
}

// BuildCollecting compiles a main package like doona-full.wasm, with a garbage collector.
func BuildCollecting(ctx context.Context, main, file string) error {
	return compile(ctx, main, file, Environment(), flags(""))
}
