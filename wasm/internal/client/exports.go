//go:build wasip1

package client

import (
	"encoding/binary"
	"errors"
	"math"
	"unsafe"
)

// Failed is what an export returns if it failed. The result then holds the error.
const Failed = -1

// The host writes a call's argument to in and reads its result from out. Package variables keep both from the garbage
// collector between calls. WebAssembly has one thread.
var (
	in, out []byte
	handles []*Client
)

// Yield runs before each call of the host. In doona-full.wasm it lets the garbage collector's goroutine run.
var Yield = func() {}

// input discards the last result. It returns the address of a buffer of size bytes, to which the host writes the
// argument of its next call.
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

// Argument returns the argument that the host wrote for the current call.
func Argument() []byte { return in }

// Result stores p as the call's result for the host, zeroes the argument and returns 0.
func Result(p []byte) int32 {
	clear(in)
	out = p
	return 0
}

// Fail stores an error as the call's result for the host and returns [Failed].
func Fail(err error) int32 {
	Result(EncodeError(err))
	return Failed
}

// Keep stores a client and returns its handle.
func Keep(c *Client) int32 {
	Result(nil)
	handles = append(handles, c)
	return int32(len(handles) - 1)
}

// open opens the task whose canonical encoding is the argument. It returns the task's handle, or [Failed].
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

// totalEpsilon returns the ε of all epochs together, or NaN for an unknown handle.
//
//go:wasmexport total_epsilon
func totalEpsilon(handle uint32) float64 {
	if c := ByHandle(handle); c != nil {
		return c.TotalEpsilon()
	}
	return math.NaN()
}

// epsilonWithin returns the ε of a number of epochs together at a δ. It returns NaN for an unknown handle or 0 epochs.
//
//go:wasmexport epsilon_within
func epsilonWithin(handle, epochs uint32, delta float64) float64 {
	if c := ByHandle(handle); c != nil && epochs > 0 {
		return c.EpsilonWithin(uint64(epochs), delta)
	}
	return math.NaN()
}

// randomize randomizes the value in the argument. Its result is the slots in plaintext.
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

// ErrHandle is the error for a handle that no call of open or open_bundle returned.
var ErrHandle = errors.New("unknown handle")

// ByHandle returns the client with this handle, or nil.
func ByHandle(handle uint32) *Client {
	if int(handle) >= len(handles) {
		return nil
	}
	return handles[handle]
}

// Value decodes a value: IEEE 754 doubles (8 bytes each), little endian.
func Value(p []byte) []float64 {
	value := make([]float64, len(p)/8)
	for i := range value {
		value[i] = math.Float64frombits(binary.LittleEndian.Uint64(p[8*i:]))
	}
	return value
}
