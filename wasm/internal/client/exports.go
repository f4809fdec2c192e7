//go:build wasip1

package client

import (
	"encoding/binary"
	"errors"
	"math"
	"unsafe"
)

// Failed is the return value of an export whose result holds an error.
const Failed = -1

// The host writes a call's argument to in and reads its result from out. Both are package variables so that a garbage
// collector keeps them between calls; WASM has one thread.
var (
	in, out []byte
	handles []*Client
)

// Yield runs before each call of the host. In a module with a garbage collector, its goroutine runs there.
var Yield = func() {}

// input returns the address of a buffer of size bytes for the argument of the next call, and discards the last
// result.
//
//go:wasmexport input
func input(size uint32) unsafe.Pointer {
	clear(out)
	Yield()
	in, out = make([]byte, size), nil
	return unsafe.Pointer(unsafe.SliceData(in))
}

//go:wasmexport result
func result() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(out)) }

//go:wasmexport result_size
func resultSize() uint32 { return uint32(len(out)) }

// Argument returns the argument that the host wrote for this call.
func Argument() []byte { return in }

// Result keeps p for the host to read, discards the argument and returns 0.
func Result(p []byte) int32 {
	clear(in)
	out = p
	return 0
}

// Fail keeps an error for the host to read and returns [Failed].
func Fail(err error) int32 {
	Result(EncodeError(err))
	return Failed
}

// Keep returns a handle for a client.
func Keep(c *Client) int32 {
	Result(nil)
	handles = append(handles, c)
	return int32(len(handles) - 1)
}

// open opens the canonical task in the argument and returns its handle.
//
//go:wasmexport open
func open() int32 {
	c, err := Open(in)
	if err != nil {
		return Fail(err)
	}
	return Keep(c)
}

//go:wasmexport epsilon0
func epsilon0(handle uint32) float64 {
	if c := ByHandle(handle); c != nil {
		return c.Epsilon0()
	}
	return math.NaN()
}

// totalEpsilon returns the ε of all epochs together.
//
//go:wasmexport total_epsilon
func totalEpsilon(handle uint32) float64 {
	if c := ByHandle(handle); c != nil {
		return c.TotalEpsilon()
	}
	return math.NaN()
}

// epsilonWithin returns the ε of a number of epochs together at a δ.
//
//go:wasmexport epsilon_within
func epsilonWithin(handle, epochs uint32, delta float64) float64 {
	if c := ByHandle(handle); c != nil && epochs > 0 {
		return c.EpsilonWithin(uint64(epochs), delta)
	}
	return math.NaN()
}

// randomize randomizes the value in the argument; its result is the plaintext slots.
//
//go:wasmexport randomize
func randomize(handle uint32) int32 {
	c := ByHandle(handle)
	if c == nil {
		return Fail(ErrHandle)
	}
	slots, err := c.Slots(Value(in))
	if err != nil {
		return Fail(err)
	}
	defer Forget(slots)
	return Result(c.Plaintexts(slots))
}

// ErrHandle is returned for a handle that no open call returned.
var ErrHandle = errors.New("unknown handle")

// ByHandle returns the client of a handle, or nil.
func ByHandle(handle uint32) *Client {
	if int(handle) >= len(handles) {
		return nil
	}
	return handles[handle]
}

// Value reads a value: IEEE 754 doubles, little endian.
func Value(p []byte) []float64 {
	value := make([]float64, len(p)/8)
	for i := range value {
		value[i] = math.Float64frombits(binary.LittleEndian.Uint64(p[8*i:]))
	}
	return value
}
