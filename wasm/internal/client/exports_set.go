//go:build wasip1 && doona_set

package client

import (
	"encoding/binary"
	"math"
)

// setDelta returns the δ at ε of all copies of the laws of a set's tables. The argument is ε and the set's δ, as
// doubles, then for each table its handle and its copies, of 4 bytes each, little endian. It returns NaN for an unknown
// handle, or an argument of another form.
//
//go:wasmexport set_delta
func setDelta() float64 {
	if len(in) < 16 || len(in)%8 != 0 {
		return math.NaN()
	}
	limit := Value(in[:16])
	var tables []Copies
	for rest := in[16:]; len(rest) > 0; rest = rest[8:] {
		c := ByHandle(binary.LittleEndian.Uint32(rest))
		if c == nil {
			return math.NaN()
		}
		tables = append(tables, Copies{c, uint64(binary.LittleEndian.Uint32(rest[4:]))})
	}
	return SetDelta(limit[0], limit[1], tables)
}
