package postlink

import (
	"bytes"
	"encoding/binary"
)

const (
	header        = "\x00asm\x01\x00\x00\x00"
	sectionCustom = 0
	sectionImport = 2
	sectionMemory = 5
	sectionGlobal = 6
	sectionExport = 7
	sectionCode   = 10
	sectionData   = 11
)

type section struct {
	id   byte
	body []byte
}

func readSections(module []byte) (all []section, err error) {
	rest, ok := bytes.CutPrefix(module, []byte(header))
	r := &segments{rest: rest, bad: !ok}
	for len(r.rest) > 0 && !r.bad {
		id := r.unsigned()
		all = append(all, section{byte(id), r.bytes(r.unsigned())})
	}
	if r.bad {
		return nil, ErrLayout
	}
	return all, nil
}

func writeSections(sections []section) []byte {
	out := []byte(header)
	for _, s := range sections {
		out = append(binary.AppendUvarint(append(out, s.id), uint64(len(s.body))), s.body...)
	}
	return out
}

// readSegments returns the initial memory that a data section's segments describe.
func readSegments(section []byte) ([]byte, error) {
	r := &segments{rest: section}
	var memory []byte
	for range r.unsigned() {
		mode, code, address, end := r.unsigned(), r.unsigned(), r.signed(), r.unsigned()
		content := r.bytes(r.unsigned())
		if r.bad || mode != 0 || code != opConst || end != opEnd || address < 0 || address > 1<<30 {
			return nil, ErrLayout
		}
		if grow := address + len(content) - len(memory); grow > 0 {
			memory = append(memory, make([]byte, grow)...)
		}
		copy(memory[address:], content)
	}
	return memory, nil
}

const (
	opConst = 0x41 // i32.const
	opEnd   = 0x0b
	// segmentCost is the number of zero bytes from which a new segment makes the compressed module smaller. Zeros
	// compress to almost nothing. A segment's header costs three bytes, as its address and length are unpredictable.
	// With smaller values the download was an eighth larger.
	segmentCost = 256
)

// writeSegments encodes memory as a data section. It leaves out runs of segmentCost zeros or more, as Go's linker does.
func writeSegments(memory []byte) []byte {
	count, out := 0, []byte{}
	for at := 0; at < len(memory); {
		start := at + zeros(memory[at:])
		end := start
		for end < len(memory) {
			if run := zeros(memory[end:]); run >= segmentCost || end+run == len(memory) {
				break
			} else {
				end += run + 1
			}
		}
		end = min(end, len(memory))
		if end > start {
			count++
			out = append(out, 0, opConst)
			out = appendSigned(out, start)
			out = binary.AppendUvarint(append(out, opEnd), uint64(end-start))
			out = append(out, memory[start:end]...)
		}
		at = max(end, start)
	}
	return append(binary.AppendUvarint(nil, uint64(count)), out...)
}

// zeros returns the number of leading zero bytes.
func zeros(p []byte) int {
	for i, b := range p {
		if b != 0 {
			return i
		}
	}
	return len(p)
}

// segments reads LEB128 integers and bytes. bad is set when the input ends too early.
type segments struct {
	rest []byte
	bad  bool
}

func (r *segments) unsigned() int {
	value, n := binary.Uvarint(r.rest)
	r.bytes(max(n, 0))
	r.bad = r.bad || n <= 0 || value > 1<<31
	return int(value)
}

func (r *segments) signed() int {
	value, shift := int64(0), 0
	for {
		p := r.bytes(1)
		if r.bad {
			return 0
		}
		value |= int64(p[0]&0x7f) << shift
		shift += 7
		if p[0] < 0x80 || shift >= 64 {
			break
		}
	}
	shift = min(shift, 64)
	return int(value << (64 - shift) >> (64 - shift))
}

func (r *segments) bytes(n int) []byte {
	if n > len(r.rest) {
		r.bad = true
		return nil
	}
	head := r.rest[:n]
	r.rest = r.rest[n:]
	return head
}

func appendSigned(out []byte, v int) []byte {
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low < 0x40 || v == -1 && low >= 0x40 {
			return append(out, low)
		}
		out = append(out, low|0x80)
	}
}
