package postlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// squeeze removes code that a frozen module would need only to switch goroutines. To switch, a Go function returns 1,
// and all its callers return too. Later Go enters the callers again in the middle, by the return address that every
// call wrote. A frozen module never switches: its one goroutine never waits, and its stack never moves. So squeeze
// removes the writing of return addresses and ignores the results of calls. It replaces a call of a function that stops
// the module by an instruction that stops the module. If joins, it also joins blocks ([merged]).
//
// It returns [ErrUnwinds] if some function could begin such a switch.
func (i *image) squeeze(joins bool) (err error) {
	stops := make([]bool, len(i.bodies))
	for n, b := range i.bodies {
		stops[n] = slices.Equal(b.code, trap)
	}
	for n, b := range i.bodies {
		s := squeezer{own: firstFunction + n, joins: joins, stops: func(number int) bool {
			return number >= i.f.imports && stops[number-i.f.imports]
		}}
		if i.bodies[n].code, err = s.squeeze(b.code); err != nil {
			return fmt.Errorf("%w: %s", err, b.name)
		}
	}
	return nil
}

// ErrUnwinds is returned for a module in which a remaining function could begin to switch goroutines.
var ErrUnwinds = errors.New("couldn't squeeze the module: a function could begin to unwind the stack")

// firstFunction is the number of the first function in Go's numbering, which forms the upper part of return addresses
// (cmd/link/internal/wasm, funcValueOffset).
const firstFunction = 0x1000

// squeezer squeezes one function. own is that function's number in return addresses.
type squeezer struct {
	own   int
	stops func(number int) bool // Whether the function with this number was emptied.
	joins bool                  // Whether to join blocks.
}

// instruction is one instruction: its opcode, and all its bytes with opcode and operands.
type instruction struct {
	op    byte
	bytes []byte
}

func (s squeezer) squeeze(code []byte) ([]byte, error) {
	locals, list, err := instructions(code)
	if err != nil {
		return nil, err
	}
	var out []instruction
	for i := 0; i < len(list); {
		taken, instead := s.match(list, i)
		if taken == 0 {
			if unwinds(list[i:]) {
				return nil, ErrUnwinds
			}
			taken, instead = 1, list[i:i+1]
		}
		if len(instead) == 1 && instead[0].op == opUnreachable {
			out = out[:afterControl(out)] // the instructions before a stop have no effect
		}
		out = append(out, instead...)
		i += taken
	}
	if branchesToUnwind(out) {
		return nil, ErrUnwinds
	}
	code = slices.Clone(locals)
	if s.joins {
		out = merged(out)
	}
	for _, i := range out {
		code = append(code, i.bytes...)
	}
	return code, nil
}

// afterControl returns the index after the last call, branch or return. What follows runs in sequence.
func afterControl(list []instruction) int {
	for i := len(list); i > 0; i-- {
		if op := list[i-1].op; op <= opReturn || op == opCall || op == opCallIndirect {
			return i
		}
	}
	return 0
}

// match returns how many instructions to replace from an index on (0 for none), and by which instructions.
func (s squeezer) match(all []instruction, at int) (taken int, instead []instruction) {
	if at > 0 && s.writesReturn(all[at-1], all[at:]) {
		return 3, nil
	}
	list := all[at:]
	if list[0].op != opCall && list[0].op != opCallIndirect {
		return 0, nil
	}
	back := reloads(list[1:])
	if len(list) < 2+back || list[1+back].op != opBranchIf {
		return 0, nil
	}
	if list[0].op == opCall && s.stops(int(list[0].operand())) {
		return 2 + back, []instruction{plain(opUnreachable)}
	}
	return 2 + back, append([]instruction{list[0], plain(opDrop)}, list[1:1+back]...)
}

func plain(op byte) instruction { return instruction{op, []byte{op}} }

// writesReturn reports whether the next instructions store a return address into this function. Such a store follows a
// write to Go's stack pointer (global 0, copied to local 1), goes to its address, and precedes a call. A constant
// argument is stored in the same way, but at another offset.
func (s squeezer) writesReturn(before instruction, list []instruction) bool {
	if len(list) < 4 || before.op != opGlobalSet || before.operand() != 0 {
		return false
	}
	pointer, address, store, next := list[0], list[1], list[2], list[3].op
	global := pointer.op == opGlobalGet && pointer.operand() == 0
	local := pointer.op == opLocalGet && pointer.operand() == 1
	return (global || local) && address.op == opConst64 && int(address.operand()>>16) == s.own &&
		slices.Equal(store.bytes, []byte{opStore64, 3, 0}) && (next == opConst || next == opConst64 || next == opCall)
}

// reloads returns how many instructions after a call reload Go's stack pointer into a local: 2 or 0.
func reloads(list []instruction) int {
	if len(list) > 1 && list[0].op == opGlobalGet && list[1].op == opLocalSet {
		return 2
	}
	return 0
}

// unwinds reports whether the instructions begin a goroutine switch, by returning 1.
func unwinds(list []instruction) bool {
	return len(list) > 1 && list[0].op == opConst && list[0].operand() == 1 && list[1].op == opReturn
}

// branchesToUnwind reports whether a branch out of all blocks leads to a return of 1.
func branchesToUnwind(list []instruction) bool {
	if n := len(list); n < 2 || list[n-2].op != opConst || list[n-2].operand() != 1 {
		return false
	}
	depth := uint64(0)
	for _, i := range list {
		switch i.op {
		case opBlock, opLoop, opIf:
			depth++
		case opEnd:
			depth--
		case opBranch, opBranchIf:
			if i.operand()+1 == depth {
				return true
			}
		}
	}
	return false
}

const (
	opBranchIf     = 0x0d
	opReturn       = 0x0f
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opStore64      = 0x37
)

// signed returns the integer after an instruction's opcode as signed.
func (i instruction) signed() int { return (&segments{rest: i.bytes[1:]}).signed() }

// operand returns the integer after an instruction's opcode as unsigned.
func (i instruction) operand() uint64 {
	value, _ := binary.Uvarint(i.bytes[1:])
	return value
}

// instructions splits a function's code into the declaration of its locals and its instructions.
func instructions(code []byte) (locals []byte, list []instruction, err error) {
	r := &segments{rest: code}
	for range r.unsigned() { // groups of locals
		r.integer()
		r.bytes(1)
	}
	locals = code[:len(code)-len(r.rest)]
	for len(r.rest) > 0 && !r.bad {
		from := r.rest
		op := r.bytes(1)[0]
		if !r.skip(op) || r.bad {
			return nil, nil, ErrLayout
		}
		list = append(list, instruction{op, from[:len(from)-len(r.rest)]})
	}
	if r.bad {
		return nil, nil, ErrLayout
	}
	return locals, list, nil
}
