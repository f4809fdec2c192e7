package postlink

import "encoding/binary"

// merged removes the entry points of a function that are only needed to switch goroutines.
//
// Go compiles a function to blocks in a loop. A table maps numbers to blocks. A jump sets local 0 to a number and
// continues the loop. After every call a new block begins, so that a goroutine can resume there; no jump uses its
// number. merged joins each such block with the previous block and renumbers the rest. It returns functions of another
// structure unchanged.
func merged(list []instruction) []instruction {
	f, ok := readBlocks(list)
	if !ok {
		return list
	}
	if !f.findJumps() {
		return list
	}
	if out, ok := f.write(); ok {
		return out
	}
	return list
}

// blocks is a function of numbered blocks in a loop, as Go compiles it.
type blocks struct {
	head, code []instruction // Instructions before the blocks; instructions after the table.
	count      int           // Number of blocks.
	table      []int         // Index of the block for each number.
	used       []bool        // By block: whether a jump leads to it.
	jumps      map[int]int   // The target block, by the index in code of the constant before the jump.
}

// readBlocks parses a function of the form: head, block, loop, blocks, local.get 0, br_table, code.
func readBlocks(list []instruction) (f blocks, ok bool) {
	at := 0
	for at < len(list) && list[at].op != opBlock {
		at++
	}
	if at+2 >= len(list) || at > 2 || list[at+1].op != opLoop {
		return f, false
	}
	f.head = list[:at+2]
	for at += 2; at < len(list) && list[at].op == opBlock; at++ {
		f.count++
	}
	if f.count == 0 || at+1 >= len(list) || list[at].op != opLocalGet || list[at].operand() != 0 ||
		list[at+1].op != opTable {
		return f, false
	}
	r := &segments{rest: list[at+1].bytes[1:]}
	for range r.unsigned() + 1 {
		f.table = append(f.table, r.unsigned())
	}
	f.code = list[at+2:]
	return f, !r.bad
}

// findJumps finds the targets of all jumps. It returns false if the function has jumps of another form.
func (f *blocks) findJumps() bool {
	f.used, f.jumps = make([]bool, f.count), map[int]int{}
	if f.table[0] != 0 {
		return false
	}
	f.used[0] = true // the function's entry
	for i, instruction := range f.code {
		switch {
		case instruction.op == opTable:
			return false
		case instruction.op != opLocalSet || instruction.operand() != 0 || f.code[i-1].op != opConst:
			continue
		case i+1 >= len(f.code) || f.code[i+1].op != opBranch:
			return false
		}
		number := int(f.code[i-1].operand())
		if number >= len(f.table) || f.table[number] >= f.count {
			return false
		}
		f.jumps[i-1] = f.table[number]
		f.used[f.table[number]] = true
	}
	return true
}

// write encodes the function with only those blocks that a jump uses. It returns false if a branch leaves the loop for
// a block that would be removed.
func (f *blocks) write() ([]instruction, bool) {
	number, left := make([]int, f.count), 0
	for i, used := range f.used {
		if used {
			number[i] = left
			left++
		}
	}
	out := append([]instruction{}, f.head...)
	for range left {
		out = append(out, instruction{opBlock, []byte{opBlock, noResult}})
	}
	table := binary.AppendUvarint([]byte{opTable}, uint64(left-1))
	for i := range left {
		table = binary.AppendUvarint(table, uint64(i))
	}
	out = append(out, instruction{opLocalGet, []byte{opLocalGet, 0}}, instruction{opTable, table})
	depth, ended, gone := 0, 0, f.count-left // depth in the code; ended blocks; unused blocks still open
	for i, instruction := range f.code {
		switch op := instruction.op; {
		case op == opBlock || op == opLoop || op == opIf:
			depth++
		case op == opEnd && depth > 0:
			depth--
		case op == opEnd && ended < f.count:
			ended++
			if !f.used[ended-1] {
				gone--
				continue
			}
		case (op == opBranch || op == opBranchIf) && int(instruction.operand()) >= depth:
			to := int(instruction.operand())
			if to-depth < f.count-ended {
				return nil, false
			}
			instruction.bytes = binary.AppendUvarint([]byte{op}, uint64(to-gone))
		case op == opConst:
			if block, ok := f.jumps[i]; ok {
				instruction.bytes = appendSigned([]byte{op}, number[block])
			}
		}
		out = append(out, instruction)
	}
	return out, true
}

const (
	opBlock  = 0x02
	opLoop   = 0x03
	opIf     = 0x04
	opBranch = 0x0c
	noResult = 0x40
)
