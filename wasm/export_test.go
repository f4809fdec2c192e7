package wasm

import (
	"context"
	"encoding/binary"
	"slices"
)

// Link compiles a main package as doona-full.wasm is before Strip, with the names of its functions.
func Link(ctx context.Context, main, file string) error {
	return link(ctx, main, file, Environment(), flags(""))
}

// LinkFrozen compiles a main package as doona.wasm is, with all functions that may run, and their names.
func LinkFrozen(ctx context.Context, main, file string) error {
	if err := link(ctx, main, file, Environment(), flags(collectsNothing)); err != nil {
		return err
	}
	return replace(file, func(module []byte) ([]byte, error) { return Freeze(ctx, module, nil) })
}

// Traced reports whether a function is emptied unless it is in ran.txt.
func Traced(name string) bool { return runtimes.MatchString(name) && !last.MatchString(name) }

// Squeeze squeezes a code section of a module without imports.
func Squeeze(code []byte) ([]byte, error) { return squeeze(code, functions{}) }

// BuildOther compiles a main package as doona.wasm is under a toolchain with an unknown layout.
func BuildOther(ctx context.Context, main, file string) error {
	return buildFrozen(ctx, main, file, func([]byte) ([]byte, error) { return nil, ErrLayout })
}

// BuildCollecting compiles a main package as doona-full.wasm is.
func BuildCollecting(ctx context.Context, main, file string) error {
	return compile(ctx, main, file, Environment(), flags(""))
}

// Stack returns the stack size, in bytes, of the goroutine that is suspended in a frozen module.
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
				r.bytes(3) // kind, mutable, const
				globals = append(globals, r.signed())
				r.bytes(1)
			}
		case sectionData:
			if memory, err = readSegments(s.body); err != nil {
				return 0, err
			}
		}
	}
	const current = 2 // runtime.g, which begins with its stack's bounds
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(memory[globals[current]+8*i:]) }
	return word(1) - word(0), nil
}

// Emptied returns the functions outside of the runtime that are empty in a frozen module with names.
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
