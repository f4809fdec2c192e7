package wasm

import "context"

// Link compiles a main package as doona-full.wasm is before Strip, with the names of its functions.
func Link(ctx context.Context, main, file string) error {
	return link(ctx, main, file, Environment(), flags(""))
}

// LinkFrozen compiles a main package as doona.wasm is, with all that may run and the names of its functions.
func LinkFrozen(ctx context.Context, main, file string) error {
	if err := link(ctx, main, file, Environment(), flags(collectsNothing)); err != nil {
		return err
	}
	return replace(file, func(module []byte) ([]byte, error) { return Freeze(ctx, module, nil) })
}

// Traced tells whether a function is one that is emptied if it is not in ran.txt.
func Traced(name string) bool { return runtimes.MatchString(name) && !last.MatchString(name) }

// Squeeze squeezes a code section of a module without imports.
func Squeeze(code []byte) ([]byte, error) { return squeeze(code, functions{}) }
