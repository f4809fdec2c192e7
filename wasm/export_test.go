package wasm

import (
	"context"
	"encoding/binary"
	"slices"
)

// Link compiles a main package like doona-full.wasm but does not strip it, so function names remain.
func Link(ctx context.Context, main, file string) error {
	return link(ctx, main, file, Environment(), flags(""))
}

// LinkFrozen compiles a main package like doona.wasm. It keeps all functions that may run, and function names.
func LinkFrozen(ctx context.Context, main, file string) error {
	if err := link(ctx, main, file, Environment(), flags(collectsNothing)); err != nil {
		return err
	}
	return replace(file, func(module []byte) ([]byte, error) { return Freeze(ctx, module, nil) })
}

// Traced reports whether a runtime function is emptied if it is not in ran.txt.
func Traced(name string) bool { return runtimes.MatchString(name) && !last.MatchString(name) }

// Squeeze squeezes the code section of a module that imports nothing.
func Squeeze(code []byte) ([]byte, error) { return squeeze(code, functions{}) }

// BuildOther compiles a main package like doona.wasm, but as if the toolchain's layout were unknown.
func BuildOther(ctx context.Context, main, file string) error {
	return buildFrozen(ctx, main, file, func([]byte) ([]byte, error) { return nil, ErrLayout })
}

// BuildCollecting compiles a main package like doona-full.wasm, with a garbage collector.
func BuildCollecting(ctx context.Context, main, file string) error {
	return compile(ctx, main, file, Environment(), flags(""))
}

// Stack returns the stack size, in bytes, of the one goroutine in a frozen module.
func Stack(module []byte) (size uint64, err error) {
	sections, err := readSections(module)
	if err != nil {
		return 0, err
	}
	var memory []byte
	var globals []int
	for _, s := range sections {
		switch s.id {
		case sectionGlobal:
			r := &segments{rest: s.body}
			for range r.unsigned() {
				r.bytes(3) // skip kind, mutability and opcode
				globals = append(globals, r.signed())
				r.bytes(1)
			}
		case sectionData:
			if memory, err = readSegments(s.body); err != nil {
				return 0, err
			}
		}
	}
	const current = 2 // global of the current goroutine (runtime.g), which begins with its stack's bounds
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(memory[globals[current]+8*i:]) }
	return word(1) - word(0), nil
}

// Emptied returns the names of the emptied functions in a frozen module, without those of the Go runtime.
func Emptied(module []byte) (names []string, err error) {
	sections, f, err := readModule(module)
	if err != nil {
		return nil, err
	}
	for _, s := range sections {
		if s.id != sectionCode {
			continue
		}
		all, err := f.bodies(s.body)
		if err != nil {
			return nil, err
		}
		for _, b := range all {
			if slices.Equal(b.code, trap) && !runtimes.MatchString(b.name) {
				names = append(names, b.name)
			}
		}
	}
	return names, nil
}
