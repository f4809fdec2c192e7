package postlink

import (
	"encoding/binary"
	"slices"
)

// Traced reports whether a runtime function is emptied if it is not in ran.txt.
func Traced(name string) bool { return runtimes.MatchString(name) && !last.MatchString(name) }

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
			globals, err = readGlobals(s.body)
		case sectionData:
			memory, err = readSegments(s.body)
		}
		if err != nil {
			return 0, err
		}
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(memory[globals[globalG]+8*i:]) }
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
