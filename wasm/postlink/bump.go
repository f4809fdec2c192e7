package postlink

import (
	"encoding/binary"
	"regexp"
	"slices"
)

// bump replaces the allocator of a frozen module, which never frees memory. The new allocator hands out the next bytes
// of memory, which are zero, and grows memory when it reaches the end. It needs none of the old allocator's pages,
// spans, caches, locks and clocks. size is the memory's size in bytes.
func bump(sections []section, f functions, size int) ([]section, error) {
	out := slices.Clone(sections)
	next, replaced := 0, false
	for i, s := range out { // the globals' section comes before the code
		switch s.id {
		case sectionGlobal:
			r := &segments{rest: s.body}
			next = r.unsigned()
			body := append(binary.AppendUvarint(nil, uint64(next+1)), r.rest...)
			out[i].body = append(appendSigned(append(body, typeI64, mutable, opConst64), size), opEnd)
		case sectionCode:
			all, err := f.bodies(s.body)
			if err != nil {
				return nil, err
			}
			for at, b := range all {
				if allocators.MatchString(b.name) {
					all[at].code, replaced = bumpBody(byte(next)), true
				}
			}
			out[i].body = writeBodies(all)
		}
	}
	if next == 0 || next > 0x7f || !replaced {
		return nil, unknown("there is no global variable or no runtime.mallocgc")
	}
	return out, nil
}

// allocators matches the runtime's allocator, and its copies for one size class each, which Go 1.27 calls directly.
var allocators = regexp.MustCompile(`^runtime\.mallocgc(\w+SC\d+)?$`)

const (
	typeI64 = 0x7e
	mutable = 1
)

// bumpBody returns the compiled body of
//
//	func mallocgc(size uintptr, typ *_type, needzero bool) unsafe.Pointer
//
// Global 0 is Go's stack pointer, SP. On the stack, the return address, the arguments and the result follow SP. Global
// next holds the address of the next allocation, a multiple of 8. If memory runs out, the module stops, as it does with
// the runtime's allocator.
func bumpBody(next byte) []byte {
	const size, end = 1, 2 // two local variables; local 0 is the parameter
	return []byte{
		1, 2, typeI64,
		0x23, 0, 0x29, 3, 8, 0x22, size, // size = *(SP + 8)
		0x42, 0x80, 0x80, 0x80, 0x80, 4, 0x56, 0x04, 0x40, 0x00, 0x0b, // if size > 1<<30 { stop }
		0x23, next, 0x20, size, 0x42, 7, 0x7c, 0x42, 0x78, 0x83, 0x7c, 0x22, end, // end = next + (size+7)&^7
		0x3f, 0, 0xad, 0x42, 16, 0x86, 0x56, 0x04, 0x40, // if end > memory.size<<16 {
		0x20, end, 0x42, 16, 0x88, 0xa7, 0x3f, 0, 0x6b, 0x41, 4, 0x6a, // by end>>16 - memory.size + 4 pages
		0x40, 0, 0x41, 0x7f, 0x46, 0x04, 0x40, 0x00, 0x0b, 0x0b, // if memory.grow fails { stop } }
		0x23, 0, 0x23, next, 0x37, 3, 32, // *(SP + 32) = next
		0x20, end, 0x24, next, // next = end
		0x23, 0, 0x41, 8, 0x6a, 0x24, 0, // SP += 8
		0x41, 0, 0x0b, // return 0, so that the caller does not unwind
	}
}
